//! The form of a job in the coordinator's state and in messages: one JSON text, in which kinds of columns, operations
//! and types of elements are named. So a new kind or operation needs no new version of the protocol, and a program that
//! does not know it can name it in an error.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};
use serde_json::value::RawValue;

use super::{
    Job, JobSource, Mix, Sequence,
    key::JobForm,
    reader::{shortened, shown},
};
use spdl_order::{BlendStage, Redaction};
use spdl_types::Fingerprint;

/// Length of the longest error about the text of a job, in characters: a peer may send any text.
const MAX_ERROR: usize = 300;

/// The order's parameters, and what else decides which samples come.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Order")]
pub(super) struct OrderForm {
    pub(super) version: u32,
    pub(super) lanes: u32,
    pub(super) window: u64,
    pub(super) shuffle: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) view: Option<Fingerprint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mix: Option<Mix>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sequence: Option<Box<Sequence>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) sources: Vec<JobSource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) stages: Vec<BlendStage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) redactions: Vec<Redaction>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) earlier: Vec<Fingerprint>,
}

impl Serialize for Job {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return JobForm::from(self.clone()).serialize(serializer);
        }
        let text = serde_json::to_string(&JobForm::from(self.clone())).map_err(S::Error::custom)?;
        serializer.serialize_str(&text)
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

/// Reads the text of a job in a message. It refuses a text that this program would write in another way: the text may
/// have a key of a later release, and a program that ignores the key would make other batches than its peers.
///
/// # Errors
/// What is wrong with the text, in words.
fn read(message: &str) -> Result<Job, String> {
    let ours = env!("CARGO_PKG_VERSION");
    let form: JobForm = serde_json::from_str(message).map_err(|error| {
        let problem = error.to_string();
        // The readers of the error cannot see the text, so a place in it is of no use.
        let place = format!(" at line {} column {}", error.line(), error.column());
        let problem = problem.strip_suffix(place.as_str()).unwrap_or(&problem);
        match problem.strip_prefix("unknown variant `").and_then(|rest| rest.split_once("`, expected ")) {
            Some((name, _)) => format!("`{}` is unknown to spdl-cluster {ours}: a later release knows it", shown(name)),
            None => shortened(problem, MAX_ERROR),
        }
    })?;
    if serde_json::to_string(&form).is_ok_and(|text| text == message) {
        return Ok(form.into());
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
