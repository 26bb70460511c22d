//! Tests that scalable pictures decode as the JPEGs that they were made of.

use spdl_jpeg::{
    Limits,
    scalable::{pack, restore},
};

use super::*;

const RAW: &str = "name = \"raw\"\nfrom = \"jpg\"\ndecode = \"bytes\"\n";

fn packed(jpeg: &[u8]) -> Vec<u8> {
    pack(jpeg, Limits::default()).expect("a picture that can be packed")
}

/// Decodes a field by a column of `bytes`.
fn raw(decoder: &Decoder, bytes: &[u8]) -> Result<Bytes, BadSampleCause> {
    let mut raw = Bytes::new();
    let field = |_: &str| Some(Bytes::copy_from_slice(bytes).into());
    decoder.decode_sample(key(0), &field, &mut [FieldTarget::Ragged(&mut raw)])?;
    Ok(raw)
}

fn raw_decoder(more: &str) -> Decoder {
    Decoder::new(&job(&[&format!("{RAW}{more}")]), CLASSES).unwrap()
}

#[test]
fn a_scalable_picture_gives_the_columns_that_its_jpeg_gives() {
    let ways = [
        ("{ random_resized_crop = { size = [20, 28] } }, { random_flip = {} }", ""),
        ("{ random_resized_crop = { size = 100, scale = [0.05, 0.3] } }", "layout = \"nchw\""),
        ("{ resize = [160, 240] }", "color = \"gray\""),
        ("{ resize = 31 }, { center_crop = 24 }", "color = \"rgba\""),
        ("{ random_crop = { size = 150, padding = 40 } }, { color_jitter = { brightness = 0.4 } }", ""),
    ];
    for jpeg in [CAT, ASTRONAUT, ASTRONAUT_GREY, ASTRONAUT_EXIF] {
        let packed = packed(jpeg);
        for (ops, more) in ways {
            let follows = ["image_size", "geometry"].map(|decode| {
                format!("name = \"{decode}\"\nfrom = \"jpg\"\ndecode = \"{decode}\"\nfollows = \"image\"")
            });
            let job = job(&[&image_column(ops, more), &follows[0], &follows[1]]);
            for id in 0..6 {
                let of = |bytes: &[u8]| decode(&job, key(id), &[("jpg", bytes)]).unwrap();
                assert!(of(&packed) == of(jpeg), "{ops}, {more}, sample {id}");
            }
        }
    }
}

#[test]
fn a_column_of_bytes_has_the_file_that_was_packed() {
    for jpeg in [CAT, ASTRONAUT_EXIF, &[CAT, b"\0\0behind the end"].concat()] {
        let packed = packed(jpeg);
        assert_ne!(packed, jpeg);
        assert!(raw(&raw_decoder("max_bytes = 400000"), &packed).unwrap() == jpeg);
        let (most, error) = (jpeg.len() - 1, "`max_bytes` is");
        let found = raw(&raw_decoder(&format!("max_bytes = {most}")), &packed).unwrap_err().to_string();
        assert!(found.contains(&format!("is {} bytes; {error} {most}", jpeg.len())), "{found}");
    }
    for text in [&b"SPJ\n"[..], b"SPJ\nA text that begins so.", b"SPJ\n\nA text", b"SPJ\n\tA text"] {
        assert_eq!(raw(&raw_decoder("max_bytes = 100"), text).unwrap(), text);
    }
}

#[test]
fn what_is_wrong_with_a_scalable_picture_is_a_bad_sample() {
    let whole = packed(CAT);
    let resize = "{ resize = { size = [160, 240] } }";
    let error_of = |bytes: &[u8]| {
        let error = picture(resize, "", bytes).expect_err("a broken picture").to_string();
        assert!(error.starts_with("column `image`: field `jpg` "), "{error}");
        let error = raw(&raw_decoder(""), bytes).expect_err("a broken picture").to_string();
        assert!(error.starts_with("column `raw`: field `jpg` "), "{error}");
        error
    };
    for cut in (5..whole.len()).step_by(whole.len() / 60) {
        error_of(&whole[..cut]);
    }
    // The version, and a flag that this one does not know.
    for (at, value) in [(4, 2), (5, 0x80)] {
        let mut newer = whole.clone();
        newer[at] |= value;
        assert!(error_of(&newer).contains("a packed picture of a newer version"));
    }
    let frame = whole.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    let mut huge = whole.clone();
    huge[frame + 5..frame + 9].copy_from_slice(&[0xff; 4]);
    assert!(error_of(&huge).contains("is a picture of 65535x65535; the limits are 16384 a side"));
    for id in 0..200 {
        let (mut draw, mut bytes) = (spdl_types::Draw::new(id, 0, 0), whole.clone());
        for _ in 0..=draw.below(6) {
            let at = 5 + draw.below(bytes.len() as u32 - 5) as usize;
            bytes[at] = draw.below(256) as u8;
        }
        let _ = picture(resize, "", &bytes);
        if let Ok(file) = raw(&raw_decoder(""), &bytes) {
            assert_eq!(restore(&bytes, Limits::default()).unwrap(), file);
        }
    }
}

#[test]
fn memory_for_a_scalable_picture_is_reserved_before_it_is_decoded_or_restored() {
    let packed = packed(CAT);
    let image = Decoder::new(&job(&[&image_column("{ resize = [160, 240] }", "")]), CLASSES).unwrap();
    let field = |_: &str| Some(Bytes::copy_from_slice(&packed).into());
    let mut out = vec![0; 160 * 240 * 3];
    let few = |decoder: Decoder| decoder.with_memory_bytes(50_000);
    let found = few(image).decode_sample(key(0), &field, &mut [FieldTarget::Fixed(&mut out)]).unwrap_err();
    assert!(matches!(found.problem, BadSampleProblem::TooMuchMemory { width: 240, height: 160, .. }), "{found}");
    let found = raw(&few(raw_decoder("")), &packed).unwrap_err();
    assert!(matches!(found.problem, BadSampleProblem::TooMuchMemory { width: 240, height: 160, .. }), "{found}");
}
