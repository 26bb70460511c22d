//! Restores the files that scalable pictures were made of.

use spdl_jpeg::scalable::{self, ScalablePicture};

use super::{PictureError, PictureLimits, guarded};

/// A scalable picture as a file: the JPEG that it was made of.
pub struct PackedPicture<'b> {
    packed: &'b [u8],
    limits: PictureLimits,
    /// Width and height as stored, each at least 1 and within the limits.
    pub size: [u32; 2],
    /// Rough upper bound of the bytes that [`restore`](Self::restore) uses, with the result.
    pub memory_bytes: u64,
}

impl<'b> PackedPicture<'b> {
    /// Reads the head of a field; returns `None` if it is no scalable picture.
    ///
    /// # Errors
    /// [`PictureError`], also where the decoder panics.
    pub fn open(bytes: &'b [u8], limits: PictureLimits) -> Result<Option<Self>, PictureError> {
        if !ScalablePicture::is_packed(bytes) {
            return Ok(None);
        }
        guarded(|| {
            let picture = ScalablePicture::open(bytes, limits.into())?;
            Ok(Some(Self { packed: bytes, limits, size: picture.size(), memory_bytes: picture.restore_bytes() }))
        })
    }

    /// Returns the JPEG, bit for bit.
    ///
    /// # Errors
    /// [`PictureError`], also where the decoder panics.
    pub fn restore(&self) -> Result<Vec<u8>, PictureError> {
        guarded(|| Ok(scalable::restore(self.packed, self.limits.into())?))
    }
}
