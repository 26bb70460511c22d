//! Substitutes: which samples take the place of a bad one, and how many are tried.

use super::{Item, Located, Plan, PlanKind};
use spdl_types::SampleId;

/// Maximum number of substitutes that are tried for one bad sample. A job in which all of them are bad fails.
pub const MAX_SUBSTITUTES: u32 = 64;

impl Plan {
    /// Returns the sample that replaces a bad one, for the given number of the attempt; `None` after the last attempt.
    /// The first attempts stay in the bad sample's block, so that nothing has to be fetched; later ones take any sample
    /// of the stream. Of several sources, it is a sample of the bad one's source.
    ///
    /// # Panics
    /// If `offset` is not below [`samples`](Self::samples).
    #[must_use]
    pub fn substitute(&self, epoch: u64, offset: u64, attempt: u32) -> Option<Located> {
        if attempt >= MAX_SUBSTITUTES {
            return None;
        }
        Some(match &*self.0 {
            PlanKind::Dataset(stream) => stream.substitute(epoch, offset, attempt),
            PlanKind::Blend(blend) => blend.substitute(epoch, offset, attempt),
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
    use crate::{BatchParams, EpochEnd, OrderParams};
    use spdl_types::Position;

    #[test]
    fn the_first_substitute_that_is_not_bad_is_delivered_and_none_when_all_are() {
        let order = OrderParams { version: 1, lanes: 2, window: 8, shuffle: true };
        let plan = Plan::new(&[20, 30, 50], 7, order).unwrap();
        let batches = BatchParams { global_batch: 10, epochs: 1, epoch_end: EpochEnd::Drop };
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
