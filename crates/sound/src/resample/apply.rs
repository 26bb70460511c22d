//! The sums of a resampler: each output frame is the sum of products of its phase's weights and the input frames they are for.
//!
//! Each frame is summed in the same eight lanes, which are then added in the same order, whether frames are computed together or
//! alone and whatever vector registers there are. No instruction multiplies and adds with one rounding. So a frame has the same
//! bits on every processor, and in a segment of a file the same as in the whole file.

use std::array;

use fearless_simd::{Simd, f32x8, prelude::*};

use super::kernel::{LANES, PhaseWeights};

/// Frames of the same phase that are computed together: each weight is loaded once for all of them, and additions need not wait
/// for each other. More of them do not fit the registers.
const TOGETHER: usize = 8;

/// Writes the output frames from `output_start` on. `input` has the frames from `input_start` on; all others count as zeros.
#[inline(always)]
pub(super) fn apply<S: Simd>(
    simd: S,
    weights: &PhaseWeights,
    input: &[f32],
    input_start: usize,
    output_start: usize,
    mut out: &mut [f32],
) {
    let &PhaseWeights { from, to, .. } = weights;
    // Of the phase and the place in `input` at which the phases begin, both move with the frames.
    let mut phase = output_start % to;
    let begun = weights.first_frame(output_start).saturating_sub(weights.starts[phase].into());
    let mut base = begun.saturating_sub(i64::try_from(input_start).unwrap_or(i64::MAX));
    while !out.is_empty() {
        let first = base.saturating_add(weights.starts[phase].into());
        // The last frame is `TOGETHER` rounds of phases later, less one frame.
        let end = base
            .saturating_add((from * (TOGETHER + 1)) as i64 + weights.row as i64 - i64::from(weights.starts[0]).min(0));
        if out.len() >= TOGETHER * to && first >= 0 && end <= input.len() as i64 {
            let (now, later) = out.split_at_mut(TOGETHER * to);
            for place in 0..to {
                let start = (base + i64::from(weights.starts[phase])) as usize;
                let row = weights.row_of(phase);
                let sums = dot::<S, TOGETHER>(simd, row, array::from_fn(|n| &input[start + n * from..][..row.len()]));
                for (n, sum) in sums.into_iter().enumerate() {
                    now[place + n * to] = sum;
                }
                (phase, base) = weights.next(phase, base);
            }
            base += ((TOGETHER - 1) * from) as i64;
            out = later;
        } else {
            let (now, later) = out.split_at_mut(to.min(out.len()));
            for sample in now {
                *sample = single(simd, weights.row_of(phase), input, base.saturating_add(weights.starts[phase].into()));
                (phase, base) = weights.next(phase, base);
            }
            out = later;
        }
    }
}

/// Returns one frame: the sum of products of the weights and the input from `start` on.
#[inline(always)]
fn single<S: Simd>(simd: S, row: &[f32], input: &[f32], start: i64) -> f32 {
    let inside = usize::try_from(start).ok().and_then(|start| input.get(start..)?.get(..row.len()));
    if let Some(inside) = inside {
        let [sum] = dot(simd, row, [inside]);
        return sum;
    }
    let mut sums = [0.0; LANES];
    for (place, weight) in row.iter().enumerate() {
        let at = usize::try_from(start.saturating_add(place as i64)).ok();
        sums[place % LANES] += weight * at.and_then(|at| input.get(at)).copied().unwrap_or_default();
    }
    total(sums)
}

/// Returns the sum of products of the weights and each of the inputs, which are as long: a multiple of [`LANES`].
#[inline(always)]
fn dot<S: Simd, const N: usize>(simd: S, row: &[f32], inputs: [&[f32]; N]) -> [f32; N] {
    let inputs = inputs.map(|input| &input.as_chunks::<LANES>().0[..row.len() / LANES]);
    let mut sums = [f32x8::splat(simd, 0.0); N];
    for (chunk, weights) in row.as_chunks::<LANES>().0.iter().enumerate() {
        let weights = f32x8::from_slice(simd, weights);
        for n in 0..N {
            sums[n] += weights * f32x8::from_slice(simd, &inputs[n][chunk]);
        }
    }
    sums.map(|sums| total(sums.into()))
}

/// Returns the sum of all lanes. Its order is that of halving a vector register until one lane is left.
#[inline(always)]
fn total([a, b, c, d, e, f, g, h]: [f32; LANES]) -> f32 {
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

#[cfg(test)]
mod tests {
    use fearless_simd::{Level, dispatch};
    use spdl_types::Draw;

    use super::*;

    #[test]
    fn all_kinds_of_vectors_give_the_same_bits() {
        let mut draw = Draw::new(3, 0, 0);
        let input: Vec<f32> = (0..40_000).map(|_| draw.between(-1.0, 1.0) as f32).collect();
        for (from, to) in [(44_100, 16_000), (48_000, 16_000), (16_000, 44_100)] {
            let weights = PhaseWeights::new(from, to).unwrap();
            let (mut best, mut baseline) = (vec![0.0; 12_000], vec![1.0; 12_000]);
            dispatch!(Level::new(), simd => apply(simd, &weights, &input, 0, 0, &mut best));
            dispatch!(Level::baseline(), simd => apply(simd, &weights, &input, 0, 0, &mut baseline));
            assert!(
                best.iter().zip(&baseline).all(|(best, baseline)| best.to_bits() == baseline.to_bits()),
                "{from} to {to}"
            );
        }
    }
}
