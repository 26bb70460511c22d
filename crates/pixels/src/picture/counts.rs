//! Counts pictures by the decoder that decoded them, and by their deviations from the standard.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use spdl_jpeg::Deviation;

use super::OpenPicture;

/// Name of the only deviation that is not specific to JPEGs.
const BROKEN_EXIF: &str = "broken_exif";

/// The counts of decoded pictures. Several threads may count at once.
#[derive(Debug, Default)]
pub struct PictureCounts {
    cropped: AtomicU64,
    whole: AtomicU64,
    odd: [AtomicU64; Deviation::ALL.len()],
    broken_exif: AtomicU64,
}

impl PictureCounts {
    /// Returns the number of pictures of which only the part needed for the crop was decoded.
    #[must_use]
    pub fn cropped(&self) -> u64 {
        self.cropped.load(Relaxed)
    }

    /// Returns the number of pictures that were decoded as a whole: all formats but JPEG, and JPEGs that the crop
    /// decoder does not support.
    #[must_use]
    pub fn whole(&self) -> u64 {
        self.whole.load(Relaxed)
    }

    /// Returns the number of pictures that deviate from the standard and were decoded, by the name of the deviation.
    /// One picture can have several.
    pub fn odd(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let jpegs = Deviation::ALL.into_iter().zip(&self.odd).map(|(deviation, count)| (deviation.name(), count));
        jpegs.chain([(BROKEN_EXIF, &self.broken_exif)]).map(|(name, count)| (name, count.load(Relaxed)))
    }

    /// Counts a picture that is decoded here.
    pub fn count(&self, picture: &OpenPicture<'_>) {
        if picture.is_of_rgb() {
            return;
        }
        let counter = if picture.is_cropped() { &self.cropped } else { &self.whole };
        counter.fetch_add(1, Relaxed);
        for deviation in picture.deviations.iter() {
            self.odd[deviation as usize].fetch_add(1, Relaxed);
        }
        if picture.has_broken_exif {
            self.broken_exif.fetch_add(1, Relaxed);
        }
    }
}
