//! Where the records of a series lie that a value of several records takes.

use std::ops::Range;

use spdl_shard::{format::ShardIndex, manifest::Block};

/// Returns the records of the series of a record that lie in its block.
pub(super) fn series_in(index: &dyn ShardIndex, record: u32, block: &Block) -> Option<Range<u32>> {
    let Range { start, end } = index.series(record)?;
    Some(start.max(block.first_record)..end.min(block.first_record + block.records))
}

/// Returns which place of its series is `delta` records away from a record: at most the first or last one.
pub(super) fn place_in(series: &Range<u32>, record: u32, delta: i32) -> i32 {
    let [first, last] = [series.start, series.end - 1].map(|other| i64::from(other) - i64::from(record));
    // A value between an `i32` and 0 is one, too.
    i64::from(delta).clamp(first.min(0), last.max(0)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_outside_of_a_series_is_its_first_or_last() {
        let places = |record| [i32::MIN, -3, -1, 0, 1, 3, i32::MAX].map(|delta| place_in(&(10..14), record, delta));
        assert_eq!(places(10), [0, 0, 0, 0, 1, 3, 3]);
        assert_eq!(places(12), [-2, -2, -1, 0, 1, 1, 1]);
        assert_eq!(places(13), [-3, -3, -1, 0, 0, 0, 0]);
        assert_eq!(place_in(&(0..u32::MAX), 1 << 31, i32::MIN), i32::MIN);
        assert_eq!(place_in(&(3..4), 7, -1), -1, "a record that is not of its series, in an odd index");
    }
}
