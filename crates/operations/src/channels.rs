//! Moves the pixels of a picture of floats. Operations on values do not work on them.

use spdl_canvas::{PadWith, PixelOp, View};
use spdl_pixels::{ChannelFormat, ChannelPicture};

use super::pad::place;

/// Applies operations that only move pixels, in order.
///
/// # Panics
/// If one changes values.
pub fn run_on_channels(ops: &[PixelOp], picture: &mut ChannelPicture) {
    for op in ops {
        *picture = match op {
            PixelOp::Resample(plan) => picture.resampled(plan),
            PixelOp::Pad { sides, with } => padded(picture, *sides, *with, op.output_size(picture.size)),
            PixelOp::Views { views, size } => cut(picture, views, *size, op.output_size(picture.size)),
            _ => panic!("{op:?} changes values"),
        };
    }
}

/// Returns an upper bound of the bytes that [`run_on_channels`] uses for a picture of this size, including the picture and the
/// result.
#[must_use]
pub fn channel_memory_bytes(format: ChannelFormat, size: [u32; 2], ops: &[PixelOp]) -> u64 {
    let mut before = size;
    let mut most = ChannelPicture::bytes(format, size);
    for op in ops {
        let after = op.output_size(before);
        let result = match op {
            PixelOp::Resample(plan) => ChannelPicture::resample_bytes(format, before, plan),
            _ => ChannelPicture::bytes(format, after),
        };
        most = most.max(ChannelPicture::bytes(format, before) + result);
        before = after;
    }
    most
}

/// Pads a picture by so many pixels on its left, top, right and bottom. A constant colour is opaque.
fn padded(picture: &ChannelPicture, [left, top, ..]: [u32; 4], with: PadWith, size: [u32; 2]) -> ChannelPicture {
    let format = picture.format;
    let (channels, [width, height]) = (format.channels(), picture.size.map(|side| side as usize));
    let fill = if let PadWith::Constant(color) = with { format.of_rgb(color) } else { [0.0; 4] };
    let columns: Vec<Option<usize>> = (0..size[0] as usize).map(|x| place(with, x, left, width)).collect();
    let mut result = ChannelPicture::new(format, size);
    for (y, row) in result.values.chunks_exact_mut(size[0] as usize * channels).enumerate() {
        let from = place(with, y, top, height).map(|y| &picture.values[y * width * channels..][..width * channels]);
        for (pixel, column) in row.chunks_exact_mut(channels).zip(&columns) {
            let source = from.zip(*column).map_or(&fill[..channels], |(from, x)| &from[x * channels..][..channels]);
            pixel.copy_from_slice(source);
        }
    }
    result
}

/// Cuts parts out of a picture, and puts them one below the other. All parts must be inside the picture.
fn cut(picture: &ChannelPicture, views: &[View], [width, height]: [u32; 2], size: [u32; 2]) -> ChannelPicture {
    let channels = picture.format.channels();
    let [columns, rows, from_width] = [width, height, picture.size[0]].map(|side| side as usize);
    let mut result = ChannelPicture::new(picture.format, size);
    let parts = result.values.chunks_exact_mut(rows * columns * channels);
    for (View { place, mirrored, flipped }, part) in views.iter().zip(parts) {
        let [left, top] = place.map(|at| at as usize);
        for (y, row) in part.chunks_exact_mut(columns * channels).enumerate() {
            let from_row = top + if *flipped { rows - 1 - y } else { y };
            let from = &picture.values[(from_row * from_width + left) * channels..][..columns * channels];
            for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
                let x = if *mirrored { columns - 1 - x } else { x };
                pixel.copy_from_slice(&from[x * channels..][..channels]);
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use spdl_canvas::{AxisSpan, Filter, ResamplePlan};
    use spdl_types::{ImageColor, ImageDepth};

    use super::*;
    use crate::{OperationScratch, RgbPicture, run};

    const FORMAT: ChannelFormat = ChannelFormat { color: ImageColor::Rgb, depth: ImageDepth::Bits8 };

    fn span(from: u32, extent: u32, place: u32, pixels: u32, size: u32) -> Option<AxisSpan> {
        Some(AxisSpan {
            readable: (from, from + extent),
            from: from.into(),
            extent: extent.into(),
            place,
            pixels,
            size,
        })
    }

    #[test]
    fn pixels_of_floats_move_as_those_of_bytes_do() {
        let bytes: Vec<u8> = (0..19 * 13 * 3).map(|at| (at * 37 % 251) as u8).collect();
        let plan = |x, y, size, filter, mirrored| {
            PixelOp::Resample(ResamplePlan { x, y, mirrored, flipped: !mirrored, size, filter })
        };
        let mut cases = vec![];
        for with in [PadWith::Constant([9, 200, 77]), PadWith::Edge, PadWith::Reflect, PadWith::Symmetric] {
            cases.push((vec![PixelOp::Pad { sides: [1, 2, 3, 4], with }], 0));
        }
        let views = vec![
            View { place: [2, 3], mirrored: false, flipped: false },
            View { place: [0, 1], mirrored: true, flipped: false },
            View { place: [12, 5], mirrored: false, flipped: true },
        ];
        cases.push((vec![PixelOp::Views { views, size: [7, 8] }], 0));
        for filter in Filter::ALL {
            for mirrored in [false, true] {
                let smaller = plan(span(1, 17, 1, 7, 9), span(2, 10, 0, 4, 5), [9, 5], filter, mirrored);
                let larger = plan(span(4, 9, 0, 31, 31), span(0, 13, 2, 40, 45), [31, 45], filter, mirrored);
                let moved = plan(span(4, 9, 2, 9, 12), span(3, 7, 0, 7, 7), [12, 7], filter, mirrored);
                // Bytes are rounded twice and with weights of 16 bits.
                cases.extend([(vec![smaller], 2), (vec![larger], 2), (vec![moved], 0)]);
            }
        }
        for (ops, allowed) in cases {
            let mut rgb = RgbPicture { pixels: bytes.as_slice().into(), size: [19, 13] };
            run(&ops, &mut rgb, &mut OperationScratch::default());
            let values = bytes.iter().map(|byte| f32::from(*byte)).collect();
            let mut picture = ChannelPicture { values, size: [19, 13], format: FORMAT };
            run_on_channels(&ops, &mut picture);
            assert_eq!((picture.size, picture.values.len()), (rgb.size, rgb.pixels.len()), "{ops:?}");
            let off = |(a, b): (&f32, &u8)| (a.round() as i32 - i32::from(*b)).abs();
            let most = picture.values.iter().zip(rgb.pixels.iter()).map(off).max().unwrap();
            assert!(most <= allowed, "{most} levels: {ops:?}");
        }
    }

    #[test]
    fn what_pads_is_transparent_unless_it_has_a_colour() {
        let format = ChannelFormat { color: ImageColor::Rgba, depth: ImageDepth::Bits16 };
        let mut picture = ChannelPicture { values: vec![1.0, 2.0, 3.0, 4.0], size: [1, 1], format };
        run_on_channels(&[PixelOp::Pad { sides: [1, 0, 0, 0], with: PadWith::Constant([1, 2, 3]) }], &mut picture);
        assert_eq!(picture.values, [257.0, 514.0, 771.0, 65_535.0, 1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn colours_weigh_as_much_as_they_are_opaque() {
        let format = ChannelFormat { color: ImageColor::GrayAlpha, depth: ImageDepth::Bits8 };
        // A transparent colour does not tint the colours that it is mixed with.
        let mut picture = ChannelPicture { values: vec![200.0, 255.0, 0.0, 0.0], size: [2, 1], format };
        let plan = ResamplePlan {
            x: span(0, 2, 0, 1, 1),
            y: span(0, 1, 0, 1, 1),
            mirrored: false,
            flipped: false,
            size: [1, 1],
            filter: Filter::default(),
        };
        run_on_channels(&[PixelOp::Resample(plan)], &mut picture);
        assert_eq!(picture.values, [200.0, 127.5]);
    }
}
