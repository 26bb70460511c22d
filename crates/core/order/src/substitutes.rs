//! Substitutes: which samples take the place of a bad one, and how many are tried.

use super::{Item, Located, Plan, PlanKind};
use spdl_types::{
    Position, SampleId,
    mutations::{Mutation, mutated},
};

/// Maximum number of substitutes that are tried for one bad sample. A job in which all of them are bad fails.
pub const MAX_SUBSTITUTES: u32 = 64;

/// How often a substitute is drawn again because it is redacted, before the samples are searched in their order. At most half of them
/// are redacted, so that this happens once in 2^64 cases, unless all neighbours of a block are.
const MAX_DRAWS: u32 = 64;

impl Plan {
    /// Returns the sample that replaces a bad one, for the given number of the attempt; `None` after the last attempt.
    /// The first attempts stay in the bad sample's block, so that nothing has to be fetched; later ones take any sample
    /// of the stream. Of several sources, it is a sample of the bad one's source. No attempt takes a sample that is redacted there.
    ///
    /// # Panics
    /// If `offset` is not below [`samples`](Self::samples).
    #[must_use]
    pub fn substitute(&self, epoch: u64, offset: u64, attempt: u32) -> Option<Located> {
        if attempt >= MAX_SUBSTITUTES {
            return None;
        }
        let at = Position::new(epoch, offset);
        let offset = self.unsorted(at).offset;
        let draws = (0..=MAX_DRAWS).map(|draw| self.drawn_substitute(epoch, offset, attempt + draw * MAX_SUBSTITUTES));
        let others = self.samples_after_substitute(epoch, offset, attempt);
        draws.chain(others).find(|drawn| mutated(Mutation::SubstituteRedacted) || !self.is_redacted(at, drawn.id))
    }

    /// Returns whether a sample is redacted at a position.
    fn is_redacted(&self, at: Position, id: SampleId) -> bool {
        let number = at.epoch.saturating_mul(self.samples()).saturating_add(at.offset);
        self.redactions.iter().take_while(|of| of.from <= number).any(|of| of.samples.contains(id))
    }

    /// Returns the substitute of the sample that is planned at a position; `None` if it is not redacted there.
    #[inline]
    pub(super) fn redacted_for(&self, at: Position, planned: &Located) -> Option<Located> {
        if self.redactions.is_empty() || !self.is_redacted(at, planned.id) {
            return None;
        }
        let substitute = self.substitute(at.epoch, at.offset, 0);
        Some(substitute.expect("at least half of the samples are not redacted, as `redacting` has checked"))
    }

    /// Returns the substitute that is drawn for an attempt, redacted or not.
    fn drawn_substitute(&self, epoch: u64, offset: u64, attempt: u32) -> Located {
        match &*self.kind {
            PlanKind::Dataset(stream) => stream.substitute(epoch, offset, attempt),
            PlanKind::Blend(blend) => blend.substitute(epoch, offset, attempt),
        }
    }

    /// Returns all samples of the dataset or source from the substitute of an attempt on, in their order, as the last resort.
    fn samples_after_substitute(
        &self,
        epoch: u64,
        offset: u64,
        attempt: u32,
    ) -> impl Iterator<Item = Located> + use<'_> {
        let count = match &*self.kind {
            PlanKind::Dataset(stream) => stream.different_samples(),
            PlanKind::Blend(blend) => blend.source_samples_at(epoch, offset),
        };
        (0..count).map(move |after| match &*self.kind {
            PlanKind::Dataset(stream) => stream.after_substitute(epoch, offset, attempt, after),
            PlanKind::Blend(blend) => blend.after_substitute(epoch, offset, attempt, after),
        })
    }

    /// Returns the sample that a job which substitutes bad samples delivers for an item: the planned sample, or the
    /// first substitute that is not bad; `None` if all of them are bad.
    #[must_use]
    pub fn delivered_sample(&self, item: &Item, is_bad: impl Fn(SampleId) -> bool) -> Option<Located> {
        let substitutes = (0..).map_while(|attempt| self.substitute(item.at.epoch, item.at.offset, attempt));
        std::iter::once(item.located).chain(substitutes).find(|located| !is_bad(located.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchParams, EpochEnd, OrderParams, PlanError, RedactedSamples, Redaction};
    use spdl_types::Position;

    fn redaction(from: u64, ids: impl IntoIterator<Item = u64>) -> Redaction {
        Redaction { from, samples: RedactedSamples::new(ids.into_iter().map(SampleId).collect()) }
    }

    #[test]
    fn a_redacted_sample_comes_up_to_its_position_and_never_again_not_even_as_a_substitute() {
        let order = OrderParams { version: 1, lanes: 2, window: 8, shuffle: true };
        let plan = Plan::new(&[20, 30, 50], 7, order).unwrap();
        // A whole block, so that no neighbour can take a place, and some others.
        let sets = [redaction(130, 20..50), redaction(250, [3, 77])];
        let redacting = plan.clone().redacting(&sets).unwrap();
        let batches = BatchParams { global_batch: 10, epochs: 4, epoch_end: EpochEnd::Drop, end: None };
        let (mut items, mut redacted) = (Vec::new(), 0);
        for step in plan.steps(Position::START, &batches) {
            redacting.rank_items(&step, 0, 1, &mut items);
            for item in &items {
                let Position { epoch, offset } = item.at;
                let number = epoch * 100 + offset;
                let is_out = |id: SampleId| sets.iter().any(|set| set.from <= number && set.samples.contains(id));
                let planned = plan.at(epoch, offset);
                assert_eq!(item.located, redacting.at(epoch, offset));
                if is_out(planned.id) {
                    redacted += 1;
                    assert_eq!(
                        (item.redacted, item.located),
                        (Some(planned.id), redacting.substitute(epoch, offset, 0).unwrap())
                    );
                } else {
                    assert_eq!((item.redacted, item.located), (None, planned), "{}", item.at);
                }
                for attempt in 0..MAX_SUBSTITUTES {
                    let substitute = redacting.substitute(epoch, offset, attempt).unwrap();
                    assert!(!is_out(substitute.id), "{substitute:?} at {}", item.at);
                    let drawn = plan.substitute(epoch, offset, attempt).unwrap();
                    assert!(is_out(drawn.id) || drawn == substitute);
                }
            }
        }
        assert!(redacted > 60, "each of the last two epochs has all of them: {redacted}");
    }

    #[test]
    fn a_source_substitutes_from_its_own_samples_and_more_than_half_of_them_cannot_be_redacted() {
        let order = OrderParams { version: 1, lanes: 2, window: 8, shuffle: true };
        let half = crate::BLEND_PERIOD / 2;
        let source = |block_samples| crate::BlendSource { block_samples, view: None, weight: half, order };
        let plan = Plan::of_sources(&[source(&[10, 10]), source(&[40])], &[], 80, 3).unwrap();
        let redacting = plan.clone().redacting(&[redaction(0, (20..30).chain([5]))]).unwrap();
        for offset in 0..80 {
            let (planned, given) = (plan.at(0, offset), redacting.at(0, offset));
            assert_eq!(planned.id.0 < 20, given.id.0 < 20, "of the same source");
            assert!(given.id.0 != 5 && !(20..30).contains(&given.id.0));
        }
        let refused = |ids: std::ops::Range<u64>| plan.clone().redacting(&[redaction(0, ids)]).unwrap_err();
        assert_eq!(refused(0..11), PlanError::TooManyRedacted { redacted: 11, samples: 20 });
        assert_eq!(refused(20..41), PlanError::TooManyRedacted { redacted: 21, samples: 40 });
        let set = redaction(0, 0..26);
        let one = Plan::new(&[50], 3, order).unwrap().redacting(&[set]).unwrap_err();
        assert_eq!(one, PlanError::TooManyRedacted { redacted: 26, samples: 50 });
    }

    #[test]
    fn the_first_substitute_that_is_not_bad_is_delivered_and_none_when_all_are() {
        let order = OrderParams { version: 1, lanes: 2, window: 8, shuffle: true };
        let plan = Plan::new(&[20, 30, 50], 7, order).unwrap();
        let batches = BatchParams { global_batch: 10, epochs: 1, epoch_end: EpochEnd::Drop, end: None };
        let mut items = Vec::new();
        plan.rank_items(&plan.step(Position::START, &batches).unwrap(), 0, 1, &mut items);
        for item in &items {
            let substitute = |attempt| plan.substitute(item.at.epoch, item.at.offset, attempt);
            assert_eq!(plan.delivered_sample(item, |_| false), Some(item.located));
            assert_eq!(plan.delivered_sample(item, |id| id == item.located.id), substitute(0));
            let bad = [item.located.id, substitute(0).unwrap().id, substitute(1).unwrap().id];
            let third = (2..).map_while(substitute).find(|located| !bad.contains(&located.id));
            assert_eq!(plan.delivered_sample(item, |id| bad.contains(&id)), third);
            assert_eq!(plan.delivered_sample(item, |_| true), None);
            assert_eq!(
                [MAX_SUBSTITUTES - 1, MAX_SUBSTITUTES].map(|attempt| substitute(attempt).is_some()),
                [true, false]
            );
        }
    }
}
