//! Computes the weights of the pixels that make each pixel of the result, along one axis, for every filter.

use spdl_types::elementary::sin_cos;

use spdl_canvas::{AxisSpan, Filter};

use crate::span::within;

/// The pixels along one axis that make one pixel of the result: those from `first` on, with these weights, which add up
/// to 1.
pub(super) struct PixelTaps {
    pub(super) first: usize,
    pub(super) weights: Vec<f32>,
}

/// Returns the taps of all pixels that a span shows. A span that shows each pixel as it is has one tap of weight 1 for each.
pub(super) fn taps(span: AxisSpan, filter: Filter) -> Vec<PixelTaps> {
    let side = span.readable.1 - span.readable.0;
    let (from, extent) = within(span, side);
    let scale = extent / f64::from(span.pixels);
    let start = span.readable.0 as usize;
    let single =
        |at: f64| PixelTaps { first: start + (at.max(0.0) as usize).min(side as usize - 1), weights: vec![1.0] };
    if extent == f64::from(span.pixels) && from == from.round() {
        return (0..span.pixels).map(|at| single(from + f64::from(at))).collect();
    }
    if filter == Filter::Nearest {
        return (0..span.pixels).map(|at| single(from + scale * 0.5 + scale * f64::from(at))).collect();
    }
    let shrink = if filter == Filter::PlainBilinear { 1.0 } else { scale.max(1.0) };
    let radius = reach(filter) * shrink;
    let of = |at: u32| {
        let center = from + (f64::from(at) + 0.5) * scale;
        // As in Pillow, the ends are rounded.
        let first = (center - radius + 0.5).floor().max(0.0) as u32;
        let end = ((center + radius + 0.5).floor() as u32).clamp(first + 1, side.max(first + 1));
        let weights: Vec<f64> =
            (first..end).map(|at| weight(filter, (f64::from(at) + 0.5 - center) / shrink)).collect();
        let sum: f64 = weights.iter().sum();
        if first >= side || sum == 0.0 {
            return single(center);
        }
        let weights = weights.into_iter().map(|weight| (weight / sum) as f32).collect();
        PixelTaps { first: start + first as usize, weights }
    };
    (0..span.pixels).map(of).collect()
}

/// Returns half the width of a filter's support.
const fn reach(filter: Filter) -> f64 {
    match filter {
        Filter::Nearest | Filter::Box => 0.5,
        Filter::Bilinear | Filter::PlainBilinear | Filter::Hamming => 1.0,
        Filter::CatmullRom => 2.0,
        Filter::Lanczos3 => 3.0,
    }
}

/// Returns the weight of a filter at a distance from its middle, before all are divided by their sum.
fn weight(filter: Filter, x: f64) -> f64 {
    let distance = x.abs();
    match filter {
        Filter::Nearest | Filter::Box => f64::from(-0.5 < x && x <= 0.5),
        Filter::Bilinear | Filter::PlainBilinear => (1.0 - distance).max(0.0),
        Filter::Hamming if distance < 1.0 => sinc(x) * (0.54 + 0.46 * cos_of_half_turns(x)),
        Filter::CatmullRom if distance < 1.0 => (1.5 * distance - 2.5) * distance * distance + 1.0,
        Filter::CatmullRom if distance < 2.0 => ((-0.5 * distance + 2.5) * distance - 4.0) * distance + 2.0,
        Filter::Lanczos3 if distance < 3.0 => sinc(x) * sinc(x / 3.0),
        Filter::Hamming | Filter::CatmullRom | Filter::Lanczos3 => 0.0,
    }
}

fn cos_of_half_turns(x: f64) -> f64 {
    sin_cos(x * 180.0).1
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { sin_cos(x * 180.0).0 / (x * std::f64::consts::PI) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(readable: (u32, u32), from: f64, extent: f64, pixels: u32) -> AxisSpan {
        AxisSpan { readable, from, extent, place: 0, pixels, size: pixels }
    }

    #[test]
    fn taps_lie_in_the_readable_part_and_add_up_to_1() {
        for filter in Filter::ALL {
            for span in [
                span((0, 10), 0.0, 10.0, 3),
                span((0, 10), 0.0, 10.0, 100),
                span((3, 9), 3.5, 5.2, 7),
                span((3, 9), 3.0, 6.0, 1),
                span((4, 5), 4.0, 1.0, 9),
                span((0, 1000), 0.3, 999.7, 1),
            ] {
                let all = taps(span, filter);
                assert_eq!(all.len(), span.pixels as usize);
                for PixelTaps { first, weights } in all {
                    let (least, most) = (span.readable.0 as usize, span.readable.1 as usize);
                    assert!(first >= least && first + weights.len() <= most, "{filter:?} {span:?} {first}");
                    let sum: f32 = weights.iter().sum();
                    assert!((sum - 1.0).abs() < 1e-4, "{filter:?} {span:?} {sum}");
                }
            }
        }
    }

    #[test]
    fn a_span_that_shows_each_pixel_as_it_is_has_one_tap_for_each() {
        for filter in Filter::ALL {
            let all = taps(span((2, 9), 4.0, 3.0, 3), filter);
            let all: Vec<_> = all.iter().map(|taps| (taps.first, taps.weights.as_slice())).collect();
            assert_eq!(all, [(4, &[1.0][..]), (5, &[1.0]), (6, &[1.0])], "{filter:?}");
        }
    }
}
