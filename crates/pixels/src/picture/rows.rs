//! Crops and resizes a picture that is decoded row by row. Holds only the rows of the result that are being computed in
//! memory, never the whole picture. The result is byte for byte that of [`Resampler`](super::Resampler) on the whole
//! picture.

use super::{PictureError, Resampler};
use spdl_canvas::AxisSpan;

use crate::span::within;

/// A picture that is decoded from top to bottom.
pub(super) trait Rows {
    /// Writes the next row as RGB pixels.
    fn next_row(&mut self, rgb: &mut [u8]) -> Result<(), PictureError>;
}

/// Bits that a 32-bit sum leaves for a weight: 8 bits hold the value and 2 the sign and overflow, as in
/// `fast_image_resize`.
const PRECISION_BITS: u32 = 32 - 8 - 2;

/// The weights of one row of the result, from row `first` of the picture on.
struct Weights {
    first: u32,
    values: Vec<i16>,
}

/// The weights of all rows of the result, and the number of their fractional bits.
struct RowTaps {
    rows: Vec<Weights>,
    precision: u32,
}

/// A row of the result that is being computed.
struct Sum {
    row: usize,
    values: Vec<i32>,
}

/// Returns the bytes that [`resample`] uses.
pub(super) fn resample_bytes([width, _]: [u32; 2], y: AxisSpan) -> u64 {
    let scale = y.extent / f64::from(y.pixels);
    let sums = (2.0 * scale.max(1.0) / scale).ceil() as u64 + 1;
    let weights = u64::from(y.pixels) * (2.0 * scale.max(1.0) + 3.0) as u64;
    u64::from(width) * 3 * (4 * sums + 2) + 10 * weights
}

/// Writes `y.pixels` rows of `x.pixels` RGB pixels to `out`, from the rows of a picture that is `width` pixels wide.
pub(super) fn resample(
    rows: &mut impl Rows,
    [width, height]: [u32; 2],
    [x, y]: [AxisSpan; 2],
    resampler: &mut Resampler,
    out: &mut [u8],
) -> Result<(), PictureError> {
    let taps = taps(y);
    let result_bytes = x.pixels as usize * 3;
    assert_eq!(out.len(), result_bytes * y.pixels as usize, "bytes of {}x{}", x.pixels, y.pixels);
    let mut row = vec![0; width as usize * 3];
    let mut finished = vec![0; row.len()];
    let (mut begun, mut done) = (0, 0);
    let mut sums: Vec<Sum> = Vec::new();
    let mut spare: Vec<Vec<i32>> = Vec::new();
    for at in 0..height {
        if done == taps.rows.len() {
            break;
        }
        rows.next_row(&mut row)?;
        while taps.rows.get(begun).is_some_and(|next| next.first <= at) {
            let mut values = spare.pop().unwrap_or_else(|| vec![0; row.len()]);
            values.fill(1 << (taps.precision - 1));
            sums.push(Sum { row: begun, values });
            begun += 1;
        }
        for sum in &mut sums {
            let weights = &taps.rows[sum.row];
            if let Some(&weight) = weights.values.get((at - weights.first) as usize) {
                let weight = i32::from(weight);
                sum.values.iter_mut().zip(&row).for_each(|(sum, byte)| *sum += i32::from(*byte) * weight);
            }
        }
        while let Some(first) = sums.first() {
            let weights = &taps.rows[first.row];
            if weights.first as usize + weights.values.len() > at as usize + 1 {
                break;
            }
            let Sum { row, values } = sums.remove(0);
            for (byte, sum) in finished.iter_mut().zip(&values) {
                *byte = (sum >> taps.precision).clamp(0, 255) as u8;
            }
            resampler.resample_row(&finished, width, x, &mut out[row * result_bytes..][..result_bytes]);
            spare.push(values);
            done += 1;
        }
    }
    Ok(())
}

/// Returns the triangle filter's weights, as integers like those of `fast_image_resize`, which are the same as in
/// Pillow-SIMD.
fn taps(y: AxisSpan) -> RowTaps {
    let size = y.readable.1 - y.readable.0;
    let (from, extent) = within(y, size);
    let scale = extent / f64::from(y.pixels);
    if extent == f64::from(y.pixels) && from == from.round() {
        // Rows are not resized: each one is written as it was read.
        let first = y.readable.0 + from as u32;
        let rows = (0..y.pixels).map(|row| Weights { first: first + row, values: vec![1 << 8] }).collect();
        return RowTaps { rows, precision: 8 };
    }
    let radius = scale.max(1.0);
    let recip = 1.0 / radius;
    let mut most = 0.0_f64;
    let mut rows: Vec<(u32, Vec<f64>)> = Vec::with_capacity(y.pixels as usize);
    for row in 0..y.pixels {
        let center = from + (f64::from(row) + 0.5) * scale;
        let first = (center - radius).floor().max(0.0) as u32;
        let end = (center + radius).ceil().min(f64::from(size)) as u32;
        let weight = |at: u32| {
            let distance = ((f64::from(at) - (center - 0.5)) * recip).abs();
            if distance < 1.0 { 1.0 - distance } else { 0.0 }
        };
        let mut all: Vec<(u32, f64)> =
            (first..end).map(|at| (at, weight(at))).skip_while(|(_, weight)| *weight == 0.0).collect();
        while all.last().is_some_and(|(_, weight)| *weight == 0.0) {
            all.pop();
        }
        let sum: f64 = all.iter().map(|(_, weight)| weight).sum();
        let values: Vec<f64> = all.iter().map(|(_, weight)| if sum == 0.0 { *weight } else { weight / sum }).collect();
        most = values.iter().copied().fold(most, f64::max);
        rows.push((y.readable.0 + all.first().map_or(first, |(at, _)| *at), values));
    }
    let fits = |precision: &u32| (most * f64::from(1 << (precision + 1))).round() < f64::from(1 << 15);
    let precision = (0..PRECISION_BITS - 1).find(|precision| !fits(precision)).unwrap_or(PRECISION_BITS - 1);
    let unit = f64::from(1 << precision);
    let whole = |weights: Vec<f64>| weights.into_iter().map(|weight| (weight * unit).round() as i16).collect();
    let rows = rows.into_iter().map(|(first, values)| Weights { first, values: whole(values) }).collect();
    RowTaps { rows, precision }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spdl_canvas::Filter;

    use crate::picture::resample::tests::span;

    struct Whole<'p>(std::slice::ChunksExact<'p, u8>);

    impl Rows for Whole<'_> {
        fn next_row(&mut self, rgb: &mut [u8]) -> Result<(), PictureError> {
            rgb.copy_from_slice(self.0.next().expect("a row"));
            Ok(())
        }
    }

    #[test]
    fn rows_one_after_the_other_give_what_the_whole_picture_gives() {
        let bytes = include_bytes!("../../../../assets/jpegs/chelsea.jpg");
        let picture = image::load_from_memory(bytes).unwrap().to_rgb8();
        for (x, y) in [
            (span((0, 240), 0.0, 240.0, 224), span((0, 160), 0.0, 160.0, 150)),
            (span((0, 240), 0.0, 240.0, 17), span((0, 160), 0.0, 160.0, 5)),
            (span((0, 240), 0.0, 240.0, 1), span((0, 160), 0.0, 160.0, 1)),
            (span((13, 90), 13.0, 77.0, 224), span((5, 160), 5.0, 155.0, 31)),
            (span((0, 240), 10.3, 100.7, 64), span((0, 160), 1.9, 150.2, 64)),
            (span((0, 240), 10.3, 100.7, 64), span((3, 150), 20.0, 64.0, 64)),
            (span((0, 240), 0.0, 240.0, 240), span((0, 160), 0.0, 160.0, 160)),
            (span((0, 240), 7.0, 100.0, 100), span((9, 101), 10.0, 90.0, 300)),
            (span((7, 8), 7.0, 1.0, 9), span((159, 160), 159.0, 1.0, 3)),
        ] {
            let mut outs = [0, 1].map(|_| vec![0; (x.pixels * y.pixels * 3) as usize]);
            Resampler::default().resample(&picture, [240, 160], (x, y), Filter::default(), &mut outs[0]);
            let mut rows = Whole(picture.chunks_exact(240 * 3));
            resample(&mut rows, [240, 160], [x, y], &mut Resampler::default(), &mut outs[1]).unwrap();
            assert!(outs[0] == outs[1], "{x:?} {y:?}");
        }
    }
}
