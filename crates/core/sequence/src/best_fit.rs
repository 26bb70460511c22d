//! Best fit over the rooms of pieces, from the largest to the smallest, in two variants: spread, and stacked. Neighbouring
//! sequences in the same state are handled as one run, so the cost depends on how many different rooms there are.

use crate::open_runs::{OpenRun, OpenRuns};

/// A spread packing is taken if it needs at most 1 in this number of sequences more than a stacked one.
const SPREAD_COST: u64 = 256;

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

/// Which sequences get the pieces.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RoomPacking {
    /// The number of sequences.
    pub(crate) sequences: u32,
    /// The pieces in the order of packing, those of one room together.
    pub(crate) placed: Vec<PlacedPieces>,
}

/// What all sequences hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    /// Room in each.
    pub(crate) seq_len: u32,
    /// The most pieces in each, at least 1.
    pub(crate) max_pieces: u32,
}

/// Neighbouring sequences in the same state.
#[derive(Clone, Copy)]
struct OpenSequences {
    /// What each has free.
    free: u32,
    run: OpenRun,
}

/// The sequences that a further piece may fit into.
struct Open {
    capacity: Capacity,
    /// The smallest room of all pieces: sequences with less free are closed.
    smallest: u32,
    /// What divides all rooms: what a sequence holds is a multiple of it, and that multiple is its level.
    unit: u32,
    runs: OpenRuns,
    /// What all of them have free.
    free: u64,
    packing: RoomPacking,
}

/// Packs pieces that take less than a sequence. `rooms` has each room with its number of pieces, the largest first. The
/// `whole` sequences that one piece takes count as such in what a spread packing may cost.
pub(crate) fn pack(capacity: Capacity, rooms: &[(u32, u32)], whole: u64) -> RoomPacking {
    let spread = spread(capacity, rooms);
    let affordable = |fewest: u64| whole + u64::from(spread.sequences) <= fewest + fewest / SPREAD_COST;
    // No packing has fewer sequences than this, so mostly there is no need to look.
    let all: u64 = rooms.iter().map(|&(room, count)| u64::from(room) * u64::from(count)).sum();
    if affordable(whole + all.div_ceil(u64::from(capacity.seq_len))) {
        return spread;
    }
    let stacked = stacked(capacity, rooms);
    if affordable(whole + u64::from(stacked.sequences)) { spread } else { stacked }
}

/// Deals the pieces of a room to different sequences, one to each of the fullest with room. It opens as many sequences as
/// there are pieces, but never more than the pieces that are left will fill.
fn spread(capacity: Capacity, rooms: &[(u32, u32)]) -> RoomPacking {
    let mut open = Open::new(capacity, rooms);
    let mut all: u64 = rooms.iter().map(|&(room, count)| u64::from(room) * u64::from(count)).sum();
    let mut turn = Vec::new();
    for &(room, count) in rooms {
        let mut left = count;
        while left > 0 {
            let (free, mut fitting) = (open.free, 0);
            while fitting < left
                && let Some(taken) = open.take(room)
            {
                let (part, rest) = taken.split_at(left - fitting);
                open.insert(rest);
                turn.push(part);
                fitting += part.run.count;
            }
            let missing = all.saturating_sub(free).div_ceil(u64::from(capacity.seq_len));
            let new = missing.min(u64::from(left - fitting)).max(u64::from(fitting == 0)) as u32;
            turn.extend((new > 0).then(|| open.new_sequences(new)));
            for taken in turn.drain(..) {
                left -= taken.run.count;
                all -= u64::from(room) * u64::from(taken.run.count);
                open.place(taken, room, 1);
            }
        }
    }
    open.packing
}

/// Puts each piece into the fullest sequence with room, and else into a new one: best fit decreasing (Johnson et al., 1974).
fn stacked(capacity: Capacity, rooms: &[(u32, u32)]) -> RoomPacking {
    let mut open = Open::new(capacity, rooms);
    for &(room, count) in rooms {
        let mut left = count;
        while left > 0 {
            let taken = open.take(room).unwrap_or_else(|| {
                let each = (capacity.seq_len / room).min(capacity.max_pieces);
                open.new_sequences(left.div_ceil(each))
            });
            // A sequence is the best fit for as long as this room fits: no other one was fuller before.
            let each = (taken.free / room).min(capacity.max_pieces - taken.run.pieces);
            let full = taken.run.count.min(left / each);
            let in_next = if full < taken.run.count { left - full * each } else { 0 };
            let (full, rest) = taken.split_at(full);
            let (next, rest) = rest.split_at(u32::from(in_next > 0));
            open.insert(rest);
            open.place(full, room, each);
            open.place(next, room, in_next);
            left -= full.run.count * each + in_next;
        }
    }
    open.packing
}

impl OpenSequences {
    /// Returns the first `count` of them, or all, and the others.
    fn split_at(self, count: u32) -> (Self, Self) {
        let Self { free, run } = self;
        let count = count.min(run.count);
        let rest = OpenRun { first: run.first + count, count: run.count - count, ..run };
        (Self { free, run: OpenRun { count, ..run } }, Self { free, run: rest })
    }
}

impl Open {
    fn new(capacity: Capacity, rooms: &[(u32, u32)]) -> Self {
        let smallest = rooms.last().map_or(1, |(room, _)| *room);
        let unit = rooms.iter().fold(0, |unit, (room, _)| common_divisor(unit, *room)).max(1);
        let runs = OpenRuns::new(capacity.seq_len.saturating_sub(smallest) / unit);
        Self { capacity, smallest, unit, runs, free: 0, packing: RoomPacking::default() }
    }

    fn new_sequences(&mut self, count: u32) -> OpenSequences {
        let first = self.packing.sequences;
        self.packing.sequences += count;
        OpenSequences { free: self.capacity.seq_len, run: OpenRun { first, count, pieces: 0 } }
    }

    /// Takes out the fullest sequences that have this room, those with the lowest numbers.
    fn take(&mut self, room: u32) -> Option<OpenSequences> {
        let (level, run) = self.runs.take((self.capacity.seq_len - room) / self.unit)?;
        let free = self.capacity.seq_len - level * self.unit;
        self.free -= u64::from(free) * u64::from(run.count);
        Some(OpenSequences { free, run })
    }

    /// Puts sequences back that are still open.
    fn insert(&mut self, OpenSequences { free, run }: OpenSequences) {
        if run.count > 0 && free >= self.smallest && run.pieces < self.capacity.max_pieces {
            self.runs.push((self.capacity.seq_len - free) / self.unit, run);
            self.free += u64::from(free) * u64::from(run.count);
        }
    }

    /// Places `each` pieces of a room into each of these sequences, and puts them back.
    fn place(&mut self, OpenSequences { free, run }: OpenSequences, room: u32, each: u32) {
        if run.count > 0 {
            self.packing.placed.push(PlacedPieces { sequence: run.first, sequences: run.count, each });
            let run = OpenRun { pieces: run.pieces + each, ..run };
            self.insert(OpenSequences { free: free - each * room, run });
        }
    }
}

/// Returns the greatest number that divides both, by Euclid's algorithm.
const fn common_divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn capacity(seq_len: u32, max_pieces: u32) -> Capacity {
        Capacity { seq_len, max_pieces }
    }

    /// Packs by a look at all sequences for each piece. Returns the pieces of each sequence, each as its number in the order
    /// of packing.
    fn naive(of: Capacity, rooms: &[(u32, u32)], is_spread: bool) -> Vec<Vec<u32>> {
        let mut sequences: Vec<(u32, Vec<u32>)> = Vec::new();
        let mut pieces = Vec::new();
        pieces.extend(rooms.iter().flat_map(|&(room, count)| std::iter::repeat_n(room, count as usize)));
        let smallest = pieces.last().copied().unwrap_or(1);
        let mut next = 0;
        while next < pieces.len() {
            let room = pieces[next];
            let open = |(free, inside): &(u32, Vec<u32>)| *free >= smallest && inside.len() < of.max_pieces as usize;
            let free: u32 = sequences.iter().filter(|sequence| open(sequence)).map(|(free, _)| free).sum();
            let mut fitting: Vec<usize> = (0..sequences.len())
                .filter(|&number| open(&sequences[number]) && sequences[number].0 >= room)
                .collect();
            fitting.sort_by_key(|&number| sequences[number].0);
            let left = pieces[next..].iter().filter(|other| **other == room).count();
            let missing = pieces[next..].iter().sum::<u32>().saturating_sub(free).div_ceil(of.seq_len) as usize;
            let new = if is_spread { missing.min(left.saturating_sub(fitting.len())) } else { 0 };
            for _ in 0..new.max(usize::from(fitting.is_empty())) {
                fitting.push(sequences.len());
                sequences.push((of.seq_len, Vec::new()));
            }
            for &number in &fitting[..if is_spread { left.min(fitting.len()) } else { 1 }] {
                sequences[number].0 -= room;
                sequences[number].1.push(next as u32);
                next += 1;
            }
        }
        sequences.into_iter().map(|(_, inside)| inside).collect()
    }

    fn by_sequence(packing: &RoomPacking) -> Vec<Vec<u32>> {
        let (mut sequences, mut number) = (vec![Vec::new(); packing.sequences as usize], 0);
        for placed in &packing.placed {
            for i in 0..placed.sequences {
                for _ in 0..placed.each {
                    sequences[(placed.sequence + i) as usize].push(number);
                    number += 1;
                }
            }
        }
        sequences
    }

    fn rooms() -> impl Strategy<Value = (u32, Vec<(u32, u32)>)> {
        prop_oneof![Just(8_u32), Just(64), Just(1000), 2_u32..300, Just(1 << 21)].prop_flat_map(|seq_len| {
            let small = 1..=seq_len.min(1 + seq_len / 8);
            let rooms = prop::collection::btree_map(prop_oneof![1..seq_len, small], 1_u32..12, 0..40);
            (Just(seq_len), rooms.prop_map(|rooms| rooms.into_iter().rev().collect()))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn runs_of_sequences_are_packed_as_sequences_one_by_one(
            (seq_len, rooms) in rooms(), max_pieces in prop_oneof![Just(u32::MAX), 1_u32..6],
        ) {
            let of = capacity(seq_len, max_pieces);
            let (by_spread, by_stacked) = (spread(of, &rooms), stacked(of, &rooms));
            prop_assert_eq!(by_sequence(&by_spread), naive(of, &rooms, true));
            prop_assert_eq!(by_sequence(&by_stacked), naive(of, &rooms, false));
            for whole in [0, 1_000] {
                let allowed = (whole + u64::from(by_stacked.sequences)) / SPREAD_COST;
                let is_spread = by_spread.sequences <= by_stacked.sequences + allowed as u32;
                prop_assert_eq!(&pack(of, &rooms, whole), if is_spread { &by_spread } else { &by_stacked });
            }
        }
    }

    #[test]
    fn the_fullest_sequence_with_room_gets_a_piece_and_of_equals_the_first() {
        // 7 6 6 open three sequences. 4 fills the first with 4 free, 3 the one with 3 free; the other 3 goes to the third, as
        // does 1, unless that would be a third piece.
        let rooms = [(7, 1), (6, 2), (4, 1), (3, 2), (1, 1)];
        for pack in [spread, stacked] {
            assert_eq!(by_sequence(&pack(capacity(10, u32::MAX), &rooms)), [vec![0, 4], vec![1, 3], vec![2, 5, 6]]);
            let at_most_two = by_sequence(&pack(capacity(10, 2), &rooms));
            assert_eq!(at_most_two, [vec![0, 4], vec![1, 3], vec![2, 5], vec![6]]);
        }
    }

    #[test]
    fn equal_pieces_are_spread_over_as_many_sequences_as_all_pieces_fill() {
        // 4 opens three sequences, and 3 a fourth: 28 is left then, and 18 free. The last 2 go into the fourth, and one, when 6
        // is left and 5 free, into a fifth.
        let rooms = [(4, 3), (3, 6), (2, 5)];
        let of = capacity(10, u32::MAX);
        let spread = by_sequence(&spread(of, &rooms));
        assert_eq!(spread, [vec![0, 3, 7], vec![1, 4, 8], vec![2, 5, 9], vec![6, 10, 11, 13], vec![12]]);
        assert_eq!(by_sequence(&stacked(of, &rooms))[..2], [vec![0, 1, 9], vec![2, 3, 4]]);
    }

    #[test]
    fn a_spread_packing_that_costs_too_much_is_not_taken() {
        let rooms: Vec<_> = (380..=420).rev().map(|room| (room, 70)).collect();
        let of = capacity(2_000, u32::MAX);
        let (by_spread, by_stacked) = (spread(of, &rooms), stacked(of, &rooms));
        assert!(by_spread.sequences > by_stacked.sequences + 2, "{} {}", by_spread.sequences, by_stacked.sequences);
        assert_eq!(pack(of, &rooms, 0), by_stacked);
        assert_eq!(pack(of, &rooms, 100_000), by_spread);
    }

    #[test]
    fn thousands_of_millions_of_equal_pieces_are_a_step_for_each_of_a_sequence() {
        let packing = pack(capacity(8192, u32::MAX), &[(2, 3_000_000_000)], 0);
        assert_eq!(packing.sequences, 732_422);
        assert_eq!(packing.placed.len(), 4_096);
    }
}
