//! The Fourier transform of eight frames at a time, each in its lane of a vector.
//!
//! Since each lane computes what a single frame would, with no instruction that multiplies and adds with one rounding, a frame
//! has the same bits on every processor and beside every other frame. And it is several times as fast as one frame after the
//! other: no value ever changes its lane. The algorithm is Stockham's, which needs no reordering, with the radices 4, 2, 3 and 5;
//! real samples are transformed in pairs as complex numbers of half as many.

use std::{array, mem};

use fearless_simd::{Simd, f32x8, prelude::*};
use spdl_types::elementary::sin_cos;

/// Frames that are transformed together.
pub(super) const LANES: usize = 8;

/// Values of one place in each frame.
pub(super) type FrameLanes = [f32; LANES];

/// The real and the imaginary parts of one place in each frame.
type ComplexLanes = [FrameLanes; 2];

/// The transform of frames of one size.
#[derive(Clone, Debug)]
pub(super) struct FrameFourier {
    stages: Vec<FourierStage>,
    /// The factors by which the transforms of even and of odd samples are joined.
    joins: Vec<[f32; 2]>,
}

/// One stage: `rest` groups of `stride` butterflies.
#[derive(Clone, Debug)]
struct FourierStage {
    radix: usize,
    rest: usize,
    stride: usize,
    /// For each group, the factors of all results of a butterfly but the first.
    factors: Vec<[f32; 2]>,
}

/// The buffers of a transform, which are written anew by each.
#[derive(Clone, Debug)]
pub(super) struct FourierBuffers {
    /// Pairs of samples: the input.
    pub(super) pairs: Vec<ComplexLanes>,
    other: Vec<ComplexLanes>,
    /// The squares of magnitudes: the result.
    pub(super) energies: Vec<FrameLanes>,
}

impl FrameFourier {
    /// Prepares the transform of frames of `size` samples, or None if that is odd or has a prime factor above 5.
    pub(super) fn new(size: usize) -> Option<Self> {
        let mut stages = Vec::new();
        let (mut rest, mut stride) = (size / 2, 1);
        if size == 0 || size % 2 == 1 {
            return None;
        }
        while rest > 1 {
            let length = rest;
            let radix = [4, 2, 3, 5].into_iter().find(|radix| rest.is_multiple_of(*radix))?;
            rest /= radix;
            let factors =
                (0..rest).flat_map(|group| (1..radix).map(move |result| turn(group * result, length))).collect();
            stages.push(FourierStage { radix, rest, stride, factors });
            stride *= radix;
        }
        Some(Self { stages, joins: (0..=size / 2).map(|bin| turn(bin, size)).collect() })
    }

    /// Makes the buffers of a transform.
    pub(super) fn buffers(&self) -> FourierBuffers {
        let half = self.joins.len() - 1;
        let zeros = vec![[[0.0; LANES]; 2]; half];
        FourierBuffers { pairs: zeros.clone(), other: zeros, energies: vec![[0.0; LANES]; half + 1] }
    }

    /// Transforms the frames in `buffers.pairs`, which become something else, into their energies.
    #[inline(always)]
    pub(super) fn transform<S: Simd>(&self, simd: S, buffers: &mut FourierBuffers) {
        let FourierBuffers { pairs, other, energies } = buffers;
        for stage in &self.stages {
            match stage.radix {
                4 => stage.run::<S, 4>(simd, pairs, other),
                2 => stage.run::<S, 2>(simd, pairs, other),
                3 => stage.run::<S, 3>(simd, pairs, other),
                _ => stage.run::<S, 5>(simd, pairs, other),
            }
            mem::swap(pairs, other);
        }
        let half = pairs.len();
        for (bin, energy) in energies.iter_mut().enumerate() {
            let own = ComplexValue::load(simd, &pairs[bin % half]);
            let mirrored = ComplexValue::load(simd, &pairs[(half - bin) % half]);
            // Twice the transforms of the even and of the odd samples, the latter divided by i.
            let even = ComplexValue { re: own.re + mirrored.re, im: own.im - mirrored.im };
            let odd = ComplexValue { re: own.im + mirrored.im, im: mirrored.re - own.re };
            let odd = odd.times(simd, self.joins[bin]);
            let (re, im) = (even.re + odd.re, even.im + odd.im);
            let squares = (re * re + im * im) * f32x8::splat(simd, 0.25);
            *energy = squares.into();
        }
    }
}

/// Returns e^(-2 pi i part / whole).
fn turn(part: usize, whole: usize) -> [f32; 2] {
    let (sine, cosine) = sin_cos(360.0 * (part % whole) as f64 / whole as f64);
    [cosine as f32, -sine as f32]
}

impl FourierStage {
    #[inline(always)]
    fn run<S: Simd, const R: usize>(&self, simd: S, from: &[ComplexLanes], to: &mut [ComplexLanes]) {
        let &Self { rest, stride, ref factors, .. } = self;
        for group in 0..rest {
            let factors = &factors[group * (R - 1)..][..R - 1];
            for place in 0..stride {
                let values = array::from_fn(|n| ComplexValue::load(simd, &from[place + stride * (group + rest * n)]));
                let results = butterfly::<S, R>(simd, values);
                for (n, result) in results.into_iter().enumerate() {
                    let result = if n == 0 { result } else { result.times(simd, factors[n - 1]) };
                    result.store(&mut to[place + stride * (R * group + n)]);
                }
            }
        }
    }
}

/// A complex number in each lane.
#[derive(Clone, Copy)]
struct ComplexValue<S: Simd> {
    re: f32x8<S>,
    im: f32x8<S>,
}

impl<S: Simd> ComplexValue<S> {
    #[inline(always)]
    fn load(simd: S, [re, im]: &ComplexLanes) -> Self {
        Self { re: f32x8::from_slice(simd, re), im: f32x8::from_slice(simd, im) }
    }

    #[inline(always)]
    fn store(self, [re, im]: &mut ComplexLanes) {
        *re = self.re.into();
        *im = self.im.into();
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }

    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }

    #[inline(always)]
    fn scaled(self, simd: S, factor: f32) -> Self {
        let factor = f32x8::splat(simd, factor);
        Self { re: self.re * factor, im: self.im * factor }
    }

    #[inline(always)]
    fn times(self, simd: S, [re, im]: [f32; 2]) -> Self {
        let (re, im) = (f32x8::splat(simd, re), f32x8::splat(simd, im));
        Self { re: self.re * re - self.im * im, im: self.re * im + self.im * re }
    }

    /// Returns it minus, and plus, i times another.
    #[inline(always)]
    fn minus_and_plus_i_times(self, other: Self) -> [Self; 2] {
        let minus = Self { re: self.re + other.im, im: self.im - other.re };
        [minus, Self { re: self.re - other.im, im: self.im + other.re }]
    }
}

/// Transforms 2, 3, 4 or 5 values.
#[inline(always)]
fn butterfly<S: Simd, const R: usize>(simd: S, a: [ComplexValue<S>; R]) -> [ComplexValue<S>; R] {
    let mut b = a;
    match R {
        2 => {
            b[0] = a[0].plus(a[1]);
            b[1] = a[0].minus(a[1]);
        }
        3 => {
            const SIN_120: f32 = 0.866_025_4;
            let sum = a[1].plus(a[2]);
            let middle = a[0].minus(sum.scaled(simd, 0.5));
            b[0] = a[0].plus(sum);
            [b[1], b[2]] = middle.minus_and_plus_i_times(a[1].minus(a[2]).scaled(simd, SIN_120));
        }
        4 => {
            let (even, odd) = (a[0].plus(a[2]), a[1].plus(a[3]));
            b[0] = even.plus(odd);
            b[2] = even.minus(odd);
            [b[1], b[3]] = a[0].minus(a[2]).minus_and_plus_i_times(a[1].minus(a[3]));
        }
        _ => {
            const COS_72: f32 = 0.309_017;
            const COS_144: f32 = -0.809_017;
            const SIN_72: f32 = 0.951_056_54;
            const SIN_144: f32 = 0.587_785_24;
            let (outer, inner) = (a[1].plus(a[4]), a[2].plus(a[3]));
            let (outside, inside) = (a[1].minus(a[4]), a[2].minus(a[3]));
            b[0] = a[0].plus(outer).plus(inner);
            let first = a[0].plus(outer.scaled(simd, COS_72)).plus(inner.scaled(simd, COS_144));
            let second = a[0].plus(outer.scaled(simd, COS_144)).plus(inner.scaled(simd, COS_72));
            [b[1], b[4]] =
                first.minus_and_plus_i_times(outside.scaled(simd, SIN_72).plus(inside.scaled(simd, SIN_144)));
            [b[2], b[3]] =
                second.minus_and_plus_i_times(outside.scaled(simd, SIN_144).minus(inside.scaled(simd, SIN_72)));
        }
    }
    b
}

#[cfg(test)]
mod tests {
    use fearless_simd::{Level, dispatch};
    use spdl_types::Draw;

    use super::*;

    #[test]
    fn energies_are_those_of_the_definition_in_each_lane() {
        for size in [2, 4, 6, 8, 10, 12, 16, 18, 30, 50, 90, 120, 250, 400, 512, 900] {
            let fourier = FrameFourier::new(size).unwrap();
            let mut buffers = fourier.buffers();
            let mut draw = Draw::new(size as u64, 0, 0);
            let frames: Vec<FrameLanes> =
                (0..size).map(|_| array::from_fn(|_| draw.between(-1.0, 1.0) as f32)).collect();
            for (pair, samples) in buffers.pairs.iter_mut().zip(frames.chunks_exact(2)) {
                *pair = [samples[0], samples[1]];
            }
            dispatch!(Level::new(), simd => fourier.transform(simd, &mut buffers));
            for (bin, energies) in buffers.energies.iter().enumerate() {
                for (lane, energy) in energies.iter().enumerate() {
                    let (mut re, mut im) = (0.0, 0.0);
                    for (n, samples) in frames.iter().enumerate() {
                        let (sine, cosine) = sin_cos(360.0 * (n * bin % size) as f64 / size as f64);
                        re += f64::from(samples[lane]) * cosine;
                        im -= f64::from(samples[lane]) * sine;
                    }
                    let expected = re * re + im * im;
                    assert!(
                        (f64::from(*energy) - expected).abs() < 1e-5 * size as f64,
                        "bin {bin} of {size}: {energy}, not {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn sizes_with_other_factors_are_refused() {
        for size in [0, 1, 3, 401, 402, 14, 65_537] {
            assert!(FrameFourier::new(size).is_none(), "{size}");
        }
    }
}
