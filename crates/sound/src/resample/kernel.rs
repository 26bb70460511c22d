//! The weights of a resampler: for each phase, the values of a windowed sinc at the input frames that it reaches.

use spdl_types::elementary::sin_cos;

use crate::SoundError;

/// Sums that a frame is added up in.
pub(super) const LANES: usize = 8;
/// Zero crossings of the sinc on each side.
const ZERO_CROSSINGS: f64 = 6.0;
/// The cut-off, in parts of the lower of the two Nyquist frequencies.
const ROLLOFF: f64 = 0.99;
/// The most weights that a resampler may have: 16 MiB.
const MOST_WEIGHTS: u64 = 4 << 20;

/// The weights of all phases.
#[derive(Clone, Debug)]
pub(super) struct PhaseWeights {
    /// The rates, divided by their greatest common divisor: after `from` input and `to` output frames the phases begin anew.
    pub(super) from: usize,
    pub(super) to: usize,
    /// One row for each phase. A row ends with zeros where it has fewer weights.
    values: Vec<f32>,
    /// Weights of a row, a multiple of [`LANES`].
    pub(super) row: usize,
    /// For each phase, the input frame of its first weight, relative to the frame at which the phases began.
    pub(super) starts: Vec<i32>,
}

impl PhaseWeights {
    /// Computes the weights between two rates in Hz that are not equal.
    pub(super) fn new(from: u32, to: u32) -> Result<Self, SoundError> {
        let divisor = greatest_common_divisor(from.into(), to.into()) as u32;
        let (reduced_from, reduced_to) = (from / divisor, to / divisor);
        let cut_off = f64::from(reduced_from.min(reduced_to)) * ROLLOFF;
        // Input frames that the window reaches on each side.
        let reach = ZERO_CROSSINGS * f64::from(reduced_from) / cut_off;
        let row = (2 * reach as u64 + 2).next_multiple_of(LANES as u64);
        let weights = row.saturating_mul(u64::from(reduced_to));
        if weights > MOST_WEIGHTS {
            return Err(SoundError::UnevenRates { from, to, weights, limit: MOST_WEIGHTS });
        }
        let mut values = Vec::with_capacity(weights as usize);
        let mut starts = Vec::with_capacity(reduced_to as usize);
        let scale = cut_off / f64::from(reduced_from);
        // The time between an input and an output frame is this, times a whole number.
        let unit = cut_off / (f64::from(reduced_from) * f64::from(reduced_to));
        for phase in 0..i64::from(reduced_to) {
            let center = (phase * i64::from(reduced_from)) as f64 / f64::from(reduced_to);
            let start = (center - reach).ceil() as i64;
            starts.push(start as i32);
            values.extend((start..start + row as i64).map(|frame| {
                let distance = frame * i64::from(reduced_to) - phase * i64::from(reduced_from);
                (scale * windowed_sinc(distance as f64 * unit)) as f32
            }));
        }
        Ok(Self { from: reduced_from as usize, to: reduced_to as usize, values, row: row as usize, starts })
    }

    /// Returns the weights of a phase.
    #[inline(always)]
    pub(super) fn row_of(&self, phase: usize) -> &[f32] {
        &self.values[phase * self.row..][..self.row]
    }

    /// Returns the phase of the next output frame, and the input frame at which its phases began.
    #[inline(always)]
    pub(super) fn next(&self, phase: usize, begun: i64) -> (usize, i64) {
        if phase + 1 < self.to { (phase + 1, begun) } else { (0, begun.saturating_add(self.from as i64)) }
    }

    /// Returns the input frame that the first weight of an output frame is for. It can be before the input.
    pub(super) fn first_frame(&self, output: usize) -> i64 {
        let begun = i64::try_from((output / self.to).saturating_mul(self.from)).unwrap_or(i64::MAX);
        begun.saturating_add(self.starts[output % self.to].into())
    }

    /// Returns the bytes that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.values.len() * size_of::<f32>() + self.starts.len() * size_of::<i32>()
    }
}

/// Returns the greatest common divisor by Euclid's algorithm.
#[must_use]
pub const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Returns the sinc under the Hann window at a time, in zero crossings.
fn windowed_sinc(time: f64) -> f64 {
    if time.abs() >= ZERO_CROSSINGS {
        return 0.0;
    }
    if time == 0.0 {
        return 1.0;
    }
    let (sine, _) = sin_cos(time * 180.0);
    let (_, window) = sin_cos(time * 90.0 / ZERO_CROSSINGS);
    sine / (time * std::f64::consts::PI) * window * window
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weights_of_each_phase_add_up_to_one() {
        for (from, to) in [(44_100, 16_000), (16_000, 44_100), (48_000, 16_000), (11_127, 16_000)] {
            let weights = PhaseWeights::new(from, to).unwrap();
            for phase in 0..weights.to {
                let sum: f32 = weights.row_of(phase).iter().sum();
                assert!((sum - 1.0).abs() < 5e-3, "phase {phase} of {from} to {to} has {sum}");
            }
        }
    }

    #[test]
    fn a_row_has_room_for_all_weights_that_are_not_zero() {
        for (from, to) in [(44_100, 16_000), (96_000, 44_100), (8_000, 11_025), (3, 1), (1, 3)] {
            let weights = PhaseWeights::new(from, to).unwrap();
            let (from, to) = (weights.from as f64, weights.to as f64);
            let unit = from.min(to) * ROLLOFF / (from * to);
            for (phase, start) in weights.starts.iter().enumerate() {
                for outside in [start - 1, start + weights.row as i32] {
                    let time = (f64::from(outside) * to - phase as f64 * from) * unit;
                    assert!(time.abs() >= ZERO_CROSSINGS, "phase {phase} of {from} to {to} lacks frame {outside}");
                }
            }
        }
    }
}
