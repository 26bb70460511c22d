//! Whom to ask next, as plain data: no clock and no I/O.

use super::{Addresses, is_address};

/// Finds the coordinator that leads.
///
/// A question begins with [`begin`](Self::begin), which names the first to ask: whoever led last. Each outcome is told
/// by [`answered`](Self::answered), [`refused`](Self::refused) or [`failed`](Self::failed); the latter two name the next
/// to ask. No coordinator is asked the same question twice. When nobody is left, nobody leads at the moment: the caller
/// pauses and begins again.
#[derive(Clone, Debug)]
pub struct Search {
    known: Addresses,
    /// Whom to begin with.
    first: String,
    /// Asked since the question began; the last is being asked.
    asked: Vec<String>,
    /// The first of them that was there, and did not lead.
    stands_by: Option<String>,
}

impl Search {
    /// Begins with the first of `addresses`.
    #[must_use]
    pub fn new(addresses: Addresses) -> Self {
        let first = addresses.iter().next().expect("addresses are never empty").to_owned();
        Self { known: addresses, first, asked: Vec::new(), stands_by: None }
    }

    /// The addresses that were given.
    #[must_use]
    pub const fn known(&self) -> &Addresses {
        &self.known
    }

    /// A question is to be asked: whom to ask first.
    pub fn begin(&mut self) -> String {
        self.stands_by = None;
        self.asked = vec![self.first.clone()];
        self.first.clone()
    }

    /// The one being asked leads: the next question begins with it.
    pub fn answered(&mut self) {
        if let Some(leader) = self.asked.last() {
            self.first.clone_from(leader);
        }
    }

    /// The one being asked does not lead, but perhaps knows who does, by an address that need not be among those given.
    pub fn refused(&mut self, leader: Option<&str>) -> Option<String> {
        if self.stands_by.is_none() {
            self.stands_by = self.asked.last().cloned();
        }
        match leader.filter(|leader| is_address(leader) && !self.is_asked(leader)) {
            Some(leader) => {
                self.asked.push(leader.to_owned());
                Some(leader.to_owned())
            }
            None => self.next_known(),
        }
    }

    /// The one being asked could not be reached, or did not answer.
    pub fn failed(&mut self) -> Option<String> {
        self.next_known()
    }

    fn is_asked(&self, address: &str) -> bool {
        self.asked.iter().any(|asked| asked == address)
    }

    /// Those given, round from the first.
    fn round(&self) -> impl Iterator<Item = &str> {
        let after = self.known.iter().position(|known| known == self.first).map_or(0, |at| at + 1);
        self.known.iter().skip(after).chain(self.known.iter().take(after))
    }

    /// The next of those given. Where none is left, the next question begins with one that was there, or at least not
    /// with the same one, so that one that is gone for long does not cost its timeout every time.
    fn next_known(&mut self) -> Option<String> {
        let next = self.round().find(|known| !self.is_asked(known)).map(str::to_owned);
        match &next {
            Some(next) => self.asked.push(next.clone()),
            None => {
                let other = self.stands_by.take().or_else(|| self.round().next().map(str::to_owned));
                self.first = other.expect("addresses are never empty");
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(addresses: &str) -> Search {
        Search::new(addresses.parse().unwrap())
    }

    #[test]
    fn whoever_led_last_is_asked_first() {
        let mut search = search("a:1,b:1,c:1");
        assert_eq!(search.begin(), "a:1");
        assert_eq!(search.failed().unwrap(), "b:1");
        assert_eq!(search.refused(Some("c:1")).unwrap(), "c:1");
        search.answered();
        assert_eq!(search.begin(), "c:1");
    }

    #[test]
    fn a_leader_that_is_named_is_asked_next_also_by_an_address_that_was_not_given() {
        let mut search = search("a:1,b:1,c:1");
        search.begin();
        assert_eq!(search.refused(Some("10.0.0.3:7400")).unwrap(), "10.0.0.3:7400");
        search.answered();
        assert_eq!(search.begin(), "10.0.0.3:7400");
        assert_eq!(search.failed().unwrap(), "a:1");
        assert_eq!(search.refused(None).unwrap(), "b:1");
        assert_eq!(search.failed().unwrap(), "c:1");
        assert_eq!(search.failed(), None);
        assert_eq!(search.begin(), "a:1", "it was there; the one not given is forgotten");
    }

    #[test]
    fn nobody_is_asked_twice_however_they_name_each_other() {
        let mut search = search("a:1,b:1");
        search.begin();
        assert_eq!(search.refused(Some("b:1")).unwrap(), "b:1");
        assert_eq!(search.refused(Some("a:1")), None);
        assert_eq!(search.begin(), "a:1");
        assert_eq!(search.refused(Some("a:1")).unwrap(), "b:1");
    }

    #[test]
    fn what_is_no_address_is_not_followed() {
        let mut search = search("a:1,b:1");
        search.begin();
        assert_eq!(search.refused(Some("nonsense")).unwrap(), "b:1");
        assert_eq!(search.refused(Some("")), None);
    }

    #[test]
    fn when_nobody_answers_the_next_question_begins_elsewhere() {
        let mut search = search("a:1,b:1,c:1");
        for first in ["a:1", "b:1", "c:1", "a:1"] {
            assert_eq!(search.begin(), first);
            assert!(search.failed().is_some());
            assert!(search.failed().is_some());
            assert_eq!(search.failed(), None);
        }
        let mut search = self::search("a:1");
        assert_eq!((search.begin(), search.failed(), search.begin()), ("a:1".to_owned(), None, "a:1".to_owned()));
    }
}
