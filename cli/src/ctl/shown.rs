//! Text of documents as people read it: what is learned, and what is not, in a terminal and on a page.

use std::{
    fmt::Write,
    io::{self, IsTerminal},
};

use spdl_process::Printable;
use spdl_text::TextPart;

use super::html::escaped;

/// What a terminal is told before text that is learned, and that is not; added tokens of each are underlined.
const LEARNED: &str = "\x1b[1;32m";
const MASKED: &str = "\x1b[2m";
const ADDED: &str = "\x1b[4m";
const PLAIN: &str = "\x1b[0m";

/// Returns whether what is printed has colours.
pub(super) fn in_colours() -> bool {
    let is_off = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !is_off
}

/// Returns a text for a terminal. In colours, what is learned is green and bold, the rest is dimmed, and added tokens such as `<|im_end|>`
/// are underlined. Without, what is learned stands between `[[` and `]]`. Characters that a terminal takes for commands are written as
/// escapes, such as `\u{1b}`.
pub(super) fn for_terminal(parts: &[TextPart], in_colours: bool) -> String {
    let mut shown = String::new();
    for run in parts.chunk_by(|one, next| one.learned == next.learned) {
        let learned = run[0].learned;
        if !in_colours {
            let text: String = run.iter().map(|part| part.text.as_str()).collect();
            let _ =
                if learned { write!(shown, "[[{}]]", Printable(text)) } else { write!(shown, "{}", Printable(text)) };
            continue;
        }
        for TextPart { text, is_added, .. } in run {
            let (colour, line) = (if learned { LEARNED } else { MASKED }, if *is_added { ADDED } else { "" });
            // Set anew on each line, as pagers want it.
            let text = Printable(text).to_string().replace('\n', &format!("{PLAIN}\n{colour}{line}"));
            let _ = write!(shown, "{colour}{line}{text}{PLAIN}");
        }
    }
    shown
}

/// Returns a text for a page: what is learned has the class `learned`, the rest `masked`, and added tokens `added`, too.
pub(super) fn for_page(parts: &[TextPart]) -> String {
    let mut shown = String::new();
    for TextPart { text, learned, is_added } in parts {
        let (class, added) = (if *learned { "learned" } else { "masked" }, if *is_added { " added" } else { "" });
        let _ = write!(shown, "<span class=\"{class}{added}\">{}</span>", escaped(text));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Vec<TextPart> {
        [
            ("<|im_start|>", false, true),
            ("user\na\x1b[2J\u{202e}", false, false),
            ("b\u{e9}", true, false),
            ("<|im_end|>", true, true),
        ]
        .map(|(text, learned, is_added)| TextPart { text: text.to_owned(), learned, is_added })
        .into()
    }

    #[test]
    fn learned_text_is_marked_and_no_text_commands_the_terminal() {
        let plain = "<|im_start|>user\na\\u{1b}[2J\\u{202e}[[b\u{e9}<|im_end|>]]";
        assert_eq!(for_terminal(&parts(), false), plain);
        let coloured = for_terminal(&parts(), true);
        let begin = "\x1b[2m\x1b[4m<|im_start|>\x1b[0m\x1b[2muser\x1b[0m\n\x1b[2ma\\u{1b}";
        assert!(coloured.starts_with(begin), "{coloured:?}");
        assert!(coloured.contains("\x1b[1;32mb\u{e9}\x1b[0m\x1b[1;32m\x1b[4m<|im_end|>\x1b[0m"), "{coloured:?}");
        let visible = coloured.split('\x1b').map(|part| part.split_once('m').map_or(part, |(_, text)| text));
        assert_eq!(visible.collect::<String>(), plain.replace("[[", "").replace("]]", ""));
    }

    #[test]
    fn a_page_has_classes_and_no_markup_of_others() {
        let page = for_page(&parts());
        assert!(
            page.starts_with(
                "<span class=\"masked added\">&lt;|im_start|&gt;</span><span class=\"masked\">user\na\\u{1b}[2J"
            ),
            "{page}"
        );
        assert!(
            page.ends_with(
                "<span class=\"learned\">b\u{e9}</span><span class=\"learned added\">&lt;|im_end|&gt;</span>"
            ),
            "{page}"
        );
    }
}
