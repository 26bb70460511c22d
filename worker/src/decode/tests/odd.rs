//! Tests of JPEGs with common deviations from the standard, which libjpeg and so nearly all software can read.

use super::*;

/// Returns the segments before the first scan, and the rest.
fn segments(jpeg: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let (mut at, mut found) = (2, Vec::new());
    while jpeg[at + 1] != 0xda {
        let end = at + 2 + usize::from(u16::from_be_bytes([jpeg[at + 2], jpeg[at + 3]]));
        found.push(jpeg[at..end].to_vec());
        at = end;
    }
    (found, jpeg[at..].to_vec())
}

fn joined(segments: &[Vec<u8>], scan: &[u8]) -> Vec<u8> {
    [&[0xff, 0xd8], &segments.concat()[..], scan].concat()
}

fn segment(marker: u8, body: &[u8]) -> Vec<u8> {
    [&[0xff, marker], &(body.len() as u16 + 2).to_be_bytes()[..], body].concat()
}

/// Returns the pixels, if the picture can be decoded.
fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
    let job = job(&[&image_column("{ resize = { size = [40, 60] } }", "")]);
    let decoder = Decoder::new(&job, CLASSES).unwrap();
    let mut out = vec![0; 40 * 60 * 3];
    let field = |_: &str| Some(Bytes::copy_from_slice(bytes).into());
    decoder.decode_sample(key(0), &field, &mut [FieldTarget::Fixed(&mut out)]).ok().map(|_| out)
}

/// Returns the pixels, and the names of the deviations.
fn seen_as(bytes: &[u8]) -> (Vec<u8>, Vec<&'static str>) {
    let counts = Arc::new(PictureCounts::default());
    let job = job(&[&image_column("{ resize = { size = [40, 60] } }", "")]);
    let decoder = Decoder::new(&job, CLASSES).unwrap().with_counts(counts.clone());
    let mut out = vec![0; 40 * 60 * 3];
    let field = |_: &str| Some(Bytes::copy_from_slice(bytes).into());
    decoder.decode_sample(key(0), &field, &mut [FieldTarget::Fixed(&mut out)]).unwrap();
    (out, counts.odd().filter(|(_, count)| *count > 0).map(|(name, _)| name).collect())
}

#[test]
fn jpegs_that_libjpeg_reads_are_read_and_what_is_odd_is_counted() {
    for (kind, plain) in [("baseline", CAT), ("progressive", COFFEE_PROGRESSIVE)] {
        let (segments, scan) = segments(plain);
        let (expected, odd) = seen_as(plain);
        assert!(odd.is_empty(), "{kind}: {odd:?}");
        let put = |at: usize, more: Vec<u8>| {
            let mut all = segments.clone();
            all.insert(at, more);
            joined(&all, &scan)
        };
        let last = segments.len();
        let photoshop = [segment(0xed, b"Photoshop 3.0\0"), b"8BIM\x04\x04\0\0\0\0\0\x08more".to_vec()].concat();
        let filled: Vec<Vec<u8>> = segments.iter().map(|one| [&[0xff, 0xff], &one[..]].concat()).collect();
        let junk = "junk_between_segments";
        for (name, bytes, expected_odd) in [
            ("junk before the scan", put(last, b"junk\0\x01".to_vec()), &[junk][..]),
            ("a newline", put(1, b"\x20\x0a".to_vec()), &[junk]),
            ("a stuffed zero", put(1, vec![0xff, 0x00, 0x11]), &[junk]),
            ("Photoshop's extra bytes", put(1, photoshop), &[junk]),
            ("a restart marker", put(1, vec![0xff, 0xd3]), &[]),
            ("fill bytes", joined(&filled, &scan), &[]),
            ("a length of 0", put(1, vec![0xff, 0xe5, 0, 0]), &["short_segment"]),
            ("Adobe's segment cut", put(1, segment(0xee, b"Adobe\0")), &[]),
            ("EXIF that is none", put(1, segment(0xe1, b"Exif\0\0nothing")), &["broken_exif"]),
            ("EXIF cut", put(1, segment(0xe1, b"Exif\0\0II\x2a\0\x08\0\0\0\x05\0\x12\x01")), &["broken_exif"]),
            ("more behind the end", [plain, b"\0\xff\xd8\xff\xe0"].concat(), &[]),
        ] {
            let (found, odd) = seen_as(&bytes);
            assert!(found == expected, "{kind}, {name}");
            assert_eq!(odd, expected_odd, "{kind}, {name}");
        }
    }
    for missing in 1..=2 {
        let (found, odd) = seen_as(&CAT[..CAT.len() - missing]);
        assert!(found == seen_as(CAT).0 && odd == ["no_end_marker"], "{odd:?}");
    }
}

#[test]
fn the_colours_of_a_jpeg_are_what_libjpeg_takes_them_for() {
    for (kind, plain) in [("baseline", CAT), ("progressive", COFFEE_PROGRESSIVE)] {
        let (mut segments, scan) = segments(plain);
        segments.retain(|segment| !matches!(segment[1], 0xe0..=0xef));
        let (luma_chroma, _) = seen_as(plain);
        let adobe = |transform: u8| segment(0xee, &[b"Adobe\0\x64\0\0\0\0", &[transform][..]].concat());
        let jfif = segment(0xe0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0");
        let with = |more: &[Vec<u8>]| seen_as(&joined(&[more, &segments[..]].concat(), &scan)).0;
        assert!(with(&[]) == luma_chroma, "{kind}: without a word");
        assert!(with(&[adobe(1)]) == luma_chroma, "{kind}");
        assert!(with(&[adobe(7)]) == luma_chroma, "{kind}: what is unknown");
        assert!(with(&[jfif.clone(), adobe(0)]) == luma_chroma, "{kind}: JFIF goes first");
        let rgb = with(&[adobe(0)]);
        assert!(rgb != luma_chroma, "{kind}: RGB is not converted");
        let renamed = |ids: &[u8; 3]| {
            let mut bytes = joined(&segments, &scan);
            let frame = bytes.windows(2).position(|pair| matches!(pair, [0xff, 0xc0 | 0xc2])).unwrap();
            let old = [0, 1, 2].map(|at| bytes[frame + 10 + 3 * at]);
            for at in 0..3 {
                bytes[frame + 10 + 3 * at] = ids[at];
            }
            let mut at = frame;
            while let Some(found) = bytes[at..].windows(2).position(|pair| pair == [0xff, 0xda]) {
                at += found;
                for selector in 0..usize::from(bytes[at + 4]) {
                    let place = at + 5 + 2 * selector;
                    bytes[place] = ids[old.iter().position(|id| *id == bytes[place]).unwrap()];
                }
                at += 2;
            }
            seen_as(&bytes).0
        };
        assert!(renamed(b"RGB") == rgb, "{kind}: named so");
        assert!(renamed(b"\0\x01\x02") == luma_chroma, "{kind}: numbered from 0");
    }
}

#[test]
fn tables_that_are_left_out_are_the_standards() {
    let mut plain = Vec::new();
    let picture = reference(CAT).to_rgb8();
    let encoder = jpeg_encoder::Encoder::new(&mut plain, 90);
    let (width, height) = (picture.width() as u16, picture.height() as u16);
    encoder.encode(picture.as_raw(), width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    let (mut segments, scan) = segments(&plain);
    segments.retain(|segment| segment[1] != 0xc4);
    let (found, odd) = seen_as(&joined(&segments, &scan));
    assert!(found == seen_as(&plain).0);
    assert_eq!(odd, ["no_huffman_tables"]);
}

/// A picture without an end marker is decoded if it is complete, and bad otherwise: never decoded with a grey part.
#[test]
fn a_sequential_jpeg_of_any_kind_without_an_end_marker_is_read_and_no_part_of_one() {
    for (kind, plain) in [("colour", CAT), ("grey", ASTRONAUT_GREY), ("CMYK", COFFEE_CMYK)] {
        let (expected, _) = seen_as(plain);
        assert_eq!(plain[plain.len() - 2..], [0xff, 0xd9], "{kind}");
        for missing in 1..=2 {
            for more in [&b""[..], &[0; 64]] {
                let (found, odd) = seen_as(&[&plain[..plain.len() - missing], more].concat());
                assert!(found == expected && odd == ["no_end_marker"], "{kind} without {missing}: {odd:?}");
            }
        }
        for cut in (3..200).chain((200..plain.len()).step_by(997)) {
            let found = decoded(&plain[..plain.len() - cut]);
            // The missing bytes may only hold bits that pad the last byte.
            assert!(found.is_none_or(|found| found == expected && cut < 5), "{kind} without the last {cut} bytes");
        }
    }
}

/// Only a picture with all bits of all coefficients needs no end marker: another scan could follow.
#[test]
fn a_progressive_jpeg_without_an_end_marker_is_read_if_no_scan_is_missing() {
    let bytes = COFFEE_PROGRESSIVE;
    let (expected, _) = seen_as(bytes);
    for missing in 1..=2 {
        let (found, odd) = seen_as(&bytes[..bytes.len() - missing]);
        assert!(found == expected && odd == ["no_end_marker"], "without {missing}: {odd:?}");
    }
    let last_scan = (0..bytes.len() - 1).rev().find(|at| bytes[*at..*at + 2] == [0xff, 0xda]).unwrap();
    assert_eq!(decoded(&bytes[..last_scan]), None);
    let (found, odd) = seen_as(&[&bytes[..last_scan], &[0xff, 0xd9]].concat());
    assert!(found != expected && odd == ["missing_scans"], "{odd:?}");
}
