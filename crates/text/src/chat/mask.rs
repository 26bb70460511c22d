//! Which tokens are learned: those of which a part is in a learned piece of the text, as in transformers.

use std::ops::Range;

use tokenizers::{
    pipeline::{EncodeOptions, Override, PipelineModel, PipelineTokenizer},
    utils::byte_level::char_to_byte,
};

use super::ChatError;

/// A tokenizer whose tokens can be found in the text.
pub trait TokenPieces {
    /// Returns the ids of a text, without special tokens that are not written in it.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong.
    fn encode(&self, text: &str) -> Result<Vec<u32>, String>;

    /// Adds the bytes of the text that a token stands for.
    fn push_bytes(&self, id: u32, bytes: &mut Vec<u8>);

    /// Returns whether a token is one that was added to the vocabulary, such as `<|im_end|>`.
    fn is_added(&self, id: u32) -> bool;
}

impl TokenPieces for PipelineTokenizer {
    fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let options =
            EncodeOptions { padding: Override::Off, truncation: Override::Off, ..EncodeOptions::no_specials() };
        let mut ids = Vec::new();
        self.encode_into(text, &options, &mut ids).map_err(|error| error.to_string())?;
        Ok(ids.into_iter().map(u32::from).collect())
    }

    fn push_bytes(&self, id: u32, bytes: &mut Vec<u8>) {
        if let Some(token) = self.get_added_vocabulary().simple_id_to_token(id) {
            bytes.extend_from_slice(token.as_bytes());
            return;
        }
        let Some(token) = self.get_model().id_to_token(id) else { return };
        if let PipelineModel::BPE(model) = self.get_model()
            && model.is_byte_level()
        {
            return bytes.extend(token.chars().filter_map(char_to_byte));
        }
        match token.strip_prefix("<0x").and_then(|hex| u8::from_str_radix(hex.strip_suffix('>')?, 16).ok()) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(token.replace('\u{2581}', " ").as_bytes()),
        }
    }

    fn is_added(&self, id: u32) -> bool {
        self.get_added_vocabulary().simple_id_to_token(id).is_some()
    }
}

/// Returns whether each token is learned. `spans` are the bytes of the text that are, in order.
pub(super) fn learned(
    tokenizer: &impl TokenPieces,
    text: &str,
    ids: &[u32],
    spans: &[Range<usize>],
) -> Result<Vec<bool>, ChatError> {
    let (bytes, ends) = pieces(tokenizer, ids);
    let place = |at: usize| {
        if at == text.len() {
            return Ok(bytes.len());
        }
        // A normalizer changed the text: as many bytes come before a place as the text before it has by itself.
        let before = tokenizer.encode(&text[..at]).map_err(ChatError::Tokens)?;
        let (before, _) = pieces(tokenizer, &before);
        bytes.starts_with(&before).then_some(before.len()).ok_or_else(|| {
            ChatError::Tokens(format!(
                "the tokenizer changes the text, so that the tokens after `{}` cannot be told from those before",
                last_line(&text[..at])
            ))
        })
    };
    let spans = match bytes == text.as_bytes() {
        true => spans.to_vec(),
        false => spans.iter().map(|span| Ok(place(span.start)?..place(span.end)?)).collect::<Result<_, _>>()?,
    };
    let (mut learned, mut start, mut next) = (Vec::with_capacity(ids.len()), 0, 0);
    for end in ends {
        while spans.get(next).is_some_and(|span| span.end <= start) {
            next += 1;
        }
        learned.push(spans[next..].iter().take_while(|span| span.start < end).any(|span| !span.is_empty()));
        start = end;
    }
    Ok(learned)
}

/// Returns the bytes of all tokens, and where each ends.
fn pieces(tokenizer: &impl TokenPieces, ids: &[u32]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::with_capacity(ids.len() * 5);
    let ends = ids.iter().map(|id| {
        tokenizer.push_bytes(*id, &mut bytes);
        bytes.len()
    });
    let ends = ends.collect();
    (bytes, ends)
}

fn last_line(text: &str) -> String {
    let line = text.lines().last().unwrap_or_default();
    let skipped = line.chars().count().saturating_sub(60);
    line.chars().skip(skipped).collect()
}
