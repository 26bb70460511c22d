//! A sample of a batch on its way from the plan to its entry in the slot.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use smallvec::SmallVec;
use spdl_feed::SampleDraw;
use spdl_job::layout::entry_flags;
use spdl_order::{Item, ItemKind, Located};
use spdl_types::{Position, SampleId};

use crate::decode::{BadSampleCause, SampleKey};

/// A sample of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchSample {
    /// Index of its entry in the batch.
    pub(super) entry: u32,
    pub(super) at: Position,
    /// The epoch of its own source, with which its random operations are drawn.
    pub(super) source_epoch: u64,
    pub(super) id: SampleId,
    /// Number of the block that holds it.
    pub(super) block: u32,
    pub(super) flags: u32,
    /// Number of substitutes that were tried before it.
    pub(super) attempts: u32,
    /// Whether it waits while another rank decodes it.
    pub(super) may_wait: bool,
    pub(super) wrong: WrongFetches,
    /// Number of its record in the shard, and its number in the record, once the record is found.
    pub(super) record: u32,
    pub(super) sample_in_record: u32,
    /// Bytes of the record's fields that the columns may read: a rough estimate of its decoding time.
    pub(super) bytes: u64,
}

/// Samples of a batch that lie in one block, at least one: mostly one or two, as samples are shuffled.
pub(super) type SampleGroup = SmallVec<[BatchSample; 2]>;

impl BatchSample {
    pub(super) fn new(entry: u32, item: &Item) -> Self {
        let flags = match item.kind {
            ItemKind::Sample => 0,
            ItemKind::Padding => entry_flags::PADDING,
            ItemKind::Invalid => entry_flags::INVALID,
        };
        let Located { id, block, .. } = item.located;
        Self { flags, source_epoch: item.source_epoch, ..Self::at(entry, item.at, id, block) }
    }

    /// Returns the sample of a block that goes to an entry, in a job of one dataset.
    pub(super) fn at(entry: u32, at: Position, id: SampleId, block: u32) -> Self {
        let (flags, attempts, wrong, record, sample_in_record, bytes) = Default::default();
        let (source_epoch, may_wait) = (at.epoch, true);
        Self { entry, at, source_epoch, id, block, flags, attempts, may_wait, wrong, record, sample_in_record, bytes }
    }

    /// Returns what its random operations are keyed by, beside the seed.
    pub(super) const fn draw(&self) -> SampleDraw {
        SampleDraw { epoch: self.source_epoch, id: self.id }
    }

    /// Returns the key by which it is decoded.
    pub(super) const fn key(&self) -> SampleKey {
        SampleKey { epoch: self.source_epoch, id: self.id, sample_in_record: self.sample_in_record }
    }

    /// Returns the substitute that takes this sample's entry.
    pub(super) fn substitute(self, Located { id, block, .. }: Located) -> Self {
        let flags = self.flags | entry_flags::SUBSTITUTED;
        Self { id, block, flags, attempts: self.attempts + 1, wrong: WrongFetches::default(), ..self }
    }
}

/// Counts how often a sample's bytes were fetched and did not match their checksum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WrongFetches {
    pub(super) fetches: u32,
    /// Number of latest fetches in a row that had the same wrong checksum.
    alike: u32,
    checksum: u32,
}

impl WrongFetches {
    /// After this many fetches with the same wrong bytes, the store is taken to hold no others.
    const MAX_ALIKE: u32 = 4;
    /// After this many fetches with differing wrong bytes, the store is taken not to recover.
    const MAX: u32 = 16;

    /// Counts one more fetch with wrong bytes. Returns `false` if the bytes are not worth fetching again.
    pub(super) fn note(&mut self, checksum: u32) -> bool {
        self.alike = if self.fetches > 0 && self.checksum == checksum { self.alike + 1 } else { 1 };
        self.checksum = checksum;
        self.fetches += 1;
        self.alike < Self::MAX_ALIKE && self.fetches < Self::MAX
    }
}

/// A sample that was not decoded.
#[derive(Debug)]
pub(super) struct Undecoded {
    pub(super) sample: BatchSample,
    /// Key of its record; empty if it is awaited.
    pub(super) key: String,
    pub(super) reason: Reason,
}

/// The reason why a sample was not decoded.
#[derive(Clone, Debug)]
pub(super) enum Reason {
    /// Another rank is decoding it.
    Awaited,
    /// The bytes are right and do not decode. The entry is zeroed, which is all that the policy `mask` needs.
    Bad(BadSampleCause),
    /// The sample is left out because the worker died several times in a row while decoding it. The entry is zeroed.
    Quarantined { deaths: u32 },
    /// The bytes are not those that the index describes.
    WrongBytes { field: String, expected: u32, actual: u32 },
    /// The bytes match the index, but the dataset's format forbids them there.
    Malformed { field: String, problem: String },
    /// The bytes do not decode to the record; `checksum` is the checksum of these bytes.
    Damaged { field: String, problem: Arc<str>, checksum: u32 },
}

/// A picture, or an excerpt of a video or sound, that consists of the parts that were read of a field.
#[derive(Debug)]
pub(super) struct CutField {
    pub(super) record: u32,
    /// Number of the field in its record.
    pub(super) nth: u32,
    pub(super) content: Bytes,
}

/// A field that the columns may read, and its bytes in the shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WantedField {
    pub(super) record: u32,
    pub(super) nth: u32,
    pub(super) range: Range<u64>,
}

impl WantedField {
    pub(super) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}
