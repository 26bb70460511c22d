//! How frames are cut out of sound: where they lie, what comes before the first sample, and the window.

use spdl_types::elementary::{exp, ln, sin_cos};

/// How much of the sample before is taken off a sample, which lifts high frequencies.
const EMPHASIS: f32 = 0.97;

/// Where the frames lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FramePlaces {
    /// Centred on each multiple of the hop, with the sound mirrored at its ends. With `last`, one frame more.
    CenteredReflected {
        /// Whether the frame that is centred on the end is one.
        last: bool,
    },
    /// Centred on each multiple of the hop that is before the end, with zeros around the sound.
    CenteredZeros,
    /// Beginning at each multiple of the hop, if all of the frame lies in the sound.
    Inside,
}

/// The shape of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum WindowShape {
    /// Hann's, of which the next sample would be 0.
    Hann,
    /// Hann's, whose first and last samples are 0.
    SymmetricHann,
    /// Kaldi's: the symmetric one, to the power 0.85.
    Povey,
}

/// What is done to samples before they are windowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Preparation {
    /// Nothing.
    None,
    /// High frequencies of the whole sound are lifted.
    Emphasis,
    /// Each frame is scaled, loses its mean, and then has its high frequencies lifted, as in Kaldi.
    EachFrame {
        /// What a full-scale sample counts as.
        full_scale: f32,
    },
}

/// How frames are cut.
#[derive(Clone, Debug)]
pub(super) struct Framing {
    places: FramePlaces,
    window: Vec<f32>,
    /// Samples of a transform, at least those of the window.
    pub(super) fourier_size: usize,
    hop: usize,
    preparation: Preparation,
}

impl Framing {
    /// Frames of `window_size` samples each `hop` samples, in the middle of a transform of `fourier_size`.
    pub(super) fn new(
        places: FramePlaces,
        window: WindowShape,
        fourier_size: usize,
        window_size: usize,
        hop: usize,
    ) -> Self {
        Self { places, window: window.values(window_size), fourier_size, hop, preparation: Preparation::None }
    }

    /// Prepares samples before they are windowed.
    pub(super) fn prepare(self, preparation: Preparation) -> Self {
        Self { preparation, ..self }
    }

    /// Returns how many frames this many samples give.
    pub(super) fn frames(&self, samples: usize) -> usize {
        match self.places {
            _ if samples == 0 => 0,
            FramePlaces::CenteredReflected { last } => samples / self.hop + usize::from(last),
            FramePlaces::CenteredZeros => samples / self.hop,
            FramePlaces::Inside => samples.checked_sub(self.window.len()).map_or(0, |rest| 1 + rest / self.hop),
        }
    }

    /// Writes a windowed frame to `out`, which has `fourier_size` samples.
    pub(super) fn cut(&self, samples: &[f32], number: usize, out: &mut [f32]) {
        let before = (self.fourier_size - self.window.len()) / 2;
        let first = match self.places {
            FramePlaces::Inside => number * self.hop,
            // Where the window begins, from the first padded sample on.
            _ => number * self.hop + before,
        };
        let padded = if self.places == FramePlaces::Inside { 0 } else { self.fourier_size / 2 };
        out.fill(0.0);
        let frame = &mut out[before..][..self.window.len()];
        let at = first as i64 - padded as i64;
        // With the sample before, which emphasis needs.
        let inside = usize::try_from(at - 1).ok().and_then(|at| samples.get(at..)?.get(..=self.window.len()));
        match (self.preparation, inside) {
            (Preparation::Emphasis, Some(inside)) => {
                for (n, sample) in frame.iter_mut().enumerate() {
                    *sample = inside[n + 1] - EMPHASIS * inside[n];
                }
            }
            (Preparation::Emphasis, None) => {
                for (sample, at) in frame.iter_mut().zip(at..) {
                    // After the end all is zero, as before the beginning.
                    let is_inside = at < samples.len() as i64;
                    *sample = if is_inside {
                        self.sample(samples, at) - EMPHASIS * self.sample(samples, at - 1)
                    } else {
                        0.0
                    };
                }
            }
            (_, Some(inside)) => frame.copy_from_slice(&inside[1..]),
            (_, None) => frame.iter_mut().zip(at..).for_each(|(sample, at)| *sample = self.sample(samples, at)),
        }
        if let Preparation::EachFrame { full_scale } = self.preparation {
            level_and_emphasise(frame, full_scale);
        }
        for (sample, weight) in frame.iter_mut().zip(&self.window) {
            *sample *= weight;
        }
    }

    /// Returns a sample, which can be before or after the sound.
    fn sample(&self, samples: &[f32], at: i64) -> f32 {
        let inside = usize::try_from(at).ok().and_then(|at| samples.get(at));
        match (inside, self.places) {
            (Some(sample), _) => *sample,
            (None, FramePlaces::CenteredReflected { .. }) => samples[reflected(at, samples.len())],
            (None, _) => 0.0,
        }
    }
}

/// Scales a frame, takes its mean off, and lifts its high frequencies. The first sample counts as its own predecessor.
fn level_and_emphasise(frame: &mut [f32], full_scale: f32) {
    // Several sums, so that an addition need not wait for the one before.
    let mut sums = [0.0; 8];
    let (chunks, rest) = frame.as_chunks::<8>();
    for chunk in chunks {
        for (sum, sample) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(sample * full_scale);
        }
    }
    let sum: f64 = sums.iter().sum::<f64>() + rest.iter().map(|sample| f64::from(sample * full_scale)).sum::<f64>();
    let mean = (sum / frame.len() as f64) as f32;
    let mut before = frame.first().map_or(0.0, |first| first * full_scale - mean);
    for sample in frame {
        let level = *sample * full_scale - mean;
        *sample = level - EMPHASIS * before;
        before = level;
    }
}

/// Returns which sample a place beside the sound shows, if the sound is mirrored at its first and last samples as often as needed.
fn reflected(at: i64, samples: usize) -> usize {
    let last = samples as i64 - 1;
    if last == 0 {
        return 0;
    }
    let folded = at.rem_euclid(2 * last);
    folded.min(2 * last - folded) as usize
}

impl WindowShape {
    /// Returns the window of this many samples.
    fn values(self, samples: usize) -> Vec<f32> {
        let period = if self == Self::Hann { samples } else { (samples - 1).max(1) };
        let value = |n: usize| {
            let (_, cosine) = sin_cos(360.0 * n as f64 / period as f64);
            let hann = 0.5 - 0.5 * cosine;
            match self {
                Self::Povey if hann > 0.0 => exp(0.85 * ln(hann)),
                _ => hann,
            }
        };
        (0..samples).map(|n| value(n) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_beside_the_sound_has_mirrored_samples_or_zeros() {
        let samples: Vec<f32> = (1..=6).map(|n| n as f32).collect();
        let cut = |places, number| {
            let mut framing = Framing::new(places, WindowShape::Hann, 8, 8, 2);
            framing.window.fill(1.0);
            let mut out = vec![9.0; 8];
            framing.cut(&samples, number, &mut out);
            out
        };
        let reflected = FramePlaces::CenteredReflected { last: true };
        assert_eq!(cut(reflected, 0), [5.0, 4.0, 3.0, 2.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(cut(reflected, 3), [3.0, 4.0, 5.0, 6.0, 5.0, 4.0, 3.0, 2.0]);
        assert_eq!(cut(FramePlaces::CenteredZeros, 1), [0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn sound_that_is_shorter_than_a_frame_is_mirrored_again_and_again() {
        let places: Vec<usize> = (-5..6).map(|at| reflected(at, 3)).collect();
        assert_eq!(places, [1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1]);
        assert_eq!((-5..6).map(|at| reflected(at, 1)).max(), Some(0));
    }

    #[test]
    fn frames_are_counted_as_their_sources_count_them() {
        let count = |places| {
            [0, 1, 159, 160, 399, 400, 559, 560]
                .map(|n| Framing::new(places, WindowShape::Hann, 400, 400, 160).frames(n))
        };
        assert_eq!(count(FramePlaces::CenteredReflected { last: true }), [0, 1, 1, 2, 3, 3, 4, 4]);
        assert_eq!(count(FramePlaces::CenteredReflected { last: false }), [0, 0, 0, 1, 2, 2, 3, 3]);
        assert_eq!(count(FramePlaces::CenteredZeros), [0, 0, 0, 1, 2, 2, 3, 3]);
        assert_eq!(count(FramePlaces::Inside), [0, 0, 0, 0, 0, 1, 1, 2]);
    }
}
