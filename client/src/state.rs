//! The loader's part of a checkpoint: a position in the stream of a job.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use spdl_types::{Fingerprint, Position};

/// The version of the text that [`State`] writes.
const STATE_VERSION: u32 = 1;
/// The longest text that is read as a state. A state has about 100 bytes.
const MAX_STATE_BYTES: usize = 4096;

/// The loader's part of a checkpoint: the position after the last batch handed to the trainer, and the fingerprint of
/// the job up to there. It is the same on all ranks, and valid at every world size and batch size. Its text is one line of JSON:
///
/// ```
/// # use spdl_client::State;
/// # use spdl_types::{Fingerprint, Position};
/// let state = State::new(Fingerprint(0xfeed), Position::new(3, 4096));
/// let text = state.to_string();
/// assert_eq!(text, r#"{"spdl_state":1,"job":"0000000000000000000000000000feed","epoch":3,"offset":4096}"#);
/// assert_eq!(text.parse::<State>()?, state);
/// # Ok::<(), spdl_client::StateError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "SavedState", into = "SavedState")]
pub struct State {
    fingerprint: Fingerprint,
    position: Position,
    /// Whether the loader has given batches again.
    is_of_repeated: bool,
}

/// The fields of the JSON text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedState {
    spdl_state: u32,
    job: String,
    epoch: u64,
    offset: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    repeated_batches: bool,
}

/// The reasons why bytes are not a usable state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum StateError {
    #[error("state cannot be read: {problem}")]
    Syntax { problem: String },
    #[error("state has version {actual}; this program reads version {STATE_VERSION}")]
    Version { actual: u32 },
    #[error(
        "state was saved by a loader that gave the same batches again (`repeat_batches`), and what has learned from these is no training to go on \
         with; take a checkpoint of another run"
    )]
    RepeatedBatches,
    #[error("state has fingerprint {theirs}; job `{job}` has {ours}")]
    OtherJob { job: String, theirs: Fingerprint, ours: Fingerprint },
}

impl State {
    /// Creates the state of a job with this fingerprint at this position.
    #[must_use]
    pub const fn new(fingerprint: Fingerprint, position: Position) -> Self {
        Self { fingerprint, position, is_of_repeated: false }
    }

    /// Returns the state of a loader that has given batches again: its text is refused by whatever reads it.
    pub(crate) const fn of_repeated_batches(self) -> Self {
        Self { is_of_repeated: true, ..self }
    }

    /// Returns the fingerprint of the job [up to the position](spdl_job::Job::fingerprint_up_to).
    #[must_use]
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the position from which to resume.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// Returns the state's JSON text as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_string().into_bytes()
    }

    /// Reads the bytes that [`State::to_bytes`] wrote.
    ///
    /// # Errors
    /// Returns [`StateError`] when the bytes are not a state, or one of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StateError> {
        if bytes.len() > MAX_STATE_BYTES {
            let problem = format!("it is {} bytes, a state has at most {MAX_STATE_BYTES}", bytes.len());
            return Err(StateError::Syntax { problem });
        }
        let text = std::str::from_utf8(bytes).map_err(|error| StateError::Syntax { problem: error.to_string() })?;
        text.parse()
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).expect("plain data serialises"))
    }
}

impl FromStr for State {
    type Err = StateError;

    fn from_str(text: &str) -> Result<Self, StateError> {
        let written: SavedState =
            serde_json::from_str(text).map_err(|error| StateError::Syntax { problem: error.to_string() })?;
        written.try_into()
    }
}

impl From<State> for SavedState {
    fn from(state: State) -> Self {
        let Position { epoch, offset } = state.position;
        Self {
            spdl_state: STATE_VERSION,
            job: state.fingerprint.to_string(),
            epoch,
            offset,
            repeated_batches: state.is_of_repeated,
        }
    }
}

impl TryFrom<SavedState> for State {
    type Error = StateError;

    fn try_from(written: SavedState) -> Result<Self, StateError> {
        if written.spdl_state != STATE_VERSION {
            return Err(StateError::Version { actual: written.spdl_state });
        }
        if written.repeated_batches {
            return Err(StateError::RepeatedBatches);
        }
        let digits = written.job.len() == 32 && written.job.bytes().all(|b| b.is_ascii_hexdigit());
        let fingerprint = u128::from_str_radix(&written.job, 16).ok().filter(|_| digits).ok_or_else(|| {
            StateError::Syntax { problem: format!("`job` is `{}`, not 32 hexadecimal digits", written.job) }
        })?;
        Ok(Self::new(Fingerprint(fingerprint), Position::new(written.epoch, written.offset)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_about_a_hundred_bytes_at_the_largest_numbers_and_reads_back() {
        let state = State::new(Fingerprint(u128::MAX), Position::new(u64::MAX, u64::MAX));
        let bytes = state.to_bytes();
        assert!(bytes.len() < 140, "{} bytes", bytes.len());
        assert_eq!(State::from_bytes(&bytes), Ok(state));
    }

    #[test]
    fn a_state_of_repeated_batches_is_written_and_never_read() {
        let state = State::new(Fingerprint(7), Position::new(0, 48)).of_repeated_batches();
        let text = state.to_string();
        assert!(text.ends_with("\"epoch\":0,\"offset\":48,\"repeated_batches\":true}"), "{text}");
        assert_eq!(text.parse::<State>(), Err(StateError::RepeatedBatches));
        let without = text.replace(",\"repeated_batches\":true", "");
        assert_eq!(without.parse::<State>(), Ok(State::new(Fingerprint(7), Position::new(0, 48))));
    }

    #[test]
    fn what_is_no_state_is_refused_with_the_reason() {
        let good = State::new(Fingerprint(7), Position::new(1, 2)).to_string();
        for (bad, expected) in [
            (good.replace("\"spdl_state\":1", "\"spdl_state\":2"), "version 2"),
            (good.replace("epoch", "epochs"), "epochs"),
            (good.replace("00000007", "0000000x"), "hexadecimal"),
            (good.replace("00000007", "+0000007"), "hexadecimal"),
            (good.replace("\"offset\":2", "\"offset\":-2"), "-2"),
            (String::new(), "cannot be read"),
            ("x".repeat(5000), "5000 bytes"),
        ] {
            let error = State::from_bytes(bad.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
