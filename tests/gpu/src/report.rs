//! The result of a step, and its form as a line of JSON: a step's process prints it, and the runner reads it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Its checks passed, and its measurements reach their targets.
    Ok,
    /// A measurement misses its target.
    Below,
    /// It could not run here.
    Skipped,
    /// A check failed, or the process ended without a result.
    Wrong,
    /// It reached its time limit.
    Timeout,
}

impl Outcome {
    /// Returns the word for the table.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Below => "below",
            Self::Skipped => "skipped",
            Self::Wrong => "WRONG",
            Self::Timeout => "timeout",
        }
    }

    /// Returns whether the step proves that something is wrong.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Wrong | Self::Timeout)
    }
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// How it ended.
    pub outcome: Outcome,
    /// A text for people: what was checked or measured, or what is wrong.
    pub words: String,
    /// What was measured, by name.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub figures: Map<String, Value>,
}

/// The result of a step; the error is the description of what is wrong.
pub type StepResult = Result<StepReport, String>;

impl StepReport {
    /// Returns the result of a step without figures.
    #[must_use]
    pub fn new(outcome: Outcome, words: impl Into<String>) -> Self {
        Self { outcome, words: words.into(), figures: Map::new() }
    }

    /// Returns the result of a check that passed.
    #[must_use]
    pub fn ok(words: impl Into<String>) -> Self {
        Self::new(Outcome::Ok, words)
    }

    /// Returns the result of a measurement that has a target.
    #[must_use]
    pub fn measured(reaches_target: bool, words: impl Into<String>) -> Self {
        Self::new(if reaches_target { Outcome::Ok } else { Outcome::Below }, words)
    }

    /// Returns the result of a step that cannot run here.
    #[must_use]
    pub fn skipped(reason: impl Into<String>) -> Self {
        Self::new(Outcome::Skipped, reason)
    }

    /// Adds a figure.
    #[must_use]
    pub fn figure(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.figures.insert(name.to_owned(), value.into());
        self
    }

    /// Converts a step's result, so that an error becomes [`Outcome::Wrong`].
    #[must_use]
    pub fn of(result: StepResult) -> Self {
        result.unwrap_or_else(|error| Self::new(Outcome::Wrong, error))
    }

    /// Prints the line that the runner reads.
    pub fn print(&self) {
        println!("{}", serde_json::to_string(self).expect("a report is JSON"));
    }

    /// Returns the last line of a process's output that is a report. A program that watches the process may write after
    /// it.
    #[must_use]
    pub fn parse(output: &str) -> Option<Self> {
        output.lines().rev().find_map(|line| serde_json::from_str(line).ok())
    }
}
