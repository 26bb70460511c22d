//! Buckets: within windows of the stream, samples of like size come in one batch, and batches in random order. `docs/spec/balance.md` has the
//! mathematics.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use spdl_types::{Position, SampleId};

use super::permutation::{Key, Purpose};

/// Number of windows whose order is cached: those that prefetching reads at once, and some for lookups of others.
const KEPT_WINDOWS: usize = 8;

/// How the samples of a stream are put into buckets, fixed when a job is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BucketParams {
    /// Consecutive samples of the stream that are sorted by size; at least `batch`.
    pub window: u32,
    /// Samples of like size that stay together; at least 1.
    pub batch: u32,
    /// Whether the last samples of an epoch share their batch with the first ones of the next epoch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_continuous: bool,
}

/// Returns the size of a sample.
pub type SizeOfSample = Arc<dyn Fn(SampleId) -> u32 + Send + Sync>;

/// The buckets of a stream.
pub(super) struct Buckets {
    params: BucketParams,
    seed: u64,
    size_of: SizeOfSample,
    /// The windows used last, the latest first.
    windows: Mutex<Vec<SortedWindow>>,
}

/// The order of a window of an epoch: for each place, the number of the sample in the window that comes there.
struct SortedWindow {
    epoch: u64,
    number: u64,
    order: Arc<[u32]>,
}

impl Buckets {
    pub(super) fn new(params: BucketParams, seed: u64, size_of: SizeOfSample) -> Self {
        assert!((1..=params.window).contains(&params.batch), "{params:?}");
        Self { params, seed, size_of, windows: Mutex::default() }
    }

    /// Returns the offset in the stream without buckets of the sample at a position. `id_at` returns the samples of that stream, of which an
    /// epoch has `samples`.
    pub(super) fn unsorted_offset(&self, at: Position, samples: u64, id_at: impl FnMut(u64) -> SampleId) -> u64 {
        let (number, offsets) = self.window_of(at, samples);
        let start = offsets.start;
        start + u64::from(self.order(at.epoch, number, offsets, id_at)[(at.offset - start) as usize])
    }

    /// Returns the position from which on the samples before `until` in the stream without buckets have all come. An epoch has `samples`.
    pub(super) fn all_come_before(&self, until: Position, samples: u64) -> Position {
        let last = Position::new(until.epoch, until.offset.saturating_sub(1));
        Position::new(until.epoch, self.window_of(last, samples).1.end)
    }

    /// Returns the number and the offsets of the window that has a position, in an epoch of so many samples.
    fn window_of(&self, at: Position, samples: u64) -> (u64, Range<u64>) {
        let [window, batch] = [self.params.window, self.params.batch].map(u64::from);
        // The samples of the epoch that fill the batch in which the one before ends. They are window 0.
        let first = match self.params.is_continuous {
            true => (batch - at.epoch % batch * (samples % batch) % batch) % batch,
            false => 0,
        };
        let number = (at.offset + window - first) / window;
        let end = number * window + first;
        (number, end.saturating_sub(window)..end.min(samples))
    }

    fn order(&self, epoch: u64, number: u64, offsets: Range<u64>, id_at: impl FnMut(u64) -> SampleId) -> Arc<[u32]> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = windows.iter().position(|window| (window.epoch, window.number) == (epoch, number)) {
            windows[..=found].rotate_right(1);
        } else {
            let sizes: Vec<u32> = offsets.map(id_at).map(|id| (self.size_of)(id)).collect();
            let key = Key::new(self.seed, Purpose::Bucket).with(epoch).with(number);
            windows.truncate(KEPT_WINDOWS - 1);
            windows.insert(0, SortedWindow { epoch, number, order: order_of(&sizes, self.params.batch, key).into() });
        }
        windows[0].order.clone()
    }
}

/// Returns for each place in a window the number of the sample that comes there, of samples with these sizes.
fn order_of(sizes: &[u32], batch: u32, key: Key) -> Vec<u32> {
    let mut sorted: Vec<u32> = (0..sizes.len() as u32).collect();
    sorted.sort_by_key(|number| sizes[*number as usize]);
    let batch = batch as usize;
    let (batches, rest) = (sizes.len() / batch, sizes.len() % batch);
    // What fills no batch comes last. It is of any size, as the end of an epoch may be dropped.
    let rest_after = key.with(0).below(batches as u64 + 1) as usize;
    let key = key.with(1);
    let places = (0..batches).flat_map(|place| {
        let number = key.permute(batches as u64, place as u64) as usize;
        let first = number * batch + if number >= rest_after { rest } else { 0 };
        first..first + batch
    });
    let rest_at = rest_after * batch;
    places.chain(rest_at..rest_at + rest).map(|place| sorted[place]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchParams, EpochEnd, OrderParams, Plan, RedactedSamples, Redaction};

    const PARAMS: BucketParams = BucketParams { window: 40, batch: 8, is_continuous: false };

    fn size_of(SampleId(id): SampleId) -> u32 {
        (id * 7919 % 1009) as u32
    }

    /// Returns a stream of so many blocks of 10 samples, without and with buckets.
    fn plans(blocks: usize, params: BucketParams) -> (Plan, Plan) {
        let order = OrderParams { version: 1, lanes: 4, window: 12, shuffle: true };
        let plain = Plan::new(&vec![10; blocks], 5, order).unwrap();
        (plain.clone(), plain.bucketed(params, 5, Arc::new(size_of)))
    }

    fn ids(plan: &Plan, epoch: u64, offsets: Range<u64>) -> Vec<SampleId> {
        offsets.map(|offset| plan.at(epoch, offset).id).collect()
    }

    #[test]
    fn windows_keep_their_samples_and_batches_have_those_of_like_size() {
        let (plain, bucketed) = plans(23, PARAMS);
        let mut firsts = Vec::new();
        for epoch in 0..3 {
            for start in (0..230).step_by(40) {
                let window = start..(start + 40).min(230);
                let (mut before, mut after) =
                    (ids(&plain, epoch, window.clone()), ids(&bucketed, epoch, window.clone()));
                let sizes: Vec<u32> = after.iter().copied().map(size_of).collect();
                for batch in sizes.chunks_exact(8) {
                    assert!(batch.is_sorted(), "{batch:?}");
                    let (least, most) = (batch[0], batch[batch.len() - 1]);
                    let others = sizes[..sizes.len() / 8 * 8].iter().filter(|size| (least..=most).contains(size));
                    assert_eq!(others.count(), batch.len(), "no sample of another batch is between those of one");
                }
                firsts.push(sizes.chunks(8).map(|batch| batch[0]).is_sorted());
                before.sort_unstable();
                after.sort_unstable();
                assert_eq!(before, after, "epoch {epoch}, {window:?}");
            }
        }
        assert!(firsts.iter().filter(|sorted| **sorted).count() < 3, "batches come in random order");
    }

    #[test]
    fn windows_of_epochs_that_share_batches_begin_where_a_batch_does() {
        let (plain, bucketed) = plans(23, BucketParams { is_continuous: true, ..PARAMS });
        // The end of epoch 0 has 6 samples of a batch, and epoch 1 begins with 2 of it.
        for (epoch, starts) in [(0, [0, 40, 80, 120, 160, 200]), (1, [2, 42, 82, 122, 162, 202])] {
            for start in starts {
                let window = start..(start + 40).min(230);
                let (mut before, mut after) =
                    (ids(&plain, epoch, window.clone()), ids(&bucketed, epoch, window.clone()));
                let batch: Vec<u32> = after[..8].iter().copied().map(size_of).collect();
                assert!(batch.is_sorted(), "{batch:?}");
                before.sort_unstable();
                after.sort_unstable();
                assert_eq!(before, after, "epoch {epoch}, {window:?}");
            }
        }
        let (mut before, after) = (ids(&plain, 1, 0..2), ids(&bucketed, 1, 0..2));
        before.sort_by_key(|id| size_of(*id));
        assert_eq!(before, after);
    }

    #[test]
    fn blocks_are_in_use_until_the_last_sample_of_theirs_has_come() {
        for params in [PARAMS, BucketParams { window: 56, batch: 7, is_continuous: true }] {
            // Each of the four lanes has six whole blocks: a block that the deal cuts in two is used at different times.
            let (_, bucketed) = plans(24, params);
            let mut ends = 0;
            for offset in 0..240 {
                let (block, until) = (bucketed.at(3, offset).block, bucketed.in_use_until(Position::new(3, offset)));
                let later = (until.offset..240).find(|later| bucketed.at(3, *later).block == block);
                assert_eq!((until.epoch, later), (3, None), "block {block} of offset {offset} after {until:?}");
                ends += u64::from(until.offset < 240);
            }
            assert!(ends > 60, "most blocks are not in use to the end of the epoch: {ends}");
        }
    }

    #[test]
    fn entries_of_one_lane_stay_side_by_side_in_a_batch() {
        let (plain, bucketed) = plans(24, PARAMS);
        let batches = BatchParams { global_batch: 8, epochs: 1, epoch_end: EpochEnd::Drop, end: None };
        let lane = |id| (0..240).find(|offset| plain.at(0, *offset).id == id).unwrap() % 4;
        for step in bucketed.steps(Position::START, &batches) {
            let all = bucketed.step_items(&step);
            assert!(all.iter().map(|item| lane(item.located.id)).is_sorted(), "{all:?}");
            let mut positions: Vec<u64> = all.iter().map(|item| item.at.offset).collect();
            positions.sort_unstable();
            assert!(positions.into_iter().eq(step.from.offset..step.from.offset + 8));
            let (mut of_ranks, mut items) = (Vec::new(), Vec::new());
            for rank in 0..3 {
                bucketed.rank_items(&step, rank, 3, &mut items);
                of_ranks.append(&mut items);
            }
            assert_eq!(of_ranks, all);
        }
    }

    #[test]
    fn substitutes_are_of_the_block_of_the_sample_that_they_replace() {
        let (_, bucketed) = plans(23, PARAMS);
        for offset in 0..230 {
            assert_eq!(bucketed.substitute(0, offset, 0).unwrap().block, bucketed.at(0, offset).block);
        }
        let redacted = bucketed.at(0, 100).id;
        let redaction = Redaction { from: 50, samples: RedactedSamples::new(vec![redacted]) };
        let redacting = bucketed.clone().redacting(&[redaction]).unwrap();
        for offset in 0..230 {
            let same = bucketed.at(0, offset).id == redacting.at(0, offset).id;
            assert_eq!(same, offset != 100);
        }
    }
}
