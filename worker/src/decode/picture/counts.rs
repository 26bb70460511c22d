//! How many pictures went which way.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use spdl_jpeg::Oddity;

use super::Picture;

/// Ways in which a picture can be odd, beside those of JPEGs.
const BROKEN_EXIF: &str = "broken_exif";

/// Pictures that were decoded, by decoder. Several threads count at once.
#[derive(Debug, Default)]
pub struct PictureCounts {
    cropped: AtomicU64,
    whole: AtomicU64,
    odd: [AtomicU64; Oddity::ALL.len()],
    broken_exif: AtomicU64,
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

    /// Pictures that depart from the standard and were decoded all the same, by how they do; one picture can do so in
    /// several ways.
    pub fn odd(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let jpegs = Oddity::ALL.into_iter().zip(&self.odd).map(|(oddity, count)| (oddity.name(), count));
        jpegs.chain([(BROKEN_EXIF, &self.broken_exif)]).map(|(name, count)| (name, count.load(Relaxed)))
    }

    pub(crate) fn count(&self, picture: &Picture<'_>) {
        let counter = if picture.is_cropped() { &self.cropped } else { &self.whole };
        counter.fetch_add(1, Relaxed);
        for oddity in picture.oddities.iter() {
            self.odd[oddity as usize].fetch_add(1, Relaxed);
        }
        if picture.has_broken_exif {
            self.broken_exif.fetch_add(1, Relaxed);
        }
    }
}
