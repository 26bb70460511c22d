//! The decoders of the kinds of columns. Each kind has a file here, and one of the same name in the job's specification;
//! [`decoder`] lists them.

mod audio;
mod audio_fact;
mod audio_ops;
mod audio_span;
mod boolean;
mod box_class;
mod box_labels;
mod boxes;
mod bytes;
mod category;
mod clip_sound;
mod clip_times;
mod dataset_sounds;
mod float;
mod geometry;
mod image;
mod image_size;
mod int;
mod is_pad;
mod json;
mod listed;
mod mask;
mod one_hot;
mod picture_list;
mod resampling;
mod tensor;
mod text;
mod tokens;
mod video;
mod video_fact;
mod video_pictures;

use std::{collections::HashMap, ops::Range, sync::Arc};

use audio_fact::{AudioFact, AudioFactDecoder};
pub(super) use clip_times::sample_clip;
use serde_json::Value;
use spdl_frames::FrameDecoders;
use spdl_functions::CallMemory;
use spdl_job::{Column, ColumnKind, DefaultValue, DrawnSound};
use spdl_media::{SoundScratch, SoundTable, VideoBlocks, VideoTrack};
use spdl_operations::{IndexPicture, OperationScratch, RgbPicture};
use spdl_pixels::{Parts, PictureScratch, ScalableHead};
use spdl_shard::format::{Content, FieldValue};
use spdl_types::DType;
pub use tensor::read_numpy;
pub(super) use tokens::{MAX_DOCUMENT_BYTES, whole_numbers};
use video_fact::{VideoFact, VideoFactDecoder};

use super::{
    DecodeMemory, DecoderError, FieldTarget, PictureCounts, PictureLimits, SampleKey, ValueResult,
    document::plain_value,
    read_video::{FrameChoice, ReadVideo, SeriesFrames},
    record::{SampleRecord, one_value},
};

/// Returns the decoder of a column.
pub(super) fn decoder(setup: &ColumnSetup<'_>) -> Result<Box<dyn ColumnDecoder>, DecoderError> {
    let dtype = setup.column.decoded_dtype();
    Ok(match &setup.column.kind {
        ColumnKind::Image(column) => {
            let each = image::ImageColumnDecoder::new(column, setup);
            match column.list {
                None => Box::new(each),
                Some(list) => Box::new(picture_list::PictureListDecoder::new(each, list)),
            }
        }
        ColumnKind::Int(_) => Box::new(int::IntDecoder::new(setup)?),
        ColumnKind::Json(_) => Box::new(json::JsonDecoder(dtype)),
        ColumnKind::Bytes(column) => Box::new(bytes::BytesDecoder(column.clone())),
        ColumnKind::Tensor(column) => Box::new(tensor::TensorDecoder::new(column, dtype)),
        ColumnKind::Float(_) => Box::new(float::FloatDecoder(dtype)),
        ColumnKind::Text(column) => Box::new(text::TextDecoder::new(column)),
        ColumnKind::Category(column) => Box::new(category::CategoryDecoder::new(column, setup)?),
        ColumnKind::Mask(column) => Box::new(mask::MaskDecoder::new(column, setup)),
        ColumnKind::Boxes(column) => Box::new(boxes::BoxesDecoder::new(column, setup)),
        ColumnKind::BoxLabels(column) => Box::new(box_labels::BoxLabelsDecoder::new(column, setup)?),
        ColumnKind::OneHot(column) => Box::new(one_hot::OneHotDecoder::new(column, setup)?),
        ColumnKind::Geometry(column) => Box::new(geometry::GeometryDecoder::new(column, setup)),
        ColumnKind::ImageSize(column) => Box::new(image_size::ImageSizeDecoder::new(column, setup)),
        ColumnKind::Bool(_) => Box::new(boolean::BoolDecoder),
        ColumnKind::Tokens(column) => Box::new(tokens::TokensDecoder::new(column, dtype)),
        ColumnKind::BoxClass(_) => Box::new(box_class::BoxClassDecoder::new(setup)?),
        ColumnKind::Audio(column) => Box::new(audio::AudioDecoder::new(column, dtype, setup)),
        ColumnKind::AudioLength(column) => Box::new(AudioFactDecoder::new(&column.follows, AudioFact::Length, setup)),
        ColumnKind::AudioRate(column) => Box::new(AudioFactDecoder::new(&column.follows, AudioFact::Rate, setup)),
        ColumnKind::Video(column) => Box::new(video::VideoDecoder::new(column, setup)),
        ColumnKind::VideoTimes(column) => Box::new(VideoFactDecoder::new(&column.follows, VideoFact::Times, setup)),
        ColumnKind::VideoMask(column) => Box::new(VideoFactDecoder::new(&column.follows, VideoFact::Mask, setup)),
        ColumnKind::IsPad(column) => Box::new(is_pad::IsPadDecoder::new(column)),
        ColumnKind::Labels(_)
        | ColumnKind::Positions(_)
        | ColumnKind::DocumentLengths(_)
        | ColumnKind::GlobalLengths(_)
        | ColumnKind::DocumentIds(_)
        | ColumnKind::LossMask(_) => panic!("column `{}` is decoded, and it reads no field", setup.column.name),
        ColumnKind::Returned(_) => panic!("column `{}` is decoded, and a function returns it", setup.column.name),
    })
}

/// Decodes the values of one column. The result depends only on the column and the sample.
pub(super) trait ColumnDecoder: Send + Sync {
    /// Returns the fields that it reads besides those that the column comes from.
    fn fields(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Returns whether values can be [numbers](Self::number).
    fn takes_numbers(&self) -> bool {
        false
    }

    /// Writes a number whose type the format knows into its place, and returns whether it fits the column. If it does
    /// not, [`decode`](Self::decode) returns the reason.
    fn number(&self, _dtype: DType, _element: &[u8], _target: &mut FieldTarget<'_>) -> bool {
        false
    }

    /// Returns whether a [number](Self::number) of this type fits the column whatever its value, and its bytes are the
    /// column's.
    fn copies_numbers(&self, _dtype: DType) -> bool {
        false
    }

    /// Returns the parts of a scalable picture that decoding reads, planned from its head; `None` if decoding reads the
    /// whole field.
    fn picture_parts(
        &self,
        _head: &ScalableHead<'_>,
        _of: (u64, SampleKey),
        _record: &mut SampleRecord<'_>,
    ) -> Option<Parts> {
        None
    }

    /// Returns whether the fields are videos, of which [parts](Self::video_packets) may be read.
    fn reads_video(&self) -> bool {
        false
    }

    /// Returns the packets of a video that decoding takes; `None` if decoding reads the whole field.
    fn video_packets(
        &self,
        _video: (&Arc<VideoTrack>, &Arc<VideoBlocks>),
        _of: (u64, SampleKey),
        _record: &SampleRecord<'_>,
    ) -> Option<Vec<usize>> {
        None
    }

    /// Returns which frames it decodes, if it decodes frames of videos.
    fn frame_choice(&self) -> Option<&FrameChoice> {
        None
    }

    /// Decodes a video of which the [packets](Self::video_packets) were read that decoding takes.
    fn decode_read(&self, sample: ColumnSample<'_, '_, &ReadVideo>, _target: &mut FieldTarget<'_>) -> ValueResult {
        unreachable!("field `{}` was read as a video, and its column reads none", sample.field)
    }

    /// Decodes the frames of a [series](FrameChoice::Series) that a sample has.
    fn decode_series(&self, sample: ColumnSample<'_, '_, &SeriesFrames>, _target: &mut FieldTarget<'_>) -> ValueResult {
        unreachable!("frames were read of field `{}`, and its column takes none", sample.field)
    }

    /// Returns the numbers of the pictures that decoding takes of a video that is a list of `count`; `None` if decoding reads the whole
    /// field.
    fn video_pictures(&self, _count: usize, _of: (u64, SampleKey), _record: &SampleRecord<'_>) -> Option<Vec<usize>> {
        None
    }

    /// Returns whether the fields are sounds, of which [parts](Self::sound_frames) may be read.
    fn reads_sound_parts(&self) -> bool {
        false
    }

    /// Returns the recordings of other datasets that operations take for a sample.
    fn drawn_sounds(&self, _of: (u64, SampleKey)) -> Vec<DrawnSound<'_>> {
        Vec::new()
    }

    /// Returns the frames of a recording that was drawn which its operation may take; `None` if it may be any.
    fn drawn_frames(&self, _drawn: &DrawnSound<'_>, _table: &SoundTable<'_>) -> Option<Range<u64>> {
        None
    }

    /// Returns the frames of the sound in a field that decoding takes; `None` if fields that are not at hand say which.
    fn sound_frames(
        &self,
        _of: (&str, &SoundTable<'_>),
        _seed: (u64, SampleKey),
        _record: &SampleRecord<'_>,
    ) -> Option<Range<u64>> {
        None
    }

    /// Returns the most bytes that a value may have.
    fn max_bytes(&self) -> u32 {
        u32::MAX
    }

    /// Writes the value of samples without one.
    ///
    /// # Errors
    /// If it is a name, and none of the column's.
    fn write_default(&self, default: &DefaultValue, _target: &mut FieldTarget<'_>) -> ValueResult {
        unreachable!("a valid job has no default {default} for a column of this kind")
    }

    /// Decodes what is at `path` of a JSON document into its place.
    fn decode_json(
        &self,
        sample: ColumnSample<'_, '_, Option<&Value>>,
        path: &[String],
        target: &mut FieldTarget<'_>,
    ) -> ValueResult {
        let value = plain_value(sample.content, sample.field, path)?;
        self.decode(sample.replace(value).0, target)
    }

    /// Decodes the value of a field into its place. A decoder that takes no lists expects a single value.
    fn decode_value(&self, sample: ColumnSample<'_, '_, FieldValue>, target: &mut FieldTarget<'_>) -> ValueResult {
        let (sample, value) = sample.replace(());
        let content = one_value(sample.field, value)?;
        self.decode(sample.replace(content).0, target)
    }

    /// Decodes one value into its place.
    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult;
}

/// The inputs from which the decoder of a column is created.
pub(super) struct ColumnSetup<'a> {
    /// The job's name.
    pub(super) job: &'a str,
    /// Number of the column among those that are decoded.
    pub(super) number: usize,
    pub(super) column: &'a Column,
    /// All columns that are decoded: columns of the batch, and arguments of functions.
    pub(super) columns: &'a [Column],
    /// The dataset's classes with their numbers.
    pub(super) classes: &'a Arc<HashMap<String, i64>>,
}

/// The field of a sample that a column is decoded from, and what decoding may use.
pub(super) struct ColumnSample<'a, 'r, C = Content> {
    /// Name of the field.
    pub(super) field: &'a str,
    /// What the field holds.
    pub(super) content: C,
    /// The job's seed.
    pub(super) seed: u64,
    pub(super) key: SampleKey,
    /// The record that the sample is from.
    pub(super) record: &'a mut SampleRecord<'r>,
    pub(super) resources: &'a DecodeResources,
    pub(super) scratch: &'a mut DecodeScratch,
}

impl<'a, 'r, C> ColumnSample<'a, 'r, C> {
    /// Returns the sample with another content, and its content.
    pub(super) fn replace<D>(self, content: D) -> (ColumnSample<'a, 'r, D>, C) {
        let Self { field, content: before, seed, key, record, resources, scratch } = self;
        (ColumnSample { field, content, seed, key, record, resources, scratch }, before)
    }
}

/// Limits, counts and memory that all columns share.
#[derive(Clone, Default)]
pub(super) struct DecodeResources {
    pub(super) limits: PictureLimits,
    pub(super) counts: Arc<PictureCounts>,
    pub(super) memory: Arc<DecodeMemory>,
    /// What decodes frames of videos, if the process starts programs for that.
    pub(super) frames: Option<Arc<FrameDecoders>>,
}

/// Buffers that a thread keeps between samples, to avoid allocations.
#[derive(Default)]
pub(super) struct DecodeScratch {
    pub(super) picture: PictureScratch,
    pub(super) sound: SoundScratch,
    /// A frame of a video as RGB.
    pub(super) frame: Vec<u8>,
    /// The file of sound that was read last, of the sample that is being decoded.
    pub(super) heard: Option<audio::HeardFile>,
    /// The picture that operations change.
    pub(super) rgb: RgbPicture<'static>,
    pub(super) operation: OperationScratch,
    /// The mask that operations move.
    pub(super) indices: IndexPicture,
    /// What a function in Rust takes and returns.
    pub(super) call: CallMemory,
}
