//! Where a launch starts, as users write it.

use std::str::FromStr;

use spdl_control::messages::Start;
use spdl_types::{Fingerprint, Position};

use crate::{ClientError, State};

/// Where a launch is to start. Written `beginning`, `resume`, an epoch, `EPOCH:OFFSET`, or as the JSON of a [`State`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartFrom {
    /// At the first sample of the first epoch.
    #[default]
    Beginning,
    /// The position that all ranks of the run's last session had reached, or the beginning if the run has had no
    /// session.
    Resume,
    /// This position. It must lie in the stream with at least one batch after it.
    At(Position),
    /// The position of a checkpoint of this job; the end of the stream is allowed.
    State(State),
}

impl StartFrom {
    pub(crate) const fn wanted(self) -> Start {
        match self {
            Self::Beginning => Start::Beginning,
            Self::Resume => Start::Resume,
            Self::At(position) => Start::At(position),
            Self::State(state) => Start::At(state.position()),
        }
    }

    pub(crate) const fn fingerprint(self) -> Option<Fingerprint> {
        match self {
            Self::State(state) => Some(state.fingerprint()),
            _ => None,
        }
    }
}

impl From<Position> for StartFrom {
    fn from(position: Position) -> Self {
        Self::At(position)
    }
}

impl From<State> for StartFrom {
    fn from(state: State) -> Self {
        Self::State(state)
    }
}

impl FromStr for StartFrom {
    type Err = ClientError;

    fn from_str(text: &str) -> Result<Self, ClientError> {
        match text.trim() {
            "beginning" => Ok(Self::Beginning),
            "resume" => Ok(Self::Resume),
            state if state.starts_with('{') => Ok(Self::State(state.parse()?)),
            place => {
                let epoch = place.parse().map(|epoch| Position::new(epoch, 0));
                epoch.ok().or_else(|| place.parse().ok()).map(Self::At).ok_or_else(|| ClientError::Setting {
                    name: "SPDL_START",
                    problem: format!("is `{place}`, not `beginning`, `resume`, an epoch, EPOCH:OFFSET or a state"),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_a_word_an_epoch_a_position_or_a_state() {
        let state = State::new(Fingerprint(7), Position::new(1, 80));
        for (text, start) in [
            ("beginning", StartFrom::Beginning),
            (" resume\n", StartFrom::Resume),
            ("2", StartFrom::At(Position::new(2, 0))),
            ("1:80", StartFrom::At(Position::new(1, 80))),
            (&state.to_string(), StartFrom::State(state)),
        ] {
            assert_eq!(text.parse::<StartFrom>(), Ok(start), "{text}");
        }
        for bad in ["", "end", "-1", "1:", "1.5", "1:80:2"] {
            let error = bad.parse::<StartFrom>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{bad}`")) && error.contains("`resume`"), "{error}");
        }
        assert!("{\"spdl_state\":9}".parse::<StartFrom>().unwrap_err().to_string().contains("state"));
    }
}
