//! Best fit decreasing (Johnson, 1973) over the rooms of pieces. Sequences that came to the same state one after the other
//! are handled as one run, so the cost depends on how many different rooms there are.

use std::collections::BTreeMap;

/// Pieces of one room that are put into neighbouring sequences, the same number into each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedPieces {
    /// The first sequence.
    pub(crate) sequence: u32,
    /// The number of sequences.
    pub(crate) sequences: u32,
    /// The number of pieces in each.
    pub(crate) each: u32,
}

/// Neighbouring sequences in the same state.
#[derive(Clone, Copy)]
struct OpenSequences {
    room: u32,
    first: u32,
    count: u32,
    /// Pieces in each.
    pieces: u32,
}

/// The sequences that further pieces may fit into, by (room, number): the best fit for a piece is the first one from
/// (its room, 0) on.
struct Open {
    runs: BTreeMap<(u32, u32), (u32, u32)>,
    /// The smallest room of a piece: less room is no use.
    smallest: u32,
    max_pieces: u32,
}

impl Open {
    fn insert(&mut self, run: OpenSequences) {
        if run.count > 0 && run.room >= self.smallest && run.pieces < self.max_pieces {
            self.runs.insert((run.room, run.first), (run.count, run.pieces));
        }
    }

    fn take(&mut self, room: u32) -> Option<OpenSequences> {
        let (&(room, first), &(count, pieces)) = self.runs.range((room, 0)..).next()?;
        self.runs.remove(&(room, first));
        Some(OpenSequences { room, first, count, pieces })
    }
}

/// Packs pieces into sequences of `seq_len` and at most `max_pieces`, and returns the number of sequences. `rooms` has
/// each room with its number of pieces, the largest first; each is from 1 to `seq_len`. Each piece goes into the sequence
/// with the least room in which it fits, of several the one with the lowest number, and else into a new sequence. `place`
/// gets the placements in this order, those of one room together.
pub(crate) fn pack(
    seq_len: u32,
    max_pieces: u32,
    rooms: impl DoubleEndedIterator<Item = (u32, u32)> + Clone,
    mut place: impl FnMut(PlacedPieces),
) -> u32 {
    let smallest = rooms.clone().next_back().map_or(1, |(room, _)| room);
    let mut open = Open { runs: BTreeMap::new(), smallest, max_pieces };
    let mut sequences = 0;
    for (room, mut left) in rooms {
        while left > 0 {
            let run = open.take(room).unwrap_or_else(|| {
                let each = (seq_len / room).min(max_pieces);
                let new = OpenSequences { room: seq_len, first: sequences, count: left.div_ceil(each), pieces: 0 };
                sequences += new.count;
                new
            });
            // A sequence is the best fit for as long as this room fits: no other one was fuller before.
            let each = (run.room / room).min(max_pieces - run.pieces);
            let full = run.count.min(left / each);
            let one_more = if full < run.count { left - full * each } else { 0 };
            left -= full * each + one_more;
            for (first, count, each) in [(run.first, full, each), (run.first + full, u32::from(one_more > 0), one_more)]
            {
                if count > 0 {
                    place(PlacedPieces { sequence: first, sequences: count, each });
                    open.insert(OpenSequences {
                        room: run.room - each * room,
                        first,
                        count,
                        pieces: run.pieces + each,
                    });
                }
            }
            let used = full + u32::from(one_more > 0);
            open.insert(OpenSequences { first: run.first + used, count: run.count - used, ..run });
        }
    }
    sequences
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Puts each piece into the sequence that a look at all of them finds. Returns the pieces of each sequence, each as
    /// its number in the order of packing.
    fn naive(seq_len: u32, max_pieces: u32, rooms: &[(u32, u32)]) -> Vec<Vec<u32>> {
        let mut sequences: Vec<(u32, Vec<u32>)> = Vec::new();
        let pieces = rooms.iter().flat_map(|&(room, count)| std::iter::repeat_n(room, count as usize));
        for (number, room) in (0..).zip(pieces) {
            let mut best: Option<usize> = None;
            for (i, (free, inside)) in sequences.iter().enumerate() {
                let fits = *free >= room && inside.len() < max_pieces as usize;
                if fits && best.is_none_or(|best| *free < sequences[best].0) {
                    best = Some(i);
                }
            }
            let best = best.unwrap_or_else(|| {
                sequences.push((seq_len, Vec::new()));
                sequences.len() - 1
            });
            sequences[best].0 -= room;
            sequences[best].1.push(number);
        }
        sequences.into_iter().map(|(_, inside)| inside).collect()
    }

    fn by_runs(seq_len: u32, max_pieces: u32, rooms: &[(u32, u32)]) -> Vec<Vec<u32>> {
        let (mut placements, mut number) = (Vec::new(), 0);
        let count = pack(seq_len, max_pieces, rooms.iter().copied(), |placement| placements.push(placement));
        let mut sequences = vec![Vec::new(); count as usize];
        for placement in placements {
            for i in 0..placement.sequences {
                for _ in 0..placement.each {
                    sequences[(placement.sequence + i) as usize].push(number);
                    number += 1;
                }
            }
        }
        assert_eq!(number, rooms.iter().map(|(_, count)| count).sum::<u32>());
        sequences
    }

    fn rooms() -> impl Strategy<Value = (u32, Vec<(u32, u32)>)> {
        prop_oneof![Just(8_u32), Just(64), Just(1000), 1_u32..300].prop_flat_map(|seq_len| {
            let small = 1..=seq_len.min(1 + seq_len / 8);
            let rooms = prop::collection::btree_map(prop_oneof![1..=seq_len, small], 1_u32..12, 0..40);
            (Just(seq_len), rooms.prop_map(|rooms| rooms.into_iter().rev().collect()))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn runs_of_sequences_are_packed_as_sequences_one_by_one(
            (seq_len, rooms) in rooms(), max_pieces in prop_oneof![Just(u32::MAX), 1_u32..6],
        ) {
            prop_assert_eq!(by_runs(seq_len, max_pieces, &rooms), naive(seq_len, max_pieces, &rooms));
        }
    }

    #[test]
    fn the_fullest_sequence_with_room_gets_a_piece_and_of_equals_the_first() {
        // 7 6 6 open three sequences. 4 fills the first with 4 free, 3 the one with 3 free; the other 3 goes to the third, as
        // does 1, unless that would be a third piece.
        let rooms = [(7, 1), (6, 2), (4, 1), (3, 2), (1, 1)];
        assert_eq!(by_runs(10, u32::MAX, &rooms), [vec![0, 4], vec![1, 3], vec![2, 5, 6]]);
        assert_eq!(by_runs(10, 2, &rooms), [vec![0, 4], vec![1, 3], vec![2, 5], vec![6]]);
    }

    #[test]
    fn thousands_of_millions_of_equal_pieces_are_two_placements() {
        let mut placements = Vec::new();
        let count = pack(8192, u32::MAX, [(2, 3_000_000_000)].into_iter(), |placement| placements.push(placement));
        assert_eq!(count, 732_422);
        assert_eq!(placements.len(), 2);
    }
}
