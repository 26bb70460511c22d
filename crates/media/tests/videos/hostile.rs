//! Videos that are cut, damaged, or of kinds that are not read, and how many requests reading takes.

use spdl_media::{MediaError, VideoReader};

use super::read;

const TABLES: &[u8] = include_bytes!("tables.mp4");
const EDITED: &[u8] = include_bytes!("open-gop.mp4");
const FRAGMENTS: &[u8] = include_bytes!("fragments.mp4");
const GROUPS: &[u8] = include_bytes!("groups.mkv");
const LIVE: &[u8] = include_bytes!("live.mkv");
const STRIPPED: &[u8] = include_bytes!("stripped.mkv");
const SOUND: &[u8] = include_bytes!("../stereo.m4a");

/// Returns where bytes are found first.
fn find(file: &[u8], bytes: &[u8]) -> usize {
    file.windows(bytes.len()).position(|found| found == bytes).unwrap()
}

/// Returns a file with other bytes behind the first place of some bytes.
fn changed(file: &[u8], name: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    let start = find(&file, name) + at;
    file[start..start + bytes.len()].copy_from_slice(bytes);
    file
}

/// Returns a file with a box that nobody needs before each box of a name.
fn with_boxes(file: &[u8], name: &[u8; 4], bytes: usize) -> Vec<u8> {
    let mut made = Vec::new();
    let mut rest = file;
    while let Some(at) = rest.windows(4).position(|found| found == name) {
        made.extend(&rest[..at - 4]);
        made.extend(u32::try_from(bytes).unwrap().to_be_bytes());
        made.extend(b"free");
        made.resize(made.len() + bytes - 8, 0);
        made.extend(&rest[at - 4..=at]);
        rest = &rest[at + 1..];
    }
    made.extend(rest);
    made
}

#[test]
fn tables_at_the_end_take_two_requests_and_fragments_one_each_at_most() {
    let far = with_boxes(TABLES, b"moov", 3 << 20);
    let (video, requests, bytes) = read(&far).unwrap();
    assert_eq!((video.packets.len(), requests), (40, 2));
    assert!(bytes < 300_000, "{bytes} bytes");
    // With longer tables, there is a third one for what is behind the first 256 KiB of them.
    let long = with_boxes(&with_boxes(TABLES, b"trak", 1 << 20), b"mvhd", 8);
    let size = find(&long, b"moov") - 4;
    let mut long = long;
    let moov_bytes = u32::from_be_bytes(long[size..size + 4].try_into().unwrap()) + (1 << 20) + 8;
    long[size..size + 4].copy_from_slice(&moov_bytes.to_be_bytes());
    assert_eq!(read(&with_boxes(&long, b"moov", 3 << 20)).unwrap().1, 3);
    let fragments = FRAGMENTS.windows(4).filter(|name| name == b"moof").count();
    for (apart, most) in [(100_000, 2), (2 << 20, fragments + 1)] {
        let (video, requests, bytes) = read(&with_boxes(FRAGMENTS, b"moof", apart)).unwrap();
        assert_eq!(video.packets.len(), 40);
        assert!(requests <= most, "{requests} requests, {apart} bytes between {fragments} fragments");
        assert!(apart < 1 << 20 || bytes < 400_000, "{bytes} bytes");
    }
}

#[test]
fn a_video_that_is_cut_off_is_an_error() {
    for file in [TABLES, EDITED, FRAGMENTS, GROUPS, STRIPPED] {
        let whole = read(file).unwrap().0.packets.len();
        for end in 0..file.len() {
            if let Ok((video, _, _)) = read(&file[..end]) {
                // Only what the video does not need may be missing: indexes and tags behind it, or whole fragments.
                let last = video.packets.last().map_or(0, |packet| packet.offset + u64::from(packet.bytes));
                assert!(
                    last <= end as u64 && (video.packets.len() == whole || file == FRAGMENTS),
                    "{end} of {}",
                    file.len()
                );
            }
        }
    }
    // A segment whose length is not known ends with the file.
    for end in 0..LIVE.len() {
        if let Ok((video, _, _)) = read(&LIVE[..end]) {
            assert!(video.packets.iter().all(|packet| packet.offset + u64::from(packet.bytes) <= end as u64));
        }
    }
}

#[test]
fn damaged_bytes_are_errors_or_other_packets_that_lie_in_the_file() {
    for file in [TABLES, EDITED, FRAGMENTS, GROUPS, LIVE, STRIPPED] {
        for byte in 0..file.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = file.to_vec();
                damaged[byte] ^= flip;
                if let Ok((video, _, _)) = read(&damaged) {
                    let ends = video.packets.iter().map(|packet| packet.offset + u64::from(packet.bytes));
                    assert!(ends.max().unwrap_or_default() <= file.len() as u64, "byte {byte}");
                }
            }
        }
    }
}

#[test]
fn numbers_that_nothing_proves_are_refused_at_once() {
    let most = [0xff; 4];
    // 4,294,967,295 packets of one byte each, in tables and in a run of a fragment.
    let equal = changed(TABLES, b"stsz", 8, &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]);
    let in_run = changed(FRAGMENTS, b"trun", 4, &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]);
    for (file, what) in [
        (equal, "has more than 16,777,216 packets"),
        (changed(TABLES, b"stsz", 12, &most), "the tables of the pictures are not valid"),
        (changed(TABLES, b"stco", 8, &most), "the tables of the pictures are not valid"),
        (in_run, "reach beyond the end of the file"),
    ] {
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn what_is_not_read_is_named() {
    let encoding = find(STRIPPED, &[0x42, 0x54, 0x81, 3]);
    let mut compressed = STRIPPED.to_vec();
    compressed[encoding + 3] = 0;
    for (file, what) in [
        (b"RIFF....AVI LIST".to_vec(), "is no MP4, MOV, Matroska or WebM file: it begins with \"RIFF....AVI LIST\""),
        (SOUND.to_vec(), "has no track of pictures"),
        (changed(TABLES, b"avc1", 0, b"encv"), "has encrypted pictures"),
        (changed(TABLES, b"url ", 4, &[0; 4]), "has a track whose packets lie in another file"),
        (changed(TABLES, b"elst", 20, &[0, 2]), "has pauses or another speed in its edit list"),
        (changed(TABLES, b"tkhd", 44, &[0xff, 0xff]), "has pictures that are mirrored"),
        (changed(TABLES, b"stsc", 20, &[0, 0, 0, 2]), "has pictures of several kinds in a track"),
        (compressed, "has compressed packets"),
    ] {
        let error = read(&file).map_or_else(|error| error.to_string(), |_| format!("nothing is wrong where it {what}"));
        assert!(error.contains(what), "{error}");
    }
    let mut second = VideoReader::with_track(TABLES.len() as u64, 1);
    let error = second.read(TABLES).unwrap_err();
    assert_eq!(error, MediaError::UnsupportedVideo { what: "fewer tracks of pictures".to_owned() });
}
