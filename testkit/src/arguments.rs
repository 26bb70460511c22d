//! Reads the command lines of test programs: flags, and flags with a value.

use std::{fmt::Display, str::FromStr};

/// The arguments that no reader has taken yet.
#[derive(Debug)]
pub struct Arguments {
    left: Vec<String>,
    /// The flags that there are, for the error.
    known: Vec<String>,
}

impl Arguments {
    /// Takes the arguments of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self::new(std::env::args().skip(1))
    }

    fn new(arguments: impl IntoIterator<Item = String>) -> Self {
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

#[cfg(test)]
mod tests {
    use super::Arguments;

    fn arguments(text: &str) -> Arguments {
        Arguments::new(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn flags_and_values_are_taken_and_what_is_left_is_an_error() {
        let mut read = arguments("--json --seed 7 --case a");
        assert_eq!((read.flag("--json"), read.flag("--quiet")), (true, false));
        assert_eq!((read.value("--seed", "N"), read.value::<u64>("--repeats", "N")), (Ok(Some(7)), Ok(None)));
        let problem = read.finish().unwrap_err();
        assert_eq!(problem, "`--case` is none of --json, --quiet, --seed N, --repeats N");
        assert_eq!(
            arguments("--seed x").value::<u64>("--seed", "N").unwrap_err(),
            "`--seed x`: invalid digit found in string"
        );
        assert_eq!(arguments("--seed").value::<u64>("--seed", "N").unwrap_err(), "`--seed` expects N");
        assert_eq!(arguments("").finish(), Ok(()));
    }
}
