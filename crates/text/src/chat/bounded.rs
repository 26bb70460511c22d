//! Text that a template makes of values, up to what its work allows. A list can have the same list twice, and that another one, so that a
//! few values are more text than any memory has.

use std::fmt::{self, Write};

use minijinja::{Error, ErrorKind, Output, State, Value, escape_formatter, value::ValueKind};

/// Bytes that a unit of a template's work pays for.
const UNIT_BYTES: u64 = 64;

/// A text that grows up to a limit.
#[derive(Debug)]
pub(super) struct BoundedText {
    text: String,
    most: usize,
}

impl BoundedText {
    /// Creates an empty text, which grows as far as the work that is left pays for.
    pub(super) fn new(state: &State<'_, '_>) -> Self {
        let left = state.fuel_levels().map_or(u64::MAX, |(_, left)| left.saturating_mul(UNIT_BYTES));
        Self { text: String::new(), most: usize::try_from(left).unwrap_or(usize::MAX) }
    }

    /// Appends a text.
    ///
    /// # Errors
    /// If it does not fit.
    pub(super) fn push(&mut self, text: &str) -> Result<(), Error> {
        if text.len() > self.most - self.text.len() {
            return Err(ErrorKind::OutOfFuel.into());
        }
        self.text.push_str(text);
        Ok(())
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

impl Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text).map_err(|_| fmt::Error)
    }
}

/// Returns a value as text.
///
/// # Errors
/// If it is longer than the work that is left pays for.
pub(super) fn text_of(state: &State<'_, '_>, value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    let mut bounded = BoundedText::new(state);
    write!(bounded, "{value}").map_err(|_| Error::from(ErrorKind::OutOfFuel))?;
    Ok(bounded.text)
}

/// Writes a value that stands in a template.
pub(super) fn write_value(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::Plain => {
            Ok(out.write_str(&text_of(state, value)?)?)
        }
        _ => escape_formatter(out, state, value),
    }
}
