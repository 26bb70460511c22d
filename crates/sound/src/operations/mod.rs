//! Operations on samples and on features: pure functions of values and parameters. Random choices come from the generator that
//! the caller gives, which for a sample of a job depends on (seed, epoch, id).

mod mask;
mod noise;
mod reverb;

pub use mask::{mask_bands, mask_frames};
pub use noise::{add_noise, gain, noise_start, white_noise};
pub use reverb::ImpulseResponse;

use crate::{SoundError, SoundResampler};

/// The slowest and the fastest speed, in thousandths.
const SPEEDS: [u32; 2] = [250, 4000];

/// Returns what plays sound at a speed in thousandths: 1,100 makes it a tenth faster, shorter and higher, as
/// `torchaudio.functional.speed` does with a factor of 1.1.
///
/// A speed is a whole number of thousandths, since each has weights of its own, which a
/// [`ResamplerCache`](crate::ResamplerCache) can keep: it is the resampler from `thousandths` to 1,000 Hz.
///
/// # Errors
///
/// The speed is below a quarter or above four times.
pub fn speed(thousandths: u32) -> Result<SoundResampler, SoundError> {
    let [least, most] = SPEEDS;
    if !(least..=most).contains(&thousandths) {
        return Err(SoundError::Parameter {
            parameter: "speed",
            value: f64::from(thousandths) / 1000.0,
            least: f64::from(least) / 1000.0,
            most: f64::from(most) / 1000.0,
        });
    }
    SoundResampler::new(thousandths, 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_changes_the_length_and_the_pitch() {
        let tone = |hz: f64, frames: usize| -> Vec<f32> {
            (0..frames).map(|n| (n as f64 * hz * std::f64::consts::TAU / 16_000.0).sin() as f32).collect()
        };
        for (thousandths, frames) in [(1_100, 14_546), (900, 17_778), (1_000, 16_000)] {
            let resampler = speed(thousandths).unwrap();
            let mut out = vec![0.0; resampler.frames(16_000)];
            resampler.resample(&tone(440.0, 16_000), &mut out);
            assert_eq!(out.len(), frames);
            let expected = tone(440.0 * f64::from(thousandths) / 1000.0, frames);
            let inside = 50..frames - 50;
            let error =
                out[inside.clone()].iter().zip(&expected[inside]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(error < 2e-3, "at {thousandths} thousandths it is off by {error}");
        }
        let error = speed(100).unwrap_err().to_string();
        assert!(error.contains("`speed` is 0.1, and must be from 0.25 to 4"), "{error}");
    }
}
