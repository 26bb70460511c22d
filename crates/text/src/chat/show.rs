//! A document as people read it: what is learned, and what is not.

use std::fmt::Write;

use super::{ChatDocument, TokenPieces};

/// What a terminal is told before text that is learned, and that is not; added tokens of each are underlined.
const LEARNED: &str = "\x1b[1;32m";
const MASKED: &str = "\x1b[2m";
const ADDED: &str = "\x1b[4m";
const PLAIN: &str = "\x1b[0m";

/// Returns a document as text. In colours, what is learned is green and bold, the rest is dimmed, and added tokens such as `<|im_end|>` are
/// underlined. Without, what is learned stands between `[[` and `]]`.
///
/// Characters that a terminal takes for commands are written as escapes, such as `\u{1b}`.
#[must_use]
pub fn show(document: &ChatDocument, tokenizer: &impl TokenPieces, in_colours: bool) -> String {
    let tokens: Vec<_> = document.ids.iter().zip(&document.learned).map(|(id, learned)| (*id, *learned)).collect();
    let mut shown = String::new();
    for run in tokens.chunk_by(|one, next| one.1 == next.1) {
        let learned = run[0].1;
        if !in_colours {
            let text = text(run, tokenizer);
            shown += &if learned { format!("[[{text}]]") } else { text };
            continue;
        }
        for part in run.chunk_by(|one, next| tokenizer.is_added(one.0) == tokenizer.is_added(next.0)) {
            let colour = if learned { LEARNED } else { MASKED };
            let line = if tokenizer.is_added(part[0].0) { ADDED } else { "" };
            // Set anew on each line, as pagers want it.
            let text = text(part, tokenizer).replace('\n', &format!("{PLAIN}\n{colour}{line}"));
            let _ = write!(shown, "{colour}{line}{text}{PLAIN}");
        }
    }
    shown
}

fn text(tokens: &[(u32, bool)], tokenizer: &impl TokenPieces) -> String {
    let mut bytes = Vec::new();
    tokens.iter().for_each(|(id, _)| tokenizer.push_bytes(*id, &mut bytes));
    let mut text = String::with_capacity(bytes.len());
    for letter in String::from_utf8_lossy(&bytes).chars() {
        let is_command = letter.is_control() && !matches!(letter, '\n' | '\t');
        if is_command || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            text.extend(letter.escape_unicode());
        } else {
            text.push(letter);
        }
    }
    text
}
