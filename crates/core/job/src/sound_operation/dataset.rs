//! A dataset whose recordings an operation takes, one for each sample.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};
use spdl_types::{Draw, Fingerprint};

use crate::KeyProblem;

/// The fields that a recording is looked for in.
const SOUND_FIELDS: &str = "wav|flac|ogg|oga|opus|mp3|m4a|aac|audio";

/// The folder or URL of a dataset by itself, or the keys of a table.
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
#[allow(dead_code, reason = "only its schema is used")]
pub(super) enum SoundDatasetForm {
    /// The folder or URL.
    Url(String),
    /// The keys.
    Table(SoundDataset),
}

/// A dataset whose recordings an operation takes. A text stands for a table with `url` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SoundDataset {
    /// The folder or URL that `spdl-ctl index` or `spdl-ctl pack` wrote. A relative path starts at the folder of the job file.
    pub url: String,
    /// The field with the recording: `wav|flac` takes the first that a record has. Default: `wav|flac|ogg|oga|opus|mp3|m4a|aac|audio`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The fingerprint of the dataset. Default: set when the job is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub fingerprint: Option<Fingerprint>,
    /// The number of its samples. Default: set when the job is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
}

impl SoundDataset {
    /// Iterates over the fields that may have the recording.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.from.as_deref().unwrap_or(SOUND_FIELDS).split('|')
    }

    /// Notes which dataset lies at the URL, when the job is created.
    ///
    /// # Errors
    /// It is another one than the file says, or has no samples.
    pub fn note(&mut self, fingerprint: Fingerprint, samples: u64) -> Result<(), String> {
        if let Some(expected) = self.fingerprint.filter(|expected| *expected != fingerprint) {
            let url = crate::redact(&self.url);
            return Err(format!("dataset `{url}` has fingerprint {fingerprint}, the job has {expected}"));
        }
        if samples == 0 {
            return Err(format!("dataset `{}` has no samples", crate::redact(&self.url)));
        }
        (self.fingerprint, self.samples) = (Some(fingerprint), Some(samples));
        Ok(())
    }

    /// Draws the number of a sample, each with the same probability. Of a dataset that is not noted, it is 0.
    pub(super) fn draw(&self, draw: &mut Draw) -> u64 {
        let all = self.samples.unwrap_or(0);
        // At most `all` - 1, which are 64 bits.
        ((u128::from(draw.bits()) * u128::from(all)) >> 64) as u64
    }

    /// Checks what can be checked without the dataset.
    pub(super) fn check(&self) -> Result<(), KeyProblem> {
        if self.url.is_empty() {
            return Err(("dataset", "is empty; give the folder or URL that `spdl-ctl index` wrote".to_owned()));
        }
        if let Some(problem) = crate::secret_in(&self.url) {
            return Err(("dataset", problem.to_owned()));
        }
        match self.fields().find(|field| field.is_empty() || field.contains(char::is_control)) {
            Some(field) => {
                Err(("dataset", format!("is read `from` `{}`, which cannot be a field", field.escape_debug())))
            }
            None => Ok(()),
        }
    }
}

/// Reads a dataset from its folder or URL, or from a table.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SoundDataset, D::Error> {
    deserializer.deserialize_any(SoundDatasetText)
}

/// Reads a dataset that may be left out.
pub(super) fn read_some<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SoundDataset>, D::Error> {
    read(deserializer).map(Some)
}

struct SoundDatasetText;

impl<'de> Visitor<'de> for SoundDatasetText {
    type Value = SoundDataset;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the folder or URL of a dataset, or { url = \"noises\", from = \"wav\" }")
    }

    fn visit_str<E: Error>(self, url: &str) -> Result<SoundDataset, E> {
        Ok(SoundDataset { url: url.to_owned(), from: None, fingerprint: None, samples: None })
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<SoundDataset, A::Error> {
        SoundDataset::deserialize(MapAccessDeserializer::new(table))
    }
}
