//! Moves the pixels of a picture of numbers, such as a mask of classes, as the operations move the pixels of the
//! picture that the mask describes. Numbers are never blended: each pixel takes the number of the nearest one.

use std::mem;

use spdl_canvas::{AxisSpan, PixelOp, ResamplePlan};

use super::{pad, warp};

/// A picture with a number for each pixel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IndexPicture {
    /// The numbers, row by row.
    pub values: Vec<u16>,
    /// Width and height.
    pub size: [u32; 2],
    /// The number that pixels beyond the border get.
    pub beyond: u16,
    /// Buffer for the next result.
    result: Vec<u16>,
}

/// Returns an upper bound of the bytes that moving a picture of this size uses, besides the picture.
#[must_use]
pub fn index_memory_bytes(size: [u32; 2], decode: &ResamplePlan, then: &[PixelOp]) -> u64 {
    let pixels = |[width, height]: [u32; 2]| u64::from(width) * u64::from(height);
    let mut after = decode.size;
    let largest = then.iter().fold(pixels(size).max(pixels(after)), |most, op| {
        after = op.output_size(after);
        most.max(pixels(after))
    });
    largest * 2 * 2
}

impl IndexPicture {
    /// Keeps at most about `bytes` for the next picture.
    pub fn shrink_to(&mut self, bytes: usize) {
        for buffer in [&mut self.values, &mut self.result] {
            if buffer.capacity() * 2 > bytes {
                *buffer = Vec::new();
            }
        }
    }

    /// Moves the pixels as operations on a decoded picture do. Operations that change colours change nothing here.
    pub fn run(&mut self, ops: &[PixelOp]) {
        for op in ops {
            match op {
                PixelOp::Resample(plan) => self.resample(plan),
                PixelOp::Warp(warp) => {
                    warp::warp_indices((&self.values, self.size), warp, &mut self.result, self.beyond);
                    self.take(warp.size);
                }
                PixelOp::Pad { sides, with } => {
                    let size = op.output_size(self.size);
                    pad::pad_indices((&self.values, self.size), *sides, *with, &mut self.result, self.beyond);
                    self.take(size);
                }
                _ => {}
            }
        }
    }

    /// Crops, resizes, pads and mirrors.
    pub fn resample(&mut self, plan: &ResamplePlan) {
        let [width, height] = plan.size.map(|side| side as usize);
        let from_width = self.size[0] as usize;
        let beyond = self.beyond;
        self.result.clear();
        self.result.resize(width * height, beyond);
        if let (Some(x), Some(y)) = (plan.x, plan.y) {
            let (columns, rows) = (places(x, plan.mirrored), places(y, plan.flipped));
            let shown = |span: AxisSpan, reversed: bool| {
                (if reversed { span.size - span.place - span.pixels } else { span.place }) as usize
            };
            let (left, top) = (shown(x, plan.mirrored), shown(y, plan.flipped));
            for (row, from) in self.result.chunks_exact_mut(width).skip(top).zip(rows) {
                let from = &self.values[from as usize * from_width..][..from_width];
                for (value, column) in row[left..].iter_mut().zip(&columns) {
                    *value = from[*column as usize];
                }
            }
        }
        self.take(plan.size);
    }

    fn take(&mut self, size: [u32; 2]) {
        mem::swap(&mut self.values, &mut self.result);
        self.size = size;
    }
}

/// Returns the pixel of the picture that each pixel of the result shows along one axis.
fn places(span: AxisSpan, reversed: bool) -> Vec<u32> {
    let step = span.extent / f64::from(span.pixels);
    let (first, last) = (span.readable.0, span.readable.1 - 1);
    let place = |at: u32| ((span.from + (f64::from(at) + 0.5) * step).floor() as u32).clamp(first, last);
    if reversed { (0..span.pixels).rev().map(place).collect() } else { (0..span.pixels).map(place).collect() }
}

#[cfg(test)]
mod tests {
    use spdl_canvas::{Filter, PadWith, Sampling, Warp};

    use super::*;
    use crate::RgbPicture;

    /// A picture of different numbers, and the same as grey pixels.
    fn pictures() -> (IndexPicture, RgbPicture<'static>) {
        let values: Vec<u16> = (0..9 * 7).map(|at| at * 4).collect();
        let pixels: Vec<u8> = values.iter().flat_map(|value| [*value as u8; 3]).collect();
        let indices = IndexPicture { values, size: [9, 7], beyond: 255, ..IndexPicture::default() };
        (indices, RgbPicture { pixels: pixels.into(), size: [9, 7] })
    }

    fn span(from: u32, pixels: u32, place: u32, size: u32) -> Option<AxisSpan> {
        let readable = (from, from + pixels);
        Some(AxisSpan { readable, from: from.into(), extent: pixels.into(), place, pixels, size })
    }

    #[test]
    fn numbers_move_as_the_pixels_of_a_picture_do() {
        let factors = [0.9, 0.3, -1.0, -0.2, 0.8, 1.5, 0.0, 0.001];
        let warp = Warp { factors, sampling: Sampling::Nearest, fill: Some([255; 3]), size: [12, 8] };
        let place = |mirrored, flipped| ResamplePlan {
            x: span(2, 6, 0, 6),
            y: span(1, 5, 0, 5),
            mirrored,
            flipped,
            size: [6, 5],
            filter: Filter::default(),
        };
        let mut cases = vec![vec![PixelOp::Warp(warp)], vec![PixelOp::Invert]];
        for with in [PadWith::Constant([255; 3]), PadWith::Edge, PadWith::Reflect, PadWith::Symmetric] {
            cases.push(vec![PixelOp::Pad { sides: [1, 2, 3, 4], with }]);
        }
        for (mirrored, flipped) in [(false, false), (true, false), (false, true), (true, true)] {
            cases.push(vec![PixelOp::Resample(place(mirrored, flipped))]);
        }
        for ops in cases {
            let (mut indices, mut rgb) = pictures();
            indices.run(&ops);
            let ops: Vec<PixelOp> = ops.into_iter().filter(|op| *op != PixelOp::Invert).collect();
            crate::run(&ops, &mut rgb, &mut crate::OperationScratch::default());
            let grey: Vec<u16> = rgb.pixels.chunks_exact(3).map(|pixel| pixel[0].into()).collect();
            assert_eq!((&indices.values, indices.size), (&grey, rgb.size), "{ops:?}");
        }
    }

    #[test]
    fn a_pixel_takes_the_number_at_its_middle_and_what_is_beyond_takes_none() {
        let (mut indices, _) = pictures();
        let plan = ResamplePlan {
            x: span(0, 9, 1, 4),
            y: span(0, 7, 0, 1),
            mirrored: false,
            flipped: false,
            size: [4, 1],
            filter: Filter::default(),
        };
        let x = plan.x.map(|span| AxisSpan { pixels: 3, ..span });
        let y = plan.y.map(|span| AxisSpan { pixels: 1, ..span });
        indices.resample(&ResamplePlan { x, y, ..plan });
        assert_eq!(indices.values, [255, (3 * 9 + 1) * 4, (3 * 9 + 4) * 4, (3 * 9 + 7) * 4]);
        let nothing =
            ResamplePlan { x: None, y: None, mirrored: false, flipped: false, size: [2, 1], filter: Filter::default() };
        indices.resample(&nothing);
        assert_eq!((indices.values, indices.size), (vec![255; 2], [2, 1]));
    }
}
