//! The kinds `video_times` and `video_mask`: what the tables of a video say about the frames of a `video` column's value.

use std::sync::Arc;

use spdl_job::VideoClip;
use spdl_media::{VideoBlocks, VideoTrack};
use spdl_shard::format::FieldValue;
use spdl_types::DType;

use super::{
    ColumnDecoder, ColumnSample, ColumnSetup, FieldTarget,
    clip_sound::followed_clip,
    clip_times::sample_clip,
    video_pictures::{self, VideoValue},
};
use crate::decode::{
    SampleKey, cause::BadSampleProblem, read_video::ReadVideo, record::SampleRecord, taken_video::TakenVideo,
};

/// Decodes to a number for each frame of a clip.
pub(super) struct VideoFactDecoder {
    dtype: DType,
    clip: VideoClip,
    fact: VideoFact,
}

/// What a column has of the frames.
#[derive(Clone, Copy)]
pub(super) enum VideoFact {
    /// When they are shown, in seconds.
    Times,
    /// Whether the video has them.
    Mask,
}

impl VideoFactDecoder {
    /// Finds the column that is followed, which a valid job has.
    pub(super) fn new(follows: &str, fact: VideoFact, setup: &ColumnSetup<'_>) -> Self {
        let clip = followed_clip(follows, setup.columns);
        Self { dtype: setup.column.decoded_dtype(), clip, fact }
    }
}

impl ColumnDecoder for VideoFactDecoder {
    fn fields(&self) -> Vec<&str> {
        self.clip.at.iter().map(String::as_str).collect()
    }

    fn reads_video(&self) -> bool {
        true
    }

    /// Nothing is decoded: the tables are enough.
    fn video_packets(
        &self,
        _: (&Arc<VideoTrack>, &Arc<VideoBlocks>),
        _: (u64, SampleKey),
        _: &SampleRecord<'_>,
    ) -> Option<Vec<usize>> {
        Some(Vec::new())
    }

    /// Nothing is decoded: their number is enough.
    fn video_pictures(&self, _: usize, _: (u64, SampleKey), _: &SampleRecord<'_>) -> Option<Vec<usize>> {
        Some(Vec::new())
    }

    fn decode_value(
        &self,
        sample: ColumnSample<'_, '_, FieldValue>,
        target: &mut FieldTarget<'_>,
    ) -> Result<(), BadSampleProblem> {
        let (sample, value) = sample.replace(());
        let ColumnSample { field, seed, key, record, resources, .. } = &sample;
        let count = match VideoValue::of(field, value, resources.limits)? {
            VideoValue::File(content) => return self.decode(sample.replace(content).0, target),
            VideoValue::Pictures(files) => files.len(),
        };
        let frames = video_pictures::choose(&sample_clip(&self.clip, record)?, (field, count), (*seed, *key))?;
        let values: Vec<f64> = match self.fact {
            VideoFact::Times => video_pictures::seconds(&self.clip, &frames, field)?,
            VideoFact::Mask => video_pictures::mask(&frames).map(f64::from).collect(),
        };
        self.write(&values, target);
        Ok(())
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> Result<(), BadSampleProblem> {
        let ColumnSample { field, content, seed, key, record, resources, .. } = sample;
        let (clip, file) = (sample_clip(&self.clip, record)?, content.into_file());
        let (taken, _) = TakenVideo::open(&clip, (field, &file), (seed, key), resources.limits)?;
        self.write(&self.values(&taken), target);
        Ok(())
    }

    fn decode_read(
        &self,
        sample: ColumnSample<'_, '_, &ReadVideo>,
        target: &mut FieldTarget<'_>,
    ) -> Result<(), BadSampleProblem> {
        let ColumnSample { field, content: video, seed, key, record, resources, .. } = sample;
        let clip = sample_clip(&self.clip, record)?;
        let taken = TakenVideo::of_read(&clip, (field, video), (seed, key), resources.limits)?;
        self.write(&self.values(&taken), target);
        Ok(())
    }
}

impl VideoFactDecoder {
    /// Returns what the column has of each frame.
    fn values(&self, taken: &TakenVideo) -> Vec<f64> {
        match self.fact {
            VideoFact::Times => taken.seconds().collect(),
            VideoFact::Mask => taken.mask().map(f64::from).collect(),
        }
    }

    fn write(&self, values: &[f64], target: &mut FieldTarget<'_>) {
        let write_all = |bytes: &mut [u8]| {
            for (value, place) in values.iter().zip(bytes.chunks_exact_mut(self.dtype.bytes())) {
                match self.dtype {
                    DType::F64 => place.copy_from_slice(&value.to_le_bytes()),
                    DType::F32 => place.copy_from_slice(&(*value as f32).to_le_bytes()),
                    _ => place.copy_from_slice(&[u8::from(*value > 0.0)]),
                }
            }
        };
        if !self.clip.is_all() {
            return write_all(target.fixed());
        }
        let mut made = vec![0; values.len() * self.dtype.bytes()];
        write_all(&mut made);
        *target.ragged() = made.into();
    }
}
