//! A frame in the memory of the library.

use std::slice;

use spdl_media::VideoColor;

use super::{CodecProblem, layout::FrameFields, pixels::PixelLayout};
use crate::shape::FrameShape;

/// A frame in the memory of the library.
pub(crate) struct DecodedFrame<'c> {
    shape: FrameShape,
    color: VideoColor,
    planes: [SourcePlane<'c>; 3],
}

/// A plane as the library has it.
#[derive(Clone, Copy, Default)]
struct SourcePlane<'c> {
    bytes: &'c [u8],
    stride: usize,
    /// Where in a pair its numbers lie, if those of two planes follow each other by turns.
    part: Option<usize>,
}

impl<'c> DecodedFrame<'c> {
    /// Takes the planes of a frame.
    ///
    /// # Safety
    /// The decoder has filled the frame, with planes of this layout, and keeps it for as long as `'c`.
    pub(super) unsafe fn new(
        fields: &FrameFields,
        pixels: PixelLayout,
        color: VideoColor,
    ) -> Result<Self, CodecProblem> {
        let invalid = || CodecProblem::Stream("a frame has no pixels".to_owned());
        let [Ok(width), Ok(height)] = fields.size.map(u32::try_from) else { return Err(invalid()) };
        let shape = FrameShape::new(pixels.format, [width, height]).ok_or_else(invalid)?;
        let mut planes = [SourcePlane::default(); 3];
        for (nth, plane) in planes.iter_mut().enumerate().take(shape.planes()) {
            let source = pixels.planes[nth];
            let (row_bytes, rows) = shape.plane(nth);
            let part = (pixels.is_interleaved && nth > 0).then(|| nth - 1);
            let row_bytes = if part.is_some() { 2 * row_bytes } else { row_bytes };
            // Rows that lie from below to above are of none of the decoders.
            let stride = usize::try_from(fields.strides[source]).ok().filter(|stride| *stride >= row_bytes);
            let stride = stride.ok_or_else(invalid)?;
            if fields.data[source].is_null() {
                return Err(invalid());
            }
            let bytes = stride * (rows - 1) + row_bytes;
            // SAFETY: the caller's contract: a plane has its rows, so far from each other.
            *plane = SourcePlane { bytes: unsafe { slice::from_raw_parts(fields.data[source], bytes) }, stride, part };
        }
        Ok(Self { shape, color, planes })
    }

    /// Returns its size and format.
    pub(crate) const fn shape(&self) -> FrameShape {
        self.shape
    }

    /// Returns what the packets say of its colours.
    pub(crate) const fn color(&self) -> VideoColor {
        self.color
    }

    /// Writes the rows of all planes one after the other, without gaps: [`FrameShape::bytes`].
    pub(crate) fn copy_to(&self, mut out: &mut [u8]) {
        for (nth, plane) in self.planes.iter().enumerate().take(self.shape.planes()) {
            let (row_bytes, rows) = self.shape.plane(nth);
            let taken;
            (taken, out) = out.split_at_mut(row_bytes * rows);
            match plane.part {
                None if plane.stride == row_bytes => taken.copy_from_slice(plane.bytes),
                None => {
                    for (to, from) in taken.chunks_exact_mut(row_bytes).zip(plane.bytes.chunks(plane.stride)) {
                        to.copy_from_slice(&from[..row_bytes]);
                    }
                }
                Some(part) => {
                    for (to, from) in taken.chunks_exact_mut(row_bytes).zip(plane.bytes.chunks(plane.stride)) {
                        for (to, pair) in to.iter_mut().zip(from.as_chunks::<2>().0) {
                            *to = pair[part];
                        }
                    }
                }
            }
        }
    }
}
