//! Frames of videos that records name, one each, and when they are due: all in whole numbers.

use serde::{Deserialize, Serialize};

/// What becomes of a frame that is not shown when it is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FrameDrift {
    /// The sample is a bad one.
    #[default]
    Fail,
    /// The frame is taken that is shown nearest to that time.
    Nearest,
}

impl FrameDrift {
    /// Returns whether it is the default.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// When the frames of a video are due of which each second has as many, and the unit of the times at which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteadyFrames {
    /// Frames of a second, 1 or more.
    pub fps: u32,
    /// The unit of times, as a fraction of a second; both numbers are 1 or more.
    pub time_base: [u32; 2],
}

impl SteadyFrames {
    /// Returns how far a time is from when a frame is due. A frame takes [`frame_units`](Self::frame_units) of the same unit.
    #[must_use]
    pub fn distance(&self, time: i64, frame: u64) -> u128 {
        let [numerator, denominator] = self.time_base.map(i128::from);
        let shown = i128::from(time) * numerator * i128::from(self.fps);
        shown.abs_diff(i128::from(frame) * denominator)
    }

    /// Returns the time from one frame to the next, in the unit of [distances](Self::distance).
    #[must_use]
    pub fn frame_units(&self) -> u128 {
        self.time_base[1].into()
    }

    /// Returns whether a frame that is shown at this time is due then: less than half a frame away, so that its number and its time
    /// name the same frame however times are rounded.
    #[must_use]
    pub fn is_due(&self, time: i64, frame: u64) -> bool {
        self.distance(time, frame) * 2 < self.frame_units()
    }

    /// Returns when a frame is due, rounded down to the unit of times.
    #[must_use]
    pub fn due(&self, frame: u64) -> i64 {
        let [numerator, denominator] = self.time_base.map(u128::from);
        let time = u128::from(frame) * denominator / (numerator * u128::from(self.fps));
        i64::try_from(time).unwrap_or(i64::MAX)
    }

    /// Returns which of the frames that are shown at these times is nearest to when a frame is due; the first of equals.
    #[must_use]
    pub fn nearest(&self, times: &[i64], frame: u64) -> Option<usize> {
        (0..times.len()).min_by_key(|nth| self.distance(times[*nth], frame))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_is_due_until_half_a_frame_before_and_behind() {
        // Ten frames a second, each of 1,280 units.
        let steady = SteadyFrames { fps: 10, time_base: [1, 12_800] };
        for (time, frame, is_due) in [
            (0, 0, true),
            (-639, 0, true),
            (-640, 0, false),
            (1280 * 7 + 639, 7, true),
            (1280 * 7 + 640, 7, false),
            (1280 * 7, 8, false),
        ] {
            assert_eq!(steady.is_due(time, frame), is_due, "{time}, {frame}");
        }
        assert_eq!([0, 1, 25].map(|frame| steady.due(frame)), [0, 1280, 32_000]);
        assert_eq!(steady.nearest(&[1280, 2560, 3900], 3), Some(2));
        assert_eq!(steady.nearest(&[1280, 3200], 2), Some(1));
        assert_eq!(steady.nearest(&[1920, 3200], 2), Some(0), "the first of equals");
        assert_eq!(steady.nearest(&[], 2), None);
    }

    proptest! {
        #[test]
        fn rounded_times_are_due_at_every_rate_of_which_the_unit_tells_frames_apart(
            fps in 1..=240_u32,
            numerator in 1..=3_u32,
            more in 0..100_000_u32,
            frame in 0..1_000_000_u64,
            up in any::<bool>(),
        ) {
            // A frame takes more than two units, as in every file that has times of frames.
            let steady = SteadyFrames { fps, time_base: [numerator, 2 * fps * numerator + 1 + more] };
            let time = steady.due(frame) + i64::from(up && steady.distance(steady.due(frame), frame) > 0);
            prop_assert!(steady.is_due(time, frame), "{} for {}", time, frame);
            prop_assert!(!steady.is_due(time, frame + 1));
        }

        #[test]
        fn no_time_overflows(
            fps in 1..=u32::MAX, base in [1..=u32::MAX, 1..=u32::MAX], time in any::<i64>(), frame in any::<u64>()
        ) {
            let steady = SteadyFrames { fps, time_base: base };
            let _ = (steady.is_due(time >> 2, frame >> 1), steady.due(frame));
        }
    }
}
