//! Tests of pictures with alpha, and of more than 8 bits.

use image::{DynamicImage, ImageFormat, RgbaImage};

use super::{colours::OF_PILLOW, *};

const WHOLE: &str = "{ resize = [6, 10] }";
const PIXELS: usize = 6 * 10;

macro_rules! stored {
    ($($name:literal),*) => {
        [$((
            $name,
            include_bytes!(concat!("../../../tests/data/pictures/", $name)),
            include_bytes!(concat!("../../../tests/data/pictures/", $name, ".values")),
        )),*]
    };
}

/// Pictures of 16 bits and their values, by the number of channels.
const DEEP: [(&str, &[u8], &[u8]); 15] = stored!(
    "deep1.png",
    "deep2.png",
    "deep3.png",
    "deep4.png",
    "deep1.tiff",
    "deep2.tiff",
    "deep3.tiff",
    "deep4.tiff",
    "deep1.pgm",
    "big1.tiff",
    "big3.tiff",
    "bigger1.tiff",
    "bigger3.tiff",
    "zstd1.tiff",
    "zstd3.tiff"
);
const FLOATS: [(&str, &[u8], &[u8]); 3] = stored!("float1.tiff", "float3.tiff", "bigfloat1.tiff");

fn u16s(bytes: &[u8]) -> Vec<u16> {
    bytes.as_chunks().0.iter().map(|value| u16::from_le_bytes(*value)).collect()
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

/// Returns the `color` that has the channels of a file whose name ends its stem with their number.
fn color_of(name: &str) -> &'static str {
    match name.as_bytes()[name.find('.').unwrap() - 1] {
        b'1' => "gray",
        b'2' => "gray_alpha",
        b'3' => "rgb",
        _ => "rgba",
    }
}

#[test]
fn alpha_is_what_pillow_reads() {
    for (name, bytes, expected) in OF_PILLOW {
        let expected = &expected[PIXELS * 4..][..PIXELS * 4];
        assert_eq!(picture(WHOLE, "color = \"rgba\"", bytes).unwrap(), expected, "{name}");
        let gray = picture(WHOLE, "color = \"gray_alpha\"", bytes).unwrap();
        for (ours, rgba) in gray.as_chunks::<2>().0.iter().zip(expected.as_chunks::<4>().0) {
            let luma = spdl_pixels::luma([rgba[0], rgba[1], rgba[2]]);
            assert!(ours[0].abs_diff(luma) <= 1 && ours[1] == rgba[3], "{name}: {ours:?} for {rgba:?}");
        }
    }
    // A JPEG is not transparent.
    let rgba = picture("{ resize = [40, 60] }", "color = \"rgba\"\nlayout = \"nchw\"", CAT).unwrap();
    let rgb = picture("{ resize = [40, 60] }", "layout = \"nchw\"", CAT).unwrap();
    assert_eq!(rgba, [rgb, vec![255; 40 * 60]].concat());
}

#[test]
fn colours_are_resized_by_their_opacity_as_pillow_does() {
    let (bytes, expected) = (
        include_bytes!("../../../tests/data/pictures/rgba.png"),
        include_bytes!("../../../tests/data/pictures/rgba.png.resized"),
    );
    let ours = picture("{ resize = [5, 4] }", "color = \"rgba\"", bytes).unwrap();
    for (ours, pillow) in ours.as_chunks::<4>().0.iter().zip(expected.as_chunks::<4>().0) {
        let seen = |pixel: &[u8; 4], channel: usize| i32::from(pixel[channel]) * i32::from(pixel[3]) / 255;
        assert!(ours[3].abs_diff(pillow[3]) <= 1, "{ours:?} {pillow:?}");
        assert!((0..3).all(|at| (seen(ours, at) - seen(pillow, at)).abs() <= 2), "{ours:?} {pillow:?}");
    }
}

#[test]
fn values_of_16_bits_are_those_that_are_stored() {
    for (name, bytes, expected) in DEEP {
        let color = format!("color = \"{}\"", color_of(name));
        let ours = picture(WHOLE, &format!("{color}\ndtype = \"u16\""), bytes).unwrap();
        assert_eq!(ours, expected, "{name}");
        let ours = picture(WHOLE, &format!("{color}\ndtype = \"f32\"\ndepth = 16"), bytes).unwrap();
        let shares: Vec<f32> = u16s(expected).into_iter().map(|value| f32::from(value) / 65_535.0).collect();
        assert_eq!(f32s(&ours), shares, "{name}");
        let ours = picture(WHOLE, &format!("{color}\ndtype = \"f32\"\ndepth = 32"), bytes).unwrap();
        assert_eq!(f32s(&ours), shares, "{name}");
        // Without a depth, a type that can hold them keeps them; 8 bits have the nearest values.
        let ours = picture(WHOLE, &format!("{color}\ndtype = \"f32\""), bytes).unwrap();
        assert_eq!(f32s(&ours), shares, "{name}");
        if color_of(name) == "rgb" {
            let nearest: Vec<u8> =
                u16s(expected).into_iter().map(|value| ((u32::from(value) + 128) / 257) as u8).collect();
            assert_eq!(picture(WHOLE, "", bytes).unwrap(), nearest, "{name}");
            let eight: Vec<f32> = nearest.iter().map(|value| f32::from(*value) / 255.0).collect();
            for keys in ["dtype = \"f32\"\ndepth = 8", "dtype = \"f32\"\ncolor = \"rgb\"\ndepth = 8"] {
                assert_eq!(f32s(&picture(WHOLE, keys, bytes).unwrap()), eight, "{name}");
            }
            // An operation that works on 8 bits has them.
            let ops = format!("{WHOLE}, {{ random_grayscale = {{ p = 0.0 }} }}");
            assert_eq!(f32s(&picture(&ops, "dtype = \"f32\"", bytes).unwrap()), eight, "{name}");
        }
    }
}

#[test]
fn values_of_8_bits_are_scaled_to_16() {
    let bytes = encoded(&reference(CAT), ImageFormat::Png);
    let whole = "{ resize = [160, 240] }";
    let eight = picture(whole, "", &bytes).unwrap();
    let wide: Vec<u16> = eight.iter().map(|value| u16::from(*value) * 257).collect();
    assert_eq!(u16s(&picture(whole, "dtype = \"u16\"", &bytes).unwrap()), wide);
    let shares: Vec<f32> = eight.iter().map(|value| f32::from(*value) / 255.0).collect();
    let ours = f32s(&picture(whole, "dtype = \"f32\"\ndepth = 32", &bytes).unwrap());
    assert!(ours.iter().zip(&shares).all(|(a, b)| (a - b).abs() < 1e-6));
    // A JPEG is cropped while it is decoded, and turned upright.
    let ops = "{ center_crop = [90, 60] }, { random_flip = { p = 1.0 } }";
    let eight = picture(ops, "", ASTRONAUT_EXIF).unwrap();
    let wide: Vec<u16> = eight.iter().map(|value| u16::from(*value) * 257).collect();
    assert_eq!(u16s(&picture(ops, "dtype = \"u16\"", ASTRONAUT_EXIF).unwrap()), wide);
}

#[test]
fn floats_are_those_that_are_stored() {
    for (name, bytes, expected) in FLOATS {
        let color = format!("color = \"{}\"", color_of(name));
        let ours = picture(WHOLE, &format!("{color}\ndtype = \"f32\"\ndepth = 32"), bytes).unwrap();
        assert_eq!(ours, expected, "{name}");
        let (mean, std) = if color_of(name) == "gray" { ("[10]", "[4]") } else { ("[10, 10, 10]", "[4, 4, 4]") };
        let normalise = format!("normalise = {{ mean = {mean}, std = {std} }}");
        let ours = picture(WHOLE, &format!("{color}\ndtype = \"f32\"\ndepth = 32\n{normalise}"), bytes).unwrap();
        let normalised: Vec<f32> = f32s(expected).into_iter().map(|value| (value - 10.0) / 4.0).collect();
        assert_eq!(f32s(&ours), normalised, "{name}");
        assert_eq!(picture(WHOLE, &format!("{color}\ndtype = \"f32\""), bytes).unwrap(), expected, "{name}");
        // Whole numbers have no values beyond 0 to 1.
        for keys in ["", "dtype = \"u16\"", "dtype = \"f32\"\ndepth = 8", "dtype = \"f32\"\ndepth = 16"] {
            for color in [&color, ""] {
                let problem = picture(WHOLE, &format!("{color}\n{keys}"), bytes).unwrap_err().to_string();
                assert!(
                    problem.contains("stand for 0 to 1; `dtype = \"f32\"` without `depth` keeps"),
                    "{name} {keys}: {problem}"
                );
            }
        }
    }
}

/// Returns a TIFF of one row of grey floats.
fn float_tiff(values: &[f32]) -> Vec<u8> {
    let pixels: Vec<f32> = values.iter().flat_map(|value| [*value; 3]).collect();
    let picture = image::Rgb32FImage::from_raw(values.len() as u32, 1, pixels).unwrap();
    encoded(&DynamicImage::ImageRgb32F(picture), ImageFormat::Tiff)
}

#[test]
fn floats_of_0_to_1_fit_every_type_and_larger_ones_not_every_float() {
    let row = |count: usize| format!("{{ resize = [1, {count}] }}");
    let tiff = float_tiff(&[0.0, 0.25, 1.0, f32::NAN]);
    assert_eq!(picture(&row(4), "color = \"gray\"", &tiff).unwrap(), [0, 64, 255, 0]);
    let ours = u16s(&picture(&row(4), "color = \"gray\"\ndtype = \"u16\"", &tiff).unwrap());
    assert_eq!(ours, [0, 16_384, 65_535, 0]);
    let tiff = float_tiff(&[70_000.0, f32::INFINITY]);
    for keys in ["color = \"gray\"\ndtype = \"bf16\"", "color = \"gray\"\ndtype = \"f32\"\ndepth = 32"] {
        picture(&row(2), keys, &tiff).unwrap();
    }
    let problem = picture(&row(2), "color = \"gray\"\ndtype = \"f16\"", &tiff).unwrap_err().to_string();
    assert!(problem.contains("a value of 70000, outside the range of f16"), "{problem}");
}

/// Resizes one channel with antialiased bilinear filtering in `f64`.
fn plain_resize(values: &[u16], [width, height]: [usize; 2], [columns, rows]: [usize; 2]) -> Vec<f64> {
    let weights = |from: usize, to: usize| -> Vec<Vec<f64>> {
        let scale = from as f64 / to as f64;
        let of = |at: usize| {
            let center = (at as f64 + 0.5) * scale;
            let weight = |x: usize| (1.0 - ((x as f64 + 0.5 - center) / scale.max(1.0)).abs()).max(0.0);
            let all: Vec<f64> = (0..from).map(weight).collect();
            let sum: f64 = all.iter().sum();
            all.into_iter().map(|weight| weight / sum).collect()
        };
        (0..to).map(of).collect()
    };
    let (across, down) = (weights(width, columns), weights(height, rows));
    let value = |down: &[f64], across: &[f64]| {
        let row = |y: usize| {
            across.iter().enumerate().map(|(x, weight)| f64::from(values[y * width + x]) * weight).sum::<f64>()
        };
        down.iter().enumerate().map(|(y, weight)| row(y) * weight).sum::<f64>()
    };
    down.iter().flat_map(|down| across.iter().map(move |across| value(down, across)).collect::<Vec<_>>()).collect()
}

#[test]
fn deep_pictures_are_resized_at_full_precision() {
    let (_, bytes, values) = DEEP[0];
    for size in [[3, 4], [13, 21], [6, 10], [1, 1]] {
        let [rows, columns] = size;
        let exact = plain_resize(&u16s(values), [10, 6], [columns, rows]);
        let resize = format!("{{ resize = [{rows}, {columns}] }}");
        let ours = u16s(&picture(&resize, "color = \"gray\"\ndtype = \"u16\"", bytes).unwrap());
        assert!(ours.iter().zip(&exact).all(|(a, b)| (f64::from(*a) - b).abs() <= 0.6), "{size:?}");
        let ours = f32s(&picture(&resize, "color = \"gray\"\ndtype = \"f32\"\ndepth = 16", bytes).unwrap());
        assert!(ours.iter().zip(&exact).all(|(a, b)| (f64::from(*a) - b / 65_535.0).abs() <= 1e-6), "{size:?}");
    }
}

#[test]
fn geometry_moves_deep_pictures_as_it_moves_others() {
    // Values of 8 bits times 257 have to become those of the column of 8 bits times 257, but for rounding.
    let bytes = encoded(&reference(CAT), ImageFormat::Png);
    for ops in [
        "{ random_resized_crop = 40 }, \"random_flip\", \"random_vertical_flip\"",
        "{ letterbox = [50, 41] }",
        "{ resize = 30 }, { center_crop = [36, 28] }, { pad = { padding = 3, padding_mode = \"reflect\" } }",
        "{ resize = { size = [33, 61], interpolation = \"bicubic\" } }, { random_crop = { size = 30, padding = 4 } }",
        "{ resize = { size = [64, 96], interpolation = \"nearest\" } }, { five_crop = 40 }",
        "{ random_apply = { transforms = [{ pad = 2 }, { center_crop = [160, 240] }], p = 1.0 } }, { ten_crop = [90, 70] }",
    ] {
        for layout in ["nhwc", "nchw"] {
            let layout = format!("layout = \"{layout}\"");
            let eight = picture(ops, &layout, &bytes).unwrap();
            let deep = u16s(&picture(ops, &format!("dtype = \"u16\"\n{layout}"), &bytes).unwrap());
            assert_eq!(eight.len(), deep.len(), "{ops}");
            let off = |(a, b): (&u16, &u8)| (i32::from(*a) - i32::from(*b) * 257).abs();
            let most = deep.iter().zip(&eight).map(off).max().unwrap();
            assert!(most <= 3 * 257, "{ops}: {most} of 65535");
        }
    }
}

#[test]
fn a_background_shows_through_a_deep_picture() {
    let half = RgbaImage::from_pixel(4, 2, image::Rgba([200, 0, 7, 51]));
    let bytes = encoded(&DynamicImage::ImageRgba16(DynamicImage::from(half).to_rgba16()), ImageFormat::Png);
    let ours = u16s(&picture("{ resize = [2, 4] }", "dtype = \"u16\"\nbackground = 255", &bytes).unwrap());
    // 0.2 of the colour and 0.8 of white.
    assert!(ours.as_chunks::<3>().0.iter().all(|pixel| *pixel == [62_708, 52_428, 52_788]), "{ours:?}");
}

#[test]
fn a_deep_picture_that_is_cut_off_or_huge_is_a_bad_sample() {
    let keys = "dtype = \"u16\"\ncolor = \"gray\"";
    for (name, bytes, _) in DEEP.into_iter().filter(|(name, ..)| color_of(name) == "gray") {
        for length in [bytes.len() / 2, bytes.len() - 60] {
            picture(WHOLE, keys, &bytes[..length]).expect_err(name);
        }
    }
    // A header that claims more than there is memory for.
    let claims = Bytes::from_static(b"P5 12288 8192 65535\n few");
    let job = job(&[&image_column(WHOLE, keys)]);
    let decoder = Decoder::new(&job, CLASSES).unwrap().with_memory_bytes(64 << 20);
    let field = |_: &str| Some(claims.clone().into());
    let problem = decoder.decode_sample(key(0), &field, &mut [FieldTarget::Fixed(&mut [0; 120])]).unwrap_err().problem;
    assert!(matches!(problem, BadSampleProblem::TooMuchMemory { width: 12_288, height: 8_192, .. }), "{problem}");
}

#[test]
fn a_compression_that_is_not_read_is_named() {
    let problem =
        picture(WHOLE, "", include_bytes!("../../../tests/data/pictures/lzma3.tiff")).unwrap_err().to_string();
    assert!(
        problem.contains("a TIFF that is compressed with LZMA, which is not read; Deflate, LZW and ZSTD are"),
        "{problem}"
    );
}
