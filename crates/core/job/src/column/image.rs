//! The kind `image`: a picture becomes an array of one size.

use serde::{Deserialize, Serialize};

use super::{Kind, kind::keys};
use spdl_types::{SampleShape, DType, ImageColor, ImageDepth, ImageLayout, Normalise};
use crate::{Fill, ImageOp, KeyProblem, check::MAX_SAMPLE_BYTES, operation::{self, step}};

/// Upper limit of the pictures of a sample.
const MAX_PICTURES: u32 = 1 << 16;

keys! {
    /// The keys of an `image` column in a job file.
    ImageKeys {
        /// For image: the operations from the picture to the array, in order. The last one has to give a fixed size, or
        /// `smart_resize` pictures of different sizes, as a ragged column. Required.
        #[serde(deserialize_with = "step::read_all")]
        #[schemars(with = "Vec<step::StepFile>")]
        ops: Vec<ImageOp>,
        /// For image: the order of the dimensions. Default: `nhwc`.
        layout: Option<ImageLayout>,
        /// For image: for a float type, `(value - mean) / std` of each channel, where values of 8 bits are divided by 255
        /// first. Default: none; values of 8 bits are divided by 255 all the same.
        normalise: Option<Normalise<Vec<f32>>>,
        /// For image: the channels. Default: `rgb`.
        color: Option<ImageColor>,
        /// For image: the colour that shows through transparent pixels. The picture is laid on it before any operation, as
        /// Pillow's `alpha_composite` does it, within one level. Default: none; opacity is ignored.
        background: Option<Fill>,
        /// For image: the bits of a value. Default: 8 for `u8`, 16 for `u16`, and for floats that of the picture.
        depth: Option<ImageDepth>,
        /// For image: for a field that is a list of pictures, the most pictures of one sample, 1 to 65536. A sample with
        /// more is a bad sample. It reserves no memory. Default: none; samples have one picture.
        max_rows: Option<u32>,
        /// For image: for a field that is a list of pictures, the number of pictures that each sample has, 1 to 65536. A
        /// sample with another number is a bad sample. Default: none; samples have one picture.
        pictures: Option<u32>,
    }
}

/// The number of pictures in the samples of a column of lists. A sample with another number is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PictureList {
    /// Exactly this many.
    Exactly(u32),
    /// At most this many, or none.
    UpTo(u32),
}

impl PictureList {
    fn read(max_rows: Option<u32>, pictures: Option<u32>) -> Result<Option<Self>, KeyProblem> {
        match (max_rows, pictures) {
            (None, None) => Ok(None),
            (Some(most), None) => Ok(Some(Self::UpTo(most))),
            (None, Some(count)) => Ok(Some(Self::Exactly(count))),
            (Some(_), Some(_)) => {
                let problem = "is for lists of one length, and `max_rows` for lists of any; leave one out";
                Err(("pictures", problem.to_owned()))
            }
        }
    }

    /// Returns the key of this rule in a job file.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Exactly(_) => "pictures",
            Self::UpTo(_) => "max_rows",
        }
    }

    /// Returns the value of the key.
    #[must_use]
    pub const fn count(self) -> u32 {
        match self {
            Self::Exactly(count) | Self::UpTo(count) => count,
        }
    }

    /// Returns whether a sample may have this many pictures.
    #[must_use]
    pub const fn allows(self, pictures: usize) -> bool {
        match self {
            Self::Exactly(count) => pictures == count as usize,
            Self::UpTo(most) => pictures <= most as usize,
        }
    }
}

/// How a picture becomes a fixed-size array.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageColumn {
    /// Steps, in order; the last size that they give is the column's.
    pub ops: Vec<ImageOp>,
    /// Order of dimensions.
    pub layout: ImageLayout,
    /// Normalisation for float types; without it a float column holds `value / 255`.
    pub normalise: Option<Normalise<Vec<f32>>>,
    /// Height and width of each picture; [`DIFFERENT_SIZES`](Self::DIFFERENT_SIZES) if they [differ in size](Self::max_pixels).
    pub size: [u32; 2],
    /// The channels.
    #[serde(default, skip_serializing_if = "is_rgb")]
    pub color: ImageColor,
    /// The colour that shows through transparent pixels; without it, opacity is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Fill>,
    /// The bits of a value; without it, 16 for u16, 8 for u8, and for floats [those of the picture](Self::keeps_depth).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<ImageDepth>,
    /// How many pictures a sample has, if its field is a list of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<PictureList>,
}

fn is_rgb(color: &ImageColor) -> bool {
    *color == ImageColor::default()
}

impl ImageColumn {
    /// The size of a column whose pictures differ in size.
    pub const DIFFERENT_SIZES: [u32; 2] = [0, 0];

    /// Returns the most pixels of a picture, if pictures differ in size: where an operation gives each a size of its own, and those
    /// behind it keep that.
    #[must_use]
    pub fn max_pixels(&self) -> Option<u32> {
        Self::most_pixels(&self.ops)
    }

    fn most_pixels(ops: &[ImageOp]) -> Option<u32> {
        ops.iter().rfind(|op| !op.keeps_size())?.max_pixels()
    }

    /// Returns the number of pictures that the operations make of one: 1, unless the last operation makes several.
    #[must_use]
    pub fn pictures_of_one(&self) -> u32 {
        self.ops.last().map_or(1, ImageOp::pictures)
    }

    /// Returns the shape of what becomes of one picture.
    pub(super) fn shape_of_one(&self) -> Vec<u32> {
        let ([height, width], channels) = (self.size, self.color.channels());
        let mut shape = match self.layout {
            ImageLayout::Nhwc => vec![height, width, channels],
            ImageLayout::Nchw => vec![channels, height, width],
        };
        if self.pictures_of_one() > 1 {
            shape.insert(0, self.pictures_of_one());
        }
        shape
    }

    /// Returns the bits of a value in a column of this type.
    #[must_use]
    pub fn depth_of(&self, dtype: DType) -> ImageDepth {
        self.depth.unwrap_or(ImageDepth::default_of(dtype))
    }

    /// Returns whether a column of this type is decoded to RGB of 8 bits, which all operations change.
    #[must_use]
    pub fn is_by_rgb(&self, dtype: DType) -> bool {
        self.depth_of(dtype) == ImageDepth::Bits8 && !self.color.has_alpha()
    }

    /// Returns whether a column of this type that names no depth keeps what pictures have beyond 8 bits: as floats, if
    /// no operation needs RGB of 8 bits.
    #[must_use]
    pub fn keeps_depth(&self, dtype: DType) -> bool {
        let is_float = matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
        self.depth.is_none() && is_float && self.ops.iter().all(ImageOp::only_moves)
    }

    fn check_list(&self, dtype: DType) -> Result<(), KeyProblem> {
        let Some(list) = self.list else { return Ok(()) };
        if self.max_pixels().is_some() {
            let problem = format!("is for lists of pictures of one size, and `ops` leave different sizes; leave `{}` out", list.key());
            return Err((list.key(), problem));
        }
        let (key, count) = (list.key(), list.count());
        if !(1..=MAX_PICTURES).contains(&count) {
            return Err((key, format!("is {count}, not in 1..={MAX_PICTURES}")));
        }
        let bytes = self.shape().max_bytes(dtype);
        if bytes > MAX_SAMPLE_BYTES.into() {
            let problem = format!("is {count}, and so many pictures take {bytes} bytes; the limit is {MAX_SAMPLE_BYTES}");
            return Err((key, problem));
        }
        if let Some(op) = self.ops.iter().find(|op| op.field().is_some()) {
            let problem = format!("has `{}`, which is for one picture, and samples have lists of them", op.name());
            return Err(("ops", problem));
        }
        Ok(())
    }

    /// Returns the size of a column with these operations; `None` if pictures differ in size without a bound.
    fn final_size(ops: &[ImageOp]) -> Option<[u32; 2]> {
        let size = ops.iter().fold(None, |size, op| op.output_size(size));
        size.or_else(|| Self::most_pixels(ops).map(|_| Self::DIFFERENT_SIZES))
    }

    /// Returns the shape of a ragged column of pictures with at most so many pixels: rows are pixels, or numbers where each channel is a
    /// plane.
    fn shape_of_pixels(&self, pixels: u32) -> SampleShape {
        let channels = self.color.channels();
        match self.layout {
            ImageLayout::Nhwc => SampleShape::Rows { row: vec![channels], max_rows: pixels },
            ImageLayout::Nchw => SampleShape::Rows { row: Vec::new(), max_rows: pixels.saturating_mul(channels) },
        }
    }
}

impl Kind for ImageColumn {
    const NAME: &'static str = "image";
    const EXAMPLE: &'static str = "ops = [{ random_resized_crop = 16 }]";
    type Keys = ImageKeys;

    fn read(keys: &ImageKeys) -> Result<Self, KeyProblem> {
        let ImageKeys { ops, layout, normalise, color, background, depth, max_rows, pictures } = keys.clone();
        let Some(size) = Self::final_size(&ops) else {
            let problem = "leave pictures of different sizes; end with random_resized_crop, center_crop or \
                           resize = { size = [height, width] }, or with smart_resize for a ragged column";
            return Err(("ops", problem.to_owned()));
        };
        let (layout, color) = (layout.unwrap_or_default(), color.unwrap_or_default());
        let list = PictureList::read(max_rows, pictures)?;
        Ok(Self { ops, layout, normalise, size, color, background, depth, list })
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::U8, DType::F32, DType::F16, DType::Bf16, DType::U16]
    }

    fn shape(&self) -> SampleShape {
        if let Some(pixels) = self.max_pixels() {
            return self.shape_of_pixels(pixels);
        }
        let mut shape = self.shape_of_one();
        match self.list {
            None => SampleShape::Fixed(shape),
            Some(PictureList::Exactly(count)) => {
                shape.insert(0, count);
                SampleShape::Fixed(shape)
            }
            Some(PictureList::UpTo(max_rows)) => SampleShape::Rows { row: shape, max_rows },
        }
    }

    fn check(&self, dtype: DType) -> Result<(), KeyProblem> {
        operation::check_all(&self.ops).map_err(|(_, problem)| problem)?;
        if Self::final_size(&self.ops) != Some(self.size) {
            return Err(("ops", format!("do not end in pictures of {:?} pixels", self.size)));
        }
        self.check_list(dtype)?;
        let bytes = self.shape().max_bytes(dtype);
        if bytes > MAX_SAMPLE_BYTES.into() && self.max_pixels().is_some() {
            let problem = format!("give pictures of up to {bytes} bytes; the limit is {MAX_SAMPLE_BYTES}: lower `max_pixels`");
            return Err(("ops", problem));
        }
        let depth = self.depth_of(dtype);
        if !depth.fits(dtype) {
            let (bits, dtype) = (u8::from(depth), dtype.name());
            return Err(("depth", format!("is {bits}, and {dtype} has other values; use a float type, or leave it out")));
        }
        if self.color.has_alpha() && self.background.is_some() {
            let problem = format!("is for pictures without opacity; color = \"{}\" keeps it", self.color.name());
            return Err(("background", problem));
        }
        if !self.is_by_rgb(dtype)
            && let Some(op) = self.ops.iter().find(|op| !op.only_moves())
        {
            let (name, bits, color) = (op.name(), u8::from(depth), self.color.name());
            return Err((
                "ops",
                format!(
                    "has `{name}`, which works on RGB of 8 bits, and the column has {bits} bits and color = \"{color}\": \
                     these are only cropped, resized, flipped and padded"
                ),
            ));
        }
        let Some(normalise) = &self.normalise else { return Ok(()) };
        let Normalise { mean, std } = normalise;
        if matches!(dtype, DType::U8 | DType::U16) {
            let problem = "needs a float type; add dtype = \"f32\", \"f16\" or \"bf16\"";
            return Err(("normalise", problem.to_owned()));
        }
        let channels = self.color.channels() as usize;
        if mean.len() != channels || std.len() != channels {
            let (means, stds, color) = (mean.len(), std.len(), self.color.name());
            let problem = format!("has {means} means and {stds} stds; color = \"{color}\" needs {channels} of each");
            return Err(("normalise", problem));
        }
        if let Some(problem) = normalise.problem(u8::from(depth) < 32) {
            return Err(("normalise", format!("has {problem}")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use spdl_types::{Fingerprint, SampleShape};
    use spdl_order::DatasetFacts;
    use crate::{Job, JobFile};

    fn job(ops: &str, more: &str) -> Result<Job, String> {
        let column = format!("[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\nops = [{ops}]\n");
        let text = format!("name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\n{column}{more}");
        let facts = DatasetFacts::new(Fingerprint(7), 1000, 128);
        JobFile::parse(&text, "job.toml").and_then(|file| file.freeze(&facts)).map_err(|error| error.to_string())
    }

    #[test]
    fn several_pictures_of_one_are_the_first_dimension_and_the_last_operation() {
        let shape = |ops: &str, more: &str| job(ops, more).unwrap().columns[0].sample_shape().unwrap();
        assert_eq!(shape("{ center_crop = [8, 9] }", ""), [8, 9, 3]);
        assert_eq!(shape("{ resize = 30 }, { five_crop = [8, 9] }", ""), [5, 8, 9, 3]);
        assert_eq!(shape("{ ten_crop = 8 }", "layout = \"nchw\""), [10, 3, 8, 8]);
        let error = job("{ five_crop = 8 }, \"random_flip\"", "").unwrap_err();
        let expected = "column `image`: `five_crop` makes 5 pictures of one, so it has to be the last operation";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn pictures_of_different_sizes_are_rows_of_pixels() {
        let column = |ops: &str, more: &str| job(ops, more).map(|mut job| job.columns.remove(0));
        let rows = |row: &[u32], max_rows| SampleShape::Rows { row: row.to_vec(), max_rows };
        let resize = "{ smart_resize = { factor = 28, min_pixels = 784, max_pixels = 50176 } }";
        // A picture that is 200 times as long as it is wide has a side of 28, and is 28 * sqrt(200 * 50176) pixels large.
        let most = 88_700;
        assert_eq!(column(resize, "").unwrap().shape(), rows(&[3], most));
        let flipped = format!("{{ random_rotation = 5 }}, {resize}, \"random_flip\", {{ color_jitter = {{ hue = 0.1 }} }}");
        assert_eq!(column(&flipped, "dtype = \"f32\"\ncolor = \"gray\"").unwrap().shape(), rows(&[1], most));
        assert_eq!(column(resize, "layout = \"nchw\"").unwrap().shape(), rows(&[], 3 * most));
        assert_eq!(column("\"smart_resize\"", "").unwrap().shape(), rows(&[3], 1_003_520));
        assert_eq!(column(&format!("{resize}, {{ center_crop = 8 }}"), "").unwrap().sample_shape(), Some(vec![8, 8, 3]));
        let made = job(resize, "").unwrap();
        assert_eq!(serde_json::from_slice::<Job>(&serde_json::to_vec(&made).unwrap()).unwrap(), made);
        for (ops, more, expected) in [
            (&*format!("{resize}, {{ pad = 1 }}"), "", "`ops` leave pictures of different sizes; end with"),
            (&*format!("{resize}, {{ random_rotation = {{ degrees = 9, expand = true }} }}"), "", "`ops` leave pictures of"),
            (&*format!("{{ random_apply = [{resize}] }}"), "", "`ops` leave pictures of different sizes"),
            (resize, "max_rows = 2", "`max_rows` is for lists of pictures of one size"),
            (resize, "pictures = 2", "`pictures` is for lists of pictures of one size"),
            (
                "{ smart_resize = { max_pixels = 200000000 } }",
                "dtype = \"f32\"",
                "`ops` give pictures of up to 2400000000 bytes; the limit is 1073741824: lower `max_pixels`",
            ),
            ("{ smart_resize = { factor = 0 } }", "", "`factor` is 0, not in 1..=16384"),
        ] {
            let error = column(ops, more).unwrap_err();
            assert!(error.contains(expected), "{ops}: {error}");
        }
        let follows = |kind: &str| {
            let column = format!("[[column]]\nname = \"other\"\nfrom = \"x\"\ndecode = \"{kind}\"\nfollows = \"image\"\n");
            job(resize, &column).map(|_| ())
        };
        assert_eq!((follows("geometry"), follows("image_size")), (Ok(()), Ok(())));
        let error = follows("mask").unwrap_err();
        assert!(error.contains("`follows` is `image`, whose pictures differ in size, and masks have one size"), "{error}");
        let error = job(resize, "[[column]]\nname = \"t\"\nfrom = \"cls\"\ndecode = \"one_hot\"\nclasses = 3\n[mix]\nmixup = 1").unwrap_err();
        assert!(error.contains("`mix.columns` has `image`, whose pictures differ in size: they cannot be mixed"), "{error}");
    }

    #[test]
    fn lists_are_ragged_or_have_a_dimension_more() {
        let column = |ops: &str, more: &str| job(ops, more).map(|mut job| job.columns.remove(0));
        let crop = "{ center_crop = [8, 9] }";
        let rows = |row: &[u32], max_rows| SampleShape::Rows { row: row.to_vec(), max_rows };
        assert_eq!(column(crop, "max_rows = 7").unwrap().shape(), rows(&[8, 9, 3], 7));
        let planes = column(crop, "max_rows = 7\nlayout = \"nchw\"\ncolor = \"gray\"").unwrap();
        assert_eq!(planes.shape(), rows(&[1, 8, 9], 7));
        assert_eq!(planes.max_bytes(), 7 * 8 * 9);
        assert_eq!(column(crop, "pictures = 4").unwrap().shape(), SampleShape::Fixed(vec![4, 8, 9, 3]));
        assert_eq!(column("{ five_crop = 8 }", "max_rows = 2").unwrap().shape(), rows(&[5, 8, 8, 3], 2));
        assert_eq!(column("{ five_crop = 8 }", "pictures = 2").unwrap().sample_shape(), Some(vec![2, 5, 8, 8, 3]));
        let function = "max_rows = 7\ntransform = \"a:b\"";
        assert_eq!(column(crop, function).unwrap().shape(), rows(&[8, 9, 3], 7));
        for (ops, more, expected) in [
            (crop, "max_rows = 0", "column `image`: `max_rows` is 0, not in 1..=65536"),
            (crop, "pictures = 65537", "column `image`: `pictures` is 65537, not in 1..=65536"),
            (crop, "pictures = 2\nmax_rows = 2", "`pictures` is for lists of one length, and `max_rows` for lists of any"),
            ("{ center_crop = 224 }", "max_rows = 8000", "so many pictures take 1204224000 bytes; the limit is 1073741824"),
            ("{ crop_box = { field = \"xml\" } }, { resize = [8, 9] }", "max_rows = 2", "has `crop_box`, which is for one picture"),
        ] {
            let error = column(ops, more).unwrap_err();
            assert!(error.contains(expected), "{more}: {error}");
        }
    }

    #[test]
    fn a_list_of_pictures_is_not_followed() {
        for kind in ["mask", "geometry", "image_size", "boxes"] {
            let more = if kind == "boxes" { "stored_as = \"voc\"\nmax_rows = 3\n" } else { "" };
            let keys = format!("decode = \"{kind}\"\nfollows = \"image\"\n{more}");
            for list in ["max_rows = 2", "pictures = 1"] {
                let error = job("{ center_crop = 8 }", &format!("{list}\n[[column]]\nname = \"other\"\nfrom = \"x\"\n{keys}"));
                let error = error.unwrap_err();
                assert!(error.contains("column `other`: `follows` is `image`, whose samples are lists of pictures"), "{error}");
            }
        }
    }

    #[test]
    fn the_channels_are_those_of_the_colour() {
        let column = |more: &str| job("{ center_crop = [8, 9] }", more).map(|mut job| job.columns.remove(0));
        let shape = |more: &str| column(more).unwrap().sample_shape().unwrap();
        assert_eq!(shape("color = \"bgr\""), [8, 9, 3]);
        assert_eq!(shape("color = \"gray\""), [8, 9, 1]);
        assert_eq!(shape("color = \"gray_alpha\""), [8, 9, 2]);
        assert_eq!(shape("color = \"rgba\"\nlayout = \"nchw\""), [4, 8, 9]);
        assert_eq!(shape("color = \"gray\"\nlayout = \"nchw\""), [1, 8, 9]);
        assert_eq!(column("color = \"grey\""), column("color = \"gray\""));
        assert_eq!(column("color = \"rgb\""), column(""));
        let of_gray = "dtype = \"f32\"\ncolor = \"gray\"\nnormalise = { mean = [0.5], std = [0.25] }";
        assert_eq!(shape(of_gray), [8, 9, 1]);
        for (more, expected) in [
            ("color = \"hsv\"", "color cannot be `hsv`; it can be rgb, bgr, rgba, gray"),
            ("color = \"rgba\"\nbackground = 255", "`background` is for pictures without opacity; color = \"rgba\" keeps it"),
            ("depth = 12", "12 is no depth; there are 8, 16 and 32"),
            ("depth = 16", "`depth` is 16, and u8 has other values"),
            ("dtype = \"u16\"\ndepth = 8", "`depth` is 8, and u16 has other values"),
            ("dtype = \"u16\"\nnormalise = { mean = [0, 0, 0], std = [1, 1, 1] }", "`normalise` needs a float type"),
            ("background = 256", "background"),
            (&of_gray.replace("gray", "rgb"), "has 1 means and 1 stds; color = \"rgb\" needs 3 of each"),
            (&of_gray.replace("[0.25]", "[1, 1]"), "has 1 means and 2 stds; color = \"gray\" needs 1 of each"),
        ] {
            let error = column(more).unwrap_err();
            assert!(error.contains(expected), "{more}: {error}");
        }
    }

    #[test]
    fn what_works_on_rgb_of_8_bits_is_refused_elsewhere() {
        let moves = "{ random_resized_crop = 12 }, \"random_flip\", \"random_vertical_flip\", { letterbox = 10 }, { pad = 2 }, \
                     { random_choice = [{ center_crop = 8 }, { random_crop = 8 }] }, { random_apply = [\"random_flip\"] }";
        let changes = ["grayscale", "{ random_apply = [{ gaussian_blur = 3 }] }", "{ random_rotation = 9 }"];
        for more in ["dtype = \"u16\"", "dtype = \"f32\"\ndepth = 16", "color = \"rgba\"", "color = \"gray_alpha\""] {
            job(moves, more).unwrap();
            for change in changes {
                let change = if change.starts_with('{') { change.to_owned() } else { format!("\"{change}\"") };
                let error = job(&format!("{{ center_crop = 8 }}, {change}"), more).unwrap_err();
                assert!(error.contains("which works on RGB of 8 bits"), "{more}: {error}");
            }
        }
    }

    #[test]
    fn channels_and_a_background_survive_storage_and_change_the_fingerprint() {
        let plain = job("{ center_crop = 8 }", "").unwrap();
        let later = ["color = \"gray\"", "background = [1, 2, 3]", "dtype = \"f32\"\ndepth = 32", "max_rows = 1", "pictures = 1"];
        for more in later {
            let job = job("{ center_crop = 8 }", more).unwrap();
            assert_ne!(job.fingerprint(), plain.fingerprint());
            assert_eq!(serde_json::from_slice::<Job>(&serde_json::to_vec(&job).unwrap()).unwrap(), job);
        }
    }

    #[test]
    fn several_pictures_of_one_have_a_size_to_follow_but_no_places() {
        let follower = |kind: &str| {
            job("{ five_crop = 8 }", &format!("[[column]]\nname = \"other\"\nfrom = \"jpg\"\ndecode = \"{kind}\"\nfollows = \"image\""))
        };
        follower("image_size").unwrap();
        for kind in ["mask", "geometry"] {
            let error = follower(kind).unwrap_err();
            assert!(error.contains("`follows` is `image`, whose operations make 5 pictures of one"), "{error}");
        }
    }
}
