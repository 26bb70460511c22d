//! The `clip` of a job file.

use serde::{Deserialize, Serialize};

/// The `clip` of a job file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClipFile {
    /// The number of frames, 1 to 65536; with `pick = "all"` the most that a video may have.
    pub frames: u32,
    /// How many frames of the video one frame of the clip is behind the one before. Default: 1, unless there is a `rate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<u32>,
    /// Frames of the clip in a second of the video, 0.001 to 1000, in place of `stride`: of each so long span of time the frame
    /// that is shown in its middle. Rounded to thousandths. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Where the clip begins: `random` draws a frame anew for each epoch, `start` is the first one, and `middle` leaves as many
    /// before as behind. `uniform` takes frames of the whole video: the middle ones of as many equal spans. `all` takes every frame, or
    /// of these every one of a `stride` or `rate`: samples are then as long as their videos. Default: `random`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pick: Option<ClipPick>,
    /// The field with the times of the frames, in place of `pick`: numbers of seconds from the beginning of the video, an array or a text as
    /// `0.5 1.25 2`. Of each, the frame is taken that is shown then. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// `key_frame` takes frames that need no others, which are decoded in a fraction of the time: the clip begins at the last key frame
    /// up to the frame where it would begin, and with `uniform` and `at` each of its frames is one. Default: `exact`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snap: Option<ClipSnap>,
    /// What becomes of a video that is shorter than the clip: `repeat_last` repeats its last frame, or with `uniform` as many
    /// as it takes, and `bad` makes it a bad sample. With `at`, the same for fewer times than frames. Default: `repeat_last`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<ShortVideo>,
    /// For videos that are folders of pictures: how many of these are a second, 0.001 to 1000, for `rate`, `at` and columns of
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
    /// At the first frame, and it ends with the video.
    All,
}

/// Which frames a clip may begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClipSnap {
    /// With any.
    #[default]
    Exact,
    /// With a key frame: the last one up to the frame where it would begin. Where frames do not follow one another, each is one.
    KeyFrame,
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

impl ClipSnap {
    /// Returns whether a clip may begin with any frame.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        *self == Self::Exact
    }
}
