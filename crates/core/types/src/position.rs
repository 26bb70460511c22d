//! A position in a job's stream, and the global number of a sample.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The global number of a sample: its index when the manifest's shards are laid end to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SampleId(pub u64);

impl fmt::Display for SampleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A position in the stream of a job: `offset` samples into `epoch`. It counts samples, never steps, so that it means
/// the same at every world size and batch size. Its text form is `EPOCH:OFFSET`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Number of samples of the epoch's stream before this position.
    pub offset: u64,
}

impl Position {
    /// The first sample of the first epoch.
    pub const START: Self = Self { epoch: 0, offset: 0 };

    /// Creates the position `offset` samples into `epoch`.
    #[must_use]
    pub const fn new(epoch: u64, offset: u64) -> Self {
        Self { epoch, offset }
    }

    /// Counts the samples of the stream before this position, where an epoch has `epoch_samples`.
    #[must_use]
    pub const fn samples(self, epoch_samples: u64) -> u128 {
        self.epoch as u128 * epoch_samples as u128 + self.offset as u128
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.offset)
    }
}

/// The text is not of the form `EPOCH:OFFSET`.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a position; write EPOCH:OFFSET, for example 2:4096")]
pub struct ParsePositionError(String);

impl FromStr for Position {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split_once(':')
            .and_then(|(epoch, offset)| Some(Self::new(epoch.parse().ok()?, offset.parse().ok()?)))
            .ok_or_else(|| ParsePositionError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back_what_it_prints() {
        let position = Position::new(3, 18_446_744_073_709_551_615);
        assert_eq!(position.to_string().parse::<Position>().unwrap(), position);
        for bad in ["", "3", "3:", ":4", "3:4:5", "-1:0", "a:b"] {
            let error = bad.parse::<Position>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{bad}`")), "{error}");
        }
    }
}
