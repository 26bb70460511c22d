//! Why the head of a sound does not say how it is decoded.

use crate::MediaError;

/// What is wrong with the head of a sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadProblem {
    /// It is not valid.
    Invalid,
    /// It is for what is not decoded.
    Unsupported(&'static str),
}

impl HeadProblem {
    /// Returns the error about a head at a byte of the file; `problem` tells in words that it is not valid.
    pub(crate) fn error(self, byte: u64, problem: &'static str) -> MediaError {
        match self {
            Self::Invalid => MediaError::Malformed { byte, problem },
            Self::Unsupported(what) => MediaError::Unsupported { what: what.to_owned() },
        }
    }
}
