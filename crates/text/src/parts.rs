//! A document of tokens as text, in parts: what is learned and what is not, and special tokens apart from words.

use crate::chat::TokenPieces;

/// A part of a document's text: tokens that follow each other and are of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPart {
    /// What they stand for, as it is in the document: it may have characters that a terminal takes for commands.
    pub text: String,
    /// Whether they are learned.
    pub learned: bool,
    /// Whether they were added to the vocabulary, such as `<|im_end|>`.
    pub is_added: bool,
}

/// Returns the text of a document in parts. `tokens` are its ids, and whether each is learned.
///
/// A character of several tokens is whole, in the part with the last of them. A byte that is in no character is U+FFFD, as where the
/// document is cut. An id that the tokenizer does not have is written as `<id 50300>`.
#[must_use]
pub fn text_parts(tokens: &[(u32, bool)], tokenizer: &impl TokenPieces) -> Vec<TextPart> {
    let kind = |(id, learned): &(u32, bool)| (*learned, tokenizer.is_added(*id));
    let mut parts = Vec::new();
    let mut bytes = Vec::new();
    let mut runs = tokens.chunk_by(|one, next| kind(one) == kind(next)).peekable();
    while let Some(run) = runs.next() {
        let (learned, is_added) = kind(&run[0]);
        for (id, _) in run {
            let before = bytes.len();
            tokenizer.push_bytes(*id, &mut bytes);
            if bytes.len() == before {
                bytes.extend_from_slice(format!("<id {id}>").as_bytes());
            }
        }
        let goes_on = runs.peek().is_some_and(|next| !tokenizer.is_added(next[0].0));
        let rest = bytes.split_off(if goes_on { begun_character(&bytes) } else { bytes.len() });
        if !bytes.is_empty() {
            parts.push(TextPart { text: String::from_utf8_lossy(&bytes).into_owned(), learned, is_added });
        }
        bytes = rest;
    }
    parts
}

/// Returns where the last character begins if bytes of it are missing, and otherwise the number of bytes.
fn begun_character(bytes: &[u8]) -> usize {
    let is_begun = |at: &usize| match str::from_utf8(&bytes[*at..]) {
        Ok(_) => false,
        Err(error) => error.valid_up_to() == 0 && error.error_len().is_none(),
    };
    (bytes.len().saturating_sub(3)..bytes.len()).find(is_begun).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SpecialTokens, Tokenizer};

    const TINY: &[u8] = include_bytes!("../tests/data/tokenizer.json");

    fn part(text: &str, learned: bool, is_added: bool) -> TextPart {
        TextPart { text: text.to_owned(), learned, is_added }
    }

    #[test]
    fn a_character_of_several_tokens_is_in_the_part_that_completes_it() {
        let tokenizer = Tokenizer::open(TINY).unwrap();
        let ids = tokenizer.encode("a\u{6f22}b", SpecialTokens::Leave).unwrap();
        assert_eq!(ids.len(), 5, "a byte a token: {ids:?}");
        let parts = |first: usize, learned: &[usize]| {
            let tokens: Vec<_> = (first..5).map(|at| (ids[at], learned.contains(&at))).collect();
            text_parts(&tokens, &tokenizer)
        };
        assert_eq!(parts(0, &[]), [part("a\u{6f22}b", false, false)]);
        assert_eq!(parts(0, &[3, 4]), [part("a", false, false), part("\u{6f22}b", true, false)]);
        assert_eq!(parts(1, &[2]), [part("\u{6f22}b", false, false)]);
        assert_eq!(parts(2, &[]), [part("\u{fffd}\u{fffd}b", false, false)], "the document is cut in the character");
    }

    #[test]
    fn added_and_missing_tokens_are_seen() {
        let tokenizer = Tokenizer::open(TINY).unwrap();
        let byte = tokenizer.encode("\u{6f22}", SpecialTokens::Leave).unwrap()[0];
        let user = tokenizer.id("<|user|>").unwrap();
        let tokens = [(byte, true), (user, true), (1000, false), (5_000_000, false)];
        let expected =
            [part("\u{fffd}", true, false), part("<|user|>", true, true), part("<id 1000><id 5000000>", false, false)];
        assert_eq!(text_parts(&tokens, &tokenizer), expected);
        assert_eq!(text_parts(&[], &tokenizer), []);
    }
}
