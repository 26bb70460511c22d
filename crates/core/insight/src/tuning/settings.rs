//! The values that are tuned, how a user pins them, and what is reported about them.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use serde::{Deserialize, Serialize};

/// A value that the tuner chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tunable {
    /// Maximum number of requests to stores in flight.
    Requests,
    /// Number of steps, after those being filled, whose blocks are fetched ahead.
    ReadAhead,
}

impl Tunable {
    /// Every value.
    pub const ALL: [Self; 2] = [Self::Requests, Self::ReadAhead];

    /// Returns the name for JSON, logs and labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::ReadAhead => "read_ahead",
        }
    }

    /// Returns the value that tuning begins with.
    #[must_use]
    pub const fn initial(self) -> u32 {
        match self {
            Self::Requests => 32,
            Self::ReadAhead => 16,
        }
    }

    /// Returns the values that are possible. Each request in flight has a connection and thus a file descriptor, of which
    /// a process often has 1,024. A step that is read ahead costs memory for its plan, and more of them than these gain
    /// nothing: blocks are only fetched while there is memory for them.
    #[must_use]
    pub const fn bounds(self) -> RangeInclusive<u32> {
        match self {
            Self::Requests => 1..=512,
            Self::ReadAhead => 1..=512,
        }
    }
}

impl fmt::Display for Tunable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a value is chosen: `auto`, or a number that pins it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Setting {
    /// The tuner chooses.
    #[default]
    Auto,
    /// Always this one.
    Pinned(u32),
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |_| format!("`{text}` is neither `auto` nor a whole number");
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(Self::Pinned).map_err(wrong) }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Pinned(value) => value.fmt(f),
        }
    }
}

/// How each value is chosen. The default tunes all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TuningSettings {
    /// Maximum number of requests to stores in flight. When raised, a store with a limit on requests answers with errors;
    /// when lowered, a store that takes long to answer delivers less.
    pub requests: Setting,
    /// Number of steps whose blocks are fetched ahead. When raised, blocks that are needed late take the memory of those
    /// needed soon; when lowered, there is less to request at once, and a slow object is noticed later.
    pub read_ahead: Setting,
}

impl TuningSettings {
    /// Returns how a value is chosen.
    #[must_use]
    pub const fn of(&self, value: Tunable) -> Setting {
        match value {
            Tunable::Requests => self.requests,
            Tunable::ReadAhead => self.read_ahead,
        }
    }

    /// Checks that pinned values are within the bounds.
    ///
    /// # Errors
    /// The value that is out of bounds, and what is wrong with it.
    pub fn check(&self) -> Result<(), (Tunable, String)> {
        for value in Tunable::ALL {
            if let Setting::Pinned(pinned) = self.of(value)
                && !value.bounds().contains(&pinned)
            {
                let (least, most) = (value.bounds().start().to_owned(), value.bounds().end().to_owned());
                return Err((value, format!("{pinned} is not {least} to {most}; `auto` lets the worker choose")));
            }
        }
        Ok(())
    }
}

/// A change of a value at run time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TuningChange {
    /// The value.
    pub value: Tunable,
    /// What it was.
    pub from: u32,
    /// What it is from then on.
    pub to: u32,
    /// Why, in words.
    pub reason: String,
    /// When: milliseconds since the start of the worker.
    pub at_ms: u64,
}

/// The current choice of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunedValue {
    /// The value.
    pub value: Tunable,
    /// What it is now.
    pub current: u32,
    /// Whether a user has pinned it.
    pub is_pinned: bool,
}

/// The current choices of a process, and the latest changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TuningStatus {
    /// Each value.
    pub values: Vec<TunedValue>,
    /// The latest changes, the oldest first, at most [`SHOWN_CHANGES`](super::SHOWN_CHANGES).
    pub changes: Vec<TuningChange>,
}
