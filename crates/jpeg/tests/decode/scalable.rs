//! Scalable packed pictures give back their file bit for bit, and the same pixels as the file.

use std::fs;

use jpeg_encoder::SamplingFactor;
use spdl_jpeg::{
    Error, Jpeg, Limits, PictureRequest, Rgb, Scratch, Unsupported,
    scalable::{Parts, PictureHead, ScalablePicture, pack, restore},
    testing::XorShift,
};

use crate::{STYLE, Style, cut, encoded, rendered, scaled, unscaled};

const LIMITS: Limits = Limits { side_pixels: 16_384, pixels: 1 << 27 };

fn render(bytes: &[u8], request: &PictureRequest) -> Result<Vec<u8>, Error> {
    let picture = ScalablePicture::open(bytes, LIMITS)?;
    let [columns, rows] = request.result_size().map(|side| side as usize);
    let [vector, portable] = [Scratch::new(), Scratch::portable()].map(|mut scratch| {
        let mut out = vec![0xaa; columns * rows * 3];
        picture.render(request, &mut scratch, &mut Rgb::new(&mut out, columns)).map(|()| out)
    });
    assert!(vector == portable, "vector instructions change {request:?}");
    vector
}

/// Packs a file and checks that it comes back.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let packed = pack(bytes, LIMITS).expect("a picture that can be packed");
    assert!(restore(&packed, LIMITS).expect("a packed picture") == bytes, "another file came back");
    packed
}

/// Draws a request of any place, size, scale and orientation.
fn any_request([width, height]: [u32; 2], draw: &mut XorShift) -> PictureRequest {
    let divisor = [1, 1, 2, 3, 4, 7, 8, 16][draw.below(8)];
    let mut axis = |size: u32| {
        let from = draw.below(size as usize) as u32;
        let length = 1 + draw.below((size - from) as usize) as u32;
        let mut axis = scaled(from, length, length.div_ceil(divisor));
        axis.reversed = draw.below(2) == 1;
        axis
    };
    PictureRequest { x: axis(width), y: axis(height), transposed: draw.below(2) == 1 }
}

fn check_pixels(bytes: &[u8], packed: &[u8], requests: usize, draw: &mut XorShift) {
    let size = Jpeg::open(bytes, LIMITS).expect("a JPEG").size();
    assert_eq!(ScalablePicture::open(packed, LIMITS).expect("a packed picture").size(), size);
    for _ in 0..requests {
        let request = any_request(size, draw);
        assert!(render(packed, &request) == rendered(bytes, &request), "other pixels for {request:?}");
    }
    let all = PictureRequest { x: unscaled(0, size[0]), y: unscaled(0, size[1]), transposed: false };
    assert!(render(packed, &all) == rendered(bytes, &all), "other pixels for all of it");
}

#[test]
fn pictures_of_all_kinds_come_back_and_have_the_same_pixels() {
    let mut draw = XorShift::default();
    let samplings =
        [SamplingFactor::R_4_4_4, SamplingFactor::R_4_2_2, SamplingFactor::R_4_4_0, SamplingFactor::R_4_2_0];
    for (at, size) in [[1, 1], [8, 8], [17, 9], [64, 64], [65, 129], [200, 31], [301, 203]].into_iter().enumerate() {
        let picture = cut("chelsea", size);
        for (sampling, quality) in samplings.into_iter().zip([40, 75, 92, 100].into_iter().cycle().skip(at)) {
            for (grey, interval) in [(false, 0), (true, 0), (false, 1), (true, 3), (false, 7)] {
                let bytes = encoded(&picture, Style { quality, sampling, interval, grey });
                check_pixels(&bytes, &packed(&bytes), 12, &mut draw);
            }
        }
    }
}

#[test]
fn no_text_is_taken_for_a_packed_picture() {
    assert!(ScalablePicture::is_packed(&packed(&encoded(&cut("chelsea", [9, 9]), STYLE))));
    for other in [&b"SPJ\n"[..], b"SPJ\n\0", b"SPJ\n\t", b"SPJ\n\n", b"SPJ\nx", b"SPJ", b"SPK\n\x01", b""] {
        assert!(!ScalablePicture::is_packed(other), "{other:?}");
    }
}

#[test]
fn a_picture_of_many_tiles_has_the_same_pixels_at_all_scales() {
    let picture = image::imageops::resize(&cut("coffee", [500, 350]), 1900, 1330, image::imageops::Triangle);
    let bytes = encoded(&picture, Style { quality: 97, ..STYLE });
    let packed = packed(&bytes);
    check_pixels(&bytes, &packed, 60, &mut XorShift::new(7));
    assert!(packed.len() < bytes.len(), "{} bytes packed into {}", bytes.len(), packed.len());
}

#[test]
fn flat_pictures_come_back() {
    // Their blocks have few bits, so that larger tiles are chosen.
    for size in [[900, 700], [64, 1000]] {
        let flat =
            image::RgbImage::from_fn(size[0], size[1], |x, y| image::Rgb([(x / 300 * 80) as u8, (y / 400) as u8, 9]));
        let bytes = encoded(&flat, STYLE);
        check_pixels(&bytes, &packed(&bytes), 20, &mut XorShift::default());
    }
}

#[test]
fn bundled_jpegs_come_back() {
    let folder = format!("{}/../../assets", env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for part in ["jpegs", "photos"] {
        for entry in fs::read_dir(format!("{folder}/{part}")).expect("the bundled pictures") {
            let path = entry.expect("a file").path();
            if path.extension().is_some_and(|extension| extension == "jpg") {
                let bytes = fs::read(&path).expect("a file");
                match pack(&bytes, LIMITS) {
                    Ok(packed) => {
                        assert!(restore(&packed, LIMITS).expect("packed") == bytes, "{}", path.display());
                        count += 1;
                    }
                    Err(Error::Unsupported(kind)) => {
                        let is_progressive = Jpeg::open(&bytes, LIMITS).is_ok_and(|jpeg| jpeg.is_progressive());
                        assert_eq!(kind == Unsupported::NotRestorable, is_progressive, "{}", path.display());
                    }
                    Err(error) => panic!("{}: {error}", path.display()),
                }
            }
        }
    }
    assert!(count >= 5, "{count} pictures were packed");
}

/// Returns where the scan begins: after the header of the scan.
fn scan_at(bytes: &[u8]) -> usize {
    let header = bytes.windows(2).rposition(|pair| pair == [0xff, 0xda]).expect("a scan");
    header + 2 + usize::from(u16::from_be_bytes([bytes[header + 2], bytes[header + 3]]))
}

#[test]
fn what_is_odd_about_a_file_comes_back() {
    let plain = encoded(&cut("coffee", [150, 90]), STYLE);
    // No end marker, bytes after it, a comment, bytes between the segments.
    let without_end = plain[..plain.len() - 2].to_vec();
    let half_end = plain[..plain.len() - 1].to_vec();
    let with_garbage = [&plain[..], b"\0\xff\xd8 something else \xff"].concat();
    let with_comment = [&plain[..2], b"\xff\xfe\0\x06note", &plain[2..]].concat();
    let with_junk = [&plain[..2], b"\0\0\xff\xff", &plain[2..]].concat();
    let mut draw = XorShift::default();
    for bytes in [without_end, half_end, with_garbage, with_comment, with_junk] {
        check_pixels(&bytes, &packed(&bytes), 4, &mut draw);
    }
}

#[test]
fn the_bits_that_fill_up_bytes_come_back() {
    for interval in [0, 1, 5] {
        let bytes = encoded(&cut("coffee", [99, 77]), Style { interval, ..STYLE });
        // Each segment's last byte, whose lowest bits fill it up where they are ones. Without them it is not 255, so that
        // nothing has to be stuffed.
        let start = scan_at(&bytes);
        let ends: Vec<usize> = (start..bytes.len() - 1)
            .filter(|at| bytes[*at] == 0xff && matches!(bytes[at + 1], 0xd0..=0xd9))
            .map(|at| at - 1)
            .filter(|at| bytes[*at] & 1 == 1 && bytes[*at] != 0 && bytes[at - 1] != 0xff)
            .collect();
        assert!(!ends.is_empty());
        let mut zeros = bytes.clone();
        let mut mixed = bytes.clone();
        for (count, end) in ends.iter().enumerate() {
            // A single bit at the least: whether it fills up the byte or is the picture's, the file has to come back.
            zeros[*end] &= 0xfe;
            mixed[*end] &= if count % 2 == 0 { 0xfe } else { 0xff };
        }
        let mut same = 0;
        for odd in [zeros, mixed] {
            match pack(&odd, LIMITS) {
                Ok(packed) => {
                    assert!(restore(&packed, LIMITS).expect("packed") == odd, "another file came back");
                    same += 1;
                }
                Err(error) => assert!(interval > 0, "{error}"),
            }
        }
        assert!(same > 0 || interval > 0);
    }
}

#[test]
fn a_file_that_would_not_come_back_is_left_alone() {
    let bytes = encoded(&cut("coffee", [150, 90]), Style { interval: 2, ..STYLE });
    let restart = (scan_at(&bytes)..bytes.len() - 1).find(|at| bytes[*at] == 0xff && bytes[at + 1] == 0xd0);
    let at = restart.expect("a restart marker");
    let filled = [&bytes[..at], &[0xff], &bytes[at..]].concat();
    assert_eq!(pack(&filled, LIMITS), Err(Error::Unsupported(Unsupported::NotRestorable)));
    assert!(matches!(pack(&bytes[..at], LIMITS), Err(Error::Truncated)), "it is cut off");
    assert!(matches!(pack(b"GIF89a", LIMITS), Err(Error::Corrupt(_))));
}

#[test]
fn the_ranges_of_a_request_are_all_that_it_reads() {
    let picture = image::imageops::resize(&cut("chelsea", [400, 280]), 800, 560, image::imageops::Triangle);
    let bytes = encoded(&picture, STYLE);
    let packed = packed(&bytes);
    let mut draw = XorShift::default();
    let mut shares = Vec::new();
    for divisor in [1, 2, 4, 8] {
        for _ in 0..8 {
            let (left, top) = (draw.below(500) as u32, draw.below(300) as u32);
            let request = PictureRequest {
                x: scaled(left, 240, 240 / divisor),
                y: scaled(top, 240, 240 / divisor),
                transposed: draw.below(2) == 1,
            };
            let ranges = ScalablePicture::open(&packed, LIMITS).unwrap().ranges(&request).unwrap();
            let mut needed = vec![0; packed.len()];
            for range in &ranges {
                needed[range.clone()].copy_from_slice(&packed[range.clone()]);
            }
            assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?}");
            assert!(render(&needed, &request) == rendered(&bytes, &request), "{request:?} needs more");
            shares.push(ranges.iter().map(|range| range.len()).sum::<usize>());
        }
    }
    let mean: Vec<usize> = shares.chunks(8).map(|of_scale| of_scale.iter().sum::<usize>() / 8).collect();
    assert!(mean.is_sorted_by(|more, less| more > less), "a smaller scale reads less: {mean:?}");
}

/// A packed picture that is large enough to be read in parts, and its file.
fn large() -> (Vec<u8>, Vec<u8>) {
    let picture = image::imageops::resize(&cut("coffee", [500, 350]), 1500, 1050, image::imageops::Triangle);
    let mut noisy = picture;
    let mut draw = XorShift::new(3);
    noisy.pixels_mut().for_each(|pixel| pixel.0[1] = pixel.0[1].wrapping_add(draw.below(16) as u8));
    let bytes = encoded(&noisy, Style { quality: 95, ..STYLE });
    let packed = packed(&bytes);
    (bytes, packed)
}

/// Returns the head of a picture, which is read from its first bytes alone, and their number.
fn head_of(packed: &[u8]) -> (PictureHead<'_>, usize) {
    let head = |length: usize| PictureHead::read(&packed[..length], packed.len(), LIMITS);
    let (mut short, mut long) = (0, packed.len());
    while long - short > 1 {
        let middle = usize::midpoint(short, long);
        match head(middle) {
            Ok(Some(_)) => long = middle,
            // Without its first bytes it is no packed picture.
            Ok(None) => short = middle,
            Err(error) => {
                assert_eq!(error, Error::Truncated, "the first {middle} bytes");
                short = middle;
            }
        }
    }
    (head(long).expect("a head").expect("a picture with checksums"), long)
}

/// Cuts parts out, from a picture of which nothing else is there.
fn cut_parts(head: &PictureHead<'_>, parts: &Parts, packed: &[u8]) -> Result<Vec<u8>, Error> {
    let ranges = head.ranges(parts)?;
    head.cut(parts, |wanted| {
        let is_read =
            wanted.is_empty() || ranges.iter().any(|range| range.start <= wanted.start && wanted.end <= range.end);
        is_read.then(|| packed[wanted].to_vec())
    })
}

#[test]
fn parts_have_the_pixels_of_the_requests_that_they_were_cut_for() {
    let (bytes, packed) = large();
    let (head, head_bytes) = head_of(&packed);
    let mut draw = XorShift::default();
    let mut shares = Vec::new();
    for _ in 0..40 {
        let requests: Vec<_> = (0..1 + draw.below(3)).map(|_| any_request(head.size(), &mut draw)).collect();
        let mut parts = Parts::default();
        requests.iter().for_each(|request| parts.add(&head.parts(request)));
        let ranges = head.ranges(&parts).expect("a whole picture");
        assert!(ranges.iter().all(|range| range.start >= head_bytes), "{ranges:?}");
        assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
        let part = cut_parts(&head, &parts, &packed).expect("a whole picture");
        let read = ranges.iter().map(|range| range.len()).sum::<usize>();
        assert!(part.len() <= head_bytes + read, "{} bytes of {read} that were read", part.len());
        for request in &requests {
            assert!(render(&part, request) == rendered(&bytes, request), "other pixels for {request:?}");
        }
        assert_eq!(restore(&part, LIMITS), Err(Error::Unsupported(Unsupported::NotRestorable)));
        shares.push(read);
    }
    let mean = shares.iter().sum::<usize>() / shares.len();
    assert!(mean < packed.len() / 2, "{mean} of {} bytes are read", packed.len());
}

#[test]
fn what_a_part_lacks_is_an_error() {
    let (_, packed) = large();
    let (head, _) = head_of(&packed);
    let request = |top: u32, pixels: u32| PictureRequest {
        x: scaled(300, 400, pixels),
        y: scaled(top, 200, pixels / 2),
        transposed: false,
    };
    let part = cut_parts(&head, &head.parts(&request(0, 200)), &packed).expect("a whole picture");
    assert!(render(&part, &request(0, 200)).is_ok());
    assert!(render(&part, &request(0, 100)).is_ok(), "a smaller scale needs fewer bands");
    assert!(render(&part, &request(0, 400)).is_err(), "a larger scale needs more");
    assert!(render(&part, &request(700, 200)).is_err(), "other rows");
    let nothing = cut_parts(&head, &Parts::default(), &packed).expect("a whole picture");
    let picture = ScalablePicture::open(&nothing, LIMITS).expect("a head");
    assert_eq!(picture.size(), head.size());
    assert!(render(&nothing, &request(0, 100)).is_err());
}

#[test]
fn a_part_of_other_bytes_is_an_error() {
    let (_, packed) = large();
    let (head, head_bytes) = head_of(&packed);
    let parts = head.parts(&PictureRequest { x: scaled(9, 900, 300), y: scaled(200, 600, 200), transposed: false });
    let mut draw = XorShift::default();
    for range in head.ranges(&parts).expect("a whole picture") {
        for _ in 0..20 {
            let mut broken = packed.clone();
            broken[range.start + draw.below(range.len())] ^= 1 << draw.below(8);
            assert!(matches!(cut_parts(&head, &parts, &broken), Err(Error::Corrupt(_))), "in {range:?}");
        }
    }
    for at in 5..head_bytes {
        let mut broken = packed.clone();
        broken[at] ^= 1 << draw.below(8);
        assert!(PictureHead::read(&broken, packed.len(), LIMITS).is_err(), "byte {at} of the head");
    }
    assert!(PictureHead::read(&packed, packed.len() - 1, LIMITS).is_err(), "another length");
    let missing = head.cut(&parts, |_| None::<Vec<u8>>);
    assert_eq!(missing, Err(Error::Truncated));
    let short = head.cut(&parts, |range| Some(&packed[range.start..range.end - 1]));
    assert_eq!(short, Err(Error::Truncated));
}

#[test]
fn small_pictures_have_no_checksums_and_are_read_whole() {
    let packed = packed(&encoded(&cut("coffee", [90, 70]), STYLE));
    assert!(PictureHead::read(&packed, packed.len(), LIMITS).is_ok_and(|head| head.is_none()));
    let jpeg = encoded(&cut("coffee", [90, 70]), STYLE);
    assert!(PictureHead::read(&jpeg, jpeg.len(), LIMITS).is_ok_and(|head| head.is_none()));
}

#[test]
fn broken_packed_pictures_are_errors_or_other_pixels() {
    let bytes = encoded(&cut("coffee", [90, 70]), Style { interval: 3, ..STYLE });
    let packed = packed(&bytes);
    for length in 0..packed.len() {
        assert!(restore(&packed[..length], LIMITS).is_err(), "{length} of {} bytes", packed.len());
    }
    let all = PictureRequest { x: unscaled(0, 90), y: scaled(0, 70, 35), transposed: false };
    let mut draw = XorShift::default();
    for _ in 0..6000 {
        let mut broken = packed.clone();
        for _ in 0..=draw.below(3) {
            let at = draw.below(broken.len());
            broken[at] = draw.below(256) as u8;
        }
        // Most changes of the head are errors, most of the streams other pixels.
        let _ = restore(&broken, LIMITS);
        if ScalablePicture::open(&broken, LIMITS).is_ok_and(|picture| picture.size() == [90, 70]) {
            let _ = render(&broken, &all);
        }
    }
}

#[test]
fn limits_hold_and_a_short_file_cannot_claim_a_large_picture() {
    let bytes = encoded(&cut("coffee", [90, 70]), STYLE);
    let mut packed = packed(&bytes);
    let small = Limits { side_pixels: 80, ..LIMITS };
    assert_eq!(ScalablePicture::open(&packed, small).err(), Some(Error::TooLarge { width: 90, height: 70 }));
    let frame = packed.windows(2).position(|pair| pair == [0xff, 0xc0]).expect("a frame");
    packed[frame + 5..frame + 9].copy_from_slice(&[0x20, 0, 0x20, 0]);
    assert_eq!(restore(&packed, LIMITS), Err(Error::Truncated));
    let mut newer = pack(&bytes, LIMITS).expect("a picture that can be packed");
    newer[4] += 1;
    assert!(ScalablePicture::open(&newer, LIMITS).is_err());
}
