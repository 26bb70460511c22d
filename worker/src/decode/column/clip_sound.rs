//! The sound of a clip: what of the track of sound in a video's file is heard while the clip is shown.

use std::ops::Range;

use bytes::Bytes;
use spdl_job::{Column, ColumnKind, VideoClip};
use spdl_media::sound_begin_nanos;
use spdl_pixels::PictureLimits;

use super::clip_times::sample_clip;
use crate::decode::{
    SampleKey,
    cause::{BadSampleProblem, reason},
    record::SampleRecord,
    taken_video::TakenVideo,
};

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Finds the clip of a column that is followed, which a valid job has.
pub(super) fn followed_clip(follows: &str, columns: &[Column]) -> VideoClip {
    let followed = columns.iter().find_map(|column| match &column.kind {
        ColumnKind::Video(video) if column.name == follows => video.clip.clone(),
        _ => None,
    });
    followed.unwrap_or_else(|| panic!("a valid job has a video column `{follows}` that others follow"))
}

/// A file of sound, and when a clip begins and ends.
pub(super) struct SoundFile {
    pub(super) bytes: Bytes,
    /// Of the sound of a clip, when that begins and ends, in nanoseconds from the first frame of the sound on.
    pub(super) clip: Option<[i128; 2]>,
}

/// The frames of a sound that are heard while a clip is shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HeardFrames {
    /// The frames of silence before them.
    pub(super) silence: u64,
    pub(super) frames: Range<u64>,
}

impl SoundFile {
    /// Returns the sound in the file of a field, which may be a video.
    pub(super) fn of(
        field: &str,
        file: Bytes,
        clip: Option<&VideoClip>,
        of: (u64, SampleKey),
        (record, limits): (&SampleRecord<'_>, PictureLimits),
    ) -> Result<Self, BadSampleProblem> {
        let Some(clip) = clip else { return Ok(Self { bytes: file, clip: None }) };
        let clip = sample_clip(clip, record)?;
        let (taken, _) = TakenVideo::open(&clip, (field, &file), of, limits)?;
        let begin_nanos = sound_begin_nanos(&file)
            .map_err(|error| BadSampleProblem::Sound { field: field.to_owned(), problem: reason(error) })?;
        let clip = taken.span_nanos().map(|time| time - i128::from(begin_nanos));
        Ok(Self { bytes: file, clip: Some(clip) })
    }
}

impl HeardFrames {
    /// Finds them among `all` frames of a rate: those of the clip, or of a length from its beginning on.
    pub(super) fn of([begin, end]: [i128; 2], rate: u32, all: u64, length: Option<u32>) -> Self {
        // The nearest frame, and the later one of two.
        let frame = |nanos: i128| (2 * nanos * i128::from(rate) + NANOS_PER_SECOND).div_euclid(2 * NANOS_PER_SECOND);
        let begin = frame(begin);
        let end = length.map_or_else(|| frame(end), |length| begin + i128::from(length));
        let within = |frame: i128| u64::try_from(frame.max(0)).unwrap_or(u64::MAX).min(all);
        let frames = within(begin)..within(end.max(begin));
        Self { silence: u64::try_from(end.min(0) - begin.min(0)).unwrap_or_default(), frames }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_silence_before_and_nothing_behind() {
        let of = |begin_ms: i128, end_ms: i128, length| {
            let span = [begin_ms, end_ms].map(|time| time * 1_000_000);
            let HeardFrames { silence, frames } = HeardFrames::of(span, 16_000, 32_000, length);
            (silence, frames)
        };
        assert_eq!(of(500, 1500, None), (0, 8000..24_000));
        assert_eq!(of(500, 1500, Some(4000)), (0, 8000..12_000));
        assert_eq!(of(-250, 250, None), (4000, 0..4000));
        assert_eq!(of(-250, 250, Some(16_000)), (4000, 0..12_000));
        assert_eq!(of(-500, -250, None), (4000, 0..0));
        assert_eq!(of(1750, 2500, None), (0, 28_000..32_000));
        assert_eq!(of(3000, 4000, Some(100)), (0, 32_000..32_000));
        // 0.5 frames are the later one, on both sides of the beginning.
        assert_eq!(HeardFrames::of([31_250, -31_250], 16_000, 9, Some(3)).frames, 1..4);
        let before = HeardFrames::of([-31_250, 0], 16_000, 9, Some(3));
        assert_eq!(before, HeardFrames { silence: 0, frames: 0..3 });
    }
}
