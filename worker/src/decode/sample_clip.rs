//! The clip of a sample: which frames of a video it has, by the job's `clip` and the times that its record names.

use spdl_job::{ClipFrames, ClipMisfit, ShownTimes, VideoClip};
use spdl_types::Draw;

use super::{SampleKey, cause::BadSampleProblem};

/// The part of a sample from which the clip is drawn; its operations draw from the first one, as those of a picture do.
const CLIP_PART: u32 = u32::MAX;

/// The clip of a sample.
#[derive(Debug)]
pub(crate) struct SampleClip<'c> {
    pub(super) clip: &'c VideoClip,
    /// When its frames are shown, in seconds, if a field says so.
    at: Option<Vec<f64>>,
}

impl<'c> SampleClip<'c> {
    pub(super) const fn new(clip: &'c VideoClip, at: Option<Vec<f64>>) -> Self {
        Self { clip, at }
    }

    /// Chooses the frames of a video.
    pub(super) fn frames(
        &self,
        field: &str,
        shown: &ShownTimes<'_>,
        of: (u64, SampleKey),
    ) -> Result<ClipFrames, BadSampleProblem> {
        let chosen = self.clip.frames_of(shown, self.at.as_deref(), || drawn(of));
        chosen.map_err(|misfit| self.problem(misfit, field, shown.begins.len()))
    }

    /// Chooses the pictures of a video that is `count` of them.
    pub(super) fn pictures(
        &self,
        (field, count): (&str, usize),
        of: (u64, SampleKey),
    ) -> Result<ClipFrames, BadSampleProblem> {
        let chosen = self.clip.pictures_of(count, self.at.as_deref(), || drawn(of));
        chosen.map_err(|misfit| self.problem(misfit, field, count))
    }

    fn problem(&self, misfit: ClipMisfit, field: &str, frames: usize) -> BadSampleProblem {
        let (field, wanted) = (field.to_owned(), self.clip.frames);
        let of_times = |problem| BadSampleProblem::Span { field: self.clip.at.clone().unwrap_or_default(), problem };
        match misfit {
            ClipMisfit::TooShort => BadSampleProblem::VideoTooShort { field, frames },
            ClipMisfit::TooLong => BadSampleProblem::VideoTooLong { field, wanted },
            ClipMisfit::TimeCount(count) => of_times(format!(
                "has {count} times, and the clip has {wanted} frames; short = \"repeat_last\" takes fewer"
            )),
            ClipMisfit::Outside(second) => of_times(format!("names second {second}, which the video does not have")),
        }
    }
}

fn drawn((seed, key): (u64, SampleKey)) -> u64 {
    Draw::of_part(seed, key.epoch, key.id.0, CLIP_PART).bits()
}
