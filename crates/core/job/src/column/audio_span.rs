//! The `span` of an `audio` column: the fields that say which part of a file is the sound.

use serde::{Deserialize, Serialize};

use crate::KeyProblem;

/// The `span` of a job file: fields of the record, numbers of seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpanFile {
    /// The field that says where the sound begins in the file; an empty text says that it begins with the file. Default: none; the
    /// beginning of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// The field that says how long the sound is; an empty text says that it goes on to the end of the file. Default: none; the end
    /// of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<String>,
}

/// Which part of a file is the sound: the names of fields with numbers of seconds, at least one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioSpan {
    /// Where it begins; without it, with the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// How long it is; without it, up to the end of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<String>,
}

impl AudioSpan {
    /// Returns the names of the fields.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.start.iter().chain(&self.seconds).map(String::as_str)
    }

    /// Takes over the keys of a job file.
    pub(super) fn read(SpanFile { start, seconds }: SpanFile) -> Result<Self, KeyProblem> {
        if start.is_none() && seconds.is_none() {
            let problem = "names no field; write { start = \"offset\", seconds = \"duration\" }".to_owned();
            return Err(("span", problem));
        }
        Ok(Self { start, seconds })
    }

    /// Checks the names of the fields.
    pub(super) fn check(&self) -> Result<(), KeyProblem> {
        match self.fields().find(|field| field.is_empty() || field.contains(char::is_control)) {
            Some(field) => Err(("span", format!("names `{}`, which cannot be a field", field.escape_debug()))),
            None if self.start.is_none() && self.seconds.is_none() => Err(("span", "names no field".to_owned())),
            None => Ok(()),
        }
    }
}
