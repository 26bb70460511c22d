//! The kind `image`: a picture becomes an array of one size.

use serde::{Deserialize, Serialize};

use super::{
    Kind, KindKeys, NumberedKind, SampleShape,
    channels::{ImageColor, ImageDepth},
};
use crate::job::{
    DType, Fill, ImageOp, KeyProblem,
    operation::{self, step},
};

/// Order of an image's dimensions in the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ImageLayout {
    /// Height, width, channel.
    #[default]
    Nhwc,
    /// Channel, height, width.
    Nchw,
}

/// Per-channel normalisation: `(value / 255 - mean) / std`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Normalise"))]
#[serde(deny_unknown_fields)]
pub struct Normalise<Values = [f32; 3]> {
    /// Mean of each channel, in 0..1.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 4)))]
    pub mean: Values,
    /// Standard deviation of each channel, in 0..1; not zero.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 4)))]
    pub std: Values,
}

impl From<Normalise> for Normalise<Vec<f32>> {
    fn from(Normalise { mean, std }: Normalise) -> Self {
        Self { mean: mean.to_vec(), std: std.to_vec() }
    }
}

/// The keys of an `image` column in a job file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImageKeys {
    /// For images: steps from the picture to the array, in order. The last has to give a fixed size.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "step::read_all")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<step::StepFile>"))]
    pub ops: Vec<ImageOp>,
    /// For images: order of the dimensions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<ImageLayout>,
    /// For images of a float type: (value / 255 - mean) / std of each channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalise: Option<Normalise<Vec<f32>>>,
    /// For images: the channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub color: Option<ImageColor>,
    /// For images: the colour that shows through transparent pixels. Without it, opacity is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Fill>,
    /// For images: the bits of a value, 8, 16 or 32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<ImageDepth>,
}

impl KindKeys for ImageKeys {
    const NAMES: &'static [&'static str] = &["ops", "layout", "normalise", "color", "background", "depth"];
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
    /// Height and width of each picture.
    pub size: [u32; 2],
    /// The channels.
    #[serde(default, skip_serializing_if = "ImageColor::is_default")]
    pub color: ImageColor,
    /// The colour that shows through transparent pixels; without it, opacity is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Fill>,
    /// The bits of a value; without it, 16 for u16 and 8 for all other types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<ImageDepth>,
}

/// Operations, layout, normalisation and size.
type Form = (Vec<ImageOp>, ImageLayout, Option<Normalise>, [u32; 2]);

impl From<Form> for ImageColumn {
    fn from((ops, layout, normalise, size): Form) -> Self {
        Self { ops, layout, normalise: normalise.map(Normalise::into), size, ..Self::default() }
    }
}

impl NumberedKind for ImageColumn {
    type Form = Form;

    fn form(&self) -> Option<Form> {
        let of_three = |Normalise { mean, std }: &Normalise<Vec<f32>>| {
            let three = |values: &[f32]| <[f32; 3]>::try_from(values).ok();
            Some(Normalise { mean: three(mean)?, std: three(std)? })
        };
        let normalise = self.normalise.as_ref().map(of_three);
        if self.color != ImageColor::default() || self.background.is_some() || self.depth.is_some() || normalise == Some(None) {
            return None;
        }
        Some((self.ops.clone(), self.layout, normalise.flatten(), self.size))
    }
}

impl ImageColumn {
    /// Returns the number of pictures in a sample: 1, unless the last operation makes several of one.
    #[must_use]
    pub fn pictures(&self) -> u32 {
        self.ops.last().map_or(1, ImageOp::pictures)
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

    /// Returns the height and width that `ops` give to every picture; `None` if pictures differ in size.
    fn final_size(ops: &[ImageOp]) -> Option<[u32; 2]> {
        ops.iter().fold(None, |size, op| op.output_size(size))
    }
}

impl Kind for ImageColumn {
    const NAME: &'static str = "image";
    const SINCE: &'static str = "0.1.0";
    type Keys = ImageKeys;

    fn read(keys: &ImageKeys) -> Result<Self, KeyProblem> {
        let ImageKeys { ops, layout, normalise, color, background, depth } = keys.clone();
        let Some(size) = Self::final_size(&ops) else {
            let problem = "leave pictures of different sizes; end with random_resized_crop, center_crop or \
                           resize = { size = [height, width] }";
            return Err(("ops", problem.to_owned()));
        };
        let (layout, color) = (layout.unwrap_or_default(), color.unwrap_or_default());
        Ok(Self { ops, layout, normalise, size, color, background, depth })
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::U8, DType::F32, DType::F16, DType::Bf16, DType::U16]
    }

    fn shape(&self) -> SampleShape {
        let ([height, width], channels) = (self.size, self.color.channels());
        let mut shape = match self.layout {
            ImageLayout::Nhwc => vec![height, width, channels],
            ImageLayout::Nchw => vec![channels, height, width],
        };
        if self.pictures() > 1 {
            shape.insert(0, self.pictures());
        }
        SampleShape::Fixed(shape)
    }

    fn check(&self, dtype: DType) -> Result<(), KeyProblem> {
        operation::check_all(&self.ops).map_err(|(_, problem)| problem)?;
        if Self::final_size(&self.ops) != Some(self.size) {
            return Err(("ops", format!("do not end in pictures of {:?} pixels", self.size)));
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
        let Some(Normalise { mean, std }) = &self.normalise else { return Ok(()) };
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
        if std.iter().any(|std| !std.is_normal()) || mean.iter().any(|mean| !mean.is_finite()) {
            return Err(("normalise", "has a std of zero or a value that is not a number".to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Fingerprint,
        job::{DatasetFacts, Job, JobFile},
    };

    fn job(ops: &str, more: &str) -> Result<Job, String> {
        let column = format!("[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\nops = [{ops}]\n");
        let text = format!("name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\n{column}{more}");
        let facts = DatasetFacts { fingerprint: Fingerprint(7), samples: 1000, blocks: 128, has_classes: true };
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
        for more in ["color = \"gray\"", "background = [1, 2, 3]", "dtype = \"f32\"\ndepth = 32"] {
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
