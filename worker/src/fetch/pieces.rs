//! Bytes of a shard in memory, in a few pieces; and the merging of ranges into requests.

use std::{ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};

/// Ranges with a gap of at most this many bytes are fetched by one request. When raised, more unneeded bytes are
/// fetched; when lowered, there are more requests.
pub(crate) const MERGE_GAP_BYTES: u64 = 128 << 10;

/// Pieces of one shard with their offsets. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces(Arc<[(u64, Bytes)]>);

impl Pieces {
    /// Creates the pieces from `(offset, bytes)`, which must be sorted and must not overlap.
    pub(crate) fn new(pieces: Vec<(u64, Bytes)>) -> Self {
        debug_assert!(pieces.windows(2).all(|pair| pair[0].0 + pair[0].1.len() as u64 <= pair[1].0));
        Self(pieces.into())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter().map(|(_, bytes)| bytes)
    }

    /// Returns the bytes of `range`; they are copied only if the range crosses a border between pieces. `None` if some
    /// of them are missing.
    pub(crate) fn slice(&self, range: Range<u64>) -> Option<Bytes> {
        if range.start == range.end {
            return Some(Bytes::new());
        }
        let first = self.0.partition_point(|(start, _)| *start <= range.start).checked_sub(1)?;
        let (start, bytes) = &self.0[first];
        let from = (range.start - start) as usize;
        let wanted = usize::try_from(range.end - range.start).ok()?;
        if from + wanted <= bytes.len() {
            return Some(bytes.slice(from..from + wanted));
        }
        let mut joined = BytesMut::new();
        let mut at = range.start;
        for (start, bytes) in &self.0[first..] {
            let end = start + bytes.len() as u64;
            if at < *start || at >= end {
                break;
            }
            joined.extend_from_slice(&bytes[(at - start) as usize..(end.min(range.end) - start) as usize]);
            at = end.min(range.end);
        }
        (at == range.end).then(|| joined.freeze())
    }
}

/// Sorts `ranges` and joins those that overlap or have a gap of at most `gap_bytes`.
pub(crate) fn merge(mut ranges: Vec<Range<u64>>, gap_bytes: u64) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(gap_bytes) => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_the_same_whatever_the_pieces() {
        let all: Vec<u8> = (0..100).collect();
        let pieces = Pieces::new(vec![
            (10, Bytes::copy_from_slice(&all[10..30])),
            (30, Bytes::copy_from_slice(&all[30..31])),
            (31, Bytes::copy_from_slice(&all[31..60])),
            (70, Bytes::copy_from_slice(&all[70..80])),
        ]);
        for start in 0..100u64 {
            for end in start..100 {
                let there = start == end || (10 <= start && end <= 60) || (70 <= start && end <= 80);
                let slice = pieces.slice(start..end);
                assert_eq!(slice.is_some(), there, "{start}..{end}");
                if let Some(slice) = slice {
                    assert_eq!(slice, all[start as usize..end as usize]);
                }
            }
        }
    }

    #[test]
    fn adjacent_ranges_are_merged_and_others_are_not() {
        let far = MERGE_GAP_BYTES + 100;
        let near = |ranges| merge(ranges, MERGE_GAP_BYTES);
        assert_eq!(near(vec![far + 1..far + 5, 0..10, 5..20, 30..100]), [0..100, far + 1..far + 5]);
        assert_eq!(near(vec![far..far + 5, 0..100]), vec![0..far + 5]);
        assert!(near(vec![]).is_empty());
        assert_eq!(merge(vec![0..10, 10..20, 21..30], 0), [0..20, 21..30]);
    }
}
