//! The rules that every job has to satisfy, whether a user wrote it or a peer sent it: [`Job::check`].

use std::collections::BTreeSet;

use super::{
    BadSamples, Column, ColumnKind, Job, JobError, MeasuredSize, Sequence, SizeSource, decoded_columns, is_name,
    reader::{nearest_name, shown},
    sequence::NO_MIX,
};
use spdl_types::DType;

/// Upper limits of the pixels on a side of a picture, and of the bytes of a sample of another kind: both bound the size of a
/// slot.
pub(super) const MAX_SIDE: u32 = 16_384;
pub(super) const MAX_SAMPLE_BYTES: u32 = 1 << 30;
/// Upper limit of the dimensions of an array.
const MAX_DIMENSIONS: usize = 8;
/// Maximum number of a dataset's names that an error lists.
const MAX_LISTED: usize = 20;
/// Upper limit of the number of columns of a job.
pub const MAX_COLUMNS: usize = 64;
/// Upper limit of the samples that a job delivers in all its epochs, so that sums of positions cannot overflow.
const MAX_DELIVERED: u64 = 1 << 62;

/// Returns the error for a key of `job` with an invalid value.
pub(super) fn wrong(job: &str, key: impl Into<String>, problem: impl Into<String>) -> JobError {
    JobError::Key { job: job.to_owned(), key: key.into(), problem: problem.into() }
}

/// Returns the error of a key of `job` that has something which the dataset lacks, with what may be meant by `name` among the `known`
/// names; `all` introduces these. The key is that of a column or a function, as `` column `a`: `from` ``.
#[must_use]
pub fn named_in_dataset(
    job: &str,
    key: String,
    problem: String,
    (name, known): (&str, &[&str]),
    all: &str,
) -> JobError {
    let listed = known.iter().take(MAX_LISTED).map(|name| shown(name)).collect::<Vec<_>>().join(", ");
    let more = match known.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let there = match nearest_name(name, known) {
        Some(nearest) => format!("; did you mean `{nearest}`? {all} {listed}{more}"),
        None if known.is_empty() => String::new(),
        None => format!("; {all} {listed}{more}"),
    };
    wrong(job, key, format!("{problem}{there}"))
}

/// Checks the shape of one sample, with elements of type `dtype`.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check_shape(shape: &[u32], dtype: DType) -> Result<(), String> {
    let bytes = shape.iter().try_fold(dtype.bytes() as u64, |bytes, side| bytes.checked_mul((*side).into()));
    let fits = bytes.is_some_and(|bytes| (1..=u64::from(MAX_SAMPLE_BYTES)).contains(&bytes));
    if fits && shape.len() <= MAX_DIMENSIONS {
        return Ok(());
    }
    let shown = &shape[..shape.len().min(MAX_DIMENSIONS + 1)];
    Err(format!(
        "is {shown:?}, not at most {MAX_DIMENSIONS} sides of at least 1 that make at most {MAX_SAMPLE_BYTES} bytes"
    ))
}

impl Job {
    /// Checks what can be checked without the dataset.
    pub(super) fn check_parts(&self) -> Result<(), JobError> {
        let Self { name, dataset, order, columns, sequence, sources, .. } = self;
        if !is_name(name) {
            let name: String = name.chars().take(128).collect();
            return Err(wrong(&name, "`name`", "must be 1 to 128 of A-Z a-z 0-9 . _ -"));
        }
        if !sources.is_empty() {
            self.check_sources()?;
        } else if dataset.is_empty() {
            return Err(wrong(name, "`dataset`", "is missing; give the folder or URL that `spdl-ctl pack` wrote"));
        }
        if let Some(problem) = crate::secret_in(dataset) {
            return Err(wrong(name, "`dataset`", problem));
        }
        self.check_keys()?;
        if order.lanes == 0 {
            return Err(wrong(name, "`order.lanes`", "must be at least 1"));
        }
        if order.window == 0 {
            return Err(wrong(name, "`order.window`", "must be at least 1"));
        }
        if columns.is_empty() || columns.len() > MAX_COLUMNS {
            return Err(wrong(name, "`column`", format!("must be there 1 to {MAX_COLUMNS} times")));
        }
        let mut names = BTreeSet::new();
        for column in columns {
            if !names.insert(column.name.as_str()) {
                return Err(wrong(name, format!("column `{}`", column.name), "appears twice"));
            }
            column
                .check(columns)
                .map_err(|(key, problem)| wrong(name, format!("column `{}`: `{key}`", column.name), problem))?;
        }
        let has_sequences =
            |column: &Column| matches!(&column.kind, ColumnKind::Tokens(kind) if kind.seq_len.is_some());
        self.check_cost().map_err(|problem| wrong(name, "`cost`", problem))?;
        match sequence {
            Some(sequence) => self.check_sequence(sequence),
            None if decoded_columns(columns).any(has_sequences) => {
                Err(wrong(name, "`sequence`", "is missing, and a column has sequences"))
            }
            None => Ok(()),
        }
    }

    /// Checks that samples of the job have the size by which they are to be dealt to ranks.
    fn check_cost(&self) -> Result<(), String> {
        let Self { columns, mix, sequence, sources, cost, order, .. } = self;
        let Some(cost) = cost else { return Ok(()) };
        let problem = match cost.measured {
            None if sequence.is_none() => {
                "needs `sequence`, whose documents' tokens it counts; samples that are not packed have \"pixels\", \"seconds\" or { field = \
                 \"length\" }, or leave `cost` out"
            }
            None => return Ok(()),
            Some(_) if sequence.is_some() => {
                "is of what samples have that are not packed, and these samples are sequences of tokens: write \"tokens\" or \"tokens^2\""
            }
            Some(_) if !sources.is_empty() => {
                "is measured of the samples of one dataset, and the job has several sources: leave `cost` out, or give one `dataset`"
            }
            Some(MeasuredSize { bucket: Some(_), .. }) if !order.shuffle => {
                "has a `bucket`, and samples come in their order, as `shuffle` is false: leave `bucket` out"
            }
            Some(_) if mix.is_some() => {
                "cannot be there with `mix`: the two samples of a pair would be on different ranks, each of which decodes both; leave one out"
            }
            Some(MeasuredSize { of: SizeSource::Field, .. }) => return Ok(()),
            Some(MeasuredSize { of: SizeSource::Pixels, .. })
                if decoded_columns(columns).any(|column| matches!(column.kind, ColumnKind::Image(_))) =>
            {
                return Ok(());
            }
            Some(MeasuredSize { of: SizeSource::Pixels, .. }) => "is of pixels, and no column has decode = \"image\"",
            Some(MeasuredSize { of: SizeSource::Seconds, .. }) => {
                let sound = decoded_columns(columns).find_map(|column| match &column.kind {
                    ColumnKind::Audio(audio) => Some((&column.name, audio)),
                    _ => None,
                });
                return match sound {
                    None => Err("is of seconds, and no column has decode = \"audio\"".to_owned()),
                    Some((name, audio)) if audio.segment.is_some() => Err(format!(
                        "is of seconds, and column `{name}` has a `segment`, so that all samples have as many; leave `cost` out"
                    )),
                    Some(_) => Ok(()),
                };
            }
        };
        Err(problem.to_owned())
    }

    /// Checks that the job can have these sequences.
    fn check_sequence(&self, sequence: &Sequence) -> Result<(), JobError> {
        let Self { name, columns, mix, bad_samples, .. } = self;
        for column in columns {
            Sequence::check_column(column, columns)
                .map_err(|(key, problem)| wrong(name, format!("column `{}`: `{key}`", column.name), problem))?;
        }
        sequence.check(columns).map_err(|(key, problem)| wrong(name, format!("`sequence.{key}`"), problem))?;
        if mix.is_some() {
            return Err(wrong(name, "`mix`", NO_MIX));
        }
        if *bad_samples == BadSamples::Substitute {
            let problem = "cannot be `substitute` in a job with `sequence`, whose places are fixed: write \"mask\", the default \
                           there, which leaves a bad document without labels, or \"fail\"";
            return Err(wrong(name, "`bad_samples`", problem));
        }
        Ok(())
    }

    /// Checks that a job file can describe this job. A job that a peer sent may have any values.
    ///
    /// # Errors
    /// [`JobError::Key`] for the first invalid value, [`JobError::Empty`] for a dataset without samples,
    /// [`JobError::NoBatch`] if the samples never fill a batch.
    pub fn check(&self) -> Result<(), JobError> {
        let Self { name, dataset, epochs, columns, .. } = self;
        self.check_parts()?;
        if let Some(mix) = &self.mix {
            mix.check(columns).map_err(|(key, problem)| wrong(name, format!("`mix.{key}`"), problem))?;
        }
        if self.samples == 0 {
            return Err(JobError::Empty { job: name.clone(), dataset: dataset.clone() });
        }
        if self.samples.checked_mul(*epochs).is_none_or(|samples| samples > MAX_DELIVERED) {
            let problem = format!("is {epochs}: with {} samples each that is more than 2^62 in all", self.samples);
            return Err(wrong(name, "`epochs`", problem));
        }
        self.check_sound_datasets()?;
        self.check_redactions()?;
        self.check_earlier()?;
        self.batches(self.global_batch)
            .check(self.samples)
            .map_err(|source| JobError::NoBatch { job: name.clone(), source })?;
        // The lanes of each source are checked with it.
        if self.sources.is_empty() && u64::from(self.order.lanes) > self.samples {
            let problem = format!("is {}, more than the dataset's {} samples", self.order.lanes, self.samples);
            return Err(wrong(name, "`order.lanes`", problem));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnKind, JsonColumn};
    use spdl_order::EpochEnd;
    use spdl_types::DType;

    fn job() -> Job {
        let columns = "[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\nops = [{ random_resized_crop = { size = 8 } }]\n\
            [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"";
        crate::testing::job_of(columns).unwrap()
    }

    /// A change that a peer could make to a job.
    type JobEdit = fn(&mut Job);

    #[test]
    fn a_job_that_no_job_file_describes_is_refused() {
        job().check().unwrap();
        let changes: [(JobEdit, &str); 12] = [
            (|job| job.global_batch = 101, "the 100 samples of an epoch (1 in all) never fill it"),
            (
                |job| (job.global_batch, job.epochs, job.epoch_end) = (301, 3, EpochEnd::Continuous),
                "(3 in all) never fill it",
            ),
            (|job| job.samples = 0, "no samples"),
            (|job| job.epochs = u64::MAX, "2^62"),
            (|job| job.order.lanes = 101, "`order.lanes`"),
            (|job| job.order.window = 0, "`order.window`"),
            (|job| job.columns.clear(), "1 to 64 times"),
            (|job| job.columns[1].dtype = DType::U8, "`dtype`"),
            (|job| job.columns[0].dtype = DType::I64, "`dtype`"),
            (|job| job.columns[1].kind = ColumnKind::Json(JsonColumn { path: vec![] }), "`dtype`"),
            (|job| job.columns[1].from.clear(), "`from`"),
            (
                |job| match &mut job.columns[0].kind {
                    ColumnKind::Image(image) => image.size = [u32::MAX; 2],
                    other => panic!("{other:?}"),
                },
                "do not end in pictures of [4294967295",
            ),
        ];
        for (number, (change, expected)) in changes.into_iter().enumerate() {
            let mut job = job();
            change(&mut job);
            let error = job.check().map_err(|error| error.to_string()).unwrap_err();
            // Case 9 has another error: integers may come from a JSON document too, so its type is valid, but its path
            // is missing.
            assert!(error.contains(expected) || number == 9, "{expected}: {error}");
        }
    }
}
