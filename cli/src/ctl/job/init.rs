//! `spdl-ctl job init`: writes a first job for a dataset, and one for validation where there is data for it.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use spdl_dataset::{DatasetError, split_of};
use spdl_job::{Job, is_name};
use spdl_store::StoreError;

use super::{
    super::{
        CtlError,
        look::LookArgs,
        output::{outln, shell_word, warn},
        report,
    },
    column_text,
};
use crate::suggest::{JobPurpose, SIZE, SeenDataset, SuggestedJob, SuggestionOptions};

/// Names of folders with the datasets of the splits.
const TRAINING: [&str; 2] = ["train", "training"];
const VALIDATION: [&str; 4] = ["val", "validation", "valid", "dev"];

/// Arguments of `job init`.
#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// Folder or URL of the dataset, or of a folder that has the datasets `train` and `val`.
    dataset: String,
    /// Folder or URL of the dataset for validation. Default: `val` beside `train`, if it is there.
    #[arg(long, value_name = "DATASET")]
    validation: Option<String>,
    /// The job file. That for validation is beside it: `val.toml`, or `NAME-val.toml` for `NAME.toml`.
    #[arg(long, value_name = "FILE", default_value = "train.toml")]
    out: PathBuf,
    /// Side of the pictures, in pixels. Pictures that all have one smaller size keep it.
    #[arg(long, value_name = "PIXELS", default_value_t = SIZE, value_parser = clap::value_parser!(u32).range(1..=16384))]
    size: u32,
    /// Samples of a batch. Default: 64, or fewer where they would take much memory.
    #[arg(long, value_name = "SAMPLES", value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    #[command(flatten)]
    look: LookArgs,
    /// Replaces files that are there.
    #[arg(long)]
    force: bool,
}

/// A job that is going to be written.
struct NewJob {
    path: PathBuf,
    suggested: SuggestedJob,
    job: Job,
}

/// Runs `job init`.
pub(super) async fn init(args: &InitArgs) -> Result<(), CtlError> {
    let (training, given) = training(args).await?;
    let validation = match &args.validation {
        Some(dataset) => Some((look(dataset, args).await?, dataset.clone())),
        None => beside(&given, args).await?,
    };
    let mut jobs = vec![NewJob::of(&training, None, &given, args.out.clone(), args)?];
    if let Some((validation, given)) = &validation {
        jobs.push(NewJob::of(validation, Some(&training), given, validation_file(&args.out), args)?);
    }
    // Either all files are written, or none.
    if let Some(there) = jobs.iter().find(|job| !args.force && job.differs()) {
        return Err(CtlError::JobFileThere { path: there.path.clone() });
    }
    for job in &jobs {
        job.write(args.force)?;
        job.print()?;
    }
    if let Some((validation, given)) = &validation {
        warn_of_classes(&training, validation, given);
    } else {
        warn_of_splits(&training, &given);
    }
    let files: Vec<String> = jobs.iter().map(|job| shell_word(&job.path.display().to_string())).collect();
    outln!("next: spdl-ctl dev up {}", files.join(" "))
}

/// Returns the dataset for training, and its place as a job says it.
async fn training(args: &InitArgs) -> Result<(SeenDataset, String), CtlError> {
    let dataset = &args.dataset;
    let error = match look(dataset, args).await {
        Err(CtlError::Dataset(error)) if is_missing(&error) => *error,
        seen => return Ok((seen?, dataset.clone())),
    };
    for name in TRAINING {
        let place = format!("{}/{name}", dataset.trim_end_matches('/'));
        if let Some(seen) = look_if_there(&place, args).await? {
            return Ok((seen, place));
        }
    }
    Err(error.into())
}

/// Returns the dataset for validation that lies beside one called `train`.
async fn beside(training: &str, args: &InitArgs) -> Result<Option<(SeenDataset, String)>, CtlError> {
    let Some((folder, name)) = training.trim_end_matches('/').rsplit_once('/').or(Some((".", training))) else {
        return Ok(None);
    };
    if !TRAINING.contains(&name) {
        return Ok(None);
    }
    for name in VALIDATION {
        let place = if folder == "." { name.to_owned() } else { format!("{folder}/{name}") };
        if let Some(seen) = look_if_there(&place, args).await? {
            return Ok(Some((seen, place)));
        }
    }
    Ok(None)
}

async fn look(dataset: &str, args: &InitArgs) -> Result<SeenDataset, CtlError> {
    Ok(SeenDataset::look(dataset, args.look.which()).await?)
}

async fn look_if_there(dataset: &str, args: &InitArgs) -> Result<Option<SeenDataset>, CtlError> {
    match look(dataset, args).await {
        Err(CtlError::Dataset(error)) if is_missing(&error) => Ok(None),
        seen => seen.map(Some),
    }
}

/// Returns whether there is no dataset; without permission to list a bucket, a store denies access to what it does not have.
const fn is_missing(error: &DatasetError) -> bool {
    matches!(error, DatasetError::Store(StoreError::Missing { .. } | StoreError::Denied { .. }))
}

/// Returns the path of the job file for validation.
fn validation_file(training: &Path) -> PathBuf {
    let stem = training.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = match stem.strip_suffix("train") {
        Some(before) => format!("{before}val"),
        None => format!("{stem}-val"),
    };
    training.with_file_name(format!("{stem}.toml"))
}

/// Warns of numbers that mean one class in training and another one in validation.
fn warn_of_classes(training: &SeenDataset, validation: &SeenDataset, place: &str) {
    let (ours, theirs) = (training.manifest().classes(), validation.manifest().classes());
    if let Some((number, (ours, theirs))) = ours.zip(theirs).enumerate().find(|(_, (ours, theirs))| ours != theirs) {
        warn(&format!(
            "class {number} is `{ours}` in training and `{theirs}` in `{place}`: make that dataset again with \
             `--classes-from`, which gives classes the numbers of another dataset"
        ));
    }
}

/// Warns of a dataset that holds the samples of several splits, which a job cannot tell apart.
fn warn_of_splits(training: &SeenDataset, place: &str) {
    let mut splits: Vec<_> = training.manifest().shards().filter_map(|shard| split_of(shard.url)).collect();
    splits.sort_unstable();
    splits.dedup();
    if splits.len() > 1 {
        let word = shell_word(place);
        warn(&format!(
            "the dataset has samples of {} in one, and the job reads all: `spdl-ctl index {word} --split {} --out DIR` makes a \
             dataset of one of them",
            splits.join(", "),
            splits[0]
        ));
    }
}

impl NewJob {
    /// Suggests the job for a dataset; with the dataset of its training, for validation.
    fn of(
        seen: &SeenDataset,
        training: Option<&SeenDataset>,
        given: &str,
        path: PathBuf,
        args: &InitArgs,
    ) -> Result<Self, CtlError> {
        let purpose = if training.is_some() { JobPurpose::Validation } else { JobPurpose::Training };
        let options = SuggestionOptions {
            purpose,
            name: job_name(&path),
            dataset: as_said_in(&path, given, seen),
            size: args.size,
            batch: args.batch,
        };
        let suggested = seen.job(&options, training);
        if suggested.columns == 0 {
            let fields = suggested.left_out.iter().map(|(name, why)| format!("`{name}`: {why}")).collect::<Vec<_>>();
            return Err(CtlError::NoColumns { dataset: seen.url().to_owned(), fields: fields.join("; ") });
        }
        let job = seen.checked(&suggested.text)?;
        Ok(Self { path, suggested, job })
    }

    /// Returns whether the file is there, with another text.
    fn differs(&self) -> bool {
        match fs::read(&self.path) {
            Ok(there) => there != self.suggested.text.as_bytes(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    fn write(&self, force: bool) -> Result<(), CtlError> {
        let file = if force || self.path.exists() { File::create(&self.path) } else { File::create_new(&self.path) };
        file.and_then(|mut file| file.write_all(self.suggested.text.as_bytes()))
            .map_err(|source| CtlError::WriteFile { path: self.path.clone(), source })
    }

    fn print(&self) -> Result<(), CtlError> {
        let Self { path, suggested, job } = self;
        let samples = match &job.sequence {
            None => report::count(job.samples, "sample", "samples"),
            Some(_) => report::count(job.samples, "document", "documents"),
        };
        outln!(
            "{}: job `{}`, {samples} of {}, {}{} in a batch",
            path.display(),
            job.name,
            job.dataset,
            job.sequence
                .as_ref()
                .map_or_else(String::new, |packed| format!("in sequences of {} tokens, ", packed.seq_len)),
            job.global_batch
        )?;
        for column in &job.columns {
            outln!("  {}", column_text(column))?;
        }
        suggested.left_out.iter().try_for_each(|(name, why)| outln!("  left out: `{}`: {why}", name.escape_debug()))
    }
}

/// Returns the name of the job in a file: that of the file, as far as a job can have it.
fn job_name(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let plain: String =
        stem.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' }).collect();
    if is_name(&plain) { plain } else { "first".to_owned() }
}

/// Returns the place of a dataset as the job file at `path` says it: a relative path stays one where it is relative to that file.
fn as_said_in(path: &Path, given: &str, seen: &SeenDataset) -> String {
    let is_here = path.parent().is_none_or(|folder| folder.as_os_str().is_empty());
    if is_here || given.contains("://") || Path::new(given).is_absolute() {
        given.to_owned()
    } else {
        seen.url().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_jobs_are_called_after_each_other() {
        for (training, validation) in [
            ("train.toml", "val.toml"),
            ("jobs/imagenet-train.toml", "jobs/imagenet-val.toml"),
            ("a.toml", "a-val.toml"),
        ] {
            assert_eq!(validation_file(Path::new(training)), Path::new(validation));
        }
        for (file, name) in [("train.toml", "train"), ("my job.toml", "my-job"), ("a/b.c.toml", "b.c"), ("", "first")] {
            assert_eq!(job_name(Path::new(file)), name);
        }
    }
}
