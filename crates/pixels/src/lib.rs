//! Decodes pictures, crops and resizes them, and writes their pixels into a sample's place.
//!
//! [`open`] reads the header, from which the caller plans the crop: an [`AxisSpan`](spdl_canvas::AxisSpan) for each axis, and a [`Frame`]. Then
//! [`OpenPicture::render`] decodes what the plan needs, and a [`PixelWriter`] converts it to the column's type and layout. A frame of a
//! video, which others have decoded, goes the same way: [`of_rgb`].
//! The result depends on the bytes and the plan alone, never on the machine's vector instructions or on earlier pictures.
//!
//! All code that runs once for each pixel is in this crate, in `spdl-jpeg` and in `spdl-operations`, so that only they have to be compiled
//! with all optimisations.

mod channels;
mod luma;
mod orientation;
mod picture;
pub mod resize;
mod span;
mod writer;

pub use channels::{ChannelFormat, ChannelPicture, ChannelWriter};
pub use luma::{luma, make_gray};
pub use orientation::Orientation;
pub use picture::{
    IndexPng, OpenPicture, PackedPicture, PictureCounts, PictureError, PictureLimits, PictureScratch, Resampler,
    ScalableHead, WholeDecoder, of_decoder, of_rgb, of_rgb_memory_bytes, open,
};
pub use spdl_jpeg::scalable::{PARTS_FROM_BYTES, Parts};
pub use writer::{Frame, PictureSpec, PixelWriter};
