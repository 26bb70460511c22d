//! Batches: the entries of each step, the contents of the entries past the end of an epoch, and each rank's share.

use super::{BatchParams, EpochEnd, Located, Plan, PlanError, PlanKind, PlanLease, Step};
use crate::Receipt;
use spdl_types::{Position, SampleId};

/// The kind of an entry of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A sample of the stream.
    Sample,
    /// One of the epoch's first samples again, to fill the epoch's last batch ([`EpochEnd::Pad`]).
    Padding,
    /// Nothing: an entry past the end of the epoch ([`EpochEnd::Exact`]).
    Invalid,
}

/// One entry of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its position in the stream. Padding has the position of the sample that it repeats; an invalid entry has the
    /// position that it would have if the epoch went on, at or past offset N.
    pub at: Position,
    /// The sample; for an invalid entry an arbitrary valid one.
    pub located: Located,
    /// Sample, padding or invalid.
    pub kind: ItemKind,
    /// The epoch with which its random operations are drawn, see [`Plan::source_epoch`].
    pub source_epoch: u64,
    /// The redacted sample in whose place it comes.
    pub redacted: Option<SampleId>,
}

impl BatchParams {
    /// Returns the largest number of entries that one rank gets per step, with `world` ranks.
    ///
    /// # Panics
    /// If `world` is 0.
    #[must_use]
    pub const fn entries_per_rank(&self, world: u32) -> u32 {
        self.global_batch.div_ceil(world)
    }
}

/// Returns the range of a batch of `entries`, in the order of [`Plan::rank_items`], that `rank` of `world` gets. No
/// rank gets more than [`BatchParams::entries_per_rank`].
pub(super) const fn rank_entries(entries: u64, rank: u32, world: u32) -> std::ops::Range<u64> {
    let (rank, world) = (rank as u64, world as u64);
    rank * entries / world..(rank + 1) * entries / world
}

/// Returns the rank of `world` that gets entry number `entry` of a batch.
pub(super) fn rank_of_entry(global_batch: u32, entry: u64, world: u32) -> u32 {
    // The largest rank whose entries start at or before this one; it is below `world`.
    (((entry + 1) * u64::from(world) - 1) / u64::from(global_batch)) as u32
}

/// Returns q = gcd(L, B), the number of classes that a batch is sorted into: entry g is in class g mod q, as is its lane.
pub(super) const fn classes(lanes: u32, global_batch: u32) -> u64 {
    gcd(lanes, global_batch) as u64
}

/// Returns the offsets of the entries of a step that `rank` of `world` gets, in order; they count on past the end of the epoch.
///
/// # Panics
/// If `rank` is not below `world`.
pub(super) fn rank_offsets(
    step: &Step,
    lanes: u32,
    rank: u32,
    world: u32,
) -> impl ExactSizeIterator<Item = u64> + use<> {
    assert!(rank < world, "rank {rank} of {world}");
    let classes = classes(lanes, step.global_batch);
    let class_size = u64::from(step.global_batch) / classes;
    let (entries, from) = (rank_entries(step.global_batch.into(), rank, world), step.from.offset);
    let (mut class, mut index) = (entries.start / class_size, entries.start % class_size);
    let before = from % classes;
    (0..(entries.end - entries.start) as usize).map(move |_| {
        let first = if class >= before { class - before } else { class + classes - before };
        let offset = from + first + index * classes;
        index += 1;
        if index == class_size {
            (class, index) = (class + 1, 0);
        }
        offset
    })
}

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Plan {
    /// Checks that these batches can be cut from this dataset.
    ///
    /// # Errors
    /// As for [`BatchParams::check`].
    pub fn check(&self, batch: &BatchParams) -> Result<(), PlanError> {
        batch.check(self.samples())
    }

    /// Returns the next step at or after `from`; `None` when all epochs are over.
    ///
    /// `drop` skips the samples at the end of each epoch that do not fill a batch; `continuous` skips those at the end
    /// of the last epoch only. An offset at or past N means the start of the next epoch.
    ///
    /// # Panics
    /// If the global batch is 0.
    #[must_use]
    pub fn step(&self, from: Position, batch: &BatchParams) -> Option<Step> {
        batch.step(self.samples(), from)
    }

    /// Iterates over all steps at or after `from`.
    pub fn steps(&self, from: Position, batch: &BatchParams) -> impl Iterator<Item = Step> + use<'_> {
        let batch = *batch;
        let first = self.step(from, &batch);
        std::iter::successors(first, move |step| self.step(step.next, &batch))
    }

    /// Replaces the contents of `items` by the entries of `rank` of `world` in a step. `items` becomes empty if the
    /// step is short and the rank has no share of it.
    ///
    /// The batch's entries are sorted by (g mod q, g), where g is the offset, counted on past the end of the epoch, and
    /// q = gcd(L, B), with the number of entries of this step as B. Of several sources, an entry is sorted by the place of its lane among
    /// those of its own source, and with buckets by (h mod q, g), where h is the offset that it has without them. The rank takes the
    /// entries `[rank * B / world, (rank + 1) * B / world)`. The concatenation over the ranks is the same for every world.
    ///
    /// # Panics
    /// If `rank` is not below `world`.
    pub fn rank_items(&self, step: &Step, rank: u32, world: u32, items: &mut Vec<Item>) {
        let mut lease = self.lease(step.from.epoch);
        items.clear();
        match &*self.kind {
            PlanKind::Dataset(stream) if self.buckets.is_none() => {
                let offsets = rank_offsets(step, stream.deal.lanes(), rank, world);
                items.extend(offsets.map(|counted| self.item(step, counted, &mut lease)));
            }
            PlanKind::Dataset(stream) => {
                assert!(rank < world, "rank {rank} of {world}");
                let offsets = self.sorted_offsets(step, stream.deal.lanes(), &mut lease);
                let entries = rank_entries(step.global_batch.into(), rank, world);
                let offsets = &offsets[entries.start as usize..entries.end as usize];
                items.extend(offsets.iter().map(|(_, counted)| self.item(step, *counted, &mut lease)));
            }
            PlanKind::Blend(blend) => {
                assert!(rank < world, "rank {rank} of {world}");
                let entries = rank_entries(step.global_batch.into(), rank, world);
                let offsets = blend.sorted_offsets(step, entries);
                items.extend(offsets.map(|counted| self.item(step, counted, &mut lease)));
            }
        }
    }

    /// Returns the offsets of the entries of a step of a stream with buckets, in their order, each after the class of its lane.
    fn sorted_offsets(&self, step: &Step, lanes: u32, lease: &mut PlanLease) -> Vec<(u64, u64)> {
        let (classes, from) = (classes(lanes, step.global_batch), step.from.offset);
        let class_of = |counted| match self.place(step, counted) {
            (_, ItemKind::Invalid) => counted % classes,
            (at, ItemKind::Sample | ItemKind::Padding) => self.unsorted_offset(at, lease) % classes,
        };
        let counted = from..from + u64::from(step.global_batch);
        let mut offsets: Vec<(u64, u64)> = counted.clone().map(class_of).zip(counted).collect();
        offsets.sort_unstable();
        offsets
    }

    /// Returns the position and the kind of the entry of a step at offset `counted`, which counts on past the end of the epoch.
    fn place(&self, step: &Step, counted: u64) -> (Position, ItemKind) {
        let (samples, epoch) = (self.samples(), step.from.epoch);
        if counted < samples {
            return (Position::new(epoch, counted), ItemKind::Sample);
        }
        match step.epoch_end {
            EpochEnd::Pad => (Position::new(epoch, counted % samples), ItemKind::Padding),
            EpochEnd::Exact => (Position::new(epoch, counted), ItemKind::Invalid),
            EpochEnd::Continuous | EpochEnd::Drop | EpochEnd::Partial => {
                (Position::new(epoch + counted / samples, counted % samples), ItemKind::Sample)
            }
        }
    }

    /// Returns the entry of a step at offset `counted`, which counts on past the end of the epoch.
    fn item(&self, step: &Step, counted: u64, lease: &mut PlanLease) -> Item {
        let (at, kind) = self.place(step, counted);
        if kind == ItemKind::Invalid {
            return Item { at, located: self.first(), kind, source_epoch: at.epoch, redacted: None };
        }
        self.item_leased(at, kind, lease)
    }

    /// Returns the sample at a position as an entry of a batch.
    ///
    /// # Panics
    /// If the offset is not below [`samples`](Self::samples).
    #[must_use]
    pub fn sample_item(&self, at: Position) -> Item {
        self.item_leased(at, ItemKind::Sample, &mut self.lease(at.epoch))
    }

    fn item_leased(&self, at: Position, kind: ItemKind, lease: &mut PlanLease) -> Item {
        let mut located = self.at_leased(at.epoch, at.offset, lease);
        let mut redacted = None;
        if let Some(substitute) = self.redacted_for(at, &located) {
            redacted = Some(std::mem::replace(&mut located, substitute).id);
        }
        Item { at, located, kind, source_epoch: self.source_epoch(at), redacted }
    }

    /// Computes the receipt of a run without bad samples: of the first `steps` steps at or after `from`, or of all
    /// steps if `steps` is `None`. This costs as much as locating every sample.
    #[must_use]
    pub fn receipt(&self, from: Position, steps: Option<u64>, batch: &BatchParams) -> Receipt {
        let mut receipt = Receipt::default();
        let mut lease = self.lease(from.epoch);
        let steps = usize::try_from(steps.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        for step in self.steps(from, batch).take(steps) {
            for counted in step.from.offset..step.from.offset + u64::from(step.global_batch) {
                if counted >= self.samples() && step.epoch_end != EpochEnd::Continuous {
                    break;
                }
                let item = self.item(&step, counted, &mut lease);
                receipt.add_sample(item.at, item.located.id);
            }
        }
        receipt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_a_batch_without_gaps_and_none_gets_more_than_the_largest_share() {
        for (global_batch, world) in [(24, 1), (24, 8), (24, 7), (25, 24), (u32::MAX, 3), (u32::MAX, u32::MAX)] {
            let batches = BatchParams { global_batch, epochs: 1, epoch_end: EpochEnd::Drop, end: None };
            let largest = u64::from(batches.entries_per_rank(world));
            let ranks = (0..world.min(100)).chain([world - 1]);
            let shares: Vec<_> = ranks.map(|rank| rank_entries(global_batch.into(), rank, world)).collect();
            assert!(shares.iter().all(|share| (1..=largest).contains(&(share.end - share.start))), "{shares:?}");
            assert!(
                shares
                    .windows(2)
                    .take(99)
                    .all(|pair| world > 100 || pair[0].end == pair[1].start || pair[0] == pair[1])
            );
            assert_eq!((shares[0].start, shares.last().unwrap().end), (0, u64::from(global_batch)));
            for rank in (0..world.min(100)).chain([world - 1]) {
                let share = rank_entries(global_batch.into(), rank, world);
                for entry in [share.start, share.end - 1] {
                    assert_eq!(rank_of_entry(global_batch, entry, world), rank, "entry {entry} of {global_batch}");
                }
            }
        }
    }
}
