//! Progressive pictures have the pixels of baseline ones with the same coefficients.

use spdl_jpeg::{Deviation, has_same_coefficients, rewrite};

use super::{
    exact::styles,
    progressive_writer::{ScanScript, progressive, random_script},
    *,
};

/// Draws a request: unscaled or scaled, mirrored, transposed.
fn random_request(size: [u32; 2], draw: &mut XorShift) -> PictureRequest {
    let mut axis = |size: u32| {
        let length = 1 + draw.below(size as usize) as u32;
        let from = draw.below((size - length + 1) as usize) as u32;
        let pixels = match draw.below(4) {
            0 => length,
            1 => 1 + draw.below(length as usize * 2) as u32,
            // The reduced scales need both axes to be reduced.
            _ => length.div_ceil([2, 3, 4, 6, 8, 13][draw.below(6)]),
        };
        Axis { reversed: draw.below(2) == 0, ..scaled(from, length, pixels) }
    };
    PictureRequest { x: axis(size[0]), y: axis(size[1]), transposed: draw.below(2) == 0 }
}

/// Returns the script of libjpeg's `jpeg_simple_progression`.
pub(crate) fn libjpeg_script() -> Vec<ScanScript> {
    let scan = |components: &[usize], band, high, low| ScanScript {
        components: components.to_vec(),
        band,
        high,
        low,
        interval: 0,
        run: 0x7fff,
    };
    vec![
        scan(&[0, 1, 2], [0, 0], 0, 1),
        scan(&[0], [1, 5], 0, 2),
        scan(&[2], [1, 63], 0, 1),
        scan(&[1], [1, 63], 0, 1),
        scan(&[0], [6, 63], 0, 2),
        scan(&[0], [1, 63], 2, 1),
        scan(&[0, 1, 2], [0, 0], 1, 0),
        scan(&[2], [1, 63], 1, 0),
        scan(&[1], [1, 63], 1, 0),
        scan(&[0], [1, 63], 1, 0),
    ]
}

#[test]
fn any_crop_at_any_scale_is_that_of_the_baseline_picture() {
    let mut draw = XorShift::new(18);
    for (number, style) in styles().enumerate() {
        for size in [[97, 61], [150, 131], [16, 16], [1, 1], [7, 130], [130, 7]] {
            let baseline = encoded(&cut(["chelsea", "coffee", "astronaut"][number % 3], size), style);
            let script = random_script(if style.grey { 1 } else { 3 }, &mut draw);
            let other = progressive(&baseline, &script);
            let jpeg = Jpeg::open(&other, Limits::default()).unwrap();
            assert!(jpeg.is_progressive() && jpeg.deviations().iter().next().is_none());
            for _ in 0..12 {
                let request = random_request(size, &mut draw);
                let expected = rendered(&baseline, &request).unwrap();
                assert!(rendered(&other, &request).unwrap() == expected, "{style:?} {request:?} {script:?}");
            }
        }
    }
}

fn deviations(bytes: &[u8]) -> Vec<Deviation> {
    Jpeg::open(bytes, Limits::default()).unwrap().deviations().iter().collect()
}

/// Decodes a picture to half its size.
pub(crate) fn half(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let [width, height] = Jpeg::open(bytes, Limits::default())?.size();
    let [x, y] = [width, height].map(|side| scaled(0, side, side.div_ceil(2)));
    rendered(bytes, &PictureRequest { x, y, transposed: false })
}

fn whole(bytes: &[u8]) -> Vec<u8> {
    let [x, y] = Jpeg::open(bytes, Limits::default()).unwrap().size().map(|side| unscaled(0, side));
    rendered(bytes, &PictureRequest { x, y, transposed: false }).unwrap()
}

#[test]
fn other_decoders_see_the_same_picture() {
    let mut draw = XorShift::new(4);
    for style in styles() {
        let baseline = encoded(&cut("coffee", [93, 77]), style);
        let expected = image::load_from_memory(&baseline).unwrap();
        let colour = if style.grey { 1 } else { 3 };
        let libjpegs = libjpeg_script().into_iter().filter(|scan| scan.components[0] < colour);
        let libjpegs: Vec<_> = libjpegs
            .map(|scan| ScanScript {
                components: scan.components[..scan.components.len().min(colour)].to_vec(),
                ..scan
            })
            .collect();
        for script in [libjpegs, random_script(colour, &mut draw)] {
            let bytes = progressive(&baseline, &script);
            assert!(image::load_from_memory(&bytes).unwrap() == expected, "{style:?} {script:?}");
            assert!(whole(&bytes) == whole(&baseline), "{style:?} {script:?}");
        }
    }
}

#[test]
fn pictures_of_another_writer_are_its_baseline_pictures() {
    let picture = cut("chelsea", [201, 150]);
    for sampling in [SamplingFactor::R_4_2_0, SamplingFactor::R_4_2_2, SamplingFactor::R_4_4_0, SamplingFactor::R_4_4_4]
    {
        for scans in [2, 5, 33] {
            let bytes = [false, true].map(|is_progressive| {
                let mut bytes = Vec::new();
                let mut encoder = Encoder::new(&mut bytes, 90);
                encoder.set_sampling_factor(sampling);
                if is_progressive {
                    encoder.set_progressive_scans(scans);
                }
                encoder.encode(picture.as_raw(), 201, 150, ColorType::Rgb).unwrap();
                bytes
            });
            assert!(half(&bytes[1]).unwrap() == half(&bytes[0]).unwrap(), "{sampling:?}, {scans} scans");
            assert!(whole(&bytes[1]) == whole(&bytes[0]), "{sampling:?}, {scans} scans");
        }
    }
}

#[test]
fn it_becomes_a_baseline_picture_with_the_same_coefficients() {
    let mut draw = XorShift::new(77);
    for style in styles() {
        let baseline = encoded(&cut("astronaut", [107, 82]), style);
        let bytes = progressive(&baseline, &random_script(if style.grey { 1 } else { 3 }, &mut draw));
        let same = |other: &[u8]| has_same_coefficients(&bytes, other, Limits::default());
        // Blocks that only fill up MCUs have fewer coefficients in a progressive picture.
        let filled = encoded(&cut("astronaut", [96, 80]), style);
        let of_filled = progressive(&filled, &random_script(if style.grey { 1 } else { 3 }, &mut draw));
        assert_eq!(has_same_coefficients(&filled, &of_filled, Limits::default()), Ok(true), "{style:?}");
        for interval in [0, 1, 5] {
            let again = rewrite(&bytes, interval, Limits::default()).unwrap();
            let jpeg = Jpeg::open(&again, Limits::default()).unwrap();
            assert!(!jpeg.is_progressive() && jpeg.restart_interval() == u32::from(interval));
            assert!(jpeg.segment_starts().is_ok());
            assert_eq!(same(&again), Ok(true), "{style:?} {interval}");
            assert!(whole(&again) == whole(&baseline), "{style:?} {interval}");
            assert!(image::load_from_memory(&again).unwrap() == image::load_from_memory(&bytes).unwrap());
        }
        let mut changed = cut("astronaut", [107, 82]);
        changed.get_pixel_mut(100, 80).0 = [255, 0, 255];
        assert_eq!(same(&encoded(&changed, style)), Ok(false), "{style:?}");
    }
}

/// Returns where each scan's header begins.
fn scans(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len() - 1).filter(|at| bytes[*at..*at + 2] == [0xff, 0xda]).collect()
}

#[test]
fn a_picture_cut_anywhere_is_an_error_unless_only_scans_are_missing() {
    let baseline = encoded(&cut("chelsea", [80, 60]), STYLE);
    let bytes = progressive(&baseline, &libjpeg_script());
    let expected = half(&bytes).unwrap();
    for length in bytes.len() - 2..bytes.len() {
        assert_eq!(half(&bytes[..length]), Ok(expected.clone()), "all of it is there but the end marker");
        assert_eq!(deviations(&bytes[..length]), [Deviation::NoEnd]);
    }
    for length in 0..bytes.len() - 2 {
        let error = half(&bytes[..length]).expect_err("a picture that is cut off");
        assert!(length < 2 || error == Error::Truncated, "{length} of {} bytes: {error}", bytes.len());
    }
    // With an end marker that comes too early, libjpeg decodes the scans that are there.
    let (mut accepted, mut between) = (0, 0);
    for length in 0..bytes.len() - 2 {
        let ended = [&bytes[..length], &[0xff, 0xd9]].concat();
        let x = unscaled(0, 80);
        let request = PictureRequest { x, y: unscaled(0, 60), transposed: false };
        if rendered(&ended, &request).is_ok() {
            assert!(!deviations(&ended).is_empty(), "{length}");
            accepted += 1;
            between += usize::from(bytes[length] == 0xff);
        }
    }
    assert!((16..80).contains(&accepted) && between >= 16, "{accepted} cut pictures, {between} before a segment");
}

#[test]
fn lacking_scans_are_a_deviation_and_a_lacking_component_an_error() {
    let baseline = encoded(&cut("coffee", [90, 70]), STYLE);
    let mut script = libjpeg_script();
    let whole = half(&progressive(&baseline, &script)).unwrap();
    for _ in 0..9 {
        script.pop();
        let bytes = progressive(&baseline, &script);
        assert_eq!(deviations(&bytes), [Deviation::MissingScans]);
        assert!(half(&bytes).unwrap() != whole);
        assert_eq!(Jpeg::open(&bytes[..bytes.len() - 2], Limits::default()).unwrap_err(), Error::Truncated);
    }
    script[0].components = vec![0, 1];
    let error = Jpeg::open(&progressive(&baseline, &script), Limits::default()).unwrap_err();
    assert_eq!(error, Error::Truncated);
}

#[test]
fn a_component_keeps_the_quantisation_table_of_its_first_scan() {
    let baseline = encoded(&cut("coffee", [90, 70]), STYLE);
    let bytes = progressive(&baseline, &libjpeg_script());
    let mut later = bytes.clone();
    let second = scans(&bytes)[1];
    for slot in [0, 1] {
        later.splice(second..second, [&[0xff, 0xdb, 0, 67, slot][..], &[99; 64]].concat());
    }
    assert!(half(&later) == half(&bytes));
    let mut earlier = bytes.clone();
    let first = scans(&bytes)[0];
    earlier.splice(first..first, [&[0xff, 0xdb, 0, 67, 0][..], &[99; 64]].concat());
    assert!(half(&earlier).unwrap() != half(&bytes).unwrap());
}

#[test]
fn scans_that_the_standard_does_not_allow_are_errors() {
    let baseline = encoded(&cut("coffee", [40, 30]), STYLE);
    let bytes = progressive(&baseline, &libjpeg_script());
    let header = scans(&bytes)[0];
    let change = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[header + at] = byte;
        Jpeg::open(&bytes, Limits::default()).map(|_| ()).unwrap_err()
    };
    let ends = header + 5 + 2 * 3;
    for (at, byte, expected) in [
        (ends - header, 1, "a scan with impossible numbers"),
        (ends - header + 1, 5, "a scan with impossible numbers"),
        (ends - header + 2, 0x31, "a scan with impossible numbers"),
        (ends - header + 2, 14, "a scan with impossible numbers"),
        (5, 99, "a scan of unknown components"),
        (7, bytes[header + 5], "a scan with a component twice"),
        (6, 0x20, "no Huffman table"),
        (4, 2, "a scan header of the wrong length"),
    ] {
        assert_eq!(change(at, byte), Error::Corrupt(expected), "byte {at}");
    }
}

#[test]
fn very_many_scans_and_huge_sizes_are_refused_before_they_are_read() {
    let baseline = encoded(&cut("coffee", [40, 30]), STYLE);
    let mut script = libjpeg_script();
    let refinement = script[9].clone();
    script.extend((10..500).map(|_| refinement.clone()));
    let bytes = progressive(&baseline, &script);
    assert!(Jpeg::open(&bytes, Limits::default()).is_ok());
    script.push(refinement);
    let many = Error::Corrupt("more scans than any picture has");
    assert_eq!(Jpeg::open(&progressive(&baseline, &script), Limits::default()).unwrap_err(), many);
    // Of a large picture, fewer scans are allowed.
    let mut large = bytes;
    let frame = large.windows(2).position(|pair| pair == [0xff, 0xc2]).unwrap();
    large[frame + 5..frame + 9].copy_from_slice(&[0x20, 0, 0x20, 0]);
    assert_eq!(Jpeg::open(&large, Limits::default()).unwrap_err(), many);
    let mut large = progressive(&baseline, &libjpeg_script());
    large[frame + 5..frame + 9].copy_from_slice(&[0x20, 0, 0x20, 0]);
    assert_eq!(half(&large).unwrap_err(), Error::Truncated);
    assert_eq!(rewrite(&large, 0, Limits::default()).unwrap_err(), Error::Truncated);
}
