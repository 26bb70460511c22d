//! Transforms the coefficients of a progressive picture into samples.

use super::coefficients::Coefficients;
use crate::{
    bits::BitBlock,
    idct::{self, CoefficientPlace},
    kernel::SimdKernel,
    plan::CropPlan,
};

impl Coefficients {
    /// Transforms all coefficients that were kept for a plan into its planes.
    #[inline(always)]
    pub(crate) fn transform<K: SimdKernel>(
        &self,
        kernel: K,
        plan: &CropPlan,
        components: usize,
        transposed: bool,
        quants: &[[i16; 64]; 3],
        samples: &mut [u8],
    ) {
        let mut blocks = [BitBlock::ZERO; 2];
        for (component, (plane, quant)) in plan.planes.iter().zip(quants).enumerate().take(components) {
            let [(left, right), (top, bottom)] = self.stores[component].blocks;
            let place = |x: u32, y: u32| {
                let [x, y] = [(x - left) * plane.points, (y - top) * plane.points];
                let [column, row] = if transposed { [y, x] } else { [x, y] };
                let start = plane.start + column as usize * plane.stride + row as usize;
                CoefficientPlace { start, stride: plane.stride }
            };
            for y in top..bottom {
                if plane.points == 8 {
                    for x in (left..right).step_by(2) {
                        // The last block of an odd number is transformed twice.
                        let pair = [x, (x + 1).min(right - 1)];
                        for (block, x) in blocks.iter_mut().zip(pair) {
                            self.copy_block(component, x, y, block);
                        }
                        let both = blocks.each_ref().map(BitBlock::coefficients);
                        kernel.full_pair(both, [quant; 2], samples, pair.map(|x| place(x, y)));
                    }
                    continue;
                }
                for x in left..right {
                    let block = &mut blocks[0];
                    self.copy_block(component, x, y, block);
                    let coefficients = block.coefficients();
                    match plane.points {
                        4 => idct::half(coefficients, quant, samples, place(x, y)),
                        2 => idct::quarter(coefficients, quant, samples, place(x, y)),
                        _ => idct::eighth(coefficients, quant, samples, place(x, y)),
                    }
                }
            }
        }
    }
}
