//! Makes texts safe for terminals. Names and keys in a text come from other people, and must not give commands to the
//! terminal.

use std::fmt::{self, Write};

/// Returns whether a terminal takes a character as a command, or as a change of the writing direction.
#[must_use]
pub fn is_command(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text that keeps its line breaks and tabs, and writes other terminal commands as escapes such as `\u{1b}`.
#[derive(Clone, Copy, Debug)]
pub struct Printable<T>(pub T);

impl<T: fmt::Display> fmt::Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(|letter| is_command(letter) && !matches!(letter, '\n' | '\t')) {
            let (before, odd) = rest.split_at(at);
            let letter = odd.chars().next().expect("one was found");
            write!(self.0, "{before}{}", letter.escape_unicode())?;
            rest = &odd[letter.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_terminals_are_written_out_and_all_else_stays() {
        let text = "a\x1b]0;owned\x07\n\tb\u{202e}c\u{9b}d\r é 猫";
        let expected = "a\\u{1b}]0;owned\\u{7}\n\tb\\u{202e}c\\u{9b}d\\u{d} é 猫";
        assert_eq!(Printable(text).to_string(), expected);
        assert_eq!(Printable(format_args!("{:>4}|{}", 7, "x")).to_string(), "   7|x");
    }
}
