//! The documents of a sequence as text, from the arrays of a batch.

use spdl_job::{Column, ColumnKind, layout::BatchView};
use spdl_sequence::Piece;
use spdl_text::{TextPart, Tokenizer, text_parts};
use spdl_types::Position;

use crate::ctl::{
    record_names::RecordName,
    report::{count, grouped},
};

/// The label of a place where nothing is learned.
const NO_LABEL: i64 = -100;

/// The columns that a sequence is read from, by their numbers.
pub(super) struct ShownColumns {
    tokens: usize,
    learned: LearnedFrom,
}

/// What says which tokens are learned.
enum LearnedFrom {
    /// Labels; whether that of a place is the next token's.
    Labels { column: usize, shifted: bool },
    /// A mask, with the next token's mark at each place.
    Mask(usize),
    /// The job has neither: all are.
    Nothing,
}

impl ShownColumns {
    /// Finds the columns of a job with sequences.
    pub(super) fn of(columns: &[Column]) -> Self {
        let numbered = || columns.iter().map(|column| &column.kind).enumerate();
        let tokens = numbered().find(|(_, kind)| matches!(kind, ColumnKind::Tokens(_)));
        let labels = numbered().find_map(|(column, kind)| match kind {
            ColumnKind::Labels(labels) => Some(LearnedFrom::Labels { column, shifted: labels.shifted }),
            _ => None,
        });
        let mask = || numbered().find(|(_, kind)| matches!(kind, ColumnKind::LossMask(_)));
        Self {
            tokens: tokens.expect("a job with sequences has tokens").0,
            learned: labels.or_else(|| Some(LearnedFrom::Mask(mask()?.0))).unwrap_or(LearnedFrom::Nothing),
        }
    }
}

/// A sequence as text.
pub(super) struct ShownSequence {
    position: Position,
    /// The source that it is of, if the job has several.
    source: Option<String>,
    places: usize,
    pub(super) documents: Vec<ShownDocument>,
}

/// A document of a sequence, or what the sequence has of it.
pub(super) struct ShownDocument {
    pub(super) name: RecordName,
    piece: Piece,
    learned: u64,
    pub(super) parts: Vec<TextPart>,
}

impl ShownSequence {
    /// Reads an entry of a batch, which has these pieces of documents.
    pub(super) fn of(
        (view, entry): (&BatchView<'_>, usize),
        source: Option<&str>,
        columns: &ShownColumns,
        documents: Vec<(RecordName, Piece)>,
        tokenizer: &Tokenizer,
    ) -> Self {
        let column = |index: usize| {
            let bytes = view.sample_bytes(index, entry);
            bytes.chunks_exact(view.layout().columns()[index].dtype.bytes())
        };
        let ids: Vec<u32> = column(columns.tokens).map(|id| integer(id) as u32).collect();
        let counts: Option<Vec<bool>> = match &columns.learned {
            LearnedFrom::Labels { column: labels, .. } => {
                Some(column(*labels).map(|label| integer(label) != NO_LABEL).collect())
            }
            LearnedFrom::Mask(mask) => Some(column(*mask).map(|mark| mark.iter().any(|byte| *byte != 0)).collect()),
            LearnedFrom::Nothing => None,
        };
        let is_shifted = !matches!(columns.learned, LearnedFrom::Labels { shifted: false, .. });
        let position = view.entries().nth(entry).map_or(Position::START, |entry| entry.position());
        let source = source.map(str::to_owned);
        let mut shown = Self { position, source, places: ids.len(), documents: Vec::with_capacity(documents.len()) };
        let mut before: Option<Piece> = None;
        for (name, piece) in documents {
            let learned = |place: usize| match &counts {
                None => true,
                Some(counts) if !is_shifted => counts[place],
                // The token of a piece's first place is a label only where the text of the one before it goes on with it.
                Some(counts) if place == piece.at as usize => {
                    before.is_some_and(|before| before.ends_document && before.at + before.tokens == piece.at)
                        && counts[place - 1]
                }
                Some(counts) => counts[place - 1],
            };
            let places = piece.at as usize..(piece.at + piece.tokens) as usize;
            let tokens: Vec<_> = places.map(|place| (ids[place], learned(place))).collect();
            shown.documents.push(ShownDocument {
                name,
                piece,
                learned: tokens.iter().filter(|(_, learned)| *learned).count() as u64,
                parts: text_parts(&tokens, tokenizer),
            });
            before = Some(piece);
        }
        shown
    }

    /// Returns what it is, in words.
    pub(super) fn facts(&self) -> String {
        let tokens: u64 = self.documents.iter().map(|document| u64::from(document.piece.tokens)).sum();
        let learned: u64 = self.documents.iter().map(|document| document.learned).sum();
        let source = self.source.as_ref().map_or_else(String::new, |source| format!(" of source {source}"));
        format!(
            "sequence {}{source}: {}, {} in {}, {} learned, {} of padding",
            self.position,
            count(self.documents.len() as u64, "document", "documents"),
            count(tokens, "token", "tokens"),
            count(self.places as u64, "place", "places"),
            grouped(learned),
            count(self.places as u64 - tokens, "place", "places"),
        )
    }
}

impl ShownDocument {
    /// Returns what the sequence has of it, in words.
    pub(super) fn facts(&self) -> String {
        let Piece { first, tokens, at, ends_document, .. } = self.piece;
        let mut facts = format!(
            "{} from place {}, {} learned",
            count(tokens.into(), "token", "tokens"),
            grouped(at.into()),
            grouped(self.learned)
        );
        if first > 0 {
            facts += &format!("; begins with its token {}", grouped(first));
        }
        if !ends_document {
            facts += "; its end is not here";
        }
        facts
    }
}

/// Returns a whole number of 1 to 8 bytes, whose sign is that of the last one.
fn integer(bytes: &[u8]) -> i64 {
    let sign = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
    let mut wide = [sign; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_sizes_are_read() {
        assert_eq!(integer(&(-100_i32).to_le_bytes()), NO_LABEL);
        assert_eq!(integer(&(-100_i64).to_le_bytes()), NO_LABEL);
        assert_eq!((integer(&[7, 1, 0, 0]), integer(&[0xff, 0])), (263, 255));
    }
}
