//! The order and the times of trials.

/// The first delay after a trial that failed, in seconds; it doubles with each further one.
const FIRST_REST_S: f64 = 4.0;
/// Upper bound of that delay. When lowered, a store whose change does not show in the rate is followed sooner, and a
/// steady one is disturbed more often.
const MAX_REST_S: f64 = 600.0;

/// What a trial changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrialKind {
    /// Twice the requests in flight.
    DoubleRequests,
    /// A few requests more: between two doublings there may be a peak.
    MoreRequests,
    /// A few requests fewer: the store may be overloaded.
    FewerRequests,
    /// Half the requests in flight, because the store refuses some.
    Relief,
    /// Twice the steps read ahead.
    DoubleReadAhead,
    /// A few steps more.
    MoreReadAhead,
}

/// When the next trial is made, and which were made since the last one that gained something.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    failures: u32,
    rests_until_s: f64,
    tried: Vec<TrialKind>,
    /// The last trial that gained something.
    gained: Option<TrialKind>,
}

impl Search {
    pub(super) fn is_resting(&self, now_s: f64) -> bool {
        now_s < self.rests_until_s
    }

    /// Returns the trial that gained something last; otherwise the first that was not made yet; and when all were, the
    /// first. A relief that failed is not tried again: among enough trials, one would seem to cost nothing by chance.
    pub(super) fn choose(&mut self, kinds: &[TrialKind]) -> Option<TrialKind> {
        if kinds.iter().all(|kind| self.tried.contains(kind)) {
            self.tried.retain(|kind| *kind == TrialKind::Relief || !kinds.contains(kind));
        }
        let open = |kind: &&TrialKind| !self.tried.contains(kind);
        kinds.iter().find(|kind| self.gained == Some(**kind)).or_else(|| kinds.iter().find(open)).copied()
    }

    pub(super) fn note_gain(&mut self, kind: TrialKind) {
        *self = Self { gained: Some(kind), ..Self::default() };
    }

    /// Forgets what failed, so that everything is tried anew.
    pub(super) fn start_over(&mut self) {
        *self = Self::default();
    }

    pub(super) fn note_failure(&mut self, kind: TrialKind, now_s: f64) {
        let rest_s = FIRST_REST_S * 2_f64.powi(self.failures.min(30).cast_signed());
        self.rests_until_s = now_s + rest_s.min(MAX_REST_S);
        self.failures += 1;
        self.gained = None;
        self.tried.push(kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trial_gets_its_turn_and_the_rest_between_them_doubles() {
        let (mut search, mut now_s) = (Search::default(), 0.0);
        let kinds = [TrialKind::DoubleRequests, TrialKind::MoreRequests, TrialKind::FewerRequests];
        let mut rests = Vec::new();
        for number in 0..12 {
            assert!(!search.is_resting(now_s));
            let kind = search.choose(&kinds).unwrap();
            assert_eq!(kind, kinds[number % 3]);
            search.note_failure(kind, now_s);
            rests.push(search.rests_until_s - now_s);
            now_s = search.rests_until_s;
        }
        assert_eq!(rests[..4], [4.0, 8.0, 16.0, 32.0]);
        assert_eq!(rests[11], MAX_REST_S);
        search.note_gain(kinds[1]);
        assert!(
            !search.is_resting(now_s) && search.choose(&kinds) == Some(kinds[1]),
            "once more what gained something"
        );
        search.start_over();
        assert!(!search.is_resting(now_s) && search.choose(&kinds) == Some(kinds[0]));
        assert_eq!(search.choose(&[]), None);
        search.note_failure(TrialKind::Relief, now_s);
        assert_eq!(search.choose(&[TrialKind::Relief]), None);
    }
}
