//! Tests with bytes that are not a picture, or no longer a valid one.

use spdl_jpeg::Unsupported;

use super::{
    progressive::{half, libjpeg_script},
    progressive_writer::{self, random_script},
    *,
};

#[test]
fn a_picture_cut_anywhere_is_an_error() {
    for interval in [0, 2] {
        let bytes = encoded(&cut("chelsea", [80, 60]), Style { interval, ..STYLE });
        assert!(half(&bytes).is_ok());
        for length in bytes.len() - 2..bytes.len() {
            assert_eq!(half(&bytes[..length]), half(&bytes), "all of it is there but the end marker");
        }
        for length in 0..bytes.len() - 2 {
            let error = half(&bytes[..length]).expect_err("a picture that is cut off");
            assert!(length < 2 || error == Error::Truncated, "{length} of {} bytes: {error}", bytes.len());
            // With an end marker that comes too early.
            let ended = [&bytes[..length], &[0xff, 0xd9]].concat();
            assert!(half(&ended).is_err() || length + 8 > bytes.len(), "{length} of {} bytes and an end", bytes.len());
        }
        assert!(half(&[&bytes, &b"\0\0behind the end"[..]].concat()).is_ok());
    }
}

#[test]
fn bytes_changed_at_random_never_panic_and_mean_the_same_everywhere() {
    use SamplingFactor::{R_4_2_0, R_4_2_2, R_4_4_4};
    let mut draw = XorShift::new(99);
    for (number, sampling) in [R_4_2_0, R_4_2_2, R_4_4_4].into_iter().enumerate() {
        let style = Style { sampling, interval: number as u16 * 3, ..STYLE };
        let baseline = encoded(&cut("coffee", [50, 40]), style);
        let scripts = [libjpeg_script(), random_script(3, &mut draw)];
        let progressive = scripts.map(|script| progressive_writer::progressive(&baseline, &script));
        let all = [&baseline, &progressive[0], &progressive[1]];
        for round in 0..1500 {
            let mut bytes = all[round % 3].clone();
            for _ in 0..=draw.below(5) {
                let at = draw.below(bytes.len());
                bytes[at] = draw.below(256) as u8;
            }
            if draw.below(4) == 0 {
                bytes.truncate(draw.below(bytes.len()));
                bytes.extend([0xff, 0xd9]);
            }
            spdl_jpeg::fuzz(&bytes);
        }
    }
}

#[test]
fn coefficients_beyond_all_bounds_mean_the_same_everywhere() {
    // Use the largest quantisation factors, so that the arithmetic overflows.
    let mut bytes = encoded(&cut("coffee", [70, 50]), Style { quality: 100, ..STYLE });
    for at in 0..bytes.len() - 70 {
        if bytes[at..at + 2] == [0xff, 0xdb] {
            bytes[at + 5..at + 69].fill(0xff);
        }
    }
    assert!(half(&bytes).is_ok());
}

#[test]
fn kinds_for_other_decoders_are_an_error_of_their_own() {
    let picture = cut("coffee", [40, 30]);
    let with = |change: &dyn Fn(&mut Encoder<&mut Vec<u8>>), color| {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 90);
        change(&mut encoder);
        let pixels = vec![77; 40 * 30 * 4];
        encoder.encode(&pixels, 40, 30, color).unwrap();
        bytes
    };
    let plain = encoded(&picture, STYLE);
    let frame = plain.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    let changed = |at: usize, byte: u8| {
        let mut bytes = plain.clone();
        bytes[frame + at] = byte;
        bytes
    };
    for (bytes, expected) in [
        (with(&|_| {}, ColorType::Cmyk), Unsupported::Components),
        (changed(11, 0x41), Unsupported::Sampling),
        (with(&|encoder| encoder.set_optimized_huffman_tables(true), ColorType::Rgba), Unsupported::SeveralScans),
        (changed(1, 0xc9), Unsupported::Arithmetic),
        (changed(1, 0xca), Unsupported::Arithmetic),
        (changed(1, 0xc3), Unsupported::OtherProcess),
        (changed(4, 12), Unsupported::Precision),
    ] {
        assert_eq!(half(&bytes).unwrap_err(), Error::Unsupported(expected));
    }
    let mut no_height = changed(5, 0);
    no_height[frame + 6] = 0;
    assert_eq!(half(&no_height).unwrap_err(), Error::Unsupported(Unsupported::LateHeight));
}

#[test]
fn a_picture_that_claims_to_be_huge_is_refused_before_memory_is_taken() {
    let mut bytes = encoded(&cut("coffee", [40, 30]), STYLE);
    let frame = bytes.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    bytes[frame + 5..frame + 9].copy_from_slice(&[0xff; 4]);
    let too_large = Error::TooLarge { width: 65_535, height: 65_535 };
    assert_eq!(half(&bytes).unwrap_err(), too_large);
    bytes[frame + 5..frame + 9].copy_from_slice(&[0x20, 0, 0x20, 0]);
    assert_eq!(half(&bytes).unwrap_err(), Error::Truncated);
}

#[test]
fn restart_markers_out_of_turn_are_an_error() {
    let bytes = encoded(&cut("chelsea", [80, 60]), Style { interval: 2, ..STYLE });
    let second = bytes.windows(2).position(|pair| pair == [0xff, 0xd1]).unwrap();
    let mut swapped = bytes.clone();
    swapped[second + 1] = 0xd2;
    assert_eq!(half(&swapped).unwrap_err(), Error::Corrupt("a restart marker out of turn"));
}
