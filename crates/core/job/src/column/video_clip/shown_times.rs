//! When the frames of a video are shown, and which one is shown at a time.

use super::file::ClipSnap;

/// A time may be so many microseconds before its frame: numbers of 4 bytes and texts are rounded.
const EARLY_MICROS: i64 = 1000;
/// A time may be so many microseconds behind the end of the video, whose last frame it then means: lists are rounded, too.
const OVERSHOOT_MICROS: i64 = 500_000;

/// When the frames of a video are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownTimes<'t> {
    /// When each frame begins, in the order in which they are shown.
    pub begins: &'t [i64],
    /// When the last one ends, if the file says so.
    pub end: i64,
    /// The unit of these times, as a fraction of a second; both numbers are 1 or more.
    pub time_base: [u32; 2],
    /// The numbers of the frames that need no others, ascending; `None` if none needs others.
    pub keys: Option<&'t [usize]>,
}

impl ShownTimes<'_> {
    /// Returns when the last frame ends; that is after it has begun.
    pub(super) fn last_end(&self) -> i128 {
        let begins = self.begins.last().map_or(0, |begin| i128::from(*begin));
        i128::from(self.end).max(begins + 1)
    }

    /// Returns the time of the first frame of a clip that begins with frame `first`, at a rate in thousandths: the middle of the first
    /// span, but not behind the middle of that frame. So it does not matter how times of frames are rounded.
    pub(super) fn first_time(&self, first: usize, rate: u32) -> i128 {
        let begin = i128::from(self.begins[first]);
        let end = self.begins.get(first + 1).map_or(self.last_end(), |next| i128::from(*next));
        begin + ((end - begin) / 2).min(self.units(1, 2 * rate))
    }

    /// Returns how many whole units of time `frames` frames of a rate in thousandths take.
    pub(super) fn units(&self, frames: u32, rate: u32) -> i128 {
        let [numerator, denominator] = self.time_base.map(i128::from);
        i128::from(frames) * 1000 * denominator / (numerator * i128::from(rate))
    }

    /// Returns the frame that is shown at a time: the first one before its beginning, and the last one behind its end.
    pub(super) fn frame_at(&self, time: i128) -> usize {
        self.begins.partition_point(|begin| i128::from(*begin) <= time).saturating_sub(1)
    }

    /// Returns the frame that is shown so many seconds after the beginning of the video; `None` if that is before it, or behind its end.
    pub(super) fn frame_at_second(&self, second: f64) -> Option<usize> {
        let [numerator, denominator] = self.time_base.map(i128::from);
        let units_of = |micros: i64| (i128::from(micros) * denominator).div_euclid(numerator * 1_000_000);
        let micros = ((second * 1e6).round() as i64).saturating_add(EARLY_MICROS);
        let time = units_of(micros);
        (micros >= 0 && time <= self.last_end() + units_of(OVERSHOOT_MICROS)).then(|| self.frame_at(time))
    }

    /// Returns the frame that a clip may begin with in place of frame `number`; that frame, if no key frame comes before it.
    pub(super) fn snapped(&self, snap: ClipSnap, number: usize) -> usize {
        let Some(keys) = self.keys.filter(|_| !snap.is_exact()) else { return number };
        let before = keys.partition_point(|key| *key <= number).checked_sub(1);
        before.map_or(number, |nth| keys[nth])
    }
}
