//! Tests of rewriting pictures with other restart markers.

use spdl_jpeg::{has_same_coefficients, rewrite};

use super::{exact::styles, *};

const LIMITS: Limits = Limits { side_pixels: 1000, pixels: 1 << 20 };

#[test]
fn a_rewritten_picture_has_the_same_pixels_in_every_decoder() {
    for style in styles() {
        let bytes = encoded(&cut("coffee", [75, 60]), style);
        let (pixels, other) = (plain::decode(&bytes), image::load_from_memory(&bytes).unwrap());
        for interval in [1, 4, 7, 1000, 0] {
            let again = rewrite(&bytes, interval, LIMITS).unwrap();
            assert_eq!(Jpeg::open(&again, LIMITS).unwrap().restart_interval(), u32::from(interval));
            assert_eq!(has_same_coefficients(&bytes, &again, LIMITS), Ok(true), "{style:?} {interval}");
            assert!(plain::decode(&again) == pixels, "{style:?} {interval}");
            assert!(image::load_from_memory(&again).unwrap() == other, "{style:?} {interval}");
            let request = PictureRequest { x: scaled(30, 40, 30), y: scaled(20, 33, 31), transposed: false };
            assert!(rendered(&again, &request).unwrap() == rendered(&bytes, &request).unwrap());
        }
    }
}

#[test]
fn taking_the_markers_out_again_gives_the_bytes_back() {
    let bytes = encoded(&photograph("chelsea"), STYLE);
    let ready = rewrite(&bytes, 4, LIMITS).unwrap();
    assert!(ready != bytes && rewrite(&ready, 0, LIMITS).unwrap() == bytes);
    let more = ready.len() as f64 / bytes.len() as f64 - 1.0;
    assert!((0.0..0.02).contains(&more), "{more} more bytes");
}

#[test]
fn differences_that_a_pictures_own_table_lacks_get_another_table() {
    // Dark on the left, light on the right: only a new segment on the right has a large difference.
    let picture = image::RgbImage::from_fn(256, 16, |x, _| image::Rgb([x as u8; 3]));
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 90);
    encoder.set_optimized_huffman_tables(true);
    let grey = image::DynamicImage::ImageRgb8(picture).into_luma8();
    encoder.encode(grey.as_raw(), 256, 16, ColorType::Luma).unwrap();
    let tables = |bytes: &[u8]| bytes.windows(2).filter(|pair| *pair == [0xff, 0xc4]).count();
    let again = rewrite(&bytes, 2, LIMITS).unwrap();
    assert!(tables(&again) > tables(&bytes), "a table more");
    assert_eq!(has_same_coefficients(&bytes, &again, LIMITS), Ok(true));
    assert_eq!(plain::decode(&again), plain::decode(&bytes));
}

#[test]
fn other_coefficients_sizes_and_tables_are_distinguished() {
    let base = encoded(&cut("coffee", [120, 90]), STYLE);
    let mut changed = cut("coffee", [120, 90]);
    changed.get_pixel_mut(100, 80).0 = [255, 0, 255];
    for (other, what) in [
        (encoded(&changed, STYLE), "a pixel"),
        (encoded(&cut("coffee", [120, 89]), STYLE), "a size"),
        (encoded(&cut("coffee", [120, 90]), Style { quality: 91, ..STYLE }), "a quality"),
    ] {
        assert_eq!(has_same_coefficients(&base, &other, LIMITS), Ok(false), "{what}");
    }
}

#[test]
fn a_picture_cut_anywhere_is_not_rewritten() {
    let bytes = encoded(&cut("chelsea", [80, 60]), Style { interval: 2, ..STYLE });
    let without_end = rewrite(&bytes[..bytes.len() - 2], 4, LIMITS).unwrap();
    assert!(without_end == rewrite(&bytes, 4, LIMITS).unwrap(), "only the end marker is missing, and is written");
    for length in (0..bytes.len() - 2).step_by(7) {
        assert!(rewrite(&bytes[..length], 4, LIMITS).is_err(), "{length} of {} bytes", bytes.len());
        assert!(rewrite(&[&bytes[..length], &[0xff, 0xd9]].concat(), 4, LIMITS).is_err() || length + 8 > bytes.len());
    }
}
