//! The head of a scalable picture, which determines the other parts of the picture that a crop needs.

use std::ops::Range;

use spdl_jpeg::scalable::{Parts, PictureHead};

use super::{Orientation, PictureError, PictureLimits, checked_size, crop, exif::upright, guarded};
use spdl_canvas::AxisSpan;

use crate::Frame;

/// A scalable picture of which only the first bytes have been read.
pub struct ScalableHead<'b> {
    head: PictureHead<'b>,
    /// Width and height as stored, each at least 1 and within the limits.
    pub stored: [u32; 2],
    /// Orientation that turns the stored picture upright.
    pub orientation: Orientation,
}

impl<'b> ScalableHead<'b> {
    /// Reads the head of a field of `total` bytes from its first bytes. Returns `None` if the field has to be read
    /// whole: it is not a scalable picture, or a small one, which has no checksums of its parts.
    ///
    /// # Errors
    /// [`PictureError`] if the head is broken or longer than these bytes.
    pub fn read(first: &'b [u8], total: usize, limits: PictureLimits) -> Result<Option<Self>, PictureError> {
        guarded(|| {
            let Some(head) = PictureHead::read(first, total, limits.into())? else { return Ok(None) };
            let [width, height] = head.size();
            let stored = checked_size(width, height, limits)?;
            let orientation = upright(head.exif(), head.xmp()).orientation;
            Ok(Some(Self { head, stored, orientation }))
        })
    }

    /// Returns the width and height of the upright picture.
    #[must_use]
    pub fn seen(&self) -> [u32; 2] {
        self.orientation.seen(self.stored)
    }

    /// Returns what [`OpenPicture::render`](super::OpenPicture::render) reads for the pixels of `frame`. `x` and `y` refer to the picture as
    /// stored.
    #[must_use]
    pub fn parts(&self, spans: [AxisSpan; 2], frame: &Frame) -> Parts {
        self.head.parts(&crop::request(spans, frame))
    }

    /// Returns the ranges of the field's bytes that hold these parts, in order, without the head.
    ///
    /// # Errors
    /// [`PictureError`] if the head is broken.
    pub fn ranges(&self, parts: &Parts) -> Result<Vec<Range<usize>>, PictureError> {
        guarded(|| Ok(self.head.ranges(parts)?))
    }

    /// Returns a field with these parts of the picture alone. `bytes_of` returns the bytes of a range of the whole
    /// field, which lies within one of [`ranges`](Self::ranges).
    ///
    /// # Errors
    /// [`PictureError`] if bytes are missing or not what was packed.
    pub fn cut<B: AsRef<[u8]>>(
        &self,
        parts: &Parts,
        bytes_of: impl FnMut(Range<usize>) -> Option<B>,
    ) -> Result<Vec<u8>, PictureError> {
        guarded(|| Ok(self.head.cut(parts, bytes_of)?))
    }
}
