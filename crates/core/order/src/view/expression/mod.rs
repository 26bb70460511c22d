//! The language of a view's `where`: comparisons of a record's fields, joined by `and`, `or` and `not`.
//!
//! ```text
//! or        = and { "or" and }
//! and       = not { "and" not }
//! not       = "not" not | comparison
//! comparison = operand [ ("==" | "!=" | "<" | "<=" | ">" | ">=") operand
//!                      | [ "not" ] "in" "[" literal { "," literal } "]"
//!                      | "is" [ "not" ] "null" ]
//!           | "(" or ")"
//! operand   = literal | name
//! literal   = number | 'text' | "text" | "true" | "false"
//! name      = letters, digits, `_`, `.` and `/`, or anything between backticks
//! ```
//!
//! A field without a value is null. As in SQL, a comparison with null is neither true nor false, nor is its negation,
//! and only samples for which the whole is true are kept.

mod evaluate;
mod parse;
mod token;

pub use evaluate::Value;

use std::fmt;

use evaluate::ExpressionEvaluation;
use parse::ExpressionNode;

/// Upper limit of the bytes of an expression.
const MAX_BYTES: usize = 64 << 10;
/// Upper limit of the characters of the expression that an error repeats.
const MAX_SHOWN: usize = 30;

/// An expression whose syntax is valid. The names in it are those of fields, which only the dataset knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    text: String,
    /// Each name once, with its first place in the text.
    names: Vec<(String, usize)>,
    root: ExpressionNode,
}

/// What is wrong with an expression, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is wrong at character {character}, {}: {problem}", Near(near))]
pub struct ExpressionError {
    /// Number of the character in the expression, from 1.
    pub character: usize,
    /// The text that begins there, shortened.
    pub near: String,
    /// What is wrong.
    pub problem: String,
}

struct Near<'a>(&'a str);

impl fmt::Display for Near<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("the end") } else { write!(f, "`{}`", self.0) }
    }
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// [`ExpressionError`] with the place.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        if text.len() > MAX_BYTES {
            return Err(error_at(text, MAX_BYTES, format!("an expression has at most {MAX_BYTES} bytes")));
        }
        let (root, names) = parse::parse(text)?;
        Ok(Self { text: text.to_owned(), names, root })
    }

    /// Returns the names of fields in the expression, each once. [`evaluate`](Self::evaluate) asks for their values by
    /// their numbers.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> + '_ {
        self.names.iter().map(|(name, _)| name.as_str())
    }

    /// Returns whether the expression uses the value of a field, beyond a test for null. `name` is the number of the
    /// field's name.
    #[must_use]
    pub fn compares(&self, name: usize) -> bool {
        self.root.compares(name)
    }

    /// Returns the texts that a field is compared with. `name` is the number of the field's name.
    #[must_use]
    pub fn texts(&self, name: usize) -> Vec<&str> {
        let mut texts = Vec::new();
        self.root.texts(name, &mut texts);
        texts
    }

    /// Returns whether a record is kept. `value` returns the value of a field by the number of its name.
    ///
    /// # Errors
    /// If a field's value has another type than what it is compared with.
    pub fn evaluate<'v>(&self, value: &dyn Fn(usize) -> Value<'v>) -> Result<bool, ExpressionError> {
        let operation = ExpressionEvaluation { names: &self.names, value };
        match operation.truth(&self.root) {
            Ok(truth) => Ok(truth == Some(true)),
            Err((at, problem)) => Err(error_at(&self.text, at, problem)),
        }
    }

    /// Returns the error that name number `name` is wrong.
    #[must_use]
    pub fn name_error(&self, name: usize, problem: String) -> ExpressionError {
        error_at(&self.text, self.names[name].1, problem)
    }
}

fn error_at(text: &str, at: usize, problem: impl Into<String>) -> ExpressionError {
    let at = text.floor_char_boundary(at);
    let rest = text[at..].chars().map(|c| if c.is_control() { ' ' } else { c });
    ExpressionError {
        character: text[..at].chars().count() + 1,
        near: rest.take(MAX_SHOWN).collect(),
        problem: problem.into(),
    }
}

#[cfg(test)]
mod tests;
