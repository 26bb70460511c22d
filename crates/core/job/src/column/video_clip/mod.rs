//! The `clip` of a `video` column: which frames of a video a sample has.

use serde::{Deserialize, Serialize};

use crate::KeyProblem;

/// The most frames of a clip.
const MAX_FRAMES: u32 = 1 << 16;
/// The highest rate of frames, in thousandths of a frame a second.
const MAX_RATE: u32 = 1_000_000;

/// The units of time for which a picture of a folder is shown: where a second has so many thousandths of a picture, it has as many units.
const PICTURE_UNITS: u32 = 1000;

/// The `clip` of a job file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClipFile {
    /// The number of frames, 1 to 65536.
    pub frames: u32,
    /// How many frames of the video one frame of the clip is behind the one before. Default: 1, unless there is a `rate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<u32>,
    /// Frames of the clip in a second of the video, 0.001 to 1000, in place of `stride`: of each so long span of time the frame
    /// that is shown in its middle. Rounded to thousandths. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Where the clip begins: `random` draws a frame anew for each epoch, `start` is the first one, and `middle` leaves as many
    /// before as behind. `uniform` takes frames of the whole video: the middle ones of as many equal spans. Default: `random`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pick: Option<ClipPick>,
    /// What becomes of a video that is shorter than the clip: `repeat_last` repeats its last frame, or with `uniform` as many
    /// as it takes, and `bad` makes it a bad sample. Default: `repeat_last`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<ShortVideo>,
    /// For videos that are folders of pictures: how many of these are a second, 0.001 to 1000, for `rate` and for columns of
    /// `video_times`. Files of videos say it themselves. Rounded to thousandths. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_rate: Option<f64>,
}

/// Where a clip begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClipPick {
    /// At a frame that is drawn for each sample and epoch.
    #[default]
    Random,
    /// At the first frame.
    Start,
    /// Where as many frames are before it as behind it.
    Middle,
    /// Nowhere: its frames are spread over the whole video.
    Uniform,
}

/// What becomes of a video that is shorter than a clip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShortVideo {
    /// Frames are there more than once.
    #[default]
    RepeatLast,
    /// It is a bad sample.
    Bad,
}

/// Which frames of a video a sample has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VideoClip {
    /// Their number.
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

/// When the frames of a video are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownTimes<'t> {
    /// When each frame begins, in the order in which they are shown.
    pub begins: &'t [i64],
    /// When the last one ends, if the file says so.
    pub end: i64,
    /// The unit of these times, as a fraction of a second; both numbers are 1 or more.
    pub time_base: [u32; 2],
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
        let ClipFile { frames, stride, rate, pick, short, source_rate } = file;
        let pick = pick.unwrap_or_default();
        let problem = |problem: String| Err(("clip", problem));
        if pick == ClipPick::Uniform && (stride.is_some() || rate.is_some()) {
            let key = if stride.is_some() { "stride" } else { "rate" };
            return problem(format!(
                "has `{key}`, and frames of the whole video with pick = \"uniform\"; leave one out"
            ));
        }
        let step = match (stride, rate) {
            (Some(_), Some(_)) => return problem("has `stride` and `rate`; leave one out".to_owned()),
            (stride, None) => ClipStep::Stride(stride.unwrap_or(1)),
            (None, Some(rate)) => ClipStep::Millirate(thousandths("rate", rate)?),
        };
        let source_millirate = source_rate.map(|rate| thousandths("source_rate", rate)).transpose()?;
        Ok(Self { frames, step, pick, short: short.unwrap_or_default(), source_millirate })
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
        match self.step {
            ClipStep::Stride(0) => problem("has stride = 0; 1 takes frames that follow each other".to_owned()),
            ClipStep::Millirate(rate) if !(1..=MAX_RATE).contains(&rate) => {
                problem(format!("has a rate of {rate} thousandths, not in 1..={MAX_RATE}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the frames of a clip depend on when they are shown.
    #[must_use]
    pub const fn needs_times(&self) -> bool {
        matches!(
            (self.pick, self.step),
            (ClipPick::Random | ClipPick::Start | ClipPick::Middle, ClipStep::Millirate(_))
        )
    }

    /// Returns the pictures that a clip of a folder of `count` has, as [`frames_of`](Self::frames_of) does: each is shown equally long.
    #[must_use]
    pub fn pictures_of(&self, count: usize, drawn: impl FnOnce() -> u64) -> Option<ClipFrames> {
        let time = |nth: usize| i64::try_from(nth).unwrap_or(i64::MAX).saturating_mul(PICTURE_UNITS.into());
        let begins: Vec<i64> = (0..count).map(time).collect();
        // Without a rate, no second is looked at.
        let time_base = [1, self.source_millirate.unwrap_or(PICTURE_UNITS)];
        self.frames_of(&ShownTimes { begins: &begins, end: time(count), time_base }, drawn)
    }

    /// Returns when picture number `nth` of a folder is shown, in seconds; `None` if it is not known.
    #[must_use]
    pub fn picture_second(&self, nth: usize) -> Option<f64> {
        self.source_millirate.map(|rate| nth as f64 * f64::from(PICTURE_UNITS) / f64::from(rate))
    }

    /// Returns the frames that a clip of a video has; `None` if the video is too short, or has no frames.
    /// `drawn` are random bits of the sample.
    ///
    /// All is computed in whole numbers: of frames, or of the unit of times.
    #[must_use]
    pub fn frames_of(&self, shown: &ShownTimes<'_>, drawn: impl FnOnce() -> u64) -> Option<ClipFrames> {
        let count = shown.begins.len();
        let last = count.checked_sub(1)?;
        let wanted = self.frames as usize;
        let is_strict = self.short == ShortVideo::Bad;
        if self.pick == ClipPick::Uniform {
            let middle = |nth: usize| (2 * nth as u128 + 1) * count as u128 / (2 * wanted as u128);
            let frames = (0..wanted).map(|nth| usize::try_from(middle(nth)).expect("a frame of the video"));
            return (!is_strict || count >= wanted).then(|| ClipFrames { numbers: frames.collect(), real: wanted });
        }
        let starts = self.starts(shown);
        if starts == 0 && is_strict {
            return None;
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
        // The frame, and whether the video has one there.
        let frame = |nth: u32| match self.step {
            ClipStep::Stride(stride) => {
                let ahead = usize::try_from(u64::from(nth) * u64::from(stride)).unwrap_or(usize::MAX);
                let number = first.saturating_add(ahead);
                (number.min(last), number <= last)
            }
            ClipStep::Millirate(rate) => {
                let time = shown.first_time(first, rate) + shown.units(nth, rate);
                (shown.frame_at(time).max(first), time < shown.last_end())
            }
        };
        let (numbers, is_real): (Vec<usize>, Vec<bool>) = (0..self.frames).map(frame).unzip();
        Some(ClipFrames { numbers, real: is_real.into_iter().filter(|is_real| *is_real).count() })
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

impl ShownTimes<'_> {
    /// Returns when the last frame ends; that is after it has begun.
    fn last_end(&self) -> i128 {
        let begins = self.begins.last().map_or(0, |begin| i128::from(*begin));
        i128::from(self.end).max(begins + 1)
    }

    /// Returns the time of the first frame of a clip that begins with frame `first`, at a rate in thousandths: the middle of the first
    /// span, but not behind the middle of that frame. So it does not matter how times of frames are rounded.
    fn first_time(&self, first: usize, rate: u32) -> i128 {
        let begin = i128::from(self.begins[first]);
        let end = self.begins.get(first + 1).map_or(self.last_end(), |next| i128::from(*next));
        begin + ((end - begin) / 2).min(self.units(1, 2 * rate))
    }

    /// Returns how many whole units of time `frames` frames of a rate in thousandths take.
    fn units(&self, frames: u32, rate: u32) -> i128 {
        let [numerator, denominator] = self.time_base.map(i128::from);
        i128::from(frames) * 1000 * denominator / (numerator * i128::from(rate))
    }

    /// Returns the frame that is shown at a time: the first one before its beginning, and the last one behind its end.
    fn frame_at(&self, time: i128) -> usize {
        self.begins.partition_point(|begin| i128::from(*begin) <= time).saturating_sub(1)
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn clip(frames: u32, step: ClipStep, pick: ClipPick) -> VideoClip {
        VideoClip { frames, step, pick, short: ShortVideo::Bad, source_millirate: None }
    }

    /// Returns the times of `count` frames of 30 a second in milliseconds, which are rounded.
    fn rounded(count: i64) -> Vec<i64> {
        (0..count).map(|nth| (nth * 100 + 1) / 3).collect()
    }

    const fn shown(begins: &[i64], end: i64) -> ShownTimes<'_> {
        ShownTimes { begins, end, time_base: [1, 1000] }
    }

    #[test]
    fn a_clip_begins_where_its_pick_says_and_has_every_so_many_frames() {
        let begins: Vec<i64> = (0..20).collect();
        let of =
            |pick, drawn| clip(4, ClipStep::Stride(3), pick).frames_of(&shown(&begins, 20), || drawn).unwrap().numbers;
        assert_eq!(of(ClipPick::Start, 9), [0, 3, 6, 9]);
        assert_eq!(of(ClipPick::Middle, 9), [5, 8, 11, 14]);
        assert_eq!(of(ClipPick::Random, 0), [0, 3, 6, 9]);
        assert_eq!(of(ClipPick::Random, u64::MAX), [10, 13, 16, 19]);
        assert_eq!(of(ClipPick::Uniform, 9), [2, 7, 12, 17]);
    }

    #[test]
    fn a_rate_takes_the_frames_that_are_shown_and_rounded_times_do_not_matter() {
        let begins = rounded(90);
        let of = |frames, rate: f64, pick| {
            let short = Some(ShortVideo::Bad);
            let file = ClipFile { frames, stride: None, rate: Some(rate), pick: Some(pick), short, source_rate: None };
            VideoClip::read(file).unwrap().frames_of(&shown(&begins, 3000), || u64::MAX).unwrap().numbers
        };
        assert_eq!(of(90, 30.0, ClipPick::Start), Vec::from_iter(0..90));
        assert_eq!(of(30, 30.0, ClipPick::Random), Vec::from_iter(60..90));
        assert_eq!(of(5, 10.0, ClipPick::Start), [0, 3, 6, 9, 12]);
        assert_eq!(of(3, 1.0, ClipPick::Start), [0, 30, 60]);
        assert_eq!(of(6, 60.0, ClipPick::Start), [0, 0, 1, 1, 2, 2]);
        assert_eq!(of(4, 29.97, ClipPick::Start), [0, 1, 2, 3]);
        // The unit of time is a frame.
        let begins: Vec<i64> = (0..10).collect();
        let unit = ShownTimes { begins: &begins, end: 10, time_base: [1, 30] };
        let every = clip(10, ClipStep::Millirate(30_000), ClipPick::Start);
        assert_eq!(
            every.frames_of(&unit, || 0).unwrap().numbers,
            begins.iter().map(|begin| *begin as usize).collect::<Vec<_>>()
        );
    }

    #[test]
    fn pictures_are_shown_as_long_as_their_rate_says() {
        let file = |rate, source_rate| ClipFile {
            frames: 4,
            stride: None,
            rate: Some(rate),
            pick: Some(ClipPick::Start),
            short: None,
            source_rate,
        };
        for (rate, source, expected) in [
            (4.0, 12.0, [0, 3, 6, 9]),
            (8.0, 12.0, [0, 2, 3, 5]),
            (24.0, 12.0, [0, 0, 1, 1]),
            (29.97, 29.97, [0, 1, 2, 3]),
            (0.5, 5.0, [0, 10, 20, 29]),
        ] {
            let clip = VideoClip::read(file(rate, Some(source))).unwrap();
            assert_eq!(clip.pictures_of(30, || 0).unwrap().numbers, expected, "{rate} of {source}");
            assert!(clip.needs_times());
            assert_eq!(clip.picture_second(3), Some(3.0 / source));
        }
        let (key, problem) = VideoClip::read(file(1.0, Some(0.0))).unwrap_err();
        assert_eq!((key, &*problem), ("clip", "has source_rate = 0, not in 0.001..=1000"));
        let unknown = VideoClip { source_millirate: None, ..clip(2, ClipStep::Stride(1), ClipPick::Start) };
        assert!(!unknown.needs_times() && unknown.picture_second(3).is_none());
        assert_eq!(unknown.pictures_of(2, || 0).unwrap().numbers, [0, 1]);
        assert_eq!(unknown.pictures_of(0, || 0), None);
        assert!(VideoClip { source_millirate: Some(MAX_RATE + 1), ..unknown }.check().is_err());
    }

    #[test]
    fn frames_that_are_shown_for_long_are_there_more_than_once_with_a_rate() {
        // Pages of slides, of 2, 5 and 3 seconds.
        let times = shown(&[0, 2000, 7000], 10_000);
        let frames = clip(10, ClipStep::Millirate(1000), ClipPick::Start).frames_of(&times, || 0).unwrap().numbers;
        assert_eq!(frames, [0, 0, 1, 1, 1, 1, 1, 2, 2, 2]);
    }

    #[test]
    fn a_video_that_is_too_short_repeats_frames_or_is_bad() {
        let begins = rounded(5);
        let times = shown(&begins, 167);
        for (step, pick, real, expected) in [
            (ClipStep::Stride(2), ClipPick::Random, 3, [0, 2, 4, 4, 4, 4]),
            (ClipStep::Stride(u32::MAX), ClipPick::Middle, 1, [0, 4, 4, 4, 4, 4]),
            (ClipStep::Millirate(15_000), ClipPick::Random, 3, [0, 2, 4, 4, 4, 4]),
            (ClipStep::Millirate(1), ClipPick::Start, 1, [0, 4, 4, 4, 4, 4]),
            (ClipStep::Stride(1), ClipPick::Uniform, 6, [0, 1, 2, 2, 3, 4]),
        ] {
            let clip = clip(6, step, pick);
            assert_eq!(clip.frames_of(&times, || 0), None, "{clip:?}");
            let lenient = VideoClip { short: ShortVideo::RepeatLast, ..clip };
            let taken = lenient.frames_of(&times, || u64::MAX).unwrap();
            assert_eq!((&taken.numbers[..], taken.real), (&expected[..], real), "{clip:?}");
            assert_eq!(lenient.frames_of(&shown(&[], 0), || 0), None, "no frames");
        }
    }

    fn any_clip() -> impl Strategy<Value = VideoClip> {
        let step = prop_oneof![
            (1..40_u32).prop_map(ClipStep::Stride),
            (1..=MAX_RATE).prop_map(ClipStep::Millirate),
            any::<u32>().prop_map(|stride| ClipStep::Stride(stride.max(1))),
        ];
        let picks = vec![ClipPick::Random, ClipPick::Start, ClipPick::Middle, ClipPick::Uniform];
        let shorts = vec![ShortVideo::Bad, ShortVideo::RepeatLast];
        let parts = (1..60_u32, step, proptest::sample::select(picks), proptest::sample::select(shorts));
        parts.prop_map(|(frames, step, pick, short)| VideoClip { frames, step, pick, short, source_millirate: None })
    }

    proptest! {
        #[test]
        fn frames_are_of_the_video_and_in_order_whatever_its_times_are(
            clip in any_clip(),
            begins in proptest::collection::vec(prop_oneof![0..5000_i64, -(1_i64 << 62)..1_i64 << 62], 0..80),
            end in any::<i64>(),
            time_base in [1..=u32::MAX, 1..=u32::MAX],
            drawn in any::<u64>(),
        ) {
            let mut begins = begins;
            begins.sort_unstable();
            let times = ShownTimes { begins: &begins, end, time_base };
            let Some(ClipFrames { numbers: frames, real }) = clip.frames_of(&times, || drawn) else {
                prop_assert!(begins.is_empty() || clip.short == ShortVideo::Bad);
                return Ok(());
            };
            prop_assert_eq!(frames.len(), clip.frames as usize);
            prop_assert!(real >= 1 && real <= frames.len() && (real == frames.len() || clip.short == ShortVideo::RepeatLast));
            prop_assert!(frames[real..].iter().all(|frame| *frame == begins.len() - 1), "{:?}", frames);
            prop_assert!(frames.is_sorted() && frames.iter().all(|frame| *frame < begins.len()), "{:?}", frames);
            if let (ClipStep::Stride(stride), ShortVideo::Bad) = (clip.step, clip.short)
                && clip.pick != ClipPick::Uniform
            {
                prop_assert!(frames.windows(2).all(|pair| pair[1] - pair[0] == stride as usize), "{:?}", frames);
            }
        }

        #[test]
        fn a_rate_on_steady_frames_is_a_stride(
            count in 1..200_u32,
            frames in 1..20_u32,
            stride in 1..8_u32,
            unit in 1..2000_u32,
            drawn in any::<u64>(),
        ) {
            // Frames of 24 a second in a time base that has them exactly.
            let begins: Vec<i64> = (0..count).map(|nth| i64::from(nth) * i64::from(unit)).collect();
            let end = i64::from(count) * i64::from(unit);
            let times = ShownTimes { begins: &begins, end, time_base: [1, 24 * unit] };
            let by_stride = clip(frames, ClipStep::Stride(stride), ClipPick::Random).frames_of(&times, || drawn);
            let by_rate = clip(frames, ClipStep::Millirate(24_000 / stride), ClipPick::Random);
            if 24_000 % stride == 0 {
                prop_assert_eq!(by_rate.frames_of(&times, || drawn), by_stride);
            }
        }
    }
}
