//! Where a change of a job begins, and the wait until it is made.

use std::time::{Duration, Instant};

use spdl_control::messages::{FromCoordinator, ToCoordinator};
use spdl_job::Job;
use spdl_types::Position;

use crate::ctl::{CtlError, coordinator::Connection, output};

/// Time between two questions whether a change is made.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a change waits silently.
const SILENT: Duration = Duration::from_secs(3);

/// Where a change of a job begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangePlace {
    Next,
    Sample(u64),
    At(Position),
}

impl ChangePlace {
    /// Reads an argument.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "next" {
            return Ok(Self::Next);
        }
        let sample = text.parse().map(Self::Sample).ok();
        sample
            .or_else(|| text.parse().map(Self::At).ok())
            .ok_or_else(|| format!("`{text}` is neither `next` nor a number of samples nor EPOCH:OFFSET"))
    }

    /// Returns the number of samples before, if the place names one.
    pub(super) const fn samples_before(self, job: &Job) -> Option<u64> {
        match self {
            Self::Next => None,
            Self::Sample(sample) => Some(sample),
            Self::At(at) => Some(job.samples_before(at)),
        }
    }
}

/// Sends a change until it is made: while ranks are alive, it waits for their promises.
pub(super) async fn change(connection: &Connection, request: &ToCoordinator) -> Result<(), CtlError> {
    let started = Instant::now();
    let mut said = None;
    loop {
        match connection.ask(request).await? {
            FromCoordinator::Changing { at, waiting } => {
                if started.elapsed() > SILENT && said.as_ref() != Some(&waiting) {
                    output::note(&format!("the change is to begin at {at}, and waits for {waiting}"));
                    said = Some(waiting);
                }
                tokio::time::sleep(PAUSE).await;
            }
            FromCoordinator::Replaced(_) => return Ok(()),
            _ => return Err(CtlError::Reply { request: "a change of a job" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_what_is_none_is_named() {
        assert_eq!(ChangePlace::parse("next"), Ok(ChangePlace::Next));
        assert_eq!(ChangePlace::parse("12"), Ok(ChangePlace::Sample(12)));
        assert_eq!(ChangePlace::parse("1:60"), Ok(ChangePlace::At(Position::new(1, 60))));
        assert!(ChangePlace::parse("now").unwrap_err().contains("`now` is neither `next` nor"));
    }
}
