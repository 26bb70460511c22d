//! Puts the parts of long ranges together as they come, so that a long record lies in one piece of memory and is not put together again
//! each time that it is used.

use std::{io, ops::Range};

use bytes::Bytes;
use memmap2::{Advice, MmapMut};

use super::pieces::Pieces;

/// Parts of a range that is longer than this are put together. When lowered, blocks of short records are copied once more when they are
/// read; when raised, records that are nearly as long are copied once more for each use.
const JOINED_BYTES: u64 = 16 << 20;

/// Collects parts of ranges in their order.
#[derive(Debug, Default)]
pub(super) struct PartCollector {
    pieces: Vec<(u64, Bytes)>,
    joining: Option<JoinedRange>,
}

/// A range of which some parts have come.
#[derive(Debug)]
struct JoinedRange {
    range: Range<u64>,
    memory: MmapMut,
    written: usize,
}

impl PartCollector {
    /// Adds the bytes at `at`, the next part of `range`.
    pub(super) fn add(&mut self, range: &Range<u64>, at: u64, part: Bytes) {
        if self.joining.is_none() && at == range.start && range.end - range.start > JOINED_BYTES {
            // Without memory in one piece, the parts stay apart.
            self.joining = JoinedRange::new(range.clone()).ok();
        }
        let Some(mut joining) = self.joining.take() else { return self.pieces.push((at, part)) };
        joining.append(&part);
        if joining.written == joining.memory.len() {
            self.pieces.push((joining.range.start, Bytes::from_owner(joining.memory)));
        } else {
            self.joining = Some(joining);
        }
    }

    /// Returns the pieces, once all parts have come.
    pub(super) fn finish(self) -> Pieces {
        debug_assert!(self.joining.is_none(), "a range lacks parts");
        Pieces::new(self.pieces)
    }
}

impl JoinedRange {
    fn new(range: Range<u64>) -> io::Result<Self> {
        let bytes = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
        let memory = MmapMut::map_anon(bytes)?;
        // A system without large pages gives small ones.
        let _ = memory.advise(Advice::HugePage);
        Ok(Self { range, memory, written: 0 })
    }

    fn append(&mut self, part: &[u8]) {
        let end = self.written + part.len();
        self.memory[self.written..end].copy_from_slice(part);
        self.written = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_range_is_one_piece_and_short_ones_stay_as_they_came() {
        let long = 100..100 + JOINED_BYTES + 10;
        let short = 7..7 + JOINED_BYTES;
        let bytes_of = |range: &Range<u64>| -> Vec<u8> { range.clone().map(|at| (at % 251) as u8).collect() };
        for (range, pieces) in [(long, 1), (short, 3)] {
            let (all, mut collector) = (bytes_of(&range), PartCollector::default());
            let third = (all.len() / 3).next_multiple_of(2);
            for (number, part) in all.chunks(third).enumerate() {
                collector.add(&range, range.start + (number * third) as u64, Bytes::copy_from_slice(part));
            }
            let found = collector.finish();
            assert_eq!(found.iter().count(), pieces, "{range:?}");
            assert!(found.slice(range).is_some_and(|slice| slice == all));
        }
    }
}
