//! How loud sound is: gain, and noise at a distance from it.

use spdl_types::{Draw, elementary::exp};

/// Makes samples louder by a number of decibels, or quieter if it is negative: 20 decibels are a factor of 10.
pub fn gain(samples: &mut [f32], decibels: f32) {
    let factor = factor_of(decibels.into()) as f32;
    samples.iter_mut().for_each(|sample| *sample *= factor);
}

/// Draws white noise: samples from -1 to 1, each with the same probability.
#[must_use]
pub fn white_noise(frames: usize, draw: &mut Draw) -> Vec<f32> {
    (0..frames).map(|_| draw.between(-1.0, 1.0) as f32).collect()
}

/// Draws at which of its samples noise begins that is added to so many `samples`: longer noise so that it is long enough from there, and
/// other noise at any, as it is repeated. One number is drawn in every case.
pub fn noise_start(noise: usize, samples: usize, draw: &mut Draw) -> usize {
    let places = if noise > samples { noise - samples + 1 } else { noise };
    (draw.unit() * places as f64) as usize
}

/// Adds noise from a `start` in it on, repeated if it is shorter, `decibels` weaker than the samples: the ratio of their energies is what
/// `torchaudio.functional.add_noise` calls the signal-to-noise ratio.
///
/// If the samples or the noise are silent, no factor gives the ratio, and nothing is added.
pub fn add_noise(samples: &mut [f32], noise: &[f32], start: usize, decibels: f32) {
    let repeated = || noise.iter().cycle().skip(start).take(samples.len());
    let (signal, added) = (energy(samples.iter()), energy(repeated()));
    let factor = ((signal / added).sqrt() * factor_of(-f64::from(decibels))) as f32;
    if !factor.is_finite() {
        return;
    }
    for (sample, noise) in samples.iter_mut().zip(noise.iter().cycle().skip(start)) {
        *sample += factor * noise;
    }
}

/// Returns the factor of an amplitude that is a number of decibels.
fn factor_of(decibels: f64) -> f64 {
    // Beyond 400 dB, factors are no numbers of 32 bits.
    exp(decibels.clamp(-400.0, 400.0) * (std::f64::consts::LN_10 / 20.0))
}

/// Returns the sum of squares.
fn energy<'a>(samples: impl Iterator<Item = &'a f32>) -> f64 {
    // Several sums, so that an addition need not wait for the one before.
    let mut sums = [0.0; 8];
    for (place, sample) in samples.enumerate() {
        sums[place % 8] += f64::from(*sample) * f64::from(*sample);
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waves(frames: usize, seed: u64) -> Vec<f32> {
        let mut draw = Draw::new(seed, 0, 0);
        (0..frames).map(|_| draw.between(-0.5, 0.5) as f32).collect()
    }

    #[test]
    fn a_gain_is_in_decibels() {
        for (decibels, factor) in [(20.0, 10.0), (-20.0, 0.1), (0.0, 1.0), (6.0, 1.995_262_3)] {
            let mut samples = [0.25, -0.5];
            gain(&mut samples, decibels);
            assert!(
                (samples[0] - 0.25 * factor).abs() < 1e-6 && (samples[1] + 0.5 * factor).abs() < 1e-6,
                "{samples:?}"
            );
        }
        let mut samples = [0.25];
        gain(&mut samples, f32::NEG_INFINITY);
        assert!(samples[0].abs() < 1e-15);
    }

    #[test]
    fn white_noise_is_as_loud_on_both_sides_and_no_sample_tells_the_next() {
        let noise = white_noise(20_000, &mut Draw::new(1, 2, 3));
        assert!(noise.iter().all(|sample| (-1.0..=1.0).contains(sample)));
        let mean = noise.iter().sum::<f32>() / 20_000.0;
        let follows = noise.windows(2).map(|pair| pair[0] * pair[1]).sum::<f32>() / 20_000.0;
        assert!(mean.abs() < 0.02 && follows.abs() < 0.02, "{mean} {follows}");
        assert_ne!(noise[..9], white_noise(9, &mut Draw::new(1, 2, 4)));
    }

    #[test]
    fn noise_has_the_ratio_of_energies_that_was_asked_for() {
        let clean = waves(16_000, 1);
        for noise in [waves(100_000, 2), waves(700, 3), waves(16_000, 4)] {
            for decibels in [-5.0, 0.0, 20.0] {
                let mut draw = Draw::new(7, 0, 1);
                let mut samples = clean.clone();
                let start = noise_start(noise.len(), samples.len(), &mut draw);
                add_noise(&mut samples, &noise, start, decibels);
                let added: Vec<f32> = samples.iter().zip(&clean).map(|(noisy, clean)| noisy - clean).collect();
                let ratio = 10.0 * (energy(clean.iter()) / energy(added.iter())).log10();
                assert!((ratio - f64::from(decibels)).abs() < 1e-3, "{ratio} dB in place of {decibels}");
            }
        }
    }

    #[test]
    fn the_place_in_the_noise_is_drawn_from_all_there_are() {
        // Each sample of the noise is its number, so the first sum shows the place.
        let noise: Vec<f32> = (1..=5).map(|n| n as f32).collect();
        for (samples, places) in [(1, 5), (3, 3), (5, 5), (12, 5)] {
            let mut seen = std::collections::BTreeSet::new();
            for id in 0..200 {
                let mut sound = vec![0.0; samples];
                sound[0] = 1.0;
                let start = noise_start(noise.len(), samples, &mut Draw::new(1, 2, id));
                add_noise(&mut sound, &noise, start, 0.0);
                seen.insert(format!("{sound:?}"));
            }
            let distinct = if samples == 1 { 1 } else { places };
            assert_eq!(seen.len(), distinct, "{samples} samples: {seen:?}");
        }
    }

    #[test]
    fn silence_and_no_noise_change_nothing_and_draw_alike() {
        let after = |samples: &[f32], noise: &[f32]| {
            let mut draw = Draw::new(3, 3, 3);
            let mut sound = samples.to_vec();
            let start = noise_start(noise.len(), sound.len(), &mut draw);
            add_noise(&mut sound, noise, start, 10.0);
            (sound, draw.bits())
        };
        let (_, drawn) = after(&[0.5, 0.25], &[0.1]);
        for (samples, noise) in
            [(&[0.5, 0.25][..], &[][..]), (&[0.5], &[0.0, 0.0]), (&[0.0, 0.0], &[0.5]), (&[], &[0.5])]
        {
            assert_eq!(after(samples, noise), (samples.to_vec(), drawn));
        }
    }
}
