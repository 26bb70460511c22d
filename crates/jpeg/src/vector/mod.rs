//! The kernel with vector instructions: a module for each kind of processor. Nothing else depends on the kind.

/// Implements the methods of [`SimdKernel`](crate::kernel::SimdKernel) that only call a function in the kernel's module, which is
/// compiled for the kernel's instructions.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! vector_methods {
    () => {
        #[inline(always)]
        fn next_marker(self, raw: &[u8], at: usize) -> Option<usize> {
            // SAFETY: `self` is the proof that the processor has these instructions.
            unsafe { find_marker(raw, at) }
        }

        #[inline(always)]
        fn quarter_four(self, blocks: &[i16; 16], quant: &[i16; 4], out: &mut [u8], places: [CoefficientPlace; 4]) {
            // SAFETY: `self` is the proof that the processor has these instructions.
            unsafe { quarter_four(blocks, quant, out, places) }
        }

        #[inline(always)]
        fn across(
            self,
            plane: &[u8],
            from: usize,
            stride: usize,
            firsts: &[u32; STRIP],
            pairs: &[[i16; 2]],
            out: &mut [Strip; STRIP],
        ) {
            // SAFETY: `self` is the proof that the processor has these instructions.
            unsafe { across(plane, from, stride, firsts, pairs, out) }
        }

        #[inline(always)]
        fn down(self, tile: &[Strip], firsts: &[u32], pairs: &[[i16; 2]], out: &mut [Strip]) {
            // SAFETY: `self` is the proof that the processor has these instructions.
            unsafe { down(tile, firsts, pairs, out) }
        }

        #[inline(always)]
        fn colour(self, values: [&Strip; 3], interleaved: bool) -> [u8; 3 * STRIP] {
            // SAFETY: `self` is the proof that the processor has these instructions.
            unsafe { colour(values, interleaved) }
        }

        #[inline(always)]
        fn grey(self, luma: &Strip, interleaved: bool) -> [u8; 3 * STRIP] {
            // SAFETY: `self` is the proof that the processor has these instructions.
            unsafe { grey(luma, interleaved) }
        }
    };
}

/// Defines the weighted sums of a kernel, `across` and `down`, by its `across_of` and `down_of`: the usual numbers of pairs of weights are
/// known where the loops over them are compiled.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! sums_by_pairs {
    ($feature:literal) => {
        #[target_feature(enable = $feature)]
        pub(super) fn across(
            plane: &[u8],
            from: usize,
            stride: usize,
            firsts: &[u32; STRIP],
            pairs: &[[i16; 2]],
            out: &mut [Strip; STRIP],
        ) {
            match pairs.len() / STRIP {
                1 => across_of(plane, from, stride, firsts, pairs.as_chunks::<1>().0, out),
                2 => across_of(plane, from, stride, firsts, pairs.as_chunks::<2>().0, out),
                3 => across_of(plane, from, stride, firsts, pairs.as_chunks::<3>().0, out),
                4 => across_of(plane, from, stride, firsts, pairs.as_chunks::<4>().0, out),
                count => across_of(plane, from, stride, firsts, pairs.chunks_exact(count.max(1)), out),
            }
        }

        #[target_feature(enable = $feature)]
        pub(super) fn down(tile: &[Strip], firsts: &[u32], pairs: &[[i16; 2]], out: &mut [Strip]) {
            match pairs.len() / out.len().max(1) {
                1 => down_of(tile, firsts, pairs.as_chunks::<1>().0, out),
                2 => down_of(tile, firsts, pairs.as_chunks::<2>().0, out),
                3 => down_of(tile, firsts, pairs.as_chunks::<3>().0, out),
                4 => down_of(tile, firsts, pairs.as_chunks::<4>().0, out),
                count => down_of(tile, firsts, pairs.chunks_exact(count.max(1)), out),
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod none;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use crate::kernel::Portable as VectorKernel;
/// The kernel that this kind of processor can have. `detect` returns it where this very processor has the instructions.
#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2 as VectorKernel;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon as VectorKernel;

#[cfg(test)]
mod tests {
    use crate::testing::XorShift;

    use super::VectorKernel;
    use crate::{
        idct::CoefficientPlace,
        kernel::{FRACTION_BITS, Portable, STRIP, SimdKernel, Strip},
    };

    /// Draws pseudo-random numbers.
    #[derive(Default)]
    struct Draw(XorShift);

    impl Draw {
        fn below(&mut self, n: usize) -> usize {
            self.0.below(n)
        }

        fn between(&mut self, low: i16, high: i16) -> i16 {
            low.wrapping_add(self.below(usize::from(high.abs_diff(low)) + 1) as i16)
        }

        fn bytes(&mut self, count: usize) -> Vec<u8> {
            (0..count).map(|_| self.below(256) as u8).collect()
        }

        /// Coefficients of blocks of `side` by `side`, of which only the `used` lowest of each row and column are not zeros. Every
        /// third set has values that only hostile pictures have.
        fn coefficients<const N: usize>(&mut self, side: usize, used: usize) -> [i16; N] {
            let largest = [40, 1000, i16::MAX][self.below(3)];
            std::array::from_fn(|at| {
                let (row, column) = (at / side % side, at % side);
                if row < used && column < used { self.extreme_or_up_to(largest) } else { 0 }
            })
        }

        fn extreme_or_up_to(&mut self, largest: i16) -> i16 {
            match self.below(8) {
                0 if largest == i16::MAX => i16::MIN,
                1 => largest,
                2 => -largest,
                _ => self.between(-largest, largest),
            }
        }

        fn quants<const N: usize>(&mut self) -> [i16; N] {
            let largest = [1, 30, 255, i16::MAX][self.below(4)];
            std::array::from_fn(|_| self.between(1, largest))
        }

        /// Weights that add up to 2^14 for each of `pixels`, two per entry.
        fn pairs(&mut self, pixels: usize, pairs_per_pixel: usize) -> Vec<[i16; 2]> {
            let mut pairs = vec![[0; 2]; pixels * pairs_per_pixel];
            for weights in pairs.chunks_exact_mut(pairs_per_pixel) {
                let (mut rest, count) = (1 << 14, 2 * pairs_per_pixel as i16);
                for weight in weights.as_flattened_mut() {
                    *weight = self.between(0, (1 << 14) / count);
                    rest -= *weight;
                }
                weights[0][0] += rest;
            }
            pairs
        }
    }

    /// Calls `check` with the vector kernel of this processor, if it has one, and many different numbers.
    fn many_times(check: impl Fn(VectorKernel, &mut Draw)) {
        let Some(vector) = VectorKernel::detect() else { return };
        let mut draw = Draw::default();
        (0..2000).for_each(|_| check(vector, &mut draw));
    }

    /// Checks that both write the same: the samples of `N` blocks, and nothing beside them.
    fn same_blocks<const N: usize>(
        draw: &mut Draw,
        side: usize,
        vector: impl Fn(&mut [u8], [CoefficientPlace; N]),
        portable: impl Fn(&mut [u8], [CoefficientPlace; N]),
    ) {
        let stride = side * N + draw.below(9);
        let first = draw.below(40);
        let places = std::array::from_fn(|at| CoefficientPlace { start: first + at * side, stride });
        let mut out = [vec![0xa5; first + side * stride], vec![0xa5; first + side * stride]];
        vector(&mut out[0], places);
        portable(&mut out[1], places);
        assert_eq!(out[0], out[1], "{places:?}");
    }

    #[test]
    fn blocks_at_full_size_are_those_of_the_portable_kernel() {
        many_times(|vector, draw| {
            let blocks: [[i16; 64]; 2] = std::array::from_fn(|_| {
                let used = [1, 4, 5, 8][draw.below(4)];
                draw.coefficients(8, used)
            });
            let quants: [[i16; 64]; 2] = std::array::from_fn(|_| draw.quants());
            let (two, quants) = (blocks.each_ref(), quants.each_ref());
            same_blocks(
                draw,
                8,
                |out, places| vector.full_pair(two, quants, out, places),
                |out, places| Portable.full_pair(two, quants, out, places),
            );
            let (twice, quants) = ([two[1]; 2], [quants[0]; 2]);
            same_blocks(
                draw,
                8,
                |out, [place]| vector.full_pair(twice, quants, out, [place; 2]),
                |out, [place]| Portable.full_pair(twice, quants, out, [place; 2]),
            );
        });
    }

    #[test]
    fn a_coefficient_anywhere_in_a_block_counts() {
        let Some(vector) = VectorKernel::detect() else { return };
        for at in 0..64 {
            let mut block = [0; 64];
            block[at] = 99;
            let (blocks, quant) = ([&block, &[0; 64]], std::array::from_fn(|at| at as i16 + 1));
            same_blocks(
                &mut Draw(XorShift::new(7)),
                8,
                |out, places| vector.full_pair(blocks, [&quant; 2], out, places),
                |out, places| Portable.full_pair(blocks, [&quant; 2], out, places),
            );
        }
    }

    #[test]
    fn blocks_at_half_and_quarter_size_are_those_of_the_portable_kernel() {
        many_times(|vector, draw| {
            let (blocks, quant) = (draw.coefficients(4, 4), draw.quants());
            same_blocks(
                draw,
                4,
                |out, places| vector.half_four(&blocks, &quant, out, places),
                |out, places| Portable.half_four(&blocks, &quant, out, places),
            );
            let (blocks, quant) = (draw.coefficients(2, 2), draw.quants());
            same_blocks(
                draw,
                2,
                |out, places| vector.quarter_four(&blocks, &quant, out, places),
                |out, places| Portable.quarter_four(&blocks, &quant, out, places),
            );
        });
    }

    #[test]
    fn resampled_values_are_those_of_the_portable_kernel() {
        many_times(|vector, draw| {
            let pairs_per_pixel = 1 + draw.below(6);
            let count = 2 * pairs_per_pixel;
            let (from, stride) = (draw.below(20), STRIP + draw.below(30));
            let samples = count + 5;
            let plane = draw.bytes(from + (samples - 1) * stride + STRIP);
            let firsts: [u32; STRIP] = std::array::from_fn(|_| draw.below(6) as u32);
            let pairs = draw.pairs(STRIP, pairs_per_pixel);
            let mut tiles = [[[0; STRIP]; STRIP]; 2];
            vector.across(&plane, from, stride, &firsts, &pairs, &mut tiles[0]);
            Portable.across(&plane, from, stride, &firsts, &pairs, &mut tiles[1]);
            assert_eq!(tiles[0], tiles[1], "{pairs_per_pixel} pairs per pixel");

            let rows = 1 + draw.below(9);
            let tile: Vec<Strip> =
                (0..samples).map(|_| std::array::from_fn(|_| draw.between(0, 255 << FRACTION_BITS))).collect();
            let firsts: Vec<u32> = (0..rows).map(|_| draw.below(6) as u32).collect();
            let pairs = draw.pairs(rows, pairs_per_pixel);
            let mut strips = [vec![[0; STRIP]; rows], vec![[0; STRIP]; rows]];
            vector.down(&tile, &firsts, &pairs, &mut strips[0]);
            Portable.down(&tile, &firsts, &pairs, &mut strips[1]);
            assert_eq!(strips[0], strips[1], "{pairs_per_pixel} pairs per row");
        });
    }

    #[test]
    fn colours_are_those_of_the_portable_kernel() {
        many_times(|vector, draw| {
            let values: [Strip; 3] =
                std::array::from_fn(|_| std::array::from_fn(|_| draw.between(0, 255 << FRACTION_BITS)));
            for interleaved in [false, true] {
                let (strips, luma) = (values.each_ref(), &values[0]);
                assert_eq!(vector.colour(strips, interleaved), Portable.colour(strips, interleaved), "{values:?}");
                assert_eq!(vector.grey(luma, interleaved), Portable.grey(luma, interleaved), "{luma:?}");
            }
        });
    }
}
