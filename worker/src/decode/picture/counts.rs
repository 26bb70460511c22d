//! How many pictures went which way.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Pictures that were decoded, by decoder. Several threads count at once.
#[derive(Debug, Default)]
pub struct PictureCounts {
    cropped: AtomicU64,
    whole: AtomicU64,
}

impl PictureCounts {
    /// Pictures of which no more was decoded than their crop needed.
    #[must_use]
    pub fn cropped(&self) -> u64 {
        self.cropped.load(Relaxed)
    }

    /// Pictures that were decoded as a whole: what is no JPEG, or one that the crop decoder leaves to a library.
    #[must_use]
    pub fn whole(&self) -> u64 {
        self.whole.load(Relaxed)
    }

    pub(crate) fn count(&self, is_cropped: bool) {
        let counter = if is_cropped { &self.cropped } else { &self.whole };
        counter.fetch_add(1, Relaxed);
    }
}
