//! The kind `image`: a picture becomes an array of one size.

use serde::{Deserialize, Serialize};

use super::{Kind, KindKeys, SampleShape};
use crate::job::{
    DType, ImageOp, KeyProblem,
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Normalise {
    /// Mean of red, green and blue, in 0..1.
    pub mean: [f32; 3],
    /// Standard deviation of red, green and blue, in 0..1; not zero.
    pub std: [f32; 3],
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
    pub normalise: Option<Normalise>,
}

impl KindKeys for ImageKeys {
    const NAMES: &'static [&'static str] = &["ops", "layout", "normalise"];
}

/// How a picture becomes a fixed-size array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageColumn {
    /// Steps, in order; the last size that they give is the column's.
    pub ops: Vec<ImageOp>,
    /// Order of dimensions.
    pub layout: ImageLayout,
    /// Normalisation for float types; without it a float column holds `value / 255`.
    pub normalise: Option<Normalise>,
    /// Height and width of each picture.
    pub size: [u32; 2],
}

impl ImageColumn {
    /// Returns the number of pictures in a sample: 1, unless the last operation makes several of one.
    #[must_use]
    pub fn pictures(&self) -> u32 {
        self.ops.last().map_or(1, ImageOp::pictures)
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

    fn read(ImageKeys { ops, layout, normalise }: &ImageKeys) -> Result<Self, KeyProblem> {
        let Some(size) = Self::final_size(ops) else {
            let problem = "leave pictures of different sizes; end with random_resized_crop, center_crop or \
                           resize = { size = [height, width] }";
            return Err(("ops", problem.to_owned()));
        };
        Ok(Self { ops: ops.clone(), layout: layout.unwrap_or_default(), normalise: *normalise, size })
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::U8, DType::F32, DType::F16, DType::Bf16]
    }

    fn shape(&self) -> SampleShape {
        let [height, width] = self.size;
        let mut shape = match self.layout {
            ImageLayout::Nhwc => vec![height, width, 3],
            ImageLayout::Nchw => vec![3, height, width],
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
        let Some(Normalise { mean, std }) = &self.normalise else { return Ok(()) };
        if dtype == DType::U8 {
            let problem = "needs a float type; add dtype = \"f32\", \"f16\" or \"bf16\"";
            return Err(("normalise", problem.to_owned()));
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
