//! What is learned of a sequence: which tokens of documents are labels, and where a mask comes from.

use std::ops::Range;

use spdl_sequence::{PackMethod, Piece};

use super::Sequence;
use crate::{Column, ColumnKind, KeyProblem};

/// How a column says what is learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelRule<'c> {
    /// Whether the label of a place is the token after it. If not, it is the token at the place.
    pub shifted: bool,
    /// The field that says which tokens of a document are learned; `None` if all are.
    pub loss_from: Option<&'c str>,
}

impl<'c> LabelRule<'c> {
    /// Returns how this column says what is learned; `None` for columns of other kinds.
    #[must_use]
    pub fn of(kind: &'c ColumnKind) -> Option<Self> {
        match kind {
            ColumnKind::Labels(labels) => {
                Some(Self { shifted: labels.shifted, loss_from: labels.loss_from.as_deref() })
            }
            ColumnKind::LossMask(mask) => Some(Self { shifted: true, loss_from: mask.loss_from.as_deref() }),
            _ => None,
        }
    }

    /// Returns what the learned tokens of a job with these columns are counted by: the first column `labels`, or else `loss_mask`.
    #[must_use]
    pub fn counted(columns: &'c [Column]) -> Option<Self> {
        let labels = columns.iter().find(|column| matches!(column.kind, ColumnKind::Labels(_)));
        labels.into_iter().chain(columns).find_map(|column| Self::of(&column.kind))
    }
}

/// Checks that all columns of what is learned have one mask, or none.
pub(super) fn check_loss(column: &Column, columns: &[Column]) -> Result<(), KeyProblem> {
    let Some(LabelRule { loss_from, .. }) = LabelRule::of(&column.kind) else { return Ok(()) };
    if loss_from == Some("") {
        return Err(("loss_from", "is empty; name the field that has a number for each token".to_owned()));
    }
    let others = columns.iter().filter_map(|other| Some((other, LabelRule::of(&other.kind)?.loss_from)));
    let (Some((other, theirs)), said) = (others.into_iter().find(|(_, theirs)| *theirs != loss_from), loss_from) else {
        return Ok(());
    };
    let words = |field: Option<&str>| field.map_or_else(|| "missing".to_owned(), |field| format!("`{field}`"));
    Err((
        "loss_from",
        format!(
            "is {}, and that of column `{}` is {}; one mask says what a job learns: write the same field in all columns \
             `labels` and `loss_mask`, or in none",
            words(said),
            other.name,
            words(theirs)
        ),
    ))
}

impl Sequence {
    /// Returns which tokens of a document are labels of a piece of it, if all are learned: numbers among its `all` tokens, with those
    /// that are added. With `cross_documents`, shifted labels have the first token of the next piece besides.
    #[must_use]
    pub fn label_tokens(&self, piece: &Piece, all: u64, shifted: bool) -> Range<u64> {
        let end = piece.first + u64::from(piece.tokens);
        let learned = if self.eos.is_some() && !self.eos_in_loss { all.saturating_sub(1) } else { all };
        let follows_another = self.cross_documents && !shifted && piece.at > 0;
        let start = piece.first + u64::from(!follows_another);
        let end = if shifted { end + 1 } else { end }.min(learned);
        start..end.max(start)
    }

    /// Returns the places of each document in a row: from its first token to the next document, of which `align` leaves some
    /// without a token. With `cross_documents`, a sequence is one document.
    #[must_use]
    pub fn segments(&self, pieces: &[Piece]) -> Vec<u32> {
        let seq_len = self.seq_len;
        match self.packing {
            PackMethod::Chunk if self.cross_documents => pieces.first().map(|_| seq_len).into_iter().collect(),
            PackMethod::Chunk => pieces.iter().map(|piece| piece.tokens).collect(),
            PackMethod::BestFit { align, .. } => {
                let room = |piece: &Piece| piece.tokens.next_multiple_of(align).min(seq_len - piece.at);
                pieces.iter().map(room).collect()
            }
        }
    }
}
