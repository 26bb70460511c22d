//! The stream of several sources: each has a stream of its own, and a table says which source comes next, from each stage on another one.

use std::ops::Range;

use super::{
    EpochEnd, Located, OrderParams, PlanError, Step,
    batch::rank_of_entry,
    permutation::{Key, Purpose},
    stages::{BlendStage, BlendTables},
    stream::{DatasetStream, EpochLease},
};
use crate::view::ViewSamples;
use spdl_types::{Position, SampleId, mix::splitmix64};

/// A source of a stream of several.
#[derive(Clone, Copy, Debug)]
pub struct BlendSource<'a> {
    /// The number of samples of each block of its dataset, in the manifest's order.
    pub block_samples: &'a [u32],
    /// The samples of the dataset that it gives; `None` if these are all.
    pub view: Option<&'a ViewSamples>,
    /// How many of [`BLEND_PERIOD`](super::BLEND_PERIOD) samples it gives, up to the first stage with other weights.
    pub weight: u32,
    /// The parameters of its own stream.
    pub order: OrderParams,
}

/// Returns the seed of source number `number`, counted from 0, of a stream of several sources with this seed. The source's samples come in the
/// order of a stream of its dataset alone that has it.
#[must_use]
pub fn source_seed(seed: u64, number: usize) -> u64 {
    Key::new(seed, Purpose::Source).with(number as u64).0
}

/// The streams of several sources, and the tables that blend them.
pub(super) struct Blend {
    tables: BlendTables,
    sources: Box<[SourceStream]>,
    /// Number of samples of an epoch.
    samples: u64,
}

/// A source's stream, in which samples and blocks have the numbers of their dataset.
struct SourceStream {
    stream: DatasetStream,
    /// The numbers that its first block and its first sample have in the blend.
    first_block: u32,
    first_sample: u64,
    /// The place of each lane among all of the source, when they are sorted by their numbers with the bits in reverse order. Of each run
    /// of lanes about the same share is then in each part of the places.
    places: Box<[u32]>,
}

/// The orders of epochs of sources, each held from its first use on.
pub(super) struct BlendLease(Box<[Option<EpochLease>]>);

impl SourceStream {
    fn new(stream: DatasetStream, first_block: u32, first_sample: u64) -> Self {
        let mut sorted: Vec<u32> = (0..stream.deal.lanes()).collect();
        sorted.sort_unstable_by_key(|lane| lane.reverse_bits());
        let mut places = vec![0; sorted.len()];
        for (place, lane) in (0..).zip(sorted) {
            places[lane as usize] = place;
        }
        Self { stream, first_block, first_sample, places: places.into() }
    }

    /// Returns a sample of the source with the numbers of the blend.
    const fn blended(&self, Located { id, block, index }: Located) -> Located {
        Located { id: SampleId(self.first_sample + id.0), block: self.first_block + block, index }
    }
}

impl Blend {
    pub(super) fn new(
        (sources, stages): (&[BlendSource<'_>], &[BlendStage]),
        samples: u64,
        seed: u64,
    ) -> Result<Self, PlanError> {
        let weights: Vec<u32> = sources.iter().map(|source| source.weight).collect();
        let tables = BlendTables::new(&weights, stages)?;
        if samples == 0 {
            return Err(PlanError::Empty);
        }
        let (mut first_block, mut first_sample) = (0_u32, 0_u64);
        let mut streams = Vec::with_capacity(sources.len());
        for (number, source) in sources.iter().enumerate() {
            let &BlendSource { block_samples, view, order, .. } = source;
            let seed = source_seed(seed, number);
            let of_source = |problem| PlanError::Source { number: number + 1, problem: Box::new(problem) };
            let stream = DatasetStream::new(block_samples, view, seed, order).map_err(of_source)?;
            streams.push(SourceStream::new(stream, first_block, first_sample));
            let blocks = u64::from(first_block) + block_samples.len() as u64;
            first_block = u32::try_from(blocks).map_err(|_| PlanError::TooManyBlocks { blocks })?;
            first_sample += block_samples.iter().map(|samples| u64::from(*samples)).sum::<u64>();
        }
        Ok(Self { tables, sources: streams.into(), samples })
    }

    pub(super) const fn samples(&self) -> u64 {
        self.samples
    }

    pub(super) const fn sources(&self) -> usize {
        self.sources.len()
    }

    pub(super) fn lanes(&self) -> u32 {
        self.sources.iter().map(|source| source.stream.deal.lanes()).max().unwrap_or(1)
    }

    /// Returns the source of the sample at a position, and the sample's position in the source's own stream. The offset may count on
    /// past the end of the epoch.
    #[inline]
    pub(super) fn source_position(&self, epoch: u64, offset: u64) -> (usize, Position) {
        self.source_as_of(epoch, offset, offset)
    }

    /// Returns them as if the stage at offset `last`, which is not past that of the sample, went on.
    #[inline]
    fn source_as_of(&self, epoch: u64, offset: u64, last: u64) -> (usize, Position) {
        let begin = epoch * self.samples;
        let (source, before) = self.tables.of(begin + offset, begin + last);
        let samples = self.sources[source].stream.deal.samples();
        (source, Position::new(before / samples, before % samples))
    }

    /// Returns the epoch with which the random operations of the sample at a position are drawn.
    pub(super) fn draw_epoch(&self, at: Position) -> u64 {
        let (number, in_source) = self.source_position(at.epoch, at.offset);
        self.sources[number].stream.draw_epoch(in_source)
    }

    pub(super) fn lease(&self) -> BlendLease {
        BlendLease(self.sources.iter().map(|_| None).collect())
    }

    #[inline]
    pub(super) fn at_leased(&self, epoch: u64, offset: u64, lease: &mut BlendLease) -> Located {
        assert!(offset < self.samples, "offset {offset} of an epoch of {} samples", self.samples);
        let (number, at) = self.source_position(epoch, offset);
        let source = &self.sources[number];
        let lease = lease.0[number].get_or_insert_with(|| source.stream.lease(at.epoch));
        source.blended(source.stream.at_leased(at.epoch, at.offset, lease))
    }

    pub(super) fn in_use_until(&self, at: Position) -> Position {
        assert!(at.offset < self.samples, "offset {} of an epoch of {} samples", at.offset, self.samples);
        let (number, in_source) = self.source_position(at.epoch, at.offset);
        let stream = &self.sources[number].stream;
        let Position { epoch, offset } = stream.in_use_until(in_source);
        let end = self.tables.reaches(number, epoch.saturating_mul(stream.deal.samples()).saturating_add(offset));
        Position::new(end / self.samples, end % self.samples)
    }

    /// Returns the source that has a sample.
    fn source_of(&self, id: SampleId) -> &SourceStream {
        &self.sources[self.sources.partition_point(|source| source.first_sample <= id.0) - 1]
    }

    pub(super) fn locate(&self, id: SampleId) -> Option<Located> {
        let source = self.source_of(id);
        let located = source.stream.locate(SampleId(id.0 - source.first_sample))?;
        Some(source.blended(located))
    }

    pub(super) fn first(&self) -> Located {
        self.sources[0].blended(self.sources[0].stream.nth(0))
    }

    pub(super) fn substitute(&self, epoch: u64, offset: u64, attempt: u32) -> Located {
        assert!(offset < self.samples, "offset {offset} of an epoch of {} samples", self.samples);
        let (number, at) = self.source_position(epoch, offset);
        let source = &self.sources[number];
        source.blended(source.stream.substitute(at.epoch, at.offset, attempt))
    }

    /// Returns the number of different samples of the source of the sample at a position.
    pub(super) fn source_samples_at(&self, epoch: u64, offset: u64) -> u64 {
        let (number, _) = self.source_position(epoch, offset);
        self.sources[number].stream.different_samples()
    }

    /// Returns sample number `after` of the samples of the same source that follow one that is drawn for an attempt.
    pub(super) fn after_substitute(&self, epoch: u64, offset: u64, attempt: u32, after: u64) -> Located {
        let (number, at) = self.source_position(epoch, offset);
        let source = &self.sources[number];
        source.blended(source.stream.after_substitute(at.epoch, at.offset, attempt, after))
    }

    /// Returns for each source the ids that its samples have, and how many of these it gives.
    pub(super) fn source_ids(&self) -> impl Iterator<Item = (Range<u64>, u64)> {
        let ends = self.sources[1..].iter().map(|source| source.first_sample).chain([u64::MAX]);
        self.sources.iter().zip(ends).map(|(source, end)| (source.first_sample..end, source.stream.different_samples()))
    }

    /// Returns the offsets of the entries of a step in this range, where entries are sorted by the places of their lanes among those of
    /// their own sources. An offset counts on past the end of the epoch.
    ///
    /// So a rank gets the same lanes of each source in each batch, but for lanes at the borders of its share: a source's part of a
    /// batch begins with another lane each time, and ends with another.
    pub(super) fn sorted_offsets(&self, step: &Step, entries: Range<u64>) -> impl Iterator<Item = u64> + use<> {
        let Position { epoch, offset: from } = step.from;
        let mut sorted: Vec<(u64, u64)> = (from..from + u64::from(step.global_batch))
            .map(|counted| {
                let is_past = counted >= self.samples;
                let (offset, last) = match step.epoch_end {
                    EpochEnd::Pad if is_past => (counted % self.samples, counted % self.samples),
                    // A batch of this epoch does not depend on what a change makes of the next one.
                    EpochEnd::Exact if is_past => (counted, self.samples - 1),
                    _ => (counted, counted),
                };
                (self.place(epoch, offset, last), counted)
            })
            .collect();
        let [start, end] = [entries.start, entries.end].map(|entry| entry as usize);
        // Only the entries of the range are sorted; those before and after it are set apart.
        if start < sorted.len() {
            sorted.select_nth_unstable(start);
        }
        sorted.drain(..start);
        if end - start < sorted.len() {
            sorted.select_nth_unstable(end - start);
        }
        sorted.truncate(end - start);
        sorted.sort_unstable();
        sorted.into_iter().map(|(_, counted)| counted)
    }

    /// Returns the place of the lane of the sample at a position among those of its source, from 0 to 2^32, if the stage at offset `last`
    /// goes on up to there.
    fn place(&self, epoch: u64, offset: u64, last: u64) -> u64 {
        let (number, at) = self.source_as_of(epoch, offset, last);
        let SourceStream { stream, places, .. } = &self.sources[number];
        let (lane, _) = stream.deal.lane_of(at.offset);
        (u64::from(places[lane as usize]) << 32) / u64::from(stream.deal.lanes())
    }

    /// Returns the rank that is responsible for a block. The lane of the block's first sample is a part of the batch's entries, in
    /// which a hash chooses one.
    pub(super) fn owner(&self, block: u32, global_batch: u32, world: u32) -> Option<u32> {
        let number = self.sources.partition_point(|source| source.first_block <= block) - 1;
        let SourceStream { stream, first_block, places, .. } = &self.sources[number];
        let lane = stream.deal.lane_at(stream.deal.line_start(block - first_block)?);
        let (lanes, batch) = (u64::from(stream.deal.lanes()), u64::from(global_batch));
        let [start, end] = [0, 1].map(|next| (u64::from(places[lane as usize]) + next) * batch / lanes);
        let entry = start + splitmix64(block.into()) % (end - start).max(1);
        Some(rank_of_entry(global_batch, entry, world))
    }
}
