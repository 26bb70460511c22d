//! Writing to standard output, and warnings to standard error. A failed write is an error of the command; when the reader has closed the pipe, the
//! command ends silently.

use std::{
    fmt,
    io::{self, Write},
};

use spdl_process::Printable;

use super::CtlError;

/// Prints a line as `println!` does, but returns an error where `println!` panics.
macro_rules! outln {
    () => { $crate::ctl::output::line(format_args!("")) };
    ($($text:tt)*) => { $crate::ctl::output::line(format_args!($($text)*)) };
}
pub(crate) use outln;

/// Prints a line on standard output.
pub(crate) fn line(text: fmt::Arguments<'_>) -> Result<(), CtlError> {
    // No flush: standard output is line-buffered.
    writeln!(io::stdout().lock(), "{}", Printable(text)).map_err(CtlError::Output)
}

/// Prints a warning on standard error.
pub(crate) fn warn(text: &str) {
    // A command succeeds also where standard error is closed.
    let _ = writeln!(io::stderr().lock(), "warning: {}", Printable(text));
}

/// Prints on standard error what the user may want to know.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "note: {}", Printable(text));
}

/// Quotes a text for shells, if it needs that.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// The exit code of a command whose reader has closed the pipe: that of a program which SIGPIPE ends.
pub(crate) const BROKEN_PIPE: u8 = 128 + 13;

/// Prints bytes unchanged.
pub(crate) fn raw(bytes: &[u8]) -> Result<(), CtlError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(CtlError::Output)
}
