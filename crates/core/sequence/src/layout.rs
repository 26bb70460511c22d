//! The layout of a pool: how many sequences its documents fill, and the places in them. It depends on lengths alone, on no
//! seed and no epoch.

use crate::{
    PackMethod, SequenceError, SequenceFill, SequenceParams,
    best_fit::{Capacity, PlacedPieces, RoomPacking, pack},
    params::room,
};

/// The sequences of a pool, of whose documents these are the lengths. It takes 4 bytes a document by chunk, and about 16 by
/// best fit: at most 32.
#[derive(Clone, Debug)]
pub struct PoolLayout {
    pub(crate) params: SequenceParams,
    /// Tokens of each document, without those that are added.
    pub(crate) lengths: Box<[u32]>,
    fill: SequenceFill,
    /// `None` by chunk.
    pub(crate) best_fit: Option<BestFitLayout>,
}

/// The pieces of documents by their room, and the places of the rooms.
#[derive(Clone, Debug)]
pub(crate) struct BestFitLayout {
    /// Documents with pieces that take a whole sequence, in order.
    pub(crate) whole_documents: Box<[u32]>,
    /// The number of those pieces up to each of these documents, and with it.
    pub(crate) whole_ends: Box<[u32]>,
    /// Documents with a piece that takes less than a sequence: the largest room first, those of one room in order.
    pub(crate) documents: Box<[u32]>,
    /// Each room, the largest first, and where its documents begin.
    pub(crate) rooms: Box<[RoomStart]>,
    /// The places of each sequence that has no piece of a whole one. A place is a number in the list of all documents above: that of
    /// its room's first document, and its number among the places of this room.
    pub(crate) places: Box<[u32]>,
    /// Where the places of each such sequence begin, and where all end.
    pub(crate) starts: Box<[u32]>,
}

/// Where the documents of a room begin.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoomStart {
    pub(crate) room: u32,
    pub(crate) first: u32,
}

/// The parameters of best fit.
#[derive(Clone, Copy)]
struct BestFitParams {
    capacity: Capacity,
    align: u32,
}

impl PoolLayout {
    /// Lays out the documents of these lengths: tokens of each, in the dataset's order.
    ///
    /// # Errors
    /// [`SequenceError`] if the parameters are not valid, or if counts exceed 32 or 64 bits.
    pub fn new(params: &SequenceParams, lengths: impl Into<Box<[u32]>>) -> Result<Self, SequenceError> {
        let lengths = lengths.into();
        let mut fill = counted(params, &lengths)?;
        let best_fit = BestFitParams::of(params).map(|of| BestFitLayout::new(params, of, &lengths)).transpose()?;
        match &best_fit {
            None => fill.chunk(params.seq_len),
            Some(layout) => fill.sequences = layout.sequences(),
        }
        finish(&mut fill, params, &lengths)?;
        Ok(Self { params: *params, lengths, fill, best_fit })
    }

    /// Returns what [`new`](Self::new) would have as [`fill`](Self::fill), in less time and memory: the first step of a
    /// job, over all pools. Pools can be counted in parallel.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn count(params: &SequenceParams, lengths: &[u32]) -> Result<SequenceFill, SequenceError> {
        params.check()?;
        if u32::try_from(lengths.len()).is_err() {
            return Err(SequenceError::TooManyDocuments { documents: lengths.len() as u64 });
        }
        let by_length = by_length(params.seq_len, lengths);
        let mut fill = SequenceFill::default();
        if by_length.iter().any(|of| fill.count(params, *of).is_none()) {
            // Finds out which document is too much.
            fill = counted(params, lengths)?;
        }
        match BestFitParams::of(params) {
            None => fill.chunk(params.seq_len),
            Some(of) => {
                let (mut whole, mut rooms) = (0, Vec::with_capacity(by_length.len()));
                for (length, documents) in by_length {
                    let (pieces, rest) = of.pieces_of(params, length);
                    whole += pieces * u64::from(documents);
                    rooms.extend(rest.map(|room| (room, documents)));
                }
                rooms.sort_unstable_by(|a, b| b.cmp(a));
                let by_room = rooms.chunk_by(|a, b| a.0 == b.0);
                let by_room: Vec<_> = by_room.map(|of| (of[0].0, of.iter().map(|(_, count)| count).sum())).collect();
                fill.sequences = whole + u64::from(pack(of.capacity, &by_room, whole).sequences);
            }
        }
        finish(&mut fill, params, lengths)?;
        Ok(fill)
    }

    /// Returns N, the number of sequences in each epoch; 0 if the documents have no tokens.
    #[must_use]
    pub const fn sequences(&self) -> u32 {
        // `finish` has checked it.
        self.fill.sequences as u32
    }

    /// Returns the number of documents.
    #[must_use]
    pub const fn documents(&self) -> u32 {
        self.lengths.len() as u32
    }

    /// Returns the tokens of each document, without those that are added.
    #[must_use]
    pub const fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// Returns what became of the documents.
    #[must_use]
    pub const fn fill(&self) -> SequenceFill {
        self.fill
    }
}

/// Counts documents and tokens; the number of sequences is still missing.
fn counted(params: &SequenceParams, lengths: &[u32]) -> Result<SequenceFill, SequenceError> {
    params.check()?;
    if u32::try_from(lengths.len()).is_err() {
        return Err(SequenceError::TooManyDocuments { documents: lengths.len() as u64 });
    }
    let mut fill = SequenceFill::default();
    for &length in lengths {
        fill.count(params, (length, 1)).ok_or(SequenceError::TooManyTokens { documents: fill.documents + 1 })?;
    }
    Ok(fill)
}

/// Returns the lengths that documents have, each with the number of documents that have it, the shortest first.
fn by_length(seq_len: u32, lengths: &[u32]) -> Vec<(u32, u32)> {
    // Of many documents those that are no longer than a sequence are counted in tables, which takes less than sorting them. There are four, so
    // that a count need not wait for that of the document before.
    let entries = if lengths.len() >= seq_len as usize / 4 { seq_len as usize + 1 } else { 0 };
    let (mut tables, mut others) = ([(); 4].map(|()| vec![0_u32; entries]), Vec::new());
    let mut add = |table: &mut Vec<u32>, length: u32| match table.get_mut(length as usize) {
        Some(count) => *count += 1,
        None => others.push(length),
    };
    let (fours, rest) = lengths.as_chunks::<4>();
    for four in fours {
        tables.iter_mut().zip(four).for_each(|(table, length)| add(table, *length));
    }
    rest.iter().for_each(|length| add(&mut tables[0], *length));
    others.sort_unstable();
    let count = |length: u32| (length, tables.iter().map(|table| table[length as usize]).sum());
    let counted = (0..entries as u32).map(count).filter(|(_, documents)| *documents > 0);
    counted.chain(others.chunk_by(|a, b| a == b).map(|of| (of[0], of.len() as u32))).collect()
}

/// Checks the number of sequences, and counts their places.
fn finish(fill: &mut SequenceFill, params: &SequenceParams, lengths: &[u32]) -> Result<(), SequenceError> {
    let Ok(sequences) = u32::try_from(fill.sequences) else {
        // The later of two equal ones would do as well.
        let (longest, length) = (0..).zip(lengths).max_by_key(|(_, length)| **length).unwrap_or((0, &0));
        let tokens = params.all_tokens(*length);
        return Err(SequenceError::TooManySequences { sequences: fill.sequences, longest, tokens });
    };
    fill.places = u64::from(sequences) * u64::from(params.seq_len);
    Ok(())
}

impl BestFitParams {
    fn of(params: &SequenceParams) -> Option<Self> {
        let PackMethod::BestFit { align, max_documents, .. } = params.method else { return None };
        let capacity = Capacity { seq_len: params.seq_len, max_pieces: max_documents.unwrap_or(u32::MAX) };
        Some(Self { capacity, align })
    }

    /// Calls `whole` with each document that has pieces that take a whole sequence, and their number; and `rest` with each
    /// one that has a piece that takes less, and its room.
    #[inline]
    fn pieces(
        self,
        params: &SequenceParams,
        lengths: &[u32],
        mut whole: impl FnMut(u32, u64),
        mut rest: impl FnMut(u32, u32),
    ) {
        for (document, &length) in (0..).zip(lengths) {
            let (pieces, room) = self.pieces_of(params, length);
            if let Some(room) = room {
                rest(document, room);
            }
            if pieces > 0 {
                whole(document, pieces);
            }
        }
    }

    /// Returns how many pieces of a document take a whole sequence, and the room of its last piece, if that takes less.
    #[inline]
    fn pieces_of(self, params: &SequenceParams, length: u32) -> (u64, Option<u32>) {
        let (seq_len, kept) = (self.capacity.seq_len, params.kept_tokens(length));
        let (pieces, tokens) =
            if kept < u64::from(seq_len) { (0, kept) } else { (kept / u64::from(seq_len), kept % u64::from(seq_len)) };
        match room(tokens as u32, self.align, seq_len) {
            0 => (pieces, None),
            all if all == seq_len => (pieces + 1, None),
            room => (pieces, Some(room)),
        }
    }
}

impl BestFitLayout {
    fn new(params: &SequenceParams, of: BestFitParams, lengths: &[u32]) -> Result<Self, SequenceError> {
        let (mut whole_documents, mut whole_ends, mut whole) = (Vec::new(), Vec::new(), 0_u64);
        let mut sorted = Vec::with_capacity(lengths.len());
        let add = |document, pieces| {
            whole += pieces;
            whole_documents.push(document);
            // More than this many are refused below.
            whole_ends.push(u32::try_from(whole).unwrap_or(u32::MAX));
        };
        of.pieces(params, lengths, add, |document, room| sorted.push(u64::from(!room) << 32 | u64::from(document)));
        if whole > u64::from(u32::MAX) {
            let mut fill = SequenceFill { sequences: whole, ..SequenceFill::default() };
            finish(&mut fill, params, lengths)?;
        }
        sorted.sort_unstable();
        let room = |key: u64| !((key >> 32) as u32);
        let mut rooms: Vec<RoomStart> = Vec::new();
        for (first, &key) in (0..).zip(&sorted) {
            if rooms.last().is_none_or(|last| last.room != room(key)) {
                rooms.push(RoomStart { room: room(key), first });
            }
        }
        let ends = rooms.iter().skip(1).map(|next| next.first).chain([sorted.len() as u32]);
        let counts: Vec<_> = rooms.iter().zip(ends).map(|(at, end)| (at.room, end - at.first)).collect();
        let (starts, places) = by_sequence(&pack(of.capacity, &counts, whole), sorted.len());
        Ok(Self {
            whole_documents: whole_documents.into(),
            whole_ends: whole_ends.into(),
            documents: sorted.iter().map(|key| *key as u32).collect(),
            rooms: rooms.into(),
            places,
            starts,
        })
    }

    /// Returns the number of sequences that one piece takes whole; they are the first ones.
    pub(crate) fn whole(&self) -> u32 {
        self.whole_ends.last().copied().unwrap_or(0)
    }

    fn sequences(&self) -> u64 {
        u64::from(self.whole()) + self.starts.len() as u64 - 1
    }

    /// Returns the range of `documents` that has the room of place `place`, and this room.
    #[inline]
    pub(crate) fn of_room(&self, place: u32) -> (RoomStart, u32) {
        let after = self.rooms.partition_point(|at| at.first <= place);
        let end = self.rooms.get(after).map_or(self.documents.len() as u32, |next| next.first);
        (self.rooms[after - 1], end)
    }
}

/// Sorts the places by their sequences, those of a sequence in the order in which they were filled. Returns where each
/// sequence begins, and the places.
fn by_sequence(packing: &RoomPacking, pieces: usize) -> (Box<[u32]>, Box<[u32]>) {
    // Of sequence s, element s + 1 counts the pieces, then is where the next one goes, and at last where they end.
    let mut starts = vec![0; packing.sequences as usize + 1];
    let range = |run: &PlacedPieces| run.sequence as usize + 1..(run.sequence + run.sequences) as usize + 1;
    for run in &packing.placed {
        starts[range(run)].iter_mut().for_each(|count| *count += run.each);
    }
    let mut sum = 0;
    for start in &mut starts[1..] {
        let count = std::mem::replace(start, sum);
        sum += count;
    }
    let (mut places, mut place) = (vec![0; pieces], 0);
    for run in &packing.placed {
        for next in &mut starts[range(run)] {
            for _ in 0..run.each {
                places[*next as usize] = place;
                *next += 1;
                place += 1;
            }
        }
    }
    (starts.into(), places.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lengths_are_counted_as_if_they_were_sorted(
            seq_len in prop_oneof![1_u32..40, Just(1 << 20)], lengths in prop::collection::vec(prop_oneof![0_u32..60, any::<u32>()], 0..300),
        ) {
            let mut sorted = lengths.clone();
            sorted.sort_unstable();
            let expected: Vec<_> = sorted.chunk_by(|a, b| a == b).map(|of| (of[0], of.len() as u32)).collect();
            prop_assert_eq!(by_length(seq_len, &lengths), expected);
        }
    }
}
