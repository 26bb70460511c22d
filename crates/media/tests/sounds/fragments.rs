//! AAC in fragments of MP4, beside the same packets in tables.

use spdl_media::SoundCodec;

use super::{all, head};

const TABLES: &[u8] = include_bytes!("../stereo.m4a");
const FRAGMENTS: &[u8] = include_bytes!("../stereo-fragments.m4a");

/// Returns the place of a box's name.
fn find(name: &[u8; 4]) -> usize {
    FRAGMENTS.windows(4).position(|bytes| bytes == name).unwrap()
}

#[test]
fn packets_in_fragments_have_the_samples_that_they_have_in_tables() {
    let (track, requests) = head(FRAGMENTS).unwrap();
    assert_eq!((track.codec, track.rate, track.channels, requests), (SoundCodec::Aac, 16_000, 2, 1));
    assert_eq!(FRAGMENTS.windows(4).filter(|name| name == b"moof").count(), 4);
    assert!(all(FRAGMENTS).unwrap() == all(TABLES).unwrap());
}

#[test]
fn fragments_that_are_cut_off_or_damaged_are_named() {
    let changed = |at: usize, byte: u8| {
        let mut file = FRAGMENTS.to_vec();
        file[at] = byte;
        file
    };
    let ends = FRAGMENTS.len() - 200;
    for (file, what) in [
        (FRAGMENTS[..find(b"moof") + 30].to_vec(), "within a fragment"),
        (FRAGMENTS[..ends].to_vec(), "reach beyond the end of the file"),
        (changed(find(b"tfhd"), b'x'), "a fragment has no head of its track"),
        // Of the run, the number of packets, and the place.
        (changed(find(b"trun") + 10, 9), "the head of a fragment is cut off"),
        (changed(find(b"trun") + 12, 0x7f), "reach beyond the end of the file"),
        (changed(find(b"trun") + 12, 0x80), "lie before the file"),
    ] {
        let error = all(&file).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}
