//! Bands on the mel scale, and the sums of a spectrum in them.

use fearless_simd::{Simd, f32x8, prelude::*};
use spdl_types::elementary::{exp, ln};

use super::fourier::FrameLanes;

/// A mel scale, and how bands lie on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum MelScale {
    /// That of Slaney's *Auditory Toolbox*, linear below 1,000 Hz; triangles over Hz of equal area.
    Slaney,
    /// That of HTK; triangles over Hz of equal height.
    Htk,
    /// That of HTK; triangles over mels of equal height, and no band has the highest bin.
    Kaldi,
}

/// The weights of a spectrum's bins in each band.
#[derive(Clone, Debug)]
pub(super) struct MelFilters {
    bands: Vec<MelBand>,
    /// The weights of all bands.
    weights: Vec<f32>,
}

/// The bins of a band.
#[derive(Clone, Copy, Debug)]
struct MelBand {
    first_bin: usize,
    first_weight: usize,
    bins: usize,
}

impl MelScale {
    fn of_hz(self, hz: f64) -> f64 {
        match self {
            Self::Slaney if hz < 1000.0 => hz * 3.0 / 200.0,
            Self::Slaney => 15.0 + 27.0 * ln(hz / 1000.0) / ln(6.4),
            Self::Htk | Self::Kaldi => 1127.0 * ln(1.0 + hz / 700.0),
        }
    }

    fn to_hz(self, mel: f64) -> f64 {
        match self {
            Self::Slaney if mel < 15.0 => mel * 200.0 / 3.0,
            Self::Slaney => 1000.0 * exp((mel - 15.0) * ln(6.4) / 27.0),
            Self::Htk | Self::Kaldi => 700.0 * (exp(mel / 1127.0) - 1.0),
        }
    }
}

impl MelFilters {
    /// Makes `mels` overlapping bands between `low_hz` and half of `rate`, for the bins of a transform of `fourier_size` samples.
    pub(super) fn new(scale: &MelScale, mels: usize, fourier_size: usize, rate: u32, low_hz: f64) -> Self {
        // torchaudio rounds the Nyquist frequency down, and takes it for the highest bin's.
        let high_hz = if *scale == MelScale::Htk { f64::from(rate / 2) } else { f64::from(rate) / 2.0 };
        let (low, high) = (scale.of_hz(low_hz), scale.of_hz(high_hz));
        // The corner of a band is the middle of the one before and of the one after.
        let corner = |number: usize| low + (high - low) * number as f64 / (mels + 1) as f64;
        let bins = if *scale == MelScale::Kaldi { fourier_size / 2 } else { fourier_size / 2 + 1 };
        let mut filters = Self { bands: Vec::with_capacity(mels), weights: Vec::new() };
        for band in 0..mels {
            let corners = [corner(band), corner(band + 1), corner(band + 2)];
            let [left, middle, right] =
                if *scale == MelScale::Kaldi { corners } else { corners.map(|mel| scale.to_hz(mel)) };
            let height = if *scale == MelScale::Slaney { 2.0 / (right - left) } else { 1.0 };
            let weight = |bin: usize| {
                let hz = high_hz * bin as f64 / (fourier_size / 2) as f64;
                let at = if *scale == MelScale::Kaldi { scale.of_hz(hz) } else { hz };
                (height * ((at - left) / (middle - left)).min((right - at) / (right - middle)).max(0.0)) as f32
            };
            let first_bin = (0..bins).find(|&bin| weight(bin) > 0.0).unwrap_or(0);
            let first_weight = filters.weights.len();
            filters.weights.extend((first_bin..bins).map(weight).take_while(|weight| *weight > 0.0));
            filters.bands.push(MelBand { first_bin, first_weight, bins: filters.weights.len() - first_weight });
        }
        filters
    }

    /// Returns the number of bands.
    pub(super) fn mels(&self) -> usize {
        self.bands.len()
    }

    /// Writes the weighted sum of the bins of each band, in each lane.
    #[inline(always)]
    pub(super) fn apply<S: Simd>(&self, simd: S, bins: &[FrameLanes], out: &mut [FrameLanes]) {
        for (out, band) in out.iter_mut().zip(&self.bands) {
            let weights = &self.weights[band.first_weight..][..band.bins];
            let mut sum = f32x8::splat(simd, 0.0);
            for (weight, bin) in weights.iter().zip(&bins[band.first_bin..]) {
                sum += f32x8::splat(simd, *weight) * f32x8::from_slice(simd, bin);
            }
            *out = sum.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use fearless_simd::{Level, dispatch};

    use super::*;

    #[test]
    fn a_scale_and_its_inverse_agree() {
        for scale in [MelScale::Slaney, MelScale::Htk, MelScale::Kaldi] {
            for hz in [0.0, 20.0, 999.0, 1000.0, 4_321.0, 24_000.0] {
                assert!((scale.to_hz(scale.of_hz(hz)) - hz).abs() < 1e-9 * (1.0 + hz), "{scale:?} of {hz}");
            }
        }
        // 1,000 Hz are 15 mels of Slaney's scale, and about 1,000 of HTK's.
        assert_eq!(MelScale::Slaney.of_hz(1000.0), 15.0);
        assert!((MelScale::Htk.of_hz(1000.0) - 1000.0).abs() < 0.02);
    }

    #[test]
    fn a_band_that_is_narrower_than_a_bin_is_silent() {
        let filters = MelFilters::new(&MelScale::Htk, 128, 64, 16_000, 0.0);
        let mut out = vec![[9.0; 8]; 128];
        dispatch!(Level::new(), simd => filters.apply(simd, &[[1.0; 8]; 33], &mut out));
        assert!(out.contains(&[0.0; 8]) && out.iter().any(|value| value[3] > 0.5));
    }
}
