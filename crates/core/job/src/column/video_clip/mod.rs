//! The `clip` of a `video` column: which frames of a video a sample has.

mod file;
mod shown_times;

use serde::{Deserialize, Serialize};

pub use file::{ClipFile, ClipPick, ClipSnap, ShortVideo};
pub use shown_times::ShownTimes;

use crate::KeyProblem;

/// The most frames of a clip.
const MAX_FRAMES: u32 = 1 << 16;
/// The highest rate of frames, in thousandths of a frame a second.
const MAX_RATE: u32 = 1_000_000;

/// The units of time for which a picture of a folder is shown: where a second has so many thousandths of a picture, it has as many units.
const PICTURE_UNITS: u32 = 1000;

/// Which frames of a video a sample has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VideoClip {
    /// Their number, or the most of them if all are taken.
    pub frames: u32,
    /// How far they are from each other; it is not looked at if they are spread over the whole video.
    pub step: ClipStep,
    /// Where the clip begins.
    pub pick: ClipPick,
    /// What becomes of a video that is shorter.
    pub short: ShortVideo,
    /// How many thousandths of a picture a second of a video has that is a folder of pictures, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_millirate: Option<u32>,
    /// Which frames it may begin with.
    #[serde(default, skip_serializing_if = "ClipSnap::is_exact")]
    pub snap: ClipSnap,
    /// The field with the times of the frames, if it has one. Then it begins nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// Why a video does not have the frames of a clip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClipMisfit {
    /// It is shorter, or has no frames.
    TooShort,
    /// All of its frames are taken, and they are more than a sample may have.
    TooLong,
    /// So many times are given, and as many as frames are needed.
    TimeCount(usize),
    /// A frame is wanted that is shown at this second, before the beginning of the video or behind its end.
    Outside(f64),
}

/// How far the frames of a clip are from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClipStep {
    /// So many frames of the video.
    Stride(u32),
    /// A second of the video has so many thousandths of a frame of the clip.
    Millirate(u32),
}

/// The frames of a video that a clip has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClipFrames {
    /// Their numbers, in order.
    pub numbers: Vec<usize>,
    /// How many of them, from the first one on, the video has where the clip wants them. Those behind repeat its last frame, since
    /// it has ended.
    pub real: usize,
}

impl VideoClip {
    /// Takes over the keys of a job file.
    pub(super) fn read(file: ClipFile) -> Result<Self, KeyProblem> {
        let ClipFile { frames, stride, rate, pick, at, snap, short, source_rate } = file;
        let problem = |problem: String| Err(("clip", problem));
        let step_key = stride.map(|_| "stride").or_else(|| rate.map(|_| "rate"));
        if let (Some(_), Some(key)) = (&at, step_key.or_else(|| pick.map(|_| "pick"))) {
            return problem(format!("has `{key}`, and with `at` a field says which frames it has; leave one out"));
        }
        let pick = pick.unwrap_or_default();
        if let (ClipPick::Uniform, Some(key)) = (pick, step_key) {
            return problem(format!(
                "has `{key}`, and frames of the whole video with pick = \"uniform\"; leave one out"
            ));
        }
        if pick == ClipPick::All && short.is_some() {
            return problem(
                "has `short`, and with pick = \"all\" a sample is as long as its video; leave one out".to_owned(),
            );
        }
        let step = match (stride, rate) {
            (Some(_), Some(_)) => return problem("has `stride` and `rate`; leave one out".to_owned()),
            (stride, None) => ClipStep::Stride(stride.unwrap_or(1)),
            (None, Some(rate)) => ClipStep::Millirate(thousandths("rate", rate)?),
        };
        let source_millirate = source_rate.map(|rate| thousandths("source_rate", rate)).transpose()?;
        let (short, snap) = (short.unwrap_or_default(), snap.unwrap_or_default());
        Ok(Self { frames, step, pick, short, source_millirate, snap, at })
    }

    /// Checks all values.
    pub(super) fn check(&self) -> Result<(), KeyProblem> {
        let problem = |problem: String| Err(("clip", problem));
        if !(1..=MAX_FRAMES).contains(&self.frames) {
            return problem(format!("has frames = {}, not in 1..={MAX_FRAMES}", self.frames));
        }
        if let Some(rate) = self.source_millirate.filter(|rate| !(1..=MAX_RATE).contains(rate)) {
            return problem(format!("has a source_rate of {rate} thousandths, not in 1..={MAX_RATE}"));
        }
        if self.pick == ClipPick::All && !self.snap.is_exact() {
            return problem("has `snap`, and with pick = \"all\" every frame; leave one out".to_owned());
        }
        if let Some(field) = self.at.as_ref().filter(|field| field.is_empty() || field.contains(char::is_control)) {
            return problem(format!("has at = \"{}\", which cannot be a field", field.escape_debug()));
        }
        match self.step {
            ClipStep::Stride(0) => problem("has stride = 0; 1 takes frames that follow each other".to_owned()),
            ClipStep::Millirate(rate) if !(1..=MAX_RATE).contains(&rate) => {
                problem(format!("has a rate of {rate} thousandths, not in 1..={MAX_RATE}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether samples have all frames of their videos, and so differ in length.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        matches!(self.pick, ClipPick::All)
    }

    /// Returns whether the frames of a clip depend on when they are shown.
    #[must_use]
    pub const fn needs_times(&self) -> bool {
        self.at.is_some() || !matches!(self.pick, ClipPick::Uniform) && matches!(self.step, ClipStep::Millirate(_))
    }

    /// Returns the pictures that a clip of a folder of `count` has, as [`frames_of`](Self::frames_of) does: each is shown equally long,
    /// and needs no other.
    ///
    /// # Errors
    /// As of `frames_of`.
    pub fn pictures_of(
        &self,
        count: usize,
        at: Option<&[f64]>,
        drawn: impl FnOnce() -> u64,
    ) -> Result<ClipFrames, ClipMisfit> {
        let time = |nth: usize| i64::try_from(nth).unwrap_or(i64::MAX).saturating_mul(PICTURE_UNITS.into());
        let begins: Vec<i64> = (0..count).map(time).collect();
        // Without a rate, no second is looked at.
        let time_base = [1, self.source_millirate.unwrap_or(PICTURE_UNITS)];
        self.frames_of(&ShownTimes { begins: &begins, end: time(count), time_base, keys: None }, at, drawn)
    }

    /// Returns when picture number `nth` of a folder is shown, in seconds; `None` if it is not known.
    #[must_use]
    pub fn picture_second(&self, nth: usize) -> Option<f64> {
        self.source_millirate.map(|rate| nth as f64 * f64::from(PICTURE_UNITS) / f64::from(rate))
    }

    /// Returns the frames that a clip of a video has. `at` are the times of these in seconds, if a field has them, and `drawn` are random
    /// bits of the sample.
    ///
    /// All is computed in whole numbers: of frames, or of the unit of times.
    ///
    /// # Errors
    /// The reason why the video does not have them.
    pub fn frames_of(
        &self,
        shown: &ShownTimes<'_>,
        at: Option<&[f64]>,
        drawn: impl FnOnce() -> u64,
    ) -> Result<ClipFrames, ClipMisfit> {
        let count = shown.begins.len();
        let last = count.checked_sub(1).ok_or(ClipMisfit::TooShort)?;
        let wanted = self.frames as usize;
        let is_strict = self.short == ShortVideo::Bad;
        if let Some(seconds) = at {
            return self.frames_at(shown, seconds);
        }
        if self.is_all() {
            return self.all_frames(shown);
        }
        if self.pick == ClipPick::Uniform {
            let middle = |nth: usize| (2 * nth as u128 + 1) * count as u128 / (2 * wanted as u128);
            let frame = |nth| usize::try_from(middle(nth)).expect("a frame of the video");
            let numbers = (0..wanted).map(|nth| shown.snapped(self.snap, frame(nth))).collect();
            let fits = !is_strict || count >= wanted;
            return if fits { Ok(ClipFrames { numbers, real: wanted }) } else { Err(ClipMisfit::TooShort) };
        }
        let starts = self.starts(shown);
        if starts == 0 && is_strict {
            return Err(ClipMisfit::TooShort);
        }
        let rest = starts.saturating_sub(1);
        let first = match self.pick {
            ClipPick::Random if rest > 0 => {
                let first = (u128::from(drawn()) * (rest as u128 + 1)) >> 64;
                usize::try_from(first).expect("at most the frames that are left")
            }
            ClipPick::Middle => rest / 2,
            _ => 0,
        };
        let first = shown.snapped(self.snap, first);
        // The frame, and whether the video has one there.
        let frame = |nth: u32| match self.step {
            ClipStep::Stride(stride) => {
                let ahead = usize::try_from(u64::from(nth) * u64::from(stride)).unwrap_or(usize::MAX);
                let number = first.saturating_add(ahead);
                (number.min(last), number <= last)
            }
            ClipStep::Millirate(rate) => {
                let time = shown.first_time(first, rate) + shown.units(nth, rate);
                // Of frames that begin at one time the last is shown, and it may not be the key frame.
                let is_key = nth == 0 && !self.snap.is_exact();
                let number = if is_key { first } else { shown.frame_at(time).max(first) };
                (number, time < shown.last_end())
            }
        };
        let (numbers, is_real): (Vec<usize>, Vec<bool>) = (0..self.frames).map(frame).unzip();
        Ok(ClipFrames { numbers, real: is_real.into_iter().filter(|is_real| *is_real).count() })
    }

    /// Returns when a clip begins and ends, in units of time: from when its first frame is shown until its last one is no longer. That is when
    /// the next frame of a longer clip would be shown, and with frames that do not follow one another when the next frame of the video is.
    #[must_use]
    pub fn span_of(&self, shown: &ShownTimes<'_>, frames: &ClipFrames) -> [i128; 2] {
        let real = &frames.numbers[..frames.real.min(frames.numbers.len())];
        let (Some(first), Some(last)) = (real.iter().min(), real.iter().max()) else { return [0, 0] };
        let begin_of = |number: usize| shown.begins.get(number).map_or(shown.last_end(), |begin| i128::from(*begin));
        let begin = begin_of(*first);
        let end = match self.step {
            _ if self.at.is_some() => begin_of(last + 1),
            _ if self.pick == ClipPick::Uniform => return [begin_of(0), shown.last_end()],
            ClipStep::Stride(stride) => begin_of(last.saturating_add(stride as usize)),
            ClipStep::Millirate(rate) => begin + shown.units(u32::try_from(real.len()).unwrap_or(u32::MAX), rate),
        };
        [begin, end.min(shown.last_end()).max(begin)]
    }

    /// Returns the frames that are shown at some seconds.
    fn frames_at(&self, shown: &ShownTimes<'_>, seconds: &[f64]) -> Result<ClipFrames, ClipMisfit> {
        let (wanted, real) = (self.frames as usize, seconds.len());
        let least = if self.short == ShortVideo::Bad { wanted } else { 1 };
        if !(least..=wanted).contains(&real) {
            return Err(ClipMisfit::TimeCount(real));
        }
        let frame = |second: &f64| {
            let found = shown.frame_at_second(*second).ok_or(ClipMisfit::Outside(*second))?;
            Ok(shown.snapped(self.snap, found))
        };
        let mut numbers = seconds.iter().map(frame).collect::<Result<Vec<usize>, _>>()?;
        numbers.resize(wanted, numbers[real - 1]);
        Ok(ClipFrames { numbers, real })
    }

    /// Returns all frames of a video that has some, or every one of a stride or a rate.
    fn all_frames(&self, shown: &ShownTimes<'_>) -> Result<ClipFrames, ClipMisfit> {
        let most = self.frames as usize;
        let numbers: Vec<usize> = match self.step {
            ClipStep::Stride(stride) => {
                (0..shown.begins.len()).step_by(stride.max(1) as usize).take(most + 1).collect()
            }
            ClipStep::Millirate(rate) => {
                let times = (0..=self.frames).map(|nth| shown.first_time(0, rate) + shown.units(nth, rate));
                times.take_while(|time| *time < shown.last_end()).map(|time| shown.frame_at(time)).collect()
            }
        };
        let real = numbers.len();
        if real > most { Err(ClipMisfit::TooLong) } else { Ok(ClipFrames { numbers, real }) }
    }

    /// Returns at how many frames, from the first one on, a whole clip can begin.
    fn starts(&self, shown: &ShownTimes<'_>) -> usize {
        match self.step {
            ClipStep::Stride(stride) => {
                let ahead = u64::from(self.frames - 1) * u64::from(stride);
                usize::try_from(ahead).map_or(0, |ahead| shown.begins.len().saturating_sub(ahead))
            }
            ClipStep::Millirate(rate) => {
                let latest = shown.last_end() - shown.units(self.frames - 1, rate);
                let begun = shown.begins.partition_point(|begin| i128::from(*begin) < latest);
                (0..begun).rev().find(|first| shown.first_time(*first, rate) < latest).map_or(0, |first| first + 1)
            }
        }
    }
}

/// Returns a rate of the key `clip` in thousandths.
fn thousandths(key: &str, rate: f64) -> Result<u32, KeyProblem> {
    let thousandths = (rate * 1000.0).round();
    if !(1.0..=f64::from(MAX_RATE)).contains(&thousandths) {
        return Err(("clip", format!("has {key} = {rate}, not in 0.001..=1000")));
    }
    Ok(thousandths as u32)
}

#[cfg(test)]
mod tests;
