//! The sound of a room: convolution with its impulse response.

use std::{fmt, sync::Arc};

use realfft::{ComplexToReal, RealFftPlanner, RealToComplex, num_complex::Complex};

use crate::SoundError;

/// An impulse response, made ready to be applied to many samples.
///
/// It is scaled to an energy of 1, which keeps the loudness of what it is applied to about the same, and begins at its strongest
/// sample, the direct sound: so what is heard keeps its time, and what is known of when it is said stays true.
#[derive(Clone)]
pub struct ImpulseResponse {
    /// Samples before the direct sound, and all samples.
    delay: usize,
    length: usize,
    spectrum: Vec<Complex<f32>>,
    forward: Arc<dyn RealToComplex<f32>>,
    back: Arc<dyn ComplexToReal<f32>>,
}

impl fmt::Debug for ImpulseResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImpulseResponse")
            .field("length", &self.length)
            .field("delay", &self.delay)
            .finish_non_exhaustive()
    }
}

impl ImpulseResponse {
    /// The most samples of an impulse response: 20 seconds at 48 kHz.
    pub const MOST_SAMPLES: usize = 960_000;

    /// Returns the bytes of memory that preparing a response of so many samples takes, and applying it to so many.
    #[must_use]
    pub const fn memory_bytes(response: usize, samples: usize) -> usize {
        // Two spectra and a block of 4 bytes for each sample of the transform, and some three times as much for its own tables.
        40 * transform_size(response) + 4 * samples
    }

    /// Prepares an impulse response of the rate of what it will be applied to.
    ///
    /// # Errors
    ///
    /// It is silent, has a sample that is no number, or has more than 960,000 samples.
    pub fn new(samples: &[f32]) -> Result<Self, SoundError> {
        if samples.len() > Self::MOST_SAMPLES {
            return Err(SoundError::ImpulseResponse { what: "longer than 960,000 samples" });
        }
        let norm = samples.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>().sqrt();
        if !norm.is_finite() {
            return Err(SoundError::ImpulseResponse { what: "of samples of which one is no number" });
        }
        let strongest = samples.iter().enumerate().rev().max_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs()));
        let Some((delay, _)) = strongest.filter(|_| norm > 0.0) else {
            return Err(SoundError::ImpulseResponse { what: "silent" });
        };
        let size = transform_size(samples.len());
        let mut planner = RealFftPlanner::new();
        let (forward, back) = (planner.plan_fft_forward(size), planner.plan_fft_inverse(size));
        let mut padded = forward.make_input_vec();
        // The transforms there and back multiply by `size`.
        let scale = 1.0 / (norm * size as f64);
        for (padded, sample) in padded.iter_mut().zip(samples) {
            *padded = (f64::from(*sample) * scale) as f32;
        }
        let mut spectrum = forward.make_output_vec();
        transform(forward.process(&mut padded, &mut spectrum));
        Ok(Self { delay, length: samples.len(), spectrum, forward, back })
    }

    /// Convolves samples with the response in place. What sounds on after the last sample is cut off.
    pub fn apply(&self, samples: &mut [f32]) {
        let mut block = self.forward.make_input_vec();
        let mut spectrum = self.forward.make_output_vec();
        let mut scratch = self.forward.make_scratch_vec();
        let mut scratch_back = self.back.make_scratch_vec();
        let step = block.len() - self.length + 1;
        let mut result = vec![0.0; samples.len()];
        for (number, part) in samples.chunks(step).enumerate() {
            block[..part.len()].copy_from_slice(part);
            block[part.len()..].fill(0.0);
            transform(self.forward.process_with_scratch(&mut block, &mut spectrum, &mut scratch));
            for (bin, response) in spectrum.iter_mut().zip(&self.spectrum) {
                *bin *= response;
            }
            // Of real signals, these two are real; a rounding error there is an error for the transform back.
            for bin in [0, spectrum.len() - 1] {
                spectrum[bin].im = 0.0;
            }
            transform(self.back.process_with_scratch(&mut spectrum, &mut block, &mut scratch_back));
            // Where the block's first sample goes: `delay` before its place.
            let at = number * step;
            let skipped = self.delay.saturating_sub(at);
            for (out, sample) in
                result.iter_mut().skip(at.saturating_sub(self.delay)).zip(&block[skipped.min(block.len())..])
            {
                *out += sample;
            }
        }
        samples.copy_from_slice(&result);
    }
}

/// Returns the samples of a transform: half of each block is room for what the response adds after the block.
const fn transform_size(response: usize) -> usize {
    let size = (2 * response).next_power_of_two();
    if size < 1024 { 1024 } else { size }
}

/// Takes the result of a transform, whose buffers are made by it.
fn transform(result: Result<(), realfft::FftError>) {
    if let Err(error) = result {
        unreachable!("the buffers are the transform's own: {error}");
    }
}

#[cfg(test)]
mod tests {
    use spdl_types::Draw;

    use super::*;

    fn noise(frames: usize, seed: u64) -> Vec<f32> {
        let mut draw = Draw::new(seed, 0, 0);
        (0..frames).map(|_| draw.between(-1.0, 1.0) as f32).collect()
    }

    #[test]
    fn it_is_the_sum_of_delayed_samples() {
        for (frames, length, delay) in
            [(5_000, 700, 0), (5_000, 700, 41), (300, 700, 650), (2_048, 1, 0), (1, 3, 1), (4_097, 1_024, 1_023)]
        {
            let (samples, mut response) = (noise(frames, 1), noise(length, 2));
            response[delay] = 2.0;
            let norm = response.iter().map(|sample| sample * sample).sum::<f32>().sqrt();
            let mut found = samples.clone();
            ImpulseResponse::new(&response).unwrap().apply(&mut found);
            for (at, found) in found.iter().enumerate() {
                let from = (at + delay + 1).saturating_sub(frames);
                let expected: f32 =
                    (from..length.min(at + delay + 1)).map(|tap| response[tap] * samples[at + delay - tap]).sum();
                assert!(
                    (found - expected / norm).abs() < 2e-5,
                    "sample {at} of {frames}, {length}, {delay}: {found}, not {}",
                    expected / norm
                );
            }
        }
    }

    #[test]
    fn a_response_that_cannot_be_applied_is_named() {
        for (samples, word) in [
            (vec![], "silent"),
            (vec![0.0; 10], "silent"),
            (vec![1.0, f32::NAN], "no number"),
            (vec![0.0, f32::INFINITY], "no number"),
            (vec![1.0; ImpulseResponse::MOST_SAMPLES + 1], "longer than 960,000 samples"),
        ] {
            let error = ImpulseResponse::new(&samples).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
