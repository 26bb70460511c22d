//! Videos that are lists of pictures, such as the frames in a folder: each frame of a clip is decoded as the picture of an `image`
//! column is, with one draw for all. A frame of another size is planned anew, with the same draw.

use std::rc::Rc;

use bytes::Bytes;
use spdl_job::{ClipFrames, VideoClip};
use spdl_pixels::PictureLimits;
use spdl_shard::format::{Content, FieldValue};

use super::{
    ColumnSample,
    image::{ImageColumnDecoder, PictureFile},
};
use crate::decode::{
    SampleKey,
    cause::BadSampleProblem,
    record::{FollowedPlan, one_value},
    sample_clip::SampleClip,
    still::open_picture,
};

/// The value of a field of videos.
pub(super) enum VideoValue {
    /// A file of a video.
    File(Content),
    /// Pictures; `None` for one that is null, or that no frame of the clip is.
    Pictures(Vec<Option<Bytes>>),
}

impl VideoValue {
    /// Tells a list of pictures, or a picture alone, from a file of a video.
    pub(super) fn of(field: &str, value: FieldValue, limits: PictureLimits) -> Result<Self, BadSampleProblem> {
        match value {
            FieldValue::List(files) if files.len() > 1 => Ok(Self::Pictures(files)),
            value => {
                let content = one_value(field, value)?;
                Ok(match content {
                    Content::File(file) if open_picture(&file, limits, None).is_ok() => {
                        Self::Pictures(vec![Some(file)])
                    }
                    content => Self::File(content),
                })
            }
        }
    }
}

/// Chooses the pictures of a clip among `count`.
pub(super) fn choose(
    clip: &SampleClip<'_>,
    (field, count): (&str, usize),
    of: (u64, SampleKey),
) -> Result<ClipFrames, BadSampleProblem> {
    if clip.clip.needs_times() && clip.clip.source_millirate.is_none() {
        return Err(no_times(field));
    }
    clip.pictures((field, count), of)
}

/// Returns when the pictures of a clip are shown, in seconds.
pub(super) fn seconds(clip: &VideoClip, frames: &ClipFrames, field: &str) -> Result<Vec<f64>, BadSampleProblem> {
    let seconds = frames.numbers.iter().map(|number| clip.picture_second(*number));
    seconds.collect::<Option<_>>().ok_or_else(|| no_times(field))
}

/// Returns for each picture of a clip whether the video has it.
pub(super) fn mask(frames: &ClipFrames) -> impl Iterator<Item = bool> {
    (0..frames.numbers.len()).map(|nth| nth < frames.real)
}

fn no_times(field: &str) -> BadSampleProblem {
    let problem =
        "is pictures, and nothing says when they are shown: give `source_rate`, how many are a second, in `clip`";
    BadSampleProblem::Video { field: field.to_owned(), problem: problem.to_owned() }
}

/// Decodes the pictures of a clip, one after the other, into their places, beside so many bytes that are reserved with each.
pub(super) fn decode(
    each: &ImageColumnDecoder,
    frames: &ClipFrames,
    files: &[Option<Bytes>],
    sample: ColumnSample<'_, '_, ()>,
    (out, beside_bytes): (&mut [u8], u64),
) -> Result<(), BadSampleProblem> {
    let ColumnSample { field, seed, key, record, resources, scratch, .. } = sample;
    let bytes = each.bytes();
    let mut known: Option<Rc<FollowedPlan>> = None;
    for (nth, number) in frames.numbers.iter().enumerate() {
        let place = nth * bytes..(nth + 1) * bytes;
        if nth > 0 && frames.numbers[nth - 1] == *number {
            out.copy_within(place.start - bytes..place.start, place.start);
            continue;
        }
        let in_list = |problem| BadSampleProblem::InList { number: *number as u32, problem: Box::new(problem) };
        let file =
            files[*number].as_ref().ok_or_else(|| in_list(BadSampleProblem::Null { field: field.to_owned() }))?;
        let plan = |size| {
            if let Some(known) = known.as_ref().filter(|known| known.size == size) {
                return Ok(known.clone());
            }
            let made = each.picture().plan_of_part(size, (seed, key), 0, record)?;
            known = Some(made.clone());
            Ok(made)
        };
        let file = PictureFile { field, bytes: file, beside_bytes };
        each.write(file, plan, (resources, &mut *scratch), &mut out[place]).map_err(in_list)?;
    }
    Ok(())
}
