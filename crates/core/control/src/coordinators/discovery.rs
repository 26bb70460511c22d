//! Chooses the next coordinator to ask: plain data, no clock and no I/O.

use super::{Addresses, is_address};

/// Finds the coordinator that leads.
///
/// A request begins with [`begin`](Self::begin), which returns the first address to ask: the last known leader. The
/// caller reports each outcome with [`answered`](Self::answered), [`refused`](Self::refused) or
/// [`failed`](Self::failed); the latter two return the next address to ask. No coordinator is asked twice for the same
/// request. When no address is left, there is no leader at the moment: the caller pauses and begins again.
#[derive(Clone, Debug)]
pub struct LeaderDiscovery {
    known: Addresses,
    /// The address to begin with.
    first: String,
    /// The addresses asked since the request began; the last one is being asked.
    asked: Vec<String>,
    /// The first of them that answered but did not lead.
    standby: Option<String>,
}

impl LeaderDiscovery {
    /// Makes a search that begins with the first of `addresses`.
    #[must_use]
    pub fn new(addresses: Addresses) -> Self {
        let first = addresses.iter().next().expect("addresses are never empty").to_owned();
        Self { known: addresses, first, asked: Vec::new(), standby: None }
    }

    /// Returns the configured addresses.
    #[must_use]
    pub const fn known(&self) -> &Addresses {
        &self.known
    }

    /// Begins a request: returns the first address to ask.
    pub fn begin(&mut self) -> String {
        self.standby = None;
        self.asked = vec![self.first.clone()];
        self.first.clone()
    }

    /// The address being asked is the leader: the next request begins with it.
    pub fn answered(&mut self) {
        if let Some(leader) = self.asked.last() {
            self.first.clone_from(leader);
        }
    }

    /// The address being asked does not lead. It may name the leader, by an address that need not be configured.
    pub fn refused(&mut self, leader: Option<&str>) -> Option<String> {
        if self.standby.is_none() {
            self.standby = self.asked.last().cloned();
        }
        match leader.filter(|leader| is_address(leader) && !self.is_asked(leader)) {
            Some(leader) => {
                self.asked.push(leader.to_owned());
                Some(leader.to_owned())
            }
            None => self.next_known(),
        }
    }

    /// The address being asked could not be reached, or did not reply.
    pub fn failed(&mut self) -> Option<String> {
        self.next_known()
    }

    fn is_asked(&self, address: &str) -> bool {
        self.asked.iter().any(|asked| asked == address)
    }

    /// Returns the configured addresses in a circle, from the one after `first`.
    fn round(&self) -> impl Iterator<Item = &str> {
        let after = self.known.iter().position(|known| known == self.first).map_or(0, |at| at + 1);
        self.known.iter().skip(after).chain(self.known.iter().take(after))
    }

    /// Returns the next configured address. If none is left, the next request begins with a standby that answered, or
    /// at least with another address than this time, so that a coordinator that is down for long does not cost its
    /// timeout every time.
    fn next_known(&mut self) -> Option<String> {
        let next = self.round().find(|known| !self.is_asked(known)).map(str::to_owned);
        match &next {
            Some(next) => self.asked.push(next.clone()),
            None => {
                let other = self.standby.take().or_else(|| self.round().next().map(str::to_owned));
                self.first = other.expect("addresses are never empty");
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn discovery(addresses: &str) -> LeaderDiscovery {
        LeaderDiscovery::new(addresses.parse().unwrap())
    }

    #[test]
    fn the_last_leader_is_asked_first() {
        let mut discovery = discovery("a:1,b:1,c:1");
        assert_eq!(discovery.begin(), "a:1");
        assert_eq!(discovery.failed().unwrap(), "b:1");
        assert_eq!(discovery.refused(Some("c:1")).unwrap(), "c:1");
        discovery.answered();
        assert_eq!(discovery.begin(), "c:1");
    }

    #[test]
    fn a_leader_that_is_named_is_asked_next_also_by_an_address_that_was_not_given() {
        let mut discovery = discovery("a:1,b:1,c:1");
        discovery.begin();
        assert_eq!(discovery.refused(Some("10.0.0.3:7400")).unwrap(), "10.0.0.3:7400");
        discovery.answered();
        assert_eq!(discovery.begin(), "10.0.0.3:7400");
        assert_eq!(discovery.failed().unwrap(), "a:1");
        assert_eq!(discovery.refused(None).unwrap(), "b:1");
        assert_eq!(discovery.failed().unwrap(), "c:1");
        assert_eq!(discovery.failed(), None);
        assert_eq!(discovery.begin(), "a:1", "it was there; the one not given is forgotten");
    }

    #[test]
    fn no_coordinator_is_asked_twice_however_they_name_each_other() {
        let mut discovery = discovery("a:1,b:1");
        discovery.begin();
        assert_eq!(discovery.refused(Some("b:1")).unwrap(), "b:1");
        assert_eq!(discovery.refused(Some("a:1")), None);
        assert_eq!(discovery.begin(), "a:1");
        assert_eq!(discovery.refused(Some("a:1")).unwrap(), "b:1");
    }

    #[test]
    fn what_is_no_address_is_not_followed() {
        let mut discovery = discovery("a:1,b:1");
        discovery.begin();
        assert_eq!(discovery.refused(Some("nonsense")).unwrap(), "b:1");
        assert_eq!(discovery.refused(Some("")), None);
    }

    #[test]
    fn when_no_coordinator_answers_the_next_question_begins_with_another() {
        let mut discovery = discovery("a:1,b:1,c:1");
        for first in ["a:1", "b:1", "c:1", "a:1"] {
            assert_eq!(discovery.begin(), first);
            assert!(discovery.failed().is_some());
            assert!(discovery.failed().is_some());
            assert_eq!(discovery.failed(), None);
        }
        let mut discovery = self::discovery("a:1");
        assert_eq!(
            (discovery.begin(), discovery.failed(), discovery.begin()),
            ("a:1".to_owned(), None, "a:1".to_owned())
        );
    }
}
