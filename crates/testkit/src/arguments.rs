//! Reads the command lines of test programs: flags, and flags with a value.

use std::{fmt::Display, str::FromStr};

/// The arguments that no reader has taken yet.
#[derive(Debug)]
pub struct TestArguments {
    left: Vec<String>,
    /// The flags that readers have asked for, for the error.
    known: Vec<String>,
}

impl TestArguments {
    /// Takes the arguments of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self::new(std::env::args().skip(1))
    }

    /// Reads these arguments, without the name of the program.
    pub fn new(arguments: impl IntoIterator<Item = String>) -> Self {
        Self { left: arguments.into_iter().collect(), known: Vec::new() }
    }

    /// Returns whether `flag` is there.
    pub fn flag(&mut self, flag: &str) -> bool {
        self.known.push(flag.to_owned());
        let before = self.left.len();
        self.left.retain(|argument| argument != flag);
        self.left.len() < before
    }

    /// Returns the value after `flag`, if the flag is there.
    ///
    /// # Errors
    /// A text that names the flag, if its value is missing or wrong.
    pub fn value<T: FromStr<Err: Display>>(&mut self, flag: &str, value: &str) -> Result<Option<T>, String> {
        self.known.push(format!("{flag} {value}"));
        let Some(at) = self.left.iter().position(|argument| argument == flag) else { return Ok(None) };
        if at + 1 == self.left.len() {
            return Err(format!("`{flag}` expects {value}"));
        }
        let text = self.left.drain(at..at + 2).nth(1).expect("two were taken");
        text.parse().map(Some).map_err(|error| format!("`{flag} {text}`: {error}"))
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// A text that names the first argument that nothing has taken.
    pub fn finish(self) -> Result<(), String> {
        match self.left.first() {
            Some(argument) => Err(format!("`{argument}` is none of {}", self.known.join(", "))),
            None => Ok(()),
        }
    }
}
