//! Cuts a shard into blocks: runs of whole records of about the requested size.

use spdl_shard::manifest::BlockFacts;

use super::DatasetError;

/// Checks the size at which blocks are cut.
pub(super) fn check_block_bytes(block_bytes: u64) -> Result<(), DatasetError> {
    if (1..=1 << 30).contains(&block_bytes) {
        return Ok(());
    }
    let problem = format!("is {block_bytes} bytes; give 1 to 1 GiB, best 4 to 16 MiB");
    Err(DatasetError::Option { option: "block_bytes", problem })
}

/// Cuts the records of one shard, which arrive in order, into blocks.
///
/// A block is closed before the record that would make it longer than the target, so only a block of a single record
/// can be longer, or one of records that share their bytes. A last block of less than half the target joins the block before it. Records without samples lie
/// between a block's records or between blocks, never at the ends of a block.
#[derive(Debug)]
pub(crate) struct BlockCutter {
    target_bytes: u64,
    target_objects: u32,
    blocks: Vec<CutBlock>,
}

#[derive(Clone, Copy, Debug)]
struct CutBlock {
    start: u64,
    end: u64,
    first_record: u32,
    records_end: u32,
    samples: u64,
    objects: u32,
}

impl BlockCutter {
    pub(crate) fn new(target_bytes: u64) -> Self {
        Self { target_bytes, target_objects: u32::MAX, blocks: Vec::new() }
    }

    /// Also closes a block before the record that would make it consist of more than `target_objects`.
    pub(crate) fn with_objects(self, target_objects: u32) -> Self {
        Self { target_objects, ..self }
    }

    /// Adds record number `record`, which lies in `start..end` of the shard.
    pub(crate) fn record(&mut self, record: u32, start: u64, end: u64, samples: u32) {
        self.record_of_objects(record, start, end, samples, 0);
    }

    /// Adds a record that consists of this many objects of its own.
    pub(crate) fn record_of_objects(&mut self, record: u32, start: u64, end: u64, samples: u32, objects: u32) {
        if samples == 0 {
            return;
        }
        let new =
            CutBlock { start, end, first_record: record, records_end: record + 1, samples: samples.into(), objects };
        let fits = |last: &CutBlock| {
            let is_of_last = start < last.end;
            let is_small = end - last.start <= self.target_bytes;
            is_of_last || (is_small && last.objects.saturating_add(objects) <= self.target_objects)
        };
        match self.blocks.last_mut() {
            Some(last) if fits(last) => *last = last.joined(new),
            _ => self.blocks.push(new),
        }
    }

    /// Returns the blocks; `None` if one is longer than the manifest's 32 bits can state.
    pub(crate) fn finish(mut self) -> Option<Vec<BlockFacts>> {
        if let [.., before, last] = self.blocks[..] {
            let whole = before.joined(last);
            let is_short = last.end - last.start < self.target_bytes / 2 && last.objects < self.target_objects / 2;
            if is_short && whole.end - whole.start <= self.target_bytes * 2 {
                self.blocks.truncate(self.blocks.len() - 2);
                self.blocks.push(whole);
            }
        }
        self.blocks.iter().map(CutBlock::facts).collect()
    }
}

impl CutBlock {
    fn joined(self, next: Self) -> Self {
        let (samples, objects) = (self.samples + next.samples, self.objects + next.objects);
        Self { end: self.end.max(next.end), records_end: next.records_end, samples, objects, ..self }
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
    fn a_block_of_small_objects_is_closed_at_their_number() {
        let mut cutter = BlockCutter::new(1000).with_objects(4);
        for record in 0..9 {
            cutter.record_of_objects(record, u64::from(record), u64::from(record) + 1, 1, 2 - record % 2);
        }
        let blocks = cutter.finish().unwrap().into_iter();
        let found: Vec<_> = blocks.map(|block| (block.first_record, block.records)).collect();
        // Objects: 2 1, 2 1, 2 1, 2 1, 2; the rest of two is no short one.
        assert_eq!(found, [(0, 2), (2, 2), (4, 2), (6, 2), (8, 1)]);
        let mut cutter = BlockCutter::new(1000).with_objects(4);
        (0..5).for_each(|record| cutter.record_of_objects(record, 0, 0, 1, 1));
        assert_eq!(cutter.finish().unwrap().len(), 1, "empty files form blocks, too, and a short rest joins");
    }

    #[test]
    fn records_that_share_their_bytes_are_in_one_block() {
        let mut cutter = BlockCutter::new(10).with_objects(2);
        for (record, (start, end, objects)) in
            [(0, 4, 1), (4, 50, 1), (4, 50, 0), (4, 20, 0), (50, 55, 1), (50, 55, 0), (55, 62, 1)]
                .into_iter()
                .enumerate()
        {
            cutter.record_of_objects(record as u32, start, end, 1, objects);
        }
        let blocks = cutter.finish().unwrap().into_iter();
        let found: Vec<_> =
            blocks.map(|block| (block.offset, block.bytes, block.first_record, block.records)).collect();
        assert_eq!(found, [(0, 4, 0, 1), (4, 46, 1, 3), (50, 5, 4, 2), (55, 7, 6, 1)]);
    }

    #[test]
    fn what_the_manifest_cannot_express_is_refused() {
        let mut cutter = BlockCutter::new(10);
        cutter.record(0, 0, 5 << 30, 1);
        assert_eq!(cutter.finish(), None);
    }
}
