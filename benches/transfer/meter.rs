//! What the receiver of a transfer measures and prints.

use std::{io::Write, time::Instant};

use serde::{Deserialize, Serialize};

/// Seconds from the first batch that are not measured.
const WARM_S: f64 = 1.0;

/// The bytes received since the first batch; printed at the beginning and at the end of the measured time.
#[derive(Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

/// Counts received bytes and prints the marks.
pub(crate) struct Meter {
    started: Option<Instant>,
    received: u64,
    due_s: f64,
    seconds: f64,
}

impl Meter {
    /// Creates the meter of a transfer that is measured for so many seconds.
    pub(crate) const fn new(seconds: f64) -> Self {
        Self { started: None, received: 0, due_s: WARM_S, seconds }
    }

    pub(crate) fn add(&mut self, bytes: usize) {
        let started = *self.started.get_or_insert_with(Instant::now);
        self.received += bytes as u64;
        let elapsed = started.elapsed().as_secs_f64();
        if elapsed >= self.due_s {
            print(&Mark { bytes: self.received, seconds: elapsed });
            self.due_s = elapsed + self.seconds;
        }
    }
}

/// Prints a line of JSON.
pub(crate) fn print(value: &impl Serialize) {
    let mut out = std::io::stdout();
    writeln!(out, "{}", serde_json::to_string(value).expect("it is JSON")).expect("the parent reads");
    out.flush().expect("the parent reads");
}
