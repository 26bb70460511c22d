//! Standard output. What cannot be written is an error; a reader that has gone away ends the command, and quietly.

use std::{
    fmt,
    io::{self, Write},
};

use super::CtlError;

/// Prints a line as `println!` does, and returns what went wrong in place of a panic.
macro_rules! outln {
    () => { $crate::ctl::output::line(format_args!("")) };
    ($($text:tt)*) => { $crate::ctl::output::line(format_args!($($text)*)) };
}
pub(crate) use outln;

/// Prints a line on standard output.
pub(crate) fn line(text: fmt::Arguments<'_>) -> Result<(), CtlError> {
    // Standard output writes a line when it ends.
    writeln!(io::stdout().lock(), "{text}").map_err(CtlError::Output)
}

/// The exit code of a command whose reader went away: that of a program which the signal ends, as others do.
pub(crate) const BROKEN_PIPE: u8 = 128 + 13;

/// Prints bytes as they are.
pub(crate) fn raw(bytes: &[u8]) -> Result<(), CtlError> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(CtlError::Output)
}
