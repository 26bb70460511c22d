//! The sequences of a pool in one epoch: which pieces of documents each has.

use std::sync::Arc;

use spdl_order::permutation::{Key, Purpose};

use crate::{
    PackMethod, PoolLayout, SequenceParams,
    layout::{BestFitLayout, RoomStart},
};

/// A run of a document's tokens, and where it lies in its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The document's number within the pool.
    pub document: u32,
    /// Its first token among the document's tokens with those that are added.
    pub first: u64,
    /// The number of tokens; at least 1.
    pub tokens: u32,
    /// The place of the first token in the sequence. Places between the pieces, and behind the last one, are padding.
    pub at: u32,
    /// Whether its last token is the document's last. If not, the label of its last token is the document's next one.
    pub ends_document: bool,
}

/// The sequences of a pool in one epoch. By best fit it costs nothing to make; by chunk it takes 12 bytes a document, and a
/// permutation for each.
#[derive(Clone, Debug)]
pub struct PoolEpoch {
    layout: Arc<PoolLayout>,
    key: Key,
    /// Empty by best fit.
    line: DocumentLine,
}

/// The documents that have tokens, end to end in the order of an epoch.
#[derive(Clone, Debug, Default)]
struct DocumentLine {
    documents: Box<[u32]>,
    /// The number of tokens up to each document, and with it.
    ends: Box<[u64]>,
}

impl PoolEpoch {
    /// Makes an epoch of a job with this seed of the pool with this number.
    #[must_use]
    pub fn new(layout: Arc<PoolLayout>, seed: u64, epoch: u64, pool: u32) -> Self {
        let key = |purpose| Key::new(seed, purpose).with(epoch).with(u64::from(pool));
        match layout.params.method {
            PackMethod::BestFit { .. } => Self { layout, key: key(Purpose::Pieces), line: DocumentLine::default() },
            PackMethod::Chunk => {
                let key = key(Purpose::Documents);
                let line = DocumentLine::new(&layout.params, &layout.lengths, key);
                Self { layout, key, line }
            }
        }
    }

    /// Returns the layout, which is that of each epoch.
    #[must_use]
    pub fn layout(&self) -> &Arc<PoolLayout> {
        &self.layout
    }

    /// Puts the pieces of sequence number `sequence` into `pieces`, in the order of their places, in place of what was there.
    ///
    /// By chunk, returns the one token that follows the sequence, which is the label of its last place: of the document
    /// of the last piece, or of the next one. By best fit, nothing follows.
    ///
    /// # Panics
    /// If `sequence` is not below the layout's [`sequences`](PoolLayout::sequences).
    pub fn pieces(&self, sequence: u32, pieces: &mut Vec<Piece>) -> Option<Piece> {
        let sequences = self.layout.sequences();
        assert!(sequence < sequences, "sequence {sequence} of a pool of {sequences} sequences");
        pieces.clear();
        match &self.layout.best_fit {
            Some(layout) => {
                self.best_fit(layout, sequence, pieces);
                None
            }
            None => Some(self.line.cut(&self.layout, sequence, pieces)),
        }
    }

    fn best_fit(&self, layout: &BestFitLayout, sequence: u32, pieces: &mut Vec<Piece>) {
        let (seq_len, whole) = (self.layout.params.seq_len, layout.whole());
        if sequence < whole {
            let number = self.exchange(seq_len, whole, sequence);
            let index = layout.whole_ends.partition_point(|end| *end <= number);
            let before = if index == 0 { 0 } else { layout.whole_ends[index - 1] };
            let first = u64::from(number - before) * u64::from(seq_len);
            pieces.push(self.piece(layout.whole_documents[index], first, 0));
            return;
        }
        let number = (sequence - whole) as usize;
        let places = &layout.places[layout.starts[number] as usize..layout.starts[number + 1] as usize];
        let mut at = 0;
        for four in places.chunks(4) {
            let mut rooms = [RoomStart::default(); 4];
            // The only permutation of one is found as such: rare rooms are many.
            let mut exchanged = [(self.key, 1, 0); 4];
            for ((place, room), exchanged) in four.iter().zip(&mut rooms).zip(&mut exchanged) {
                let (start, end) = layout.of_room(*place);
                *room = start;
                let (count, place) = (u64::from(end - start.first), u64::from(place - start.first));
                *exchanged = (self.key.with(u64::from(start.room)), count, place);
            }
            let exchanged =
                if exchanged.iter().any(|(_, count, _)| *count > 1) { Key::permute_four(exchanged) } else { [0; 4] };
            pieces.extend(rooms.iter().zip(exchanged).take(four.len()).map(|(RoomStart { room, first }, number)| {
                let document = layout.documents[(first + number as u32) as usize];
                // It is what is left behind the pieces that take a sequence each.
                let tokens = self.layout.params.all_tokens(self.layout.lengths[document as usize]);
                let piece = self.piece(document, tokens - tokens % u64::from(seq_len), at);
                at += room;
                piece
            }));
        }
    }

    /// Returns the piece that is at a place, both as numbers among the `count` of this room.
    #[inline]
    fn exchange(&self, room: u32, count: u32, place: u32) -> u32 {
        // The only permutation of one is found as such: rare rooms are many.
        if count == 1 {
            return place;
        }
        self.key.with(u64::from(room)).permute(u64::from(count), u64::from(place)) as u32
    }

    /// Returns the piece of a document from token `first` on, up to its end or to that of a sequence.
    #[inline]
    fn piece(&self, document: u32, first: u64, at: u32) -> Piece {
        let PoolLayout { params, lengths, .. } = &*self.layout;
        let left = params.all_tokens(lengths[document as usize]) - first;
        let tokens = left.min(u64::from(params.seq_len));
        Piece { document, first, tokens: tokens as u32, at, ends_document: tokens == left }
    }
}

impl DocumentLine {
    fn new(params: &SequenceParams, lengths: &[u32], key: Key) -> Self {
        let count = lengths.len() as u64;
        let order = (0..count).map(|place| key.permute(count, place) as u32);
        let documents: Box<[u32]> = order.filter(|document| lengths[*document as usize] > 0).collect();
        let mut end = 0;
        let ends = documents.iter().map(|&document| {
            end += params.all_tokens(lengths[document as usize]);
            end
        });
        let ends = ends.collect();
        Self { documents, ends }
    }

    /// Cuts a sequence out of the line, and returns the token behind it.
    fn cut(&self, layout: &PoolLayout, sequence: u32, pieces: &mut Vec<Piece>) -> Piece {
        let seq_len = layout.params.seq_len;
        let from = u64::from(sequence) * u64::from(seq_len);
        let (to, mut place) = (from + u64::from(seq_len), from);
        let mut index = self.ends.partition_point(|end| *end <= from);
        loop {
            let (document, end) = (self.documents[index], self.ends[index]);
            let begin = end - layout.params.all_tokens(layout.lengths[document as usize]);
            let piece = |to: u64| Piece {
                document,
                first: place - begin,
                tokens: (to - place) as u32,
                at: (place - from) as u32,
                ends_document: to == end,
            };
            if place == to {
                return piece(to + 1);
            }
            let until = end.min(to);
            pieces.push(piece(until));
            place = until;
            index += usize::from(until == end);
        }
    }
}
