//! A job as a user writes it (TOML, unknown keys refused), and the step from there to a valid [`Job`].

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    BadSamples, Column, DType, DatasetFacts, Decoded, EpochEnd, ImageColumn, ImageLayout, ImageOp, Job, JobError,
    Normalise, OrderParams, ReturnsFile, Transform,
    check::{Keys, wrong},
};

/// Longest text of a job file, in bytes.
pub const MAX_JOB_FILE_BYTES: usize = 1 << 20;
const DEFAULT_RAGGED_BYTES: u32 = 1 << 20;

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returns: Option<ReturnsFile>,
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

impl JobFile {
    /// Reads the job file at `path`. A relative `dataset` in it is relative to the folder that it lies in.
    ///
    /// # Errors
    /// [`JobError::Unreadable`], and as [`parse`](Self::parse).
    pub fn open(path: &Path) -> Result<Self, JobError> {
        let shown = path.display().to_string();
        let fail = |source| JobError::Unreadable { path: shown.clone(), source };
        let bytes = std::fs::metadata(path).map_err(fail)?.len();
        if bytes > MAX_JOB_FILE_BYTES as u64 {
            return Err(JobError::TooLong { origin: shown, bytes: usize::try_from(bytes).unwrap_or(usize::MAX) });
        }
        let text = std::fs::read_to_string(path).map_err(fail)?;
        Ok(Self::parse(&text, &shown)?.beside(path))
    }

    /// The same job, with a relative `dataset` taken from the folder that the job file at `path` lies in.
    #[must_use]
    pub fn beside(mut self, path: &Path) -> Self {
        let is_relative =
            !self.dataset.is_empty() && !self.dataset.contains("://") && Path::new(&self.dataset).is_relative();
        let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned));
        if let Some(folder) = folder.filter(|_| is_relative) {
            // `./data` and `data` are the same dataset to whoever compares them.
            let parts = folder.components().chain(Path::new(&self.dataset).components());
            let parts = parts.filter(|part| *part != Component::CurDir);
            self.dataset = parts.collect::<PathBuf>().display().to_string();
        }
        self
    }

    /// Reads a job file's text; `origin` names it in errors.
    ///
    /// # Errors
    /// [`JobError::TooLong`] beyond [`MAX_JOB_FILE_BYTES`], [`JobError::Syntax`] with line and column.
    pub fn parse(text: &str, origin: &str) -> Result<Self, JobError> {
        if text.len() > MAX_JOB_FILE_BYTES {
            return Err(JobError::TooLong { origin: origin.to_owned(), bytes: text.len() });
        }
        toml::from_str(text).map_err(|source| JobError::Syntax { origin: origin.to_owned(), source: Box::new(source) })
    }

    /// Checks every key and freezes the order for a dataset.
    ///
    /// # Errors
    /// [`JobError::Key`] for the first value that makes no sense, [`JobError::Empty`] for a dataset without samples.
    pub fn freeze(&self, facts: &DatasetFacts) -> Result<Job, JobError> {
        let columns = self.check()?;
        let mut order = OrderParams::default_for(facts, self.global_batch, self.shuffle);
        let written = self.order.unwrap_or_default();
        order.lanes = written.lanes.unwrap_or(order.lanes);
        order.window = written.window.unwrap_or(order.window);
        let job = Job {
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
        };
        job.check()?;
        Ok(job)
    }

    /// Checks all that can be checked without the dataset.
    ///
    /// # Errors
    /// [`JobError::Key`] for the first value that makes no sense.
    pub fn check(&self) -> Result<Vec<Column>, JobError> {
        let columns = self.column.iter().map(|column| column.read(&self.name)).collect::<Result<Vec<_>, _>>()?;
        Keys {
            name: &self.name,
            dataset: &self.dataset,
            global_batch: self.global_batch,
            epochs: self.epochs,
            max_bad_fraction: self.max_bad_fraction,
            order: self.order.unwrap_or_default(),
            columns: &columns,
        }
        .check()?;
        Ok(columns)
    }
}

impl ColumnFile {
    /// The column as it is written, without a look at its values.
    fn read(&self, job: &str) -> Result<Column, JobError> {
        let fail = |key: &str, problem: String| Err(wrong(job, format!("column `{}`: `{key}`", self.name), problem));
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
        if self.returns.is_some() && self.transform.is_none() {
            return fail("returns", "is only for a column with `transform`".to_owned());
        }
        let Some(decoded) = self.decoded() else {
            let problem = "leave pictures of different sizes; end with random_resized_crop, center_crop or \
                           resize = { size = [height, width] }";
            return fail("ops", problem.to_owned());
        };
        let from = self.from.split('|').map(|field| field.trim().to_owned()).collect();
        let dtype = self.dtype.unwrap_or(decoded.dtypes()[0]);
        let (kind, dtype) = match &self.transform {
            None => (decoded.into(), dtype),
            Some(function) => {
                match Transform::read(function, self.returns.clone().unwrap_or_default(), decoded, dtype) {
                    Ok(made) => made,
                    Err((key, problem)) => return fail(key, problem.to_owned()),
                }
            }
        };
        Ok(Column { name: self.name.clone(), from, kind, dtype })
    }

    /// How the field is decoded; `None` for pictures that the steps leave in different sizes.
    fn decoded(&self) -> Option<Decoded> {
        Some(match self.decode {
            DecodeFile::Image => {
                let size = ImageColumn::final_size(&self.ops)?;
                let (ops, layout) = (self.ops.clone(), self.layout.unwrap_or_default());
                Decoded::Image(ImageColumn { ops, layout, normalise: self.normalise, size })
            }
            DecodeFile::Int => Decoded::Int,
            DecodeFile::BoxClass => Decoded::BoxClass,
            DecodeFile::Json => {
                let path = self.path.as_deref().filter(|path| !path.is_empty());
                Decoded::Json { path: path.into_iter().flat_map(|path| path.split('.')).map(str::to_owned).collect() }
            }
            DecodeFile::Bytes => Decoded::Bytes { max_bytes: self.max_bytes.unwrap_or(DEFAULT_RAGGED_BYTES) },
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
    fn a_relative_dataset_is_relative_to_its_job_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs/a.toml");
        std::fs::create_dir(folder.path().join("jobs")).unwrap();
        let inside = |name: &str| folder.path().join(name).display().to_string();
        for (written, expected) in [
            ("packed", inside("jobs/packed")),
            ("./packed", inside("jobs/packed")),
            ("../packed", inside("jobs/../packed")),
            ("/data/packed", "/data/packed".to_owned()),
            ("s3://bucket/packed", "s3://bucket/packed".to_owned()),
            ("", String::new()),
        ] {
            std::fs::write(&path, example().replace("s3://bucket/imagenet/train", written)).unwrap();
            assert_eq!(JobFile::open(&path).unwrap().dataset, expected, "{written}");
        }
        let error = JobFile::open(&path.with_extension("json")).unwrap_err().to_string();
        assert!(error.contains("a.json` cannot be read"), "{error}");
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
