//! Tests of restart segments, and of tables of them.

use spdl_jpeg::{rewrite, segment_lengths};

use super::*;

#[test]
fn segments_of_64_kib_have_no_table() {
    assert_eq!(segment_lengths(1, &[10, 65_545]), Some(vec![[255, 255]]));
    assert_eq!(segment_lengths(1, &[10, 65_546]), None);
    assert_eq!(segment_lengths(8, &[10]), Some(vec![]));
}

#[test]
fn every_coefficient_is_checked() {
    let bytes = rewrite(&encoded(&cut("chelsea", [120, 90]), STYLE), 2, Limits::default()).unwrap();
    let check = |bytes: &[u8]| Jpeg::open(bytes, Limits::default()).and_then(|jpeg| jpeg.check_all());
    assert_eq!(check(&bytes), Ok(()));
    let starts = Jpeg::open(&bytes, Limits::default()).unwrap().segment_starts().unwrap();
    // Remove one segment in the middle, and one at the end.
    let middle = [&bytes[..starts[3]], &bytes[starts[4]..]].concat();
    let last = *starts.last().unwrap();
    let end = [&bytes[..last - 2], &[0xff, 0xd9]].concat();
    for (broken, what) in [(middle, "the middle"), (end, "the end")] {
        assert!(check(&broken).is_err(), "{what}");
    }
}
