//! Whether reading the parts of pictures, videos and sounds pays.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::video_parts::KeptTables;

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
}

impl PartReads {
    pub(in crate::feed) fn new(of_pictures: bool, of_media: bool) -> Self {
        let zero = || AtomicU64::new(0);
        let tables = KeptTables::new();
        Self { of_pictures, of_media, tables, samples: zero(), field_bytes: zero(), read_bytes: zero() }
    }

    /// Returns whether large pictures are read in parts, while anything is.
    pub(super) const fn of_pictures(&self) -> bool {
        self.of_pictures
    }

    /// Returns whether fields are read in parts where they can be.
    pub(super) fn is_on(&self) -> bool {
        let saves = || self.read_bytes.load(Relaxed) / 4 <= self.field_bytes.load(Relaxed) / 5;
        (self.of_pictures || self.of_media) && (self.samples.load(Relaxed) < TRIED_SAMPLES || saves())
    }

    pub(super) fn note(&self, samples: usize, (field_bytes, read_bytes): (u64, u64), job: &str) {
        let was_on = self.is_on();
        self.samples.fetch_add(samples as u64, Relaxed);
        self.field_bytes.fetch_add(field_bytes, Relaxed);
        self.read_bytes.fetch_add(read_bytes, Relaxed);
        if was_on && !self.is_on() {
            let (field_bytes, read_bytes) = (self.field_bytes.load(Relaxed), self.read_bytes.load(Relaxed));
            let saved = "reading parts saves less than a fifth of the bytes: blocks are read whole from now on";
            // Nobody asked for parts of videos and sounds.
            if self.of_pictures {
                tracing::warn!(job, field_bytes, read_bytes, "{saved}");
            } else {
                tracing::debug!(job, field_bytes, read_bytes, "{saved}");
            }
        }
    }
}
