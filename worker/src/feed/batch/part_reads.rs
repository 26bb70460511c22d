//! Whether reading the parts of pictures, videos and sounds pays.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::video_tables::KeptTables;

/// After this many samples, a feed goes on reading parts only while that saves a fifth of the bytes or more.
const TRIED_SAMPLES: u64 = 64;

/// Whether a feed reads pictures, videos and sounds in parts.
#[derive(Debug)]
pub(in crate::feed) struct PartReads {
    /// Whether pictures are, which the user chooses.
    of_pictures: bool,
    /// Whether videos and sounds are, which every job with clips or segments of them tries.
    of_media: bool,
    pub(super) tables: KeptTables,
    samples: AtomicU64,
    /// Bytes of the samples' fields, and below how many of them were read.
    field_bytes: AtomicU64,
    read_bytes: AtomicU64,
    /// The epochs of the job, if its blocks fit into a cache: read whole, each is then read once.
    cached_epochs: u64,
    /// The bytes of sounds that samples have a share of, divided by the samples of each, and below how many were read.
    shared_bytes: AtomicU64,
    segment_bytes: AtomicU64,
}

impl PartReads {
    pub(in crate::feed) fn new(of_pictures: bool, of_media: bool, cached_epochs: u64) -> Self {
        let (samples, field_bytes, read_bytes, shared_bytes, segment_bytes) = Default::default();
        let tables = KeptTables::new();
        Self {
            of_pictures,
            of_media,
            tables,
            samples,
            field_bytes,
            read_bytes,
            cached_epochs,
            shared_bytes,
            segment_bytes,
        }
    }

    /// Returns whether large pictures are read in parts, while anything is.
    pub(super) const fn of_pictures(&self) -> bool {
        self.of_pictures
    }

    /// Returns whether fields are read in parts where they can be.
    pub(super) fn is_on(&self) -> bool {
        let saves = || self.read_bytes.load(Relaxed) / 4 <= self.field_bytes.load(Relaxed) / 5;
        // Whole recordings that a cache keeps cost less than all segments of all epochs.
        let is_cached =
            || self.segment_bytes.load(Relaxed).saturating_mul(self.cached_epochs) > self.shared_bytes.load(Relaxed);
        (self.of_pictures || self.of_media) && (self.samples.load(Relaxed) < TRIED_SAMPLES || saves() && !is_cached())
    }

    /// Notes the bytes of a segment, and of the sound divided by the number of its samples.
    pub(super) fn note_segment(&self, segment_bytes: u64, shared_bytes: u64) {
        self.segment_bytes.fetch_add(segment_bytes, Relaxed);
        self.shared_bytes.fetch_add(shared_bytes, Relaxed);
    }

    pub(super) fn note(&self, samples: usize, (field_bytes, read_bytes): (u64, u64), job: &str) {
        let was_on = self.is_on();
        self.samples.fetch_add(samples as u64, Relaxed);
        self.field_bytes.fetch_add(field_bytes, Relaxed);
        self.read_bytes.fetch_add(read_bytes, Relaxed);
        if was_on && !self.is_on() {
            let (field_bytes, read_bytes) = (self.field_bytes.load(Relaxed), self.read_bytes.load(Relaxed));
            let saved = "reading parts saves too little: blocks are read whole from now on";
            // Nobody asked for parts of videos and sounds.
            if self.of_pictures {
                tracing::warn!(job, field_bytes, read_bytes, "{saved}");
            } else {
                tracing::debug!(job, field_bytes, read_bytes, "{saved}");
            }
        }
    }
}
