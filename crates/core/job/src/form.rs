//! The form of a job in the coordinator's state and in messages: one JSON text, in which kinds of columns, operations
//! and types of elements are named. So a new kind or operation needs no new version of the protocol, and a program that
//! does not know it can name it in an error.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};
use serde_json::value::RawValue;

use super::{
    BadSamples, Column, Job, Mix,
    reader::{shortened, shown},
};
use spdl_order::{EpochEnd, OrderParams};
use spdl_types::Fingerprint;

/// Length of the longest error about the text of a job, in characters: a peer may send any text.
const MAX_ERROR: usize = 300;

#[derive(Serialize, Deserialize)]
#[serde(rename = "Job")]
struct JobForm {
    name: String,
    dataset: String,
    dataset_fingerprint: Fingerprint,
    samples: u64,
    seed: u64,
    global_batch: u32,
    epochs: u64,
    epoch_end: EpochEnd,
    bad_samples: BadSamples,
    #[serde(deserialize_with = "exact")]
    max_bad_fraction: f64,
    order: OrderForm,
    columns: Vec<Column>,
}

/// The order's parameters, and what else decides which samples come.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Order")]
struct OrderForm {
    version: u32,
    lanes: u32,
    window: u64,
    shuffle: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    view: Option<Fingerprint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mix: Option<Mix>,
}

impl Serialize for Job {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return JobForm::from(self.clone()).serialize(serializer);
        }
        serializer.serialize_str(&text(self).map_err(S::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for Job {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return JobForm::deserialize(deserializer).map(Self::from);
        }
        read(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Returns the text of a job in a message.
fn text(job: &Job) -> serde_json::Result<String> {
    serde_json::to_string(&JobForm::from(job.clone()))
}

/// Reads the text of a job in a message. It refuses a text that this program would write in another way: the text may
/// have a key of a later release, and a program that ignores the key would make other batches than its peers.
///
/// # Errors
/// What is wrong with the text, in words.
fn read(message: &str) -> Result<Job, String> {
    let ours = env!("CARGO_PKG_VERSION");
    let job = serde_json::from_str::<JobForm>(message).map(Job::from).map_err(|error| {
        let problem = error.to_string();
        // The readers of the error cannot see the text, so a place in it is of no use.
        let place = format!(" at line {} column {}", error.line(), error.column());
        let problem = problem.strip_suffix(place.as_str()).unwrap_or(&problem);
        match problem.strip_prefix("unknown variant `").and_then(|rest| rest.split_once("`, expected ")) {
            Some((name, _)) => format!("`{}` is unknown to spdl-cluster {ours}: a later release knows it", shown(name)),
            None => shortened(problem, MAX_ERROR),
        }
    })?;
    if text(&job).is_ok_and(|text| text == message) {
        return Ok(job);
    }
    Err(format!("the job is not as spdl-cluster {ours} writes it: install the same release on both sides"))
}

/// Reads a JSON number exactly; the parser alone may change its last bit.
pub(super) fn exact<'de, D: Deserializer<'de>>(json: D) -> Result<f64, D::Error> {
    exact_or_null(json)?.ok_or_else(|| D::Error::custom("null is not a number"))
}

/// Reads a number, or null.
pub(super) fn exact_or_null<'de, D: Deserializer<'de>>(json: D) -> Result<Option<f64>, D::Error> {
    let Some(text) = Option::<Box<RawValue>>::deserialize(json)? else { return Ok(None) };
    match text.get().parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(Some(number)),
        _ => Err(D::Error::custom(format!("`{}` is not a number", shown(text.get())))),
    }
}

impl From<Job> for JobForm {
    fn from(job: Job) -> Self {
        let OrderParams { version, lanes, window, shuffle } = job.order;
        Self {
            name: job.name,
            dataset: job.dataset,
            dataset_fingerprint: job.dataset_fingerprint,
            samples: job.samples,
            seed: job.seed,
            global_batch: job.global_batch,
            epochs: job.epochs,
            epoch_end: job.epoch_end,
            bad_samples: job.bad_samples,
            max_bad_fraction: job.max_bad_fraction,
            order: OrderForm { version, lanes, window, shuffle, view: job.view, mix: job.mix },
            columns: job.columns,
        }
    }
}

impl From<JobForm> for Job {
    fn from(form: JobForm) -> Self {
        let OrderForm { version, lanes, window, shuffle, view, mix } = form.order;
        Self {
            name: form.name,
            dataset: form.dataset,
            dataset_fingerprint: form.dataset_fingerprint,
            view,
            samples: form.samples,
            seed: form.seed,
            global_batch: form.global_batch,
            epochs: form.epochs,
            epoch_end: form.epoch_end,
            bad_samples: form.bad_samples,
            max_bad_fraction: form.max_bad_fraction,
            order: OrderParams { version, lanes, window, shuffle },
            mix,
            columns: form.columns,
        }
    }
}
