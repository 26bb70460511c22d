//! One column of a batch: where it comes from, how it is decoded, and its type and shape. Each kind of column has a file
//! here, and one of the same name in the worker with its decoder; the table below lists them.

mod audio_features;
mod audio_span;
mod deltas;
mod file;
mod form;
mod kind;
mod returned;
#[cfg(test)]
pub(crate) mod testing;
mod valid;
mod value;
mod video_clip;
mod video_frame;

use serde::{
    Deserialize, Serialize, Serializer,
    de::{Error, MapAccess, VariantAccess, value::MapAccessDeserializer},
};

pub use self::returned::{FunctionCall, ReturnedColumn, ReturnedValue};
pub use audio_features::{AudioFeatures, FeaturesFile, FeaturesKind, FeaturesPreset};
pub use audio_span::{AudioSpan, SpanFile};
pub use deltas::{DeltaRunFile, DeltasFile};
pub use file::ColumnFile;
use form::{read_kind, write_kind};
pub use kind::{Kind, KindKeys, NoKeys};
pub(crate) use valid::decoded_named;
pub use valid::{Column, decoded_columns};
pub(super) use value::ValueKeysSchema;
pub use value::{ClassesFile, ColumnValue, DefaultFile, DefaultValue, ValueKeys};
pub use video_clip::*;
pub use video_frame::{FrameDrift, SteadyFrames};

use super::{KeyProblem, reader::shown};
use spdl_types::{DType, SampleShape};

macro_rules! column_kinds {
    ($($(#[$doc:meta])* $module:ident::$Kind:ident($Column:ident),)*) => {
        $(mod $module;)*
        $(pub use self::$module::*;)*

        /// How a field becomes a value of a column.
        #[derive(Clone, Debug, PartialEq)]
        pub enum ColumnKind {
            $($(#[$doc])* $Kind($Column),)*
            /// What a function of the user's returns; it has no `decode` in a job file.
            Returned(ReturnedColumn),
        }

        /// The keys of a `[[column]]` that depend on its `decode`.
        #[derive(Clone, Debug, Serialize)]
        #[serde(tag = "decode", rename_all = "snake_case")]
        pub enum DecodeFile {
            $($(#[$doc])* $Kind(<$Column as Kind>::Keys),)*
        }

        /// The decoders a job file can name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
        #[schemars(rename = "DecodeFile")]
        #[serde(rename_all = "snake_case")]
        pub(super) enum KindName {
            $($(#[$doc])* $Kind,)*
        }

        impl KindName {
            pub(super) const ALL: &[Self] = &[$(Self::$Kind,)*];

            pub(super) const fn name(self) -> &'static str {
                match self { $(Self::$Kind => $Column::NAME,)* }
            }

            /// Returns the names of the kind's keys.
            pub(super) const fn keys(self) -> &'static [&'static str] {
                match self { $(Self::$Kind => <$Column as Kind>::Keys::NAMES,)* }
            }

            /// Returns the names of the keys that the kind shares with others of single values.
            pub(super) const fn value_keys(self) -> &'static [&'static str] {
                match self { $(Self::$Kind => value::keys_of::<$Column>(),)* }
            }

            fn read_keys<'de, A: MapAccess<'de>>(self, keys: A) -> Result<DecodeFile, A::Error> {
                let keys = MapAccessDeserializer::new(keys);
                match self { $(Self::$Kind => Deserialize::deserialize(keys).map(DecodeFile::$Kind),)* }
            }

            /// Returns whether columns of the kind are decoded from a field.
            pub(super) const fn reads_field(self) -> bool {
                match self { $(Self::$Kind => $Column::READS_FIELD,)* }
            }

            /// Returns the schema of the kind's keys.
            pub(super) fn schema(self, generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                use schemars::JsonSchema;
                match self { $(Self::$Kind => <$Column as Kind>::Keys::json_schema(generator),)* }
            }
        }

        impl DecodeFile {
            /// Returns the name of the kind.
            pub(crate) const fn name(&self) -> &'static str {
                match self { $(Self::$Kind(_) => $Column::NAME,)* }
            }

            /// Returns whether columns of the kind are decoded from a field.
            pub(crate) const fn reads_field(&self) -> bool {
                match self { $(Self::$Kind(_) => $Column::READS_FIELD,)* }
            }

            /// Converts the keys as they are written, without checking all of their values.
            fn read(&self) -> Result<ColumnKind, KeyProblem> {
                match self { $(Self::$Kind(keys) => $Column::read(keys).map(ColumnKind::$Kind),)* }
            }
        }

        /// Evaluates an expression for the column in a kind.
        macro_rules! of_kind {
            ($any:expr, $column:ident => $value:expr) => {
                match $any {
                    $(ColumnKind::$Kind($column) => $value,)*
                    ColumnKind::Returned($column) => $value,
                }
            };
        }

        impl ColumnKind {
            const NAMES: &[&str] = &[$($Column::NAME,)* ReturnedColumn::NAME];
            /// The name of each kind in a job file, and an example of its keys. What they follow is a column `image` or `boxes`, or
            /// `tokens` in a job with sequences.
            pub const CATALOG: &[(&str, &str)] = &[$(($Column::NAME, $Column::EXAMPLE),)*];

            /// Returns the name of the kind in a job file.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$Kind(_) => $Column::NAME,)* Self::Returned(_) => ReturnedColumn::NAME }
            }

            /// Returns whether its values are decoded from a field; otherwise they come from the column that it follows.
            #[must_use]
            pub const fn reads_field(&self) -> bool {
                match self { $(Self::$Kind(_) => $Column::READS_FIELD,)* Self::Returned(_) => false }
            }

            /// Reads the kind `name`.
            fn read_variant<'de, A: VariantAccess<'de>>(name: &str, variant: A) -> Result<Self, A::Error> {
                match name {
                    $(name if name == $Column::NAME => read_kind(variant).map(Self::$Kind),)*
                    name if name == ReturnedColumn::NAME => read_kind(variant).map(Self::Returned),
                    name => Err(A::Error::custom(format!(
                        "kind of column `{}` is unknown to spdl-cluster {}: a later release knows it",
                        shown(name),
                        env!("CARGO_PKG_VERSION")
                    ))),
                }
            }
        }
    };
}

column_kinds! {
    /// A picture as pixels.
    ///
    /// - Field: a JPEG, PNG, WebP, GIF, BMP, TIFF or PNM, or with libavcodec an AVIF or HEIC; with `max_rows` or `pictures`, a list of them.
    /// - Result: RGB pixels, or those of another `color`; grey and CMYK are converted, EXIF orientation is applied.
    /// - Shape: `[height, width, channels]`; `[channels, height, width]` with `layout = "nchw"`. With `five_crop`,
    ///   `ten_crop` or `pictures`, the number of pictures comes before. With `max_rows`, a ragged column whose rows
    ///   are pictures; with `smart_resize`, one whose rows are pixels, `[channels]`, or numbers, `[]`, with `"nchw"`.
    /// - Types: `u8`, `f32`, `f16`, `bf16`, `u16`.
    ///
    /// PNG, WebP, GIF, TIFF and BMP can have transparent pixels. Without `background`, and without opacity in
    /// `color`, each pixel has the colour that is stored for it, as Pillow's `convert("RGB")` gives it: where a
    /// picture is fully transparent, that is often black, or what an editor left there. Opacity is also that of
    /// grey values with alpha, of transparent colours of a palette (`tRNS`, GIF) and of 16-bit pictures. In a TIFF,
    /// an additional sample counts as opacity unless its `ExtraSamples` tag says that it is something else; colours
    /// that are multiplied by it already are not multiplied again.
    ///
    /// Columns of `u16`, with a `depth` above 8 or with opacity are moved and not changed: by `crop_box`,
    /// `random_resized_crop`, `resize` and `smart_resize` with every `interpolation`, `center_crop`, `random_crop`, `five_crop`,
    /// `ten_crop`, `random_flip`, `random_vertical_flip`, `pad` and `letterbox`, also within `random_apply` and
    /// `random_choice`. A job with any other operation on them is refused.
    image::Image(ImageColumn),
    /// A whole number.
    ///
    /// - Field: a decimal number in text, or a `.npy` file of one whole number.
    /// - Result: the number.
    /// - Shape: `[]`.
    /// - Types: `i64`, `i32`.
    int::Int(IntColumn),
    /// A number in a JSON document.
    ///
    /// - Field: a JSON document, with `NaN` and `Infinity` as Python writes it.
    /// - Result: the number at `path`.
    /// - Shape: `[]`.
    /// - Types: `f64`, `f32`, `i64`, `i32`.
    json::Json(JsonColumn),
    /// The bytes as they are.
    ///
    /// - Field: anything.
    /// - Result: the bytes, of any length.
    /// - Shape: a ragged column.
    /// - Types: `u8`.
    bytes::Bytes(BytesColumn),
    /// The class of the bounding box of a Pascal VOC annotation.
    ///
    /// - Field: a Pascal VOC annotation.
    /// - Result: the class number of the sample's bounding box, among the dataset's classes.
    /// - Shape: `[]`.
    /// - Types: `i64`, `i32`.
    box_class::BoxClass(BoxClassColumn),
    /// An array.
    ///
    /// - Field: a `.npy` or `.npz` file, or the elements alone.
    /// - Result: the array. It has to have the column's type and shape; nothing is cast.
    /// - Shape: `shape`; with `max_rows`, a ragged column of rows of this shape.
    /// - Types: `f32`, `u8`, `i8`, `u16`, `i16`, `u32`, `i32`, `u64`, `i64`, `f16`, `bf16`, `f64`, `bool`.
    ///
    /// A file is read as NumPy reads it: big-endian arrays and arrays in Fortran order are converted, and an `.npz`
    /// file may be compressed. An array of another type or shape is a bad sample, and so is an array of Python
    /// objects, whose pickle is never read. NumPy has no `bf16`: store such arrays as `raw`, or with the package
    /// `ml_dtypes`. Where the format knows the type of a number or an array, as MDS, Parquet and TFRecord do, it is
    /// taken as a `.npy` file of it would be, and `encoding` does not matter.
    tensor::Tensor(TensorColumn),
    /// A number, which may have a fraction.
    ///
    /// - Field: a decimal number in text, or a number of any type as Parquet, MDS, TFRecord or a `.npy` file give
    ///   it.
    /// - Result: the number.
    /// - Shape: `[]`.
    /// - Types: `f32`, `f64`, `f16`, `bf16`.
    float::Float(FloatColumn),
    /// Text in UTF-8.
    ///
    /// - Field: UTF-8.
    /// - Result: the bytes, which are checked, of any length. In Python, `batch["caption"].text()` makes strings of
    ///   them.
    /// - Shape: a ragged column.
    /// - Types: `u8`.
    text::Text(TextColumn),
    /// The number of a name.
    ///
    /// - Field: a name, such as `cat`.
    /// - Result: its number in `names`, or among the dataset's classes.
    /// - Shape: `[]`.
    /// - Types: `i64`, `i32`.
    category::Category(CategoryColumn),
    /// The class of each pixel of a picture.
    ///
    /// - Field: a PNG with a palette or of grey values, as large as the picture of the column that it follows.
    /// - Result: the class of each pixel: its index in the palette or its grey value. Colours are not looked at.
    /// - Shape: `[height, width]`.
    /// - Types: `u8`, `u16`.
    ///
    /// The mask is cropped, flipped, resized and warped as the picture of the same sample is, whatever the
    /// operations draw, and has its size. Each pixel takes the class at the place of its middle and is never
    /// blended: `resize` is torchvision's `nearest-exact`. Several operations that move whole pixels or resize are
    /// one step, as for the picture. Operations on colours and `random_erasing` change no class. A mask that is not
    /// as large as its picture is a bad sample, whose error names both sizes. The orientation in the metadata of a
    /// mask is not looked at; the mask is of the upright picture.
    mask::Mask(MaskColumn),
    /// The bounding boxes in a picture.
    ///
    /// - Field: the bounding boxes in the picture of the column that it follows, as `stored_as` says.
    /// - Result: those that are left in the picture, four numbers each.
    /// - Shape: a ragged column of rows of `[4]`.
    /// - Types: `f32`.
    ///
    /// Boxes are in pixels of the upright picture. They move as its pixels do and are clipped after each operation;
    /// of a box that is turned, the upright box round it counts. Boxes smaller than `min_size`, or of which less
    /// than `min_visible` is left, are left out with their labels; `min_visible = 0` keeps what torchvision's
    /// `SanitizeBoundingBoxes` keeps. Padding that reflects the picture shows objects again that have no box.
    boxes::Boxes(BoxesColumn),
    /// A number for each bounding box, such as its class.
    ///
    /// - Field: the annotations of the `boxes` column; where those are arrays, a field of its own, an array of one
    ///   number for each box.
    /// - Result: a number for each box that the `boxes` column keeps.
    /// - Shape: a ragged column of rows of `[]`.
    /// - Types: `i64`, `i32`, `f32`.
    ///
    /// A label that is a number stays as it is, and a name is looked up in `names` or among the dataset's classes.
    /// A job whose labels are names is refused if there are neither, as far as that is known when it is created:
    /// labels of Pascal VOC always are names.
    box_labels::BoxLabels(BoxLabelsColumn),
    /// A class, as a probability of each class.
    ///
    /// - Field: the number of a class, or a name as for `category`.
    /// - Result: 1 at the place of the class and 0 at all others.
    /// - Shape: `[classes]`.
    /// - Types: `f32`, `f16`, `bf16`.
    one_hot::OneHot(OneHotColumn),
    /// The matrix from places in the result to places in the picture.
    ///
    /// - Field: anything, such as the picture of the column that it follows.
    /// - Result: the matrix that gives for a place (x, y, 1) in the result the place (u, v, w) in the upright
    ///   picture, which is at (u / w, v / w).
    /// - Shape: `[3, 3]`.
    /// - Types: `f32`, `f64`.
    ///
    /// Places are in pixels from the left upper corner; the middle of the first pixel is at (0.5, 0.5). The matrix
    /// is of what the operations drew for this sample, whatever they are: so it also shows what random operations
    /// did. Only what padding reflects is not in it.
    geometry::Geometry(GeometryColumn),
    /// The height and width of a picture before its operations, or after them.
    ///
    /// - Field: anything, such as the picture of the column that it follows.
    /// - Result: the height and width of the upright picture, before the operations; with `after_ops`, those in the batch.
    /// - Shape: `[2]`.
    /// - Types: `i64`, `i32`.
    image_size::ImageSize(ImageSizeColumn),
    /// Yes or no.
    ///
    /// - Field: 0 or 1 of any type as Parquet, MDS, TFRecord or a `.npy` file give it, or the text `true`, `false`,
    ///   `1` or `0`. Anything else is a bad sample.
    /// - Result: one byte, 0 or 1.
    /// - Shape: `[]`.
    /// - Types: `bool`.
    boolean::Bool(BoolColumn),
    /// The ids of the tokens of a text.
    ///
    /// - Field: whole numbers in one dimension, of any type, as Parquet, MDS, TFRecord or a `.npy` file give them.
    /// - Result: the ids, as many as the text has; in a job with `sequence`, those of the texts that a sequence has.
    /// - Shape: a ragged column of rows of `[]`; `[seq_len]` in a job with `sequence`.
    /// - Types: `i32`, `i64`.
    ///
    /// Ids are converted from the type that is stored, such as `u16`, and checked: one that is not below `vocab`, or
    /// that the column's type cannot hold, makes a bad sample, whose error names the id and its place. A text without
    /// tokens is a row without ids.
    tokens::Tokens(TokensColumn),
    /// The id that each place of a sequence has to predict.
    ///
    /// - Field: none; the column follows a `tokens` column.
    /// - Result: the next id of the same document, or -100, which torch's `cross_entropy` leaves out, where there is none:
    ///   at the end of a document and where no document is. With `cross_documents`, it is the next id of the sequence.
    ///   With `loss_from`, it is -100 also where that id is not learned.
    /// - Shape: `[seq_len]`.
    /// - Types: `i64`, `i32`.
    labels::Labels(LabelsColumn),
    /// The place of each token within its document.
    ///
    /// - Field: none; the column follows a `tokens` column.
    /// - Result: the place of each token: 0 where a document begins; with `cross_documents`, where the sequence begins.
    /// - Shape: `[seq_len]`.
    /// - Types: `i32`, `i64`.
    positions::Positions(PositionsColumn),
    /// The lengths of the documents of a sequence.
    ///
    /// - Field: none; the column follows a `tokens` column.
    /// - Result: the places of each document of the sequence, in order: its tokens with `bos` and `eos`, rounded up to `align`.
    ///   Places behind the last document are padding. With `cross_documents`, the sequence is one document.
    /// - Shape: a ragged column of rows of `[]`.
    /// - Types: `i32`.
    document_lengths::DocumentLengths(DocumentLengthsColumn),
    /// The document that each token is of.
    ///
    /// - Field: none; the column follows a `tokens` column.
    /// - Result: the number of the document within the sequence, from 0, or -1 behind the last document.
    /// - Shape: `[seq_len]`.
    /// - Types: `i32`.
    document_ids::DocumentIds(DocumentIdsColumn),
    /// Whether each place of a sequence is learned.
    ///
    /// - Field: none; the column follows a `tokens` column.
    /// - Result: 1 where shifted labels have an id, with the same `loss_from`, and 0 elsewhere.
    /// - Shape: `[seq_len]`.
    /// - Types: `f32`, `u8`, `bool`.
    loss_mask::LossMask(LossMaskColumn),
    /// The lengths of the documents of a whole global batch, of all ranks.
    ///
    /// - Field: none; the column follows a `tokens` column.
    /// - Result: for each sequence of the global batch, in order, what `document_lengths` has of it, and where places are left
    ///   behind the last document their number, negative: so each sequence adds up to `seq_len`. All rows of a rank's batch
    ///   together are the whole list, the same on every rank. `batch.global_lengths` in Python has a list for each sequence.
    /// - Shape: a ragged column of rows of `[]`.
    /// - Types: `i32`.
    global_lengths::GlobalLengths(GlobalLengthsColumn),
    /// A sound as samples.
    ///
    /// - Field: a WAV file (also RF64, BW64 and Wave64; whole numbers of 8 to 32 bits, floats, A-law or mu-law), or an AIFF, AU, CAF,
    ///   FLAC, MP3, Ogg (Vorbis, Opus or FLAC), AAC (ADTS), MP4 (M4A) or Matroska file.
    /// - Result: the samples, those of full scale from -1 to 1 as `f32`, and from -32768 to 32767 as `i16`; or their `features`.
    /// - Shape: with `segment`, `[frames]`, or `[frames, channels]` with a number of channels; silence follows a shorter sound.
    ///   Otherwise a ragged column of rows of `[]`, or of `[channels]`. With `features`, rows are `[mels]`.
    /// - Types: `f32`, and `i16` for samples.
    ///
    /// Without resampling, `f32` has what `soundfile` reads: bit for bit of WAV and FLAC. A value of `i16` is the nearest one. A file without
    /// frames, that is cut off or damaged where frames of it are taken, or that has a sample there that is no finite number, is
    /// a bad sample.
    audio::Audio(AudioColumn),
    /// The length of a sound.
    ///
    /// - Field: the sound of the column that it follows.
    /// - Result: the frames of the `audio` column's value that are sound, of its `features` where it has these: without `segment`
    ///   all, with it those before the silence that follows a short one.
    /// - Shape: `[]`.
    /// - Types: `i64`, `i32`.
    audio_length::AudioLength(AudioLengthColumn),
    /// The sample rate of a sound.
    ///
    /// - Field: the sound of the column that it follows.
    /// - Result: the sample rate of the `audio` column's value, in Hz: its `rate`, or that of the file.
    /// - Shape: `[]`.
    /// - Types: `i64`, `i32`.
    audio_rate::AudioRate(AudioRateColumn),
    /// Frames of a video.
    ///
    /// - Field: an MP4, MOV, WebM or Matroska file of a codec that libavcodec decodes (H.264, HEVC, VP9, AV1), a LeRobot feature of these, or a list of pictures, as a folder of frames is one.
    /// - Result: the frames of the `clip`, or the record's frame, as RGB pixels or those of another `color`, changed by the operations.
    /// - Shape: `[frames, height, width, channels]`, or with `layout = "nchw"` `[frames, channels, height, width]`; one frame without `frames`.
    /// - Types: `u8`, `f32`, `f16`, `bf16`.
    ///
    /// Frames are in the order in which they are shown, and turned as the file says; pixels that are not square stay so. A file that
    /// is cut off or damaged where frames of it are taken, or that has no pictures, is a bad sample.
    video::Video(VideoColumn),
    /// When the frames of a clip are shown.
    ///
    /// - Field: the video of the column that it follows.
    /// - Result: for each frame of the `video` column's value its time, in seconds from the beginning of the video.
    /// - Shape: `[frames]`; with `pick = "all"` a ragged column of rows of `[]`.
    /// - Types: `f64`, `f32`.
    video_times::VideoTimes(VideoTimesColumn),
    /// Which frames of a clip the video has.
    ///
    /// - Field: the video of the column that it follows.
    /// - Result: for each frame of the `video` column's value 1, and 0 if it is behind the end of the video, which repeats its last frame.
    /// - Shape: `[frames]`; with `pick = "all"` a ragged column of rows of `[]`.
    /// - Types: `bool`, `u8`, `f32`.
    video_mask::VideoMask(VideoMaskColumn),
    /// Which values of a column with `deltas` are padding.
    ///
    /// - Field: anything, such as that of the column that it follows.
    /// - Result: 1 for each place before or behind the series, whose value is that of the first or last record, and 0 for the others.
    /// - Shape: `[places]`.
    /// - Types: `bool`.
    is_pad::IsPad(IsPadColumn),
}

impl ColumnKind {
    /// Returns the types that the elements can have, the default first.
    #[must_use]
    pub fn dtypes(&self) -> &'static [DType] {
        of_kind!(self, column => column.dtypes())
    }

    /// Returns the shape of one sample, before any function.
    #[must_use]
    pub fn shape(&self) -> SampleShape {
        of_kind!(self, column => column.shape())
    }

    /// Returns the name of the column whose changes the values follow, if they do.
    #[must_use]
    pub fn follows(&self) -> Option<&str> {
        of_kind!(self, column => column.follows())
    }

    /// Checks the kind of a column for a dataset that lists no classes.
    fn check_without_classes(&self, followed: Option<&Self>) -> Result<(), KeyProblem> {
        of_kind!(self, column => column.check_without_classes(followed))
    }

    /// Returns whether decoding looks at the dataset's classes.
    fn reads_classes(&self) -> bool {
        of_kind!(self, column => column.reads_classes())
    }

    /// Takes over the values that depend on the column that it follows. `followed` is the kind of that column and its `deltas`, if
    /// the job has it.
    fn follow(&mut self, followed: Option<(&Self, &[i32])>) -> Result<(), KeyProblem> {
        let Some(name) = self.follows() else { return Ok(()) };
        let Some((followed, deltas)) = followed else {
            return Err(("follows", format!("is `{name}`, and the job has no such column")));
        };
        of_kind!(self, column => {
            column.follow(followed)?;
            column.follow_deltas(deltas)
        })
    }

    /// Checks the kind of a column with elements of type `dtype`.
    pub(super) fn check(&self, dtype: DType) -> Result<(), KeyProblem> {
        if !self.dtypes().contains(&dtype) {
            return Err(("dtype", format!("cannot be {} for decode = \"{}\"", dtype.name(), self.name())));
        }
        of_kind!(self, column => column.check(dtype))
    }

    /// Checks what a column of this kind reads of its field, for elements of type `dtype`.
    fn check_value(&self, value: &ColumnValue, dtype: DType) -> Result<(), KeyProblem> {
        of_kind!(self, column => value.check(column, dtype))
    }
}

impl Serialize for ColumnKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        of_kind!(self, column => write_kind(serializer, column))
    }
}
