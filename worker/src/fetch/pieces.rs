//! Bytes of a shard in memory, in a few pieces.

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
}
