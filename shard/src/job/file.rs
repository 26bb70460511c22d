//! A job as a user writes it (TOML, unknown keys refused), and the step from there to a valid [`Job`].

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{
    BadSamples, Column, ColumnKind, DType, DatasetFacts, EpochEnd, ImageColumn, ImageLayout, ImageOp, Job, JobError,
    Normalise, OrderParams,
};

/// The most pixels on a side, and the most bytes of a ragged sample: both bound a slot.
const MAX_SIDE: u32 = 16_384;
const MAX_RAGGED_BYTES: u32 = 1 << 30;
const DEFAULT_RAGGED_BYTES: u32 = 1 << 20;
const MAX_COLUMNS: usize = 64;

/// A job file. Every key is explained in `examples/imagenet-train.toml`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct JobFile {
    pub name: String,
    pub dataset: String,
    #[serde(default)]
    pub seed: u64,
    pub global_batch: u32,
    #[serde(default = "one")]
    pub epochs: u64,
    #[serde(default)]
    pub epoch_end: EpochEnd,
    #[serde(default)]
    pub bad_samples: BadSamples,
    #[serde(default = "default_bad_fraction")]
    pub max_bad_fraction: f64,
    #[serde(default = "yes")]
    pub shuffle: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderFile>,
    pub column: Vec<ColumnFile>,
}

/// The `[order]` table of a job file.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct OrderFile {
    pub lanes: Option<u32>,
    pub window: Option<u64>,
}

/// One `[[column]]` of a job file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct ColumnFile {
    pub name: String,
    pub from: String,
    pub decode: DecodeFile,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<ImageOp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<DType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<ImageLayout>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalise: Option<Normalise>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u32>,
}

/// The decoders a job file can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum DecodeFile {
    Image,
    Int,
    Json,
    Bytes,
    BoxClass,
}

const fn one() -> u64 {
    1
}
const fn yes() -> bool {
    true
}
const fn default_bad_fraction() -> f64 {
    0.001
}

/// Reports a key of `job` whose value makes no sense.
fn wrong(job: &str, key: impl Into<String>, problem: impl Into<String>) -> JobError {
    JobError::Key { job: job.to_owned(), key: key.into(), problem: problem.into() }
}

impl JobFile {
    /// Reads a job file's text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`JobError::Syntax`] with line and column.
    pub fn parse(text: &str, origin: &str) -> Result<Self, JobError> {
        toml::from_str(text).map_err(|source| JobError::Syntax { origin: origin.to_owned(), source: Box::new(source) })
    }

    /// Checks every key and freezes the order for a dataset.
    ///
    /// # Errors
    /// [`JobError::Key`] for the first value that makes no sense, [`JobError::Empty`] for a dataset without samples.
    pub fn freeze(&self, facts: &DatasetFacts) -> Result<Job, JobError> {
        let columns = self.check()?;
        if facts.samples == 0 {
            return Err(JobError::Empty { job: self.name.clone(), dataset: self.dataset.clone() });
        }
        let mut order = OrderParams::default_for(facts, self.global_batch, self.shuffle);
        let written = self.order.unwrap_or_default();
        if let Some(lanes) = written.lanes {
            if u64::from(lanes) > facts.samples {
                let problem = format!("is {lanes}, more than the dataset's {} samples", facts.samples);
                return Err(wrong(&self.name, "`order.lanes`", problem));
            }
            order.lanes = lanes;
        }
        if let Some(window) = written.window {
            order.window = window;
        }
        Ok(Job {
            name: self.name.clone(),
            dataset: self.dataset.clone(),
            dataset_fingerprint: facts.fingerprint,
            samples: facts.samples,
            seed: self.seed,
            global_batch: self.global_batch,
            epochs: self.epochs,
            epoch_end: self.epoch_end,
            bad_samples: self.bad_samples,
            max_bad_fraction: self.max_bad_fraction,
            order,
            columns,
        })
    }

    /// Checks all that can be checked without the dataset.
    ///
    /// # Errors
    /// [`JobError::Key`] for the first value that makes no sense.
    pub fn check(&self) -> Result<Vec<Column>, JobError> {
        let job = self.name.as_str();
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if job.is_empty() || job.len() > 128 || !job.chars().all(allowed) {
            return Err(wrong(job, "`name`", "must be 1 to 128 of A-Z a-z 0-9 . _ -"));
        }
        if self.dataset.is_empty() {
            return Err(wrong(job, "`dataset`", "is empty; give the folder or URL that `spdl-ctl pack` wrote"));
        }
        if self.global_batch == 0 {
            return Err(wrong(job, "`global_batch`", "must be at least 1"));
        }
        if self.epochs == 0 {
            return Err(wrong(job, "`epochs`", "must be at least 1"));
        }
        if !(0.0..=1.0).contains(&self.max_bad_fraction) {
            return Err(wrong(job, "`max_bad_fraction`", format!("is {}, not in 0..1", self.max_bad_fraction)));
        }
        if let Some(order) = self.order {
            if order.lanes == Some(0) {
                return Err(wrong(job, "`order.lanes`", "must be at least 1"));
            }
            if order.window == Some(0) {
                return Err(wrong(job, "`order.window`", "must be at least 1"));
            }
        }
        if self.column.is_empty() || self.column.len() > MAX_COLUMNS {
            return Err(wrong(job, "`column`", format!("must be there 1 to {MAX_COLUMNS} times")));
        }
        let mut names = HashSet::new();
        self.column
            .iter()
            .map(|column| {
                if !names.insert(column.name.as_str()) {
                    return Err(wrong(job, format!("column `{}`", column.name), "is there twice"));
                }
                column.check(job)
            })
            .collect()
    }
}

impl ColumnFile {
    fn check(&self, job: &str) -> Result<Column, JobError> {
        let fail = |key: &str, problem: String| Err(wrong(job, format!("column `{}`: `{key}`", self.name), problem));
        if self.name.is_empty() {
            return fail("name", "is empty".to_owned());
        }
        let from: Vec<String> = self.from.split('|').map(|field| field.trim().to_owned()).collect();
        if from.iter().any(String::is_empty) {
            return fail("from", format!("is `{}`; name a field, or several as `jpg|png`", self.from));
        }
        for (key, set, decoder) in [
            ("ops", !self.ops.is_empty(), DecodeFile::Image),
            ("layout", self.layout.is_some(), DecodeFile::Image),
            ("normalise", self.normalise.is_some(), DecodeFile::Image),
            ("path", self.path.is_some(), DecodeFile::Json),
            ("max_bytes", self.max_bytes.is_some(), DecodeFile::Bytes),
        ] {
            if set && self.decode != decoder {
                return fail(key, format!("is only for decode = \"{}\"", decoder.name()));
            }
        }
        let (kind, dtypes): (_, &[DType]) = match self.decode {
            DecodeFile::Image => {
                (ColumnKind::Image(self.image(job)?), &[DType::U8, DType::F32, DType::F16, DType::Bf16])
            }
            DecodeFile::Int => (ColumnKind::Int, &[DType::I64, DType::I32]),
            DecodeFile::BoxClass => (ColumnKind::BoxClass, &[DType::I64, DType::I32]),
            DecodeFile::Json => match self.path.as_deref() {
                Some(path) if !path.is_empty() => (
                    ColumnKind::Json { path: path.split('.').map(str::to_owned).collect() },
                    &[DType::F64, DType::F32, DType::I64, DType::I32],
                ),
                _ => return fail("path", "is missing; write the keys to the number, as `camera.exposure`".to_owned()),
            },
            DecodeFile::Bytes => {
                let max_bytes = self.max_bytes.unwrap_or(DEFAULT_RAGGED_BYTES);
                if max_bytes == 0 || max_bytes > MAX_RAGGED_BYTES {
                    return fail("max_bytes", format!("is {max_bytes}, not in 1..={MAX_RAGGED_BYTES}"));
                }
                (ColumnKind::Bytes { max_bytes }, &[DType::U8])
            }
        };
        let dtype = self.dtype.unwrap_or(dtypes[0]);
        if !dtypes.contains(&dtype) {
            return fail(
                "dtype",
                format!("cannot be {dtype:?} for decode = \"{}\"", self.decode.name()).to_lowercase(),
            );
        }
        if dtype == DType::U8 && self.normalise.is_some() {
            return fail("normalise", "needs a float type; add dtype = \"f32\", \"f16\" or \"bf16\"".to_owned());
        }
        Ok(Column { name: self.name.clone(), from, kind, dtype })
    }

    fn image(&self, job: &str) -> Result<ImageColumn, JobError> {
        let fail = |key: &str, problem: String| Err(wrong(job, format!("column `{}`: `{key}`", self.name), problem));
        let mut size = None;
        for op in &self.ops {
            match op {
                ImageOp::RandomResizedCrop { scale, ratio, .. } => {
                    let ordered = |[low, high]: [f32; 2]| low > 0.0 && low <= high && high.is_finite();
                    if !ordered(*scale) || scale[1] > 1.0 {
                        return fail("scale", format!("is {scale:?}; give [low, high] with 0 < low <= high <= 1"));
                    }
                    if !ordered(*ratio) {
                        return fail("ratio", format!("is {ratio:?}; give [low, high] with 0 < low <= high"));
                    }
                }
                ImageOp::RandomFlip { p } if !(0.0..=1.0).contains(p) => {
                    return fail("random_flip", format!("has p = {p}, not in 0..1"));
                }
                ImageOp::CropBox { margin, .. } if !(0.0..=10.0).contains(margin) => {
                    return fail("crop_box", format!("has margin = {margin}, not in 0..10"));
                }
                _ => {}
            }
            if let ImageOp::RandomResizedCrop { size, .. } | ImageOp::Resize { size } | ImageOp::CenterCrop { size } =
                op
                && size.height_width().iter().any(|side| !(1..=MAX_SIDE).contains(side))
            {
                return fail("size", format!("is {:?} pixels, not in 1..={MAX_SIDE}", size.height_width()));
            }
            size = op.output_size(size);
        }
        let Some(size) = size else {
            return fail(
                "ops",
                "leave pictures of different sizes; end with random_resized_crop, center_crop or \
                               resize = { size = [height, width] }"
                    .to_owned(),
            );
        };
        if let Some(normalise) = &self.normalise
            && (normalise.std.iter().any(|std| !std.is_normal()) || normalise.mean.iter().any(|mean| !mean.is_finite()))
        {
            return fail("normalise", "has a std of zero or a value that is no number".to_owned());
        }
        Ok(ImageColumn {
            ops: self.ops.clone(),
            layout: self.layout.unwrap_or_default(),
            normalise: self.normalise,
            size,
        })
    }
}

impl DecodeFile {
    const fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Int => "int",
            Self::Json => "json",
            Self::Bytes => "bytes",
            Self::BoxClass => "box_class",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fingerprint;

    const FACTS: DatasetFacts = DatasetFacts { fingerprint: Fingerprint(7), samples: 1_281_167, blocks: 14_000 };

    fn example() -> String {
        r#"
            name = "imagenet-train"
            dataset = "s3://bucket/imagenet/train"
            seed = 17
            global_batch = 2048
            epochs = 90
            [[column]]
            name = "image"
            from = "jpg|png"
            decode = "image"
            ops = [{ random_resized_crop = { size = 224 } }, { random_flip = {} }]
            layout = "nhwc"
            [[column]]
            name = "label"
            from = "cls"
            decode = "int"
        "#
        .to_owned()
    }

    fn error_of(text: &str) -> String {
        JobFile::parse(text, "job.toml").and_then(|file| file.freeze(&FACTS)).unwrap_err().to_string()
    }

    #[test]
    fn the_example_of_the_design_is_valid() {
        let job = JobFile::parse(&example(), "job.toml").unwrap().freeze(&FACTS).unwrap();
        assert_eq!(job.order.lanes, 128, "the largest divisor of 2048 that leaves 64 of 14000 blocks per lane");
        assert_eq!(job.columns[0].from, ["jpg", "png"]);
        assert_eq!(job.columns[0].sample_shape(), Some(vec![224, 224, 3]));
        assert_eq!(job.columns[1].dtype, DType::I64);
    }

    #[test]
    fn a_job_survives_its_own_serialisation() {
        let job = JobFile::parse(&example(), "job.toml").unwrap().freeze(&FACTS).unwrap();
        let back: Job = serde_json::from_slice(&serde_json::to_vec(&job).unwrap()).unwrap();
        assert_eq!(back, job);
        assert_eq!(back.fingerprint(), job.fingerprint());
    }

    #[test]
    fn the_fingerprint_follows_the_stream_and_nothing_else() {
        let job = JobFile::parse(&example(), "job.toml").unwrap().freeze(&FACTS).unwrap();
        let same = Job { name: "other".into(), global_batch: 64, epochs: 3, ..job.clone() };
        assert_eq!(same.fingerprint(), job.fingerprint());
        let other = Job { seed: 18, ..job.clone() };
        assert_ne!(other.fingerprint(), job.fingerprint());
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error = error_of(&example().replace("seed = 17", "sede = 17"));
        assert!(error.contains("job.toml") && error.contains("`sede`"), "{error}");
    }

    #[test]
    fn a_value_that_makes_no_sense_is_named_with_what_would_be_right() {
        for (from, to, expected) in [
            ("global_batch = 2048", "global_batch = 0", "`global_batch`"),
            ("epochs = 90", "epochs = 0", "`epochs`"),
            ("imagenet-train", "image net", "`name`"),
            ("size = 224", "size = 0", "`size`"),
            ("ops = [{ random_resized_crop = { size = 224 } }, ", "ops = [", "different sizes"),
            ("name = \"label\"", "name = \"image\"", "twice"),
            ("decode = \"int\"", "decode = \"int\"\ndtype = \"u8\"", "dtype"),
            ("decode = \"int\"", "decode = \"json\"", "`path`"),
            ("layout = \"nhwc\"", "normalise = { mean = [0.5,0.5,0.5], std = [1,1,1] }", "float type"),
            ("seed = 17", "order = { lanes = 0 }", "`order.lanes`"),
        ] {
            let error = error_of(&example().replace(from, to));
            assert!(error.contains(expected), "{to}: {error}");
        }
    }
}
