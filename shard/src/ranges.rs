//! Ranges of bytes, and which of them are read together.

use std::ops::Range;

/// Sorts `ranges` and joins those that overlap or have a gap of at most `gap_bytes`.
#[must_use]
pub fn merge(mut ranges: Vec<Range<u64>>, gap_bytes: u64) -> Vec<Range<u64>> {
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
    use super::merge;

    #[test]
    fn adjacent_ranges_are_merged_and_others_are_not() {
        let far = (128 << 10) + 100;
        let near = |ranges| merge(ranges, 128 << 10);
        assert_eq!(near(vec![far + 1..far + 5, 0..10, 5..20, 30..100]), [0..100, far + 1..far + 5]);
        assert_eq!(near(vec![far..far + 5, 0..100]), vec![0..far + 5]);
        assert!(near(vec![]).is_empty());
        assert_eq!(merge(vec![0..10, 10..20, 21..30], 0), [0..20, 21..30]);
    }
}
