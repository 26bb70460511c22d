//! The keys of a job file whose value a job has as it is. Each has a file here with its default and what may be wrong with
//! it, and the table below lists them: the fields of [`JobFile`] and [`Job`], the job's form and what differs follow from it.

mod bad_samples;
mod cost;
mod epoch_end;
mod epochs;
mod global_batch;
mod max_bad_fraction;
mod seed;
mod total_samples;

use std::fmt::Debug;

use serde::{Deserialize, Serialize};
use spdl_order::{BlendStage, EpochEnd, OrderParams, Redaction};
use spdl_types::Fingerprint;

pub use self::bad_samples::BadSamples;
pub use self::cost::{CostName, CostTable, MeasuredSize, SampleCost, SampleCostFile, SizeName, SizeSource};
pub use self::max_bad_fraction::{DEFAULT_BAD_FRACTION, DEFAULT_BAD_SAMPLES};
use super::{
    Column, ColumnFile, FunctionFile, JobError, JobSource, JobSourceFile, JobStageFile, Mix, MixFile, OrderFile,
    Sequence, SequenceFile, ViewFile, check::wrong, form::OrderForm,
};

/// A key of a job file, and of the job that is made of it.
trait PlainKey {
    /// The value that a job has.
    type Value: Debug;

    /// Returns the value in the file, or the default for a dataset of so many samples.
    fn value(file: &JobFile, samples: u64) -> Self::Value;

    /// Checks a value.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check(_value: &Self::Value) -> Result<(), String> {
        Ok(())
    }

    /// Returns the value as messages show it.
    fn shown(value: &Self::Value) -> String {
        format!("{value:?}").to_lowercase()
    }
}

const fn yes() -> bool {
    true
}

/// Each line: the type of the key in a file, then its file here and the type in a job, with the attributes that its form has.
macro_rules! job_keys {
    ($($(#[$doc:meta])* $key:ident: $File:ty => $Key:path, $(#[$form:meta])* $Value:ty;)*) => {
        /// A job file: what is delivered, in which order, and as which arrays. Every key is explained in
        /// `docs/reference/job.md`.
        #[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[schemars(title = "A job of spdl-cluster")]
        pub struct JobFile {
            /// The name by which trainers ask for the job: 1 to 128 of `A-Z a-z 0-9 . _ -`.
            pub name: String,
            /// The folder or URL that `spdl-ctl pack` or `spdl-ctl index` wrote: a path, or `s3://`, `gs://`, `az://`,
            /// `http://`, `https://`, `hf://`. A relative path starts at the folder of the job file. Passwords do not belong
            /// here: credentials come from the environment of the store's client. Default: none, which needs `source`.
            #[serde(default, skip_serializing_if = "String::is_empty")]
            pub dataset: String,
            $($(#[$doc])* pub $key: $File,)*
            /// Whether samples are shuffled. If not, they come in the order of the manifest.
            #[serde(default = "yes")]
            pub shuffle: bool,
            /// How well samples are shuffled, against what it costs to read them. Default: chosen for the dataset when the job
            /// is created.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub order: Option<OrderFile>,
            /// Which samples of the dataset are delivered. Default: all.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub view: Option<ViewFile>,
            /// How samples are mixed in pairs, as in mixup and cutmix. Default: they are not mixed.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub mix: Option<MixFile>,
            /// How documents of tokens are packed into sequences of one length. Default: they are not; each document is a
            /// sample.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub sequence: Option<SequenceFile>,
            /// Several datasets that are blended by their weights, each in a table `[[source]]`, in place of `dataset`: 1 to 64.
            /// Default: none.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub source: Vec<JobSourceFile>,
            /// For jobs with `sequence`, in place of `total_samples`: the number of tokens, counted as places of sequences, after which the
            /// run ends; with `source`, those of an epoch. It is at least `seq_len`. Default: none; see `total_samples`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub total_tokens: Option<u64>,
            /// For jobs with `source`: other weights of the sources from a sample of the training on, each in a table `[[stage]]`, in
            /// the order of `from`: at most 64. It needs `total_samples` or `total_tokens`. Default: none; the weights stay.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub stage: Vec<JobStageFile>,
            /// Samples that do not come any more from a sample of the training on, each list in a table `[[redaction]]`, in the order of
            /// `from`: what `spdl-ctl job redact` has made of the job, so that the file alone gives the same batches. Default: none, and
            /// a job that is there keeps its own.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub redaction: Vec<Redaction>,
            /// The columns of a batch, in order, each in a table `[[column]]`. With those that functions add, a job has 1 to 64
            /// of them. Default: none, which needs a `function`.
            #[serde(default)]
            pub column: Vec<ColumnFile>,
            /// Functions of the user's that take several values of a sample and return several columns, each in a table
            /// `[[function]]`. Default: none.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub function: Vec<FunctionFile>,
        }

        /// A valid, frozen job.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "a job file has the same keys")]
        pub struct Job {
            /// The name that users give it: 1 to 128 of `[A-Za-z0-9._-]`.
            pub name: String,
            /// URL or path of the dataset's folder, where the manifest lies; empty if the job has sources.
            pub dataset: String,
            /// Fingerprint of the dataset's manifest, or of those of all sources.
            pub dataset_fingerprint: Fingerprint,
            /// Fingerprint of the samples of the dataset that the job delivers; `None` if these are all.
            pub view: Option<Fingerprint>,
            /// Number of samples of an epoch: those of the dataset, or of the view; the sequences that these are packed into; or
            /// `total_samples` of several sources. The `total_samples` of the job are then none.
            pub samples: u64,
            $(pub $key: $Value,)*
            /// The order's parameters.
            pub order: OrderParams,
            /// How samples are mixed; `None` if they are not.
            pub mix: Option<Mix>,
            /// How documents are packed into sequences; `None` if each document is a sample.
            pub sequence: Option<Box<Sequence>>,
            /// The sources whose datasets are blended; none if the job has one dataset.
            pub sources: Vec<JobSource>,
            /// Other weights of the sources, each from a sample on, in this order; none if the weights stay.
            pub stages: Vec<BlendStage>,
            /// Samples that do not come, each list from a sample on, in this order; none is in two of them.
            pub redactions: Vec<Redaction>,
            /// The fingerprints of the job as it was before each of its last changes, in this order.
            pub earlier: Vec<Fingerprint>,
            /// The columns of a batch, in order.
            pub columns: Vec<Column>,
        }

        /// The keys of a job in JSON.
        #[derive(Serialize, Deserialize)]
        #[serde(rename = "Job")]
        pub(super) struct JobForm {
            name: String,
            dataset: String,
            dataset_fingerprint: Fingerprint,
            samples: u64,
            $($(#[$form])* $key: $Value,)*
            order: OrderForm,
            columns: Vec<Column>,
        }

        impl From<Job> for JobForm {
            fn from(job: Job) -> Self {
                let OrderParams { version, lanes, window, shuffle } = job.order;
                let Job { name, dataset, dataset_fingerprint, view, samples, $($key,)* mix, sequence, sources, stages, redactions, earlier, columns, .. } = job;
                let order = OrderForm { version, lanes, window, shuffle, view, mix, sequence, sources, stages, redactions, earlier };
                Self { name, dataset, dataset_fingerprint, samples, $($key,)* order, columns }
            }
        }

        impl From<JobForm> for Job {
            fn from(form: JobForm) -> Self {
                let JobForm { name, dataset, dataset_fingerprint, samples, $($key,)* order, columns } = form;
                let OrderForm { version, lanes, window, shuffle, view, mix, sequence, sources, stages, redactions, earlier } = order;
                let order = OrderParams { version, lanes, window, shuffle };
                Self { name, dataset, dataset_fingerprint, view, samples, $($key,)* order, mix, sequence, sources, stages, redactions, earlier, columns }
            }
        }

        impl JobFile {
            /// Returns the job with the values of all keys here, for a dataset of so many samples; the caller knows the rest.
            pub(super) fn job(&self, dataset_fingerprint: Fingerprint, samples: u64, order: OrderParams) -> Job {
                let (name, dataset) = (self.name.clone(), self.dataset.clone());
                $(let $key = <$Key>::value(self, samples);)*
                let (view, mix, sequence, sources, stages, earlier, columns) = Default::default();
                let redactions = self.redaction.clone();
                Job { name, dataset, dataset_fingerprint, view, samples, $($key,)* order, mix, sequence, sources, stages, redactions, earlier, columns }
            }
        }

        impl Job {
            /// Checks the keys here, each by itself.
            pub(super) fn check_keys(&self) -> Result<(), JobError> {
                let key = |key, problem| wrong(&self.name, format!("`{key}`"), problem);
                $(<$Key>::check(&self.$key).map_err(|problem: String| key(stringify!($key), problem))?;)*
                Ok(())
            }

            /// Returns the keys here in which another job differs: the key, the value of this one, and the other value.
            #[must_use]
            pub fn differences(&self, other: &Self) -> Vec<(&'static str, String, String)> {
                let values = [$((stringify!($key), <$Key>::shown(&self.$key), <$Key>::shown(&other.$key)),)*];
                values.into_iter().filter(|(_, own, other)| own != other).collect()
            }
        }
    };
}

job_keys! {
    /// Decides the order and every random crop and flip.
    #[serde(default)]
    seed: u64 => seed::Seed, u64;
    /// Samples of one step over all ranks, 1 to 16777216; each rank gets an even share. With `sequence`, a sample is a
    /// sequence.
    global_batch: u32 => global_batch::GlobalBatch, u32;
    /// How often the job goes through the dataset, at least once.
    #[serde(default = "epochs::one")]
    epochs: u64 => epochs::Epochs, u64;
    /// For jobs with `source`: the number of samples of an epoch, at least 1. For jobs of one `dataset`: the number of samples, over all
    /// epochs, after which the run ends, with the last whole batch; it takes the place of `epochs`. Default: with `source`, as many as come
    /// until the first source has given all of its samples; of one `dataset`, its samples times `epochs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    total_samples: Option<u64> => total_samples::TotalSamples,
        #[serde(default, skip_serializing_if = "Option::is_none")] Option<u64>;
    /// What happens when fewer samples than a global batch are left in an epoch. Default: `drop`; `partial` for one
    /// epoch with `shuffle = false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epoch_end: Option<EpochEnd> => epoch_end::EpochEndKey, EpochEnd;
    /// What happens to a sample that does not decode or lacks a field. Default: `substitute`; `mask` for an evaluation,
    /// which is one epoch with `shuffle = false` that delivers every sample, and with `sequence`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bad_samples: Option<BadSamples> => bad_samples::BadSamplesKey, BadSamples;
    /// The job fails when more of the dataset's samples than this fraction are bad, 0 to 1. Default: 0.001, and at
    /// least ten samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_bad_fraction: Option<f64> => max_bad_fraction::MaxBadFraction,
        #[serde(deserialize_with = "super::form::exact")] f64;
    /// What a sample costs a trainer, by which the samples of a global batch are dealt to ranks: by the tokens of sequences, the pixels of
    /// pictures, the seconds of sounds or a field. Each rank gets as many as without it, the steps of ranks take about the same time, and
    /// no global batch changes. Default: none; ranks get what lies together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost: Option<SampleCostFile> => cost::CostKey,
        #[serde(default, skip_serializing_if = "Option::is_none")] Option<SampleCost>;
}
