//! A pool in use in an epoch: the pieces of its sequences, and how many of their labels are learned.

use std::sync::Arc;

use spdl_job::{LabelRule, Sequence};
use spdl_sequence::{PackMethod, Piece, PoolEpoch, PoolLayout, SequenceParams};

/// What is counted as learned in a job's sequences.
#[derive(Clone, Copy, Debug)]
pub(super) struct LearnedLabels {
    shifted: bool,
    has_masks: bool,
}

impl From<LabelRule<'_>> for LearnedLabels {
    fn from(LabelRule { shifted, loss_from }: LabelRule<'_>) -> Self {
        Self { shifted, has_masks: loss_from.is_some() }
    }
}

/// The layout of a pool, with the learned labels of its documents, if these have masks. All epochs share it.
#[derive(Clone)]
pub(super) struct LaidOutPool {
    pub(super) layout: Arc<PoolLayout>,
    learned: Option<Arc<LearnedPieces>>,
}

/// The learned labels of the pieces of a pool's documents.
struct LearnedPieces {
    /// The number of pieces before each document.
    firsts: Box<[u32]>,
    labels: Box<[u32]>,
}

/// A pool in an epoch.
pub(super) struct OpenPool {
    pub(super) pool: LaidOutPool,
    epoch: PoolEpoch,
}

impl LaidOutPool {
    /// `learned` has the learned labels of each piece of the documents, if they have masks.
    ///
    /// # Errors
    /// If these are not as many as there are pieces. The text is about the pool's table.
    pub(super) fn new(
        params: &SequenceParams,
        layout: Arc<PoolLayout>,
        learned: Option<Box<[u32]>>,
    ) -> Result<Self, String> {
        let learned = match learned.filter(|_| params.method != PackMethod::Chunk) {
            Some(labels) => Some(Arc::new(LearnedPieces::new(params, &layout, labels)?)),
            None => None,
        };
        Ok(Self { layout, learned })
    }
}

impl LearnedPieces {
    fn new(params: &SequenceParams, layout: &PoolLayout, labels: Box<[u32]>) -> Result<Self, String> {
        let (mut firsts, mut end) = (Vec::with_capacity(layout.lengths().len()), 0);
        for length in layout.lengths() {
            firsts.push(u32::try_from(end).unwrap_or(u32::MAX));
            end += params.kept_pieces(*length);
        }
        if end != labels.len() as u64 {
            return Err(format!("its documents have {end} pieces, and {} numbers of learned labels", labels.len()));
        }
        Ok(Self { firsts: firsts.into(), labels })
    }
}

impl OpenPool {
    pub(super) fn new(pool: LaidOutPool, seed: u64, epoch: u64, number: u32) -> Self {
        Self { epoch: PoolEpoch::new(pool.layout.clone(), seed, epoch, number), pool }
    }

    /// Puts the pieces of a sequence into `pieces`, and returns the token that follows them, by chunk.
    pub(super) fn pieces(&self, sequence: u32, pieces: &mut Vec<Piece>) -> Option<Piece> {
        self.epoch.pieces(sequence, pieces)
    }

    /// Returns how many labels of a sequence are learned; `None` by chunk if documents have masks, as pieces then are others in each
    /// epoch.
    pub(super) fn learned(
        &self,
        (sequence, labels): (&Sequence, LearnedLabels),
        (pieces, next): (&[Piece], Option<&Piece>),
    ) -> Option<u64> {
        if labels.has_masks {
            let LearnedPieces { firsts, labels } = self.pool.learned.as_deref()?;
            let number = |piece: &Piece| {
                firsts[piece.document as usize] as usize + (piece.first / u64::from(sequence.seq_len)) as usize
            };
            return Some(pieces.iter().map(|piece| u64::from(labels[number(piece)])).sum());
        }
        let params = sequence.params();
        let within = |piece: &Piece| {
            let all = params.all_tokens(self.pool.layout.lengths()[piece.document as usize]);
            let tokens = sequence.label_tokens(piece, all, labels.shifted);
            tokens.end - tokens.start
        };
        // The first token of what follows a document is the label of its last place.
        let is_followed = |(number, piece): (usize, &Piece)| {
            piece.ends_document && (pieces.get(number + 1).is_some() || next.is_some())
        };
        let crosses = sequence.cross_documents && labels.shifted;
        let across = pieces.iter().enumerate().filter(|piece| crosses && is_followed(*piece)).count();
        Some(pieces.iter().map(within).sum::<u64>() + across as u64)
    }
}
