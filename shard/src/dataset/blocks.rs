//! Cuts a shard into blocks: runs of whole records of about the requested size.

use crate::manifest::BlockFacts;

/// Cuts the records of one shard, which arrive in order, into blocks.
///
/// A block is closed before the record that would make it longer than the target, so only a block of a single record
/// can be longer. A last block of less than half the target joins the block before it. Records without samples lie
/// between a block's records or between blocks, never at the ends of a block.
#[derive(Debug)]
pub(super) struct BlockCutter {
    target_bytes: u64,
    blocks: Vec<Run>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    end: u64,
    first_record: u32,
    records_end: u32,
    samples: u64,
}

impl BlockCutter {
    pub(super) fn new(target_bytes: u64) -> Self {
        Self { target_bytes, blocks: Vec::new() }
    }

    /// Adds record number `record`, which lies in `start..end` of the shard.
    pub(super) fn record(&mut self, record: u32, start: u64, end: u64, samples: u32) {
        if samples == 0 {
            return;
        }
        let new = Run { start, end, first_record: record, records_end: record + 1, samples: samples.into() };
        match self.blocks.last_mut() {
            Some(last) if end - last.start <= self.target_bytes => *last = last.joined(new),
            _ => self.blocks.push(new),
        }
    }

    /// Returns the blocks; `None` if one is longer than the manifest's 32 bits can state.
    pub(super) fn finish(mut self) -> Option<Vec<BlockFacts>> {
        if let [.., before, last] = self.blocks[..] {
            let whole = before.joined(last);
            if last.end - last.start < self.target_bytes / 2 && whole.end - whole.start <= self.target_bytes * 2 {
                self.blocks.truncate(self.blocks.len() - 2);
                self.blocks.push(whole);
            }
        }
        self.blocks.iter().map(Run::facts).collect()
    }
}

impl Run {
    fn joined(self, next: Self) -> Self {
        Self { end: next.end, records_end: next.records_end, samples: self.samples + next.samples, ..self }
    }

    fn facts(&self) -> Option<BlockFacts> {
        Some(BlockFacts {
            offset: self.start,
            bytes: u32::try_from(self.end - self.start).ok()?,
            first_record: self.first_record,
            records: self.records_end - self.first_record,
            samples: u32::try_from(self.samples).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(target_bytes: u64, records: &[(u64, u32)]) -> Vec<(u64, u32, u32, u32, u32)> {
        let mut cutter = BlockCutter::new(target_bytes);
        let mut start = 0;
        for (record, &(bytes, samples)) in records.iter().enumerate() {
            cutter.record(record as u32, start, start + bytes, samples);
            start += bytes;
        }
        let blocks = cutter.finish().unwrap().into_iter();
        blocks.map(|block| (block.offset, block.bytes, block.first_record, block.records, block.samples)).collect()
    }

    #[test]
    fn a_block_is_closed_before_the_record_that_would_make_it_too_long() {
        assert_eq!(cut(10, &[(4, 1), (6, 1), (5, 2), (5, 1)]), [(0, 10, 0, 2, 2), (10, 10, 2, 2, 3)]);
        assert_eq!(cut(10, &[(30, 1), (9, 1)]), [(0, 30, 0, 1, 1), (30, 9, 1, 1, 1)]);
    }

    #[test]
    fn a_short_rest_joins_the_block_before_it_unless_that_is_too_long_already() {
        assert_eq!(cut(10, &[(10, 1), (4, 1)]), [(0, 14, 0, 2, 2)]);
        assert_eq!(cut(10, &[(10, 1), (5, 1)]), [(0, 10, 0, 1, 1), (10, 5, 1, 1, 1)]);
        assert_eq!(cut(10, &[(17, 1), (4, 1)]), [(0, 17, 0, 1, 1), (17, 4, 1, 1, 1)]);
    }

    #[test]
    fn records_without_samples_are_at_no_end_of_a_block() {
        assert_eq!(
            cut(10, &[(4, 0), (4, 1), (2, 0), (4, 1), (99, 0), (7, 1), (3, 0)]),
            [(4, 10, 1, 3, 2), (113, 7, 5, 1, 1)]
        );
        assert_eq!(cut(10, &[(4, 0), (4, 0)]), []);
    }

    #[test]
    fn what_the_manifest_cannot_say_is_refused() {
        let mut cutter = BlockCutter::new(10);
        cutter.record(0, 0, 5 << 30, 1);
        assert_eq!(cutter.finish(), None);
    }
}
