//! Mixes a picture with the results of several chains of operations on it.

use spdl_canvas::MixedChain;

use super::{
    OperationScratch, RgbPicture, run,
    wide::{level, wide},
};

/// Writes the mix to `out`, with fractions of a level cut off.
pub(super) fn mix(
    picture: &RgbPicture<'_>,
    own: f32,
    chains: &[MixedChain],
    scratch: &mut OperationScratch,
    sums: &mut Vec<f32>,
    out: &mut Vec<u8>,
) {
    sums.clear();
    sums.extend(picture.pixels.iter().map(|value| f32::from(*value) * own));
    for MixedChain { weight, ops } in chains {
        let mut made = RgbPicture { pixels: (*picture.pixels).into(), size: picture.size };
        run(ops, &mut made, scratch);
        add(&made.pixels, *weight, sums);
        made.recycle(&mut scratch.result);
    }
    out.resize(picture.pixels.len(), 0);
    cut_off(sums, out);
}

wide! {
    /// Adds weighted values.
    fn add(values: &[u8], weight: f32, sums: &mut [f32]) {
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += f32::from(*value) * weight;
        }
    }
}

wide! {
    fn cut_off(sums: &[f32], out: &mut [u8]) {
        for (value, sum) in out.iter_mut().zip(sums) {
            *value = level(*sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PixelOp;

    #[test]
    fn the_values_of_chains_are_weighted_and_cut_off() {
        let mut picture = RgbPicture { pixels: vec![200, 100, 7].into(), size: [1, 1] };
        let chain = |weight, ops: &[PixelOp]| MixedChain { weight, ops: ops.to_vec() };
        let chains = vec![
            chain(0.25, &[PixelOp::Invert]),
            chain(0.125, &[PixelOp::Posterize(1), PixelOp::Invert]),
            chain(0.125, &[]),
        ];
        run(&[PixelOp::Mix { own: 0.5, chains }], &mut picture, &mut OperationScratch::default());
        // 0.5 x + 0.25 (255 - x) + 0.125 (255 or 127) + 0.125 x.
        assert_eq!(*picture.pixels, [154, 133, 98]);
    }
}
