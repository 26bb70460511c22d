//! The `[mix]` table of a job file: samples are mixed in pairs.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Column, ColumnKind, KeyProblem, form};
use spdl_order::MixParams;
use spdl_types::{DType, SampleShape};

/// The range of the parameter of a Beta distribution.
const ALPHAS: std::ops::RangeInclusive<f64> = 0.01..=100.0;

/// How samples are mixed in pairs, as torchvision's `MixUp` and `CutMix` do: by `mixup`, by `cutmix`, or each pair by
/// one of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixFile {
    /// Alpha, 0.01 to 100: the weight of the sample is from Beta(alpha, alpha). Pictures and targets become the
    /// weighted sum of both samples. Default: no mixup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixup: Option<f64>,
    /// Alpha, 0.01 to 100: the share of its picture that a sample keeps is from Beta(alpha, alpha). A rectangle is
    /// replaced by that of the partner, and targets are mixed by the share that is left. Default: no cutmix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cutmix: Option<f64>,
    /// The probability that a sample is mixed, 0 to 1. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// Where there are both: the probability that a mixed sample gets cutmix, 0 to 1. Default: 0.5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cutmix_p: Option<f64>,
    /// The columns that are mixed: pictures of one size, and at least one column of floats, such as `one_hot` or
    /// `float`. Others stay as they are. Default: all of `image` and `one_hot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
}

/// How a job mixes its samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mix {
    /// The names of the columns that are mixed.
    pub columns: Vec<String>,
    /// Which samples are mixed, and how.
    #[serde(with = "MixParamsForm")]
    pub params: MixParams,
}

/// All in which the mixes of two jobs can differ.
impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MixParams { mixup, cutmix, p, cutmix_p, distance } = self.params;
        for (key, alpha) in [("mixup", mixup), ("cutmix", cutmix)] {
            alpha.map_or(Ok(()), |alpha| write!(f, "{key} {alpha}, "))?;
        }
        let columns = self.columns.join(" and ");
        write!(f, "p {p}, cutmix_p {cutmix_p}, of {columns}, pairs {distance} apart")
    }
}

/// The form of [`MixParams`] in JSON, in which no bit of a number is lost.
#[derive(Serialize, Deserialize)]
#[serde(remote = "MixParams")]
struct MixParamsForm {
    #[serde(deserialize_with = "form::exact_or_null")]
    mixup: Option<f64>,
    #[serde(deserialize_with = "form::exact_or_null")]
    cutmix: Option<f64>,
    #[serde(deserialize_with = "form::exact")]
    p: f64,
    #[serde(deserialize_with = "form::exact")]
    cutmix_p: f64,
    distance: u32,
}

impl MixFile {
    /// Reads the table for a job with these columns, whose pairs have this distance.
    pub(super) fn read(&self, columns: &[Column], distance: u32) -> Result<Mix, KeyProblem> {
        if self.cutmix_p.is_some() && (self.mixup.is_none() || self.cutmix.is_none()) {
            return Err(("cutmix_p", "needs both `mixup` and `cutmix`".to_owned()));
        }
        let is_mixed = |column: &&Column| matches!(column.kind, ColumnKind::Image(_) | ColumnKind::OneHot(_));
        let by_default = || columns.iter().filter(is_mixed).map(|column| column.name.clone()).collect();
        let mix = Mix {
            columns: self.columns.clone().unwrap_or_else(by_default),
            params: MixParams {
                mixup: self.mixup,
                cutmix: self.cutmix,
                p: self.p.unwrap_or(1.0),
                cutmix_p: self.cutmix_p.unwrap_or(0.5),
                distance,
            },
        };
        mix.check(columns)?;
        Ok(mix)
    }
}

impl Mix {
    /// Returns whether column `name` is mixed.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column == name)
    }

    /// Checks all values, for a job with these columns.
    pub(super) fn check(&self, columns: &[Column]) -> Result<(), KeyProblem> {
        let MixParams { mixup, cutmix, p, cutmix_p, distance } = self.params;
        if mixup.is_none() && cutmix.is_none() {
            return Err(("mixup", "is missing, and so is `cutmix`; give alpha for one or for both".to_owned()));
        }
        for (key, alpha) in [("mixup", mixup), ("cutmix", cutmix)] {
            if let Some(alpha) = alpha.filter(|alpha| !ALPHAS.contains(alpha)) {
                return Err((key, format!("is {alpha}; alpha is from {} to {}", ALPHAS.start(), ALPHAS.end())));
            }
        }
        for (key, p) in [("p", p), ("cutmix_p", cutmix_p)] {
            if !(0.0..=1.0).contains(&p) {
                return Err((key, format!("is {p}, not in 0..1")));
            }
        }
        if distance == 0 {
            return Err(("distance", "must be at least 1".to_owned()));
        }
        self.check_columns(columns).map_err(|problem| ("columns", problem))
    }

    fn check_columns(&self, columns: &[Column]) -> Result<(), String> {
        let (mut image_size, mut targets) = (None::<[u32; 2]>, 0);
        for (number, name) in self.columns.iter().enumerate() {
            let Some(column) = columns.iter().find(|column| column.name == *name) else {
                return Err(format!("has `{name}`, and the job has no such column"));
            };
            if self.columns[..number].contains(name) {
                return Err(format!("has `{name}` twice"));
            }
            let ColumnKind::Image(image) = &column.kind else {
                check_target(column)?;
                targets += 1;
                continue;
            };
            if column.transform.is_some() {
                return Err(format!("has `{name}`, which a function makes: what it returns cannot be mixed"));
            }
            if column.dtype == DType::U16 {
                return Err(format!("has `{name}`, whose values are u16: mix pictures of u8 or of floats"));
            }
            if image.list.is_some() {
                return Err(format!("has `{name}`, whose samples are lists of pictures: they cannot be mixed"));
            }
            if image.max_pixels().is_some() {
                return Err(format!("has `{name}`, whose pictures differ in size: they cannot be mixed"));
            }
            if image.pictures_of_one() > 1 {
                return Err(format!(
                    "has `{name}`, whose operations make several pictures of one: they cannot be mixed"
                ));
            }
            let [height, width] = image.size;
            match image_size {
                Some([other_height, other_width]) if image.size != [other_height, other_width] => {
                    return Err(format!(
                        "has pictures of {height}x{width} and of {other_height}x{other_width}; they need one size"
                    ));
                }
                _ => image_size = Some(image.size),
            }
            if let Some(other) = columns.iter().find(|other| other.kind.follows() == Some(name)) {
                let (other, kind) = (&other.name, other.kind.name());
                return Err(format!(
                    "has `{name}`, which column `{other}` follows: with decode = \"{kind}\" it cannot be mixed"
                ));
            }
        }
        if image_size.is_none() {
            return Err("has no column of decode = \"image\"".to_owned());
        }
        if targets == 0 {
            return Err("has no labels that can be mixed: add a column of decode = \"one_hot\"".to_owned());
        }
        Ok(())
    }
}

/// Checks that the values of a column that holds no picture can be mixed.
fn check_target(column: &Column) -> Result<(), String> {
    let name = &column.name;
    if !matches!(column.shape(), SampleShape::Fixed(_)) {
        return Err(format!("has `{name}`, whose samples differ in length"));
    }
    if matches!(column.kind, ColumnKind::Mask(_)) {
        return Err(format!("has `{name}`: a mask cannot be mixed"));
    }
    if !matches!(column.dtype, DType::F16 | DType::Bf16 | DType::F32 | DType::F64) {
        return Err(format!("has `{name}`, whose numbers are whole; class numbers are mixed as decode = \"one_hot\""));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{Job, JobFile};
    use spdl_order::{DatasetFacts, MixParams};
    use spdl_types::Fingerprint;

    const COLUMNS: &str = r#"
        [[column]]
        name = "image"
        from = "jpg"
        decode = "image"
        ops = [{ random_resized_crop = 8 }]
        [[column]]
        name = "label"
        from = "cls"
        decode = "int"
        [[column]]
        name = "target"
        from = "cls"
        decode = "one_hot"
        classes = 10
    "#;

    fn job(mix: &str, more: &str) -> Result<Job, String> {
        let text = format!("name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\n{mix}\n{COLUMNS}\n{more}");
        let facts = DatasetFacts::new(Fingerprint(7), 1000, 128);
        JobFile::parse(&text, "job.toml").and_then(|file| file.freeze(&facts)).map_err(|error| error.to_string())
    }

    #[test]
    fn pictures_and_one_hot_labels_are_mixed_by_default() {
        let job = job("mix = { mixup = 0.2 }", "").unwrap();
        let mix = job.mix.as_ref().unwrap();
        assert_eq!(mix.columns, ["image", "target"]);
        // 2 lanes, and a batch has 4 samples of each.
        let expected = MixParams { mixup: Some(0.2), cutmix: None, p: 1.0, cutmix_p: 0.5, distance: 2 };
        assert_eq!(mix.params, expected);
        assert_eq!(job.columns[2].sample_shape(), Some(vec![10]));
        let plain = Job { mix: None, ..job.clone() };
        assert_ne!(plain.fingerprint(), job.fingerprint());
        for job in [plain, job] {
            assert_eq!(serde_json::from_slice::<Job>(&serde_json::to_vec(&job).unwrap()).unwrap(), job);
        }
    }

    #[test]
    fn a_mix_that_makes_no_sense_is_refused_with_its_key() {
        let of_image = |name: &str, decode: &str| {
            format!("[[column]]\nname = \"{name}\"\nfrom = \"png\"\ndecode = \"{decode}\"\nfollows = \"image\"")
        };
        let second = "[[column]]\nname = \"small\"\nfrom = \"jpg\"\ndecode = \"image\"\nops = [{ center_crop = 4 }]";
        for (mix, more, expected) in [
            ("", "", "`mix.mixup` is missing, and so is `cutmix`"),
            ("mixup = 0.001", "", "`mix.mixup` is 0.001; alpha is from 0.01 to 100"),
            ("cutmix = nan", "", "`mix.cutmix` is NaN"),
            ("mixup = 1, p = 1.5", "", "`mix.p` is 1.5, not in 0..1"),
            ("mixup = 1, cutmix_p = 0.5", "", "`mix.cutmix_p` needs both"),
            ("mixup = 1, colums = [\"image\"]", "", "mix: there is no key `colums`; did you mean `columns`?"),
            ("mixup = 1, columns = [\"image\"]", "", "has no labels that can be mixed"),
            ("mixup = 1, columns = [\"target\"]", "", "has no column of decode = \"image\""),
            ("mixup = 1, columns = [\"image\", \"nothing\"]", "", "has `nothing`, and the job has no such column"),
            ("mixup = 1, columns = [\"image\", \"target\", \"target\"]", "", "has `target` twice"),
            ("mixup = 1, columns = [\"image\", \"label\"]", "", "has `label`, whose numbers are whole"),
            (
                "mixup = 1",
                &of_image("mask", "mask"),
                "has `image`, which column `mask` follows: with decode = \"mask\"",
            ),
            (
                "mixup = 1",
                "[[column]]\nname = \"views\"\nfrom = \"jpg\"\ndecode = \"image\"\nops = [{ five_crop = 8 }]",
                "has `views`, whose operations make several pictures of one",
            ),
            (
                "mixup = 1",
                "[[column]]\nname = \"frames\"\nfrom = \"jpg\"\ndecode = \"image\"\nops = [{ center_crop = 8 }]\npictures = 2",
                "has `frames`, whose samples are lists of pictures",
            ),
            (
                "mixup = 1",
                "[[column]]\nname = \"deep\"\nfrom = \"png\"\ndecode = \"image\"\ndtype = \"u16\"\nops = [{ center_crop = 8 }]",
                "has `deep`, whose values are u16",
            ),
            ("mixup = 1", second, "has pictures of 4x4 and of 8x8; they need one size"),
        ] {
            let error = job(&format!("mix = {{ {mix} }}"), more).unwrap_err();
            assert!(error.contains(expected), "{mix}: {error}");
        }
        let apart = "columns = [\"image\", \"target\"]";
        job(&format!("mix = {{ mixup = 1, {apart} }}"), second).unwrap();
    }
}
