//! Masks: the classes of pixels move with the picture.

use image::{DynamicImage, ImageFormat};

use super::*;

const MASK: &str = "name = \"mask\"\nfrom = \"seg.png\"\ndecode = \"mask\"\nfollows = \"image\"";

/// A picture of noise whose red is a class, and the mask of these classes; 24x16 pixels.
fn picture_and_mask() -> (Vec<u8>, Vec<u8>) {
    let class = |x: u32, y: u32| ((x * 7 + y * 13) % 200) as u8;
    let picture = image::RgbImage::from_fn(24, 16, |x, y| image::Rgb([class(x, y), 200, x as u8]));
    let mask = image::GrayImage::from_fn(24, 16, |x, y| image::Luma([class(x, y)]));
    (encoded(&picture.into(), ImageFormat::Png), encoded(&mask.into(), ImageFormat::Png))
}

/// Decodes the picture and its mask: the red of the picture, and the classes.
fn decoded(ops: &str, more: &str, id: u64, order: [usize; 2]) -> [Vec<u8>; 2] {
    let columns = [image_column(ops, ""), format!("{MASK}\n{more}")];
    let job = job(&order.map(|column| columns[column].as_str()));
    let (picture, mask) = picture_and_mask();
    let made = decode(&job, key(id), &[("jpg", &picture), ("seg.png", &mask)]).unwrap();
    let [picture, mask] = order.map(|column| &made[column]);
    [picture.iter().step_by(3).copied().collect(), mask.clone()]
}

#[test]
fn a_mask_moves_as_its_picture_does_wherever_it_stands_in_the_job() {
    // Operations that only move whole pixels leave the picture's red equal to the class.
    for ops in [
        "{ random_crop = [8, 9] }",
        "{ random_crop = [8, 9] }, { random_flip = 0.5 }, { random_vertical_flip = 0.5 }",
        "{ random_apply = [{ random_rotation = { degrees = [30, 60], fill = 255 } }] }, { random_crop = [7, 7] }",
        "{ random_affine = { degrees = 40, translate = [0.2, 0.3], scale = [0.5, 1.5], shear = 10, fill = 255 } }, { random_crop = 16 }",
        "{ random_perspective = { p = 1.0, interpolation = \"nearest\", fill = 255 } }, { random_crop = 16 }",
        "{ pad = { padding = [3, 1, 0, 5], fill = 255 } }, { random_crop = [20, 25] }",
        "{ pad = { padding = 4, padding_mode = \"reflect\" } }, { random_flip = 0.5 }, { random_crop = [20, 25] }",
    ] {
        let mut different = std::collections::BTreeSet::new();
        for id in 0..12 {
            let [red, classes] = decoded(ops, "", id, [0, 1]);
            assert!(red == classes, "{ops}, sample {id}");
            assert!(decoded(ops, "", id, [1, 0])[1] == classes, "the order of the columns does not matter");
            different.insert(classes);
        }
        assert!(different.len() > 4, "{ops}: {} of 12", different.len());
    }
}

#[test]
fn operations_on_colours_change_no_class_and_draw_as_they_do_for_the_picture() {
    let jitter =
        "{ color_jitter = { brightness = 0.4 } }, { random_erasing = 1.0 }, { gaussian_blur = 3 }, { random_crop = 8 }";
    let (picture, mask) = picture_and_mask();
    let ops = format!("{jitter}, \"random_flip\"");
    let job = job(&[&image_column(&ops, ""), MASK]);
    for id in 0..8 {
        let made = decode(&job, key(id), &[("jpg", &picture), ("seg.png", &mask)]).unwrap();
        // Every window of the mask occurs in it once, perhaps mirrored.
        let classes = image::load_from_memory(&mask).unwrap().to_luma8();
        let windows = (0..=8).flat_map(|y| (0..=16).map(move |x| (x, y))).filter(|(x, y)| {
            let at = |column: u32, row: u32| classes.get_pixel(x + column, y + row).0[0];
            let plain = (0..64).all(|n| made[1][n as usize] == at(n % 8, n / 8));
            plain || (0..64).all(|n| made[1][n as usize] == at(7 - n % 8, n / 8))
        });
        assert!(windows.count() >= 1, "sample {id}");
    }
}

#[test]
fn beyond_the_picture_is_the_class_that_is_ignored() {
    let letterbox = "{ letterbox = { size = [24, 24], fill = 114 } }";
    let [_, classes] = decoded(letterbox, "ignore_index = 77\ndtype = \"u8\"", 0, [0, 1]);
    assert!(classes[..4 * 24].iter().chain(&classes[20 * 24..]).all(|class| *class == 77));
    let (_, mask) = picture_and_mask();
    assert_eq!(classes[4 * 24..20 * 24], image::load_from_memory(&mask).unwrap().to_luma8().into_raw());
    let [_, classes] = decoded("{ center_crop = [18, 24] }", "", 0, [0, 1]);
    assert!(classes[..24].iter().chain(&classes[17 * 24..]).all(|class| *class == 255));
    let [_, wide] = decoded("{ center_crop = [18, 24] }", "dtype = \"u16\"\nignore_index = 300", 0, [0, 1]);
    let wide: Vec<u16> = wide.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect();
    let expected = classes.iter().map(|class| if *class == 255 { 300 } else { u16::from(*class) });
    assert!(wide.into_iter().eq(expected));
}

#[test]
fn resizing_takes_the_class_at_the_middle_of_each_pixel() {
    let [_, classes] = decoded("{ resize = [8, 8] }", "", 0, [0, 1]);
    let (_, mask) = picture_and_mask();
    let mask = image::load_from_memory(&mask).unwrap().to_luma8();
    let expected: Vec<u8> = (0..64).map(|at| mask.get_pixel(at % 8 * 3 + 1, at / 8 * 2 + 1).0[0]).collect();
    assert_eq!(classes, expected);
}

#[test]
fn a_mask_that_does_not_fit_its_picture_is_a_bad_sample() {
    let job = job(&[&image_column("{ resize = [8, 8] }", ""), MASK]);
    let (picture, mask) = picture_and_mask();
    let error = |picture: &[u8], mask: &[u8]| {
        decode(&job, key(0), &[("jpg", picture), ("seg.png", mask)]).unwrap_err().to_string()
    };
    let small = encoded(&DynamicImage::new_luma8(16, 24), ImageFormat::Png);
    assert_eq!(error(&picture, &small), "column `mask`: field `seg.png` is a mask of 16x24, and the picture has 24x16");
    let colours = encoded(&DynamicImage::new_rgb8(24, 16), ImageFormat::Png);
    assert!(error(&picture, &colours).contains("column `mask`: field `seg.png` does not decode: a PNG of colours"));
    assert!(error(&picture, &picture).contains("a PNG of colours"));
    assert!(error(&picture, CAT).contains("field `seg.png` does not decode: it is no PNG"));
    assert_eq!(error(&picture, b""), "column `mask`: field `seg.png` is empty");
    assert!(error(&picture, &mask[..mask.len() / 2]).contains("column `mask`: field `seg.png` does not decode"));
    let mut wide = image::ImageBuffer::<image::Luma<u16>, _>::new(24, 16);
    wide.put_pixel(3, 3, image::Luma([300]));
    let wide = encoded(&DynamicImage::ImageLuma16(wide), ImageFormat::Png);
    assert_eq!(error(&picture, &wide), "column `mask`: field `seg.png` is \"300\", outside the range of u8");
    let missing = decode(&job, key(0), &[("jpg", &picture)]).unwrap_err().to_string();
    assert_eq!(missing, "column `mask`: record has no field `seg.png`");
    let alone = self::job(&[MASK, &image_column("{ resize = [8, 8] }", "")]);
    let missing = decode(&alone, key(0), &[("seg.png", &mask)]).unwrap_err().to_string();
    assert_eq!(missing, "column `image`: record has no field `jpg` or `png`");
}

#[test]
fn a_mask_reserves_its_memory_and_reads_the_fields_of_its_picture() {
    let job = job(&[MASK, &image_column("{ crop_box = \"boxes.xml\" }, { resize = [8, 8] }", "")]);
    let decoder = Decoder::new(&job, CLASSES).unwrap();
    assert_eq!(decoder.field_names().collect::<Vec<_>>(), ["boxes.xml", "jpg", "png", "seg.png"]);
    let (picture, mask) = picture_and_mask();
    let job = self::job(&[&image_column("{ resize = [8, 8] }", ""), MASK]);
    let decoder = Decoder::new(&job, CLASSES).unwrap().with_memory_bytes(200_000);
    let field = |name: &str| Some(Bytes::copy_from_slice(if name == "seg.png" { &mask } else { &picture }).into());
    let (mut image, mut classes) = ([0; 192], [0; 64]);
    let mut targets = [FieldTarget::Fixed(&mut image), FieldTarget::Fixed(&mut classes)];
    let error = decoder.decode_sample(key(0), &field, &mut targets).unwrap_err();
    assert!(matches!(error.problem, BadSampleProblem::TooMuchMemory { width: 24, height: 16, .. }), "{error}");
}
