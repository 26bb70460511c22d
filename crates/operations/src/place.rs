//! Moves whole pixels: crops, pads with black and mirrors.

use std::mem::MaybeUninit;

use spdl_canvas::{AxisSpan, ResamplePlan};

use super::{RgbPicture, mirror::mirror, pixel_pass::write_all};

const BLACK: MaybeUninit<u8> = MaybeUninit::new(0);

/// Applies the plan and writes the result to `out`, if the plan only moves whole pixels; otherwise returns `false`.
pub(super) fn place(picture: &RgbPicture<'_>, plan: &ResamplePlan, out: &mut Vec<u8>) -> bool {
    let (Some(x), Some(y)) = (plan.x, plan.y) else { return false };
    let (Some(left), Some(top)) = (first(x), first(y)) else { return false };
    let [width, height] = plan.size.map(|side| side as usize);
    let (columns, rows) = (x.pixels as usize, y.pixels as usize);
    let at = |span: AxisSpan, reversed: bool| {
        (if reversed { span.size - span.place - span.pixels } else { span.place }) as usize
    };
    let [to_left, to_top] = [at(x, plan.mirrored), at(y, plan.flipped)];
    let from_bytes = picture.size[0] as usize * 3;
    let rows_from = picture.pixels.chunks_exact(from_bytes).skip(top).take(rows);
    let place_row = |to: &mut [MaybeUninit<u8>], from: &[u8]| {
        let (before, to) = to.split_at_mut(to_left * 3);
        let (to, after) = to.split_at_mut(columns * 3);
        before.fill(BLACK);
        after.fill(BLACK);
        let from = &from[left * 3..][..columns * 3];
        if plan.mirrored {
            mirror(from, to);
        } else {
            to.write_copy_of_slice(from);
        }
    };
    write_all(out, width * height * 3, |out| {
        let (above, out) = out.split_at_mut(to_top * width * 3);
        let (out, below) = out.split_at_mut(rows * width * 3);
        above.fill(BLACK);
        below.fill(BLACK);
        let to = out.chunks_exact_mut(width * 3);
        if plan.flipped {
            to.zip(rows_from.rev()).for_each(|(to, from)| place_row(to, from));
        } else {
            to.zip(rows_from).for_each(|(to, from)| place_row(to, from));
        }
    });
    true
}

/// Returns the first pixel that a span shows, if it shows each pixel as it is.
fn first(span: AxisSpan) -> Option<usize> {
    (span.extent == f64::from(span.pixels) && span.from.fract() == 0.0).then_some(span.from as usize)
}

#[cfg(test)]
mod tests {
    use spdl_canvas::Filter;
    use spdl_pixels::Resampler;

    use super::*;

    #[test]
    fn placing_gives_what_resampling_gives() {
        let picture = RgbPicture {
            pixels: (0..70 * 9 * 3).map(|at| (at * 31 % 255) as u8).collect::<Vec<u8>>().into(),
            size: [70, 9],
        };
        let span = |from: u32, pixels: u32, place: u32, size: u32| {
            Some(AxisSpan {
                readable: (from, from + pixels),
                from: from.into(),
                extent: pixels.into(),
                place,
                pixels,
                size,
            })
        };
        for (x, y) in [
            (span(0, 70, 0, 70), span(0, 9, 0, 9)),
            (span(5, 60, 0, 60), span(2, 3, 0, 3)),
            (span(7, 33, 4, 40), span(1, 8, 2, 11)),
        ] {
            for (mirrored, flipped) in [(false, false), (true, false), (false, true), (true, true)] {
                let plan = ResamplePlan {
                    x,
                    y,
                    mirrored,
                    flipped,
                    size: [x.unwrap().size, y.unwrap().size],
                    filter: Filter::default(),
                };
                let (mut placed, mut resampled) = (vec![9; 5000], Vec::new());
                assert!(place(&picture, &plan, &mut placed));
                Resampler::default().apply(&plan, &picture.pixels, picture.size, &mut resampled);
                assert!(placed == resampled, "{plan:?}");
            }
        }
        let scaled = ResamplePlan {
            x: span(0, 70, 0, 70).map(|span| AxisSpan { extent: 69.0, ..span }),
            y: span(0, 9, 0, 9),
            mirrored: false,
            flipped: false,
            size: [70, 9],
            filter: Filter::default(),
        };
        assert!(!place(&picture, &scaled, &mut Vec::new()));
    }
}
