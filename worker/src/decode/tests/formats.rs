//! Tests that every format and pixel type is decoded to the right RGB, upright.

use half::{bf16, f16};
use image::{DynamicImage, ImageFormat, metadata::Orientation};

use super::*;

#[test]
fn jpegs_of_all_kinds_decode_as_they_are_seen() {
    // Decoders differ in rounding, and in how they upsample chroma.
    for (name, bytes, size, least) in [
        ("baseline 4:2:0", CAT, [160, 240], 43.0),
        ("progressive", COFFEE_PROGRESSIVE, [133, 200], 43.0),
        ("4:4:4", ASTRONAUT, [177, 161], 49.0),
        ("grey", ASTRONAUT_GREY, [177, 161], 49.0),
        ("turned", ASTRONAUT_EXIF, [161, 177], 43.0),
    ] {
        let ratio = psnr(&whole(bytes, size), &reference(bytes).to_rgb8().into_raw());
        assert!(ratio >= least, "{name}: {ratio} dB");
    }
}

#[test]
fn cmyk_looks_like_the_same_picture_in_rgb() {
    let ratio = psnr(&whole(COFFEE_CMYK, [133, 200]), &whole(COFFEE_PROGRESSIVE, [133, 200]));
    assert!(ratio > 30.0, "{ratio} dB");
}

#[test]
fn grey_has_three_equal_channels() {
    let pixels = whole(ASTRONAUT_GREY, [177, 161]);
    assert!(pixels.as_chunks::<3>().0.iter().all(|[r, g, b]| r == g && g == b));
}

#[test]
fn lossless_formats_give_their_pixels() {
    let picture = DynamicImage::ImageRgb8(reference(CAT).to_rgb8());
    for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Tiff, ImageFormat::Pnm] {
        assert_eq!(whole(&encoded(&picture, format), [160, 240]), picture.as_bytes(), "{format:?}");
    }
    let few = DynamicImage::ImageRgba8(image::RgbaImage::from_fn(9, 5, |x, y| {
        image::Rgba([(x * 28) as u8, (y * 60) as u8, 7, 255])
    }));
    assert_eq!(whole(&encoded(&few, ImageFormat::Gif), [5, 9]), few.to_rgb8().into_raw());
}

#[test]
fn every_pixel_type_becomes_rgb() {
    let rgb = reference(CAT).crop_imm(40, 40, 32, 24);
    let grey = rgb.to_luma8();
    let expected_grey: Vec<u8> = grey.as_raw().iter().flat_map(|l| [*l; 3]).collect();
    for picture in [rgb.to_rgb8().into(), rgb.to_rgba8().into(), rgb.to_rgb16().into(), rgb.to_rgba16().into()] {
        let picture: DynamicImage = picture;
        let color = picture.color();
        let decoded = whole(&encoded(&picture, ImageFormat::Png), [24, 32]);
        assert_eq!(decoded, rgb.to_rgb8().into_raw(), "{color:?}");
    }
    let grey = DynamicImage::ImageLuma8(grey);
    for picture in [grey.clone(), grey.to_luma_alpha8().into(), grey.to_luma16().into(), grey.to_luma_alpha16().into()]
    {
        let color = picture.color();
        assert_eq!(whole(&encoded(&picture, ImageFormat::Png), [24, 32]), expected_grey, "{color:?}");
    }
    let float = DynamicImage::ImageRgb32F(rgb.to_rgb32f());
    assert_eq!(whole(&encoded(&float, ImageFormat::Tiff), [24, 32]), rgb.to_rgb8().into_raw());
}

#[test]
fn a_palette_is_looked_up() {
    // 3x2 pixels of 2 bits with a palette of red, green and blue; written by hand, as the encoder does not support
    // palettes.
    let chunk = |kind: &[u8; 4], data: &[u8]| {
        let mut crc = !0u32;
        for byte in kind.iter().chain(data) {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
            }
        }
        [&(data.len() as u32).to_be_bytes()[..], kind, data, &(!crc).to_be_bytes()].concat()
    };
    let rows = [0, 0b0001_1000, 0, 0b1001_0000];
    let adler = {
        let (a, b) = rows.iter().fold((1u32, 0u32), |(a, b), byte| (a + byte, b + a + byte));
        ((b << 16) | a).to_be_bytes()
    };
    let stored = [&[0x78, 1, 1, 4, 0, 0xfb, 0xff][..], &rows.map(|byte| byte as u8), &adler].concat();
    let png = [
        b"\x89PNG\r\n\x1a\n".to_vec(),
        chunk(b"IHDR", &[0, 0, 0, 3, 0, 0, 0, 2, 2, 3, 0, 0, 0]),
        chunk(b"PLTE", &[255, 0, 0, 0, 255, 0, 0, 0, 255]),
        chunk(b"IDAT", &stored),
        chunk(b"IEND", &[]),
    ]
    .concat();
    let (r, g, b) = ([255, 0, 0], [0, 255, 0], [0, 0, 255]);
    assert_eq!(whole(&png, [2, 3]), [r, g, b, b, g, r].concat());
}

#[test]
fn the_eight_orientations_are_turned_upright() {
    // An EXIF segment with only the orientation, inserted after the start marker.
    let with_orientation = |value: u8| {
        let tiff = [b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".as_slice(), &[value, 0, 0, 0, 0, 0, 0]];
        let tiff = tiff.concat();
        let length = (tiff.len() as u16 + 2).to_be_bytes();
        [&[0xff, 0xd8, 0xff, 0xe1], &length[..], &tiff, &ASTRONAUT[2..]].concat()
    };
    for value in 1..=8 {
        let bytes = with_orientation(value);
        let mut upright = seen(ASTRONAUT, [177, 161]);
        upright.apply_orientation(Orientation::from_exif(value).unwrap());
        let size = [upright.height(), upright.width()];
        // If the axes are exchanged, the two passes of the transform round in the other order.
        let least = if value >= 5 { 49.0 } else { f64::INFINITY };
        let ratio = psnr(&whole(&bytes, size), &upright.to_rgb8().into_raw());
        assert!(ratio >= least, "orientation {value}: {ratio} dB");

        // Cropping the upright picture gives the same as cropping the stored one; so does mirroring.
        let crop = "{ center_crop = { size = [61, 40] } }, { random_flip = { p = 1.0 } }";
        let [top, left] = [size[0] - 61, size[1] - 40].map(|spare| (f64::from(spare) / 2.0).round_ties_even() as u32);
        let expected = upright.crop_imm(left, top, 40, 61).fliph().to_rgb8().into_raw();
        let ratio = psnr(&picture(crop, "", &bytes).unwrap(), &expected);
        assert!(ratio >= least, "orientation {value}, cut and mirrored: {ratio} dB");

        let resize = "{ resize = { size = [92, 98] } }";
        let png = encoded(&upright, ImageFormat::Png);
        let ratio = psnr(&picture(resize, "", &bytes).unwrap(), &picture(resize, "", &png).unwrap());
        assert!(ratio > 48.0, "orientation {value}, resized: {ratio} dB");
    }
    let nonsense = with_orientation(9);
    assert_eq!(whole(&nonsense, [177, 161]), whole(ASTRONAUT, [177, 161]));
}

const STEPS: &str = "{ random_resized_crop = { size = [20, 28] } }, { random_flip = { p = 1.0 } }";
const NORMALISE: &str = "normalise = { mean = [0.485, 0.456, 0.406], std = [0.229, 0.224, 0.225] }";

#[test]
fn layouts_hold_the_same_pixels() {
    let nhwc = picture(STEPS, "", CAT).unwrap();
    let nchw = picture(STEPS, "layout = \"nchw\"", CAT).unwrap();
    for at in 0..20 * 28 {
        for channel in 0..3 {
            assert_eq!(nhwc[at * 3 + channel], nchw[channel * 20 * 28 + at]);
        }
    }
}

#[test]
fn float_types_are_scaled_and_normalised() {
    let bytes = picture(STEPS, "", CAT).unwrap();
    let (mean, std) = ([0.485f32, 0.456, 0.406], [0.229f32, 0.224, 0.225]);
    for (normalise, value_of) in [
        ("", Box::new(|_, byte| f32::from(byte) / 255.0) as Box<dyn Fn(usize, u8) -> f32>),
        (NORMALISE, Box::new(move |channel, byte| (f32::from(byte) / 255.0 - mean[channel]) / std[channel])),
    ] {
        let expected: Vec<f32> = bytes.iter().enumerate().map(|(at, byte)| value_of(at % 3, *byte)).collect();
        let f32s = picture(STEPS, &format!("dtype = \"f32\"\n{normalise}"), CAT).unwrap();
        assert_eq!(f32s, expected.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
        let f16s = picture(STEPS, &format!("dtype = \"f16\"\n{normalise}"), CAT).unwrap();
        let half = |value: &f32| f16::from_f32(*value).to_le_bytes();
        assert_eq!(f16s, expected.iter().flat_map(half).collect::<Vec<_>>());
        let bf16s = picture(STEPS, &format!("dtype = \"bf16\"\n{normalise}"), CAT).unwrap();
        let half = |value: &f32| bf16::from_f32(*value).to_le_bytes();
        assert_eq!(bf16s, expected.iter().flat_map(half).collect::<Vec<_>>());
    }
}

#[test]
fn padding_is_black_before_it_is_normalised() {
    let one = "{ center_crop = { size = [200, 300] } }";
    let plain = picture(one, "", CAT).unwrap();
    assert!(plain[..300 * 3 * 20].iter().all(|byte| *byte == 0));
    let inner: Vec<u8> =
        (20..180).flat_map(|row| plain[(row * 300 + 30) * 3..(row * 300 + 270) * 3].to_vec()).collect();
    assert_eq!(inner, whole(CAT, [160, 240]));
    let planes = picture(one, &format!("dtype = \"f32\"\nlayout = \"nchw\"\n{NORMALISE}"), CAT).unwrap();
    for (channel, (mean, std)) in [(0.485f32, 0.229f32), (0.456, 0.224), (0.406, 0.225)].into_iter().enumerate() {
        assert_eq!(planes[channel * 200 * 300 * 4..][..4], ((0.0 - mean) / std).to_le_bytes());
    }
}

#[test]
fn pictures_are_counted_by_what_was_decoded_of_them() {
    let counts = Arc::new(PictureCounts::default());
    let job = job(&[&image_column("{ random_resized_crop = { size = 16 } }", "")]);
    let decoder = Decoder::new(&job, CLASSES).unwrap().with_counts(counts.clone());
    let png = encoded(&reference(CAT), ImageFormat::Png);
    for bytes in [CAT, ASTRONAUT, ASTRONAUT_GREY, COFFEE_PROGRESSIVE, COFFEE_CMYK, &png] {
        let mut out = [0; 16 * 16 * 3];
        let field = |_: &str| Some(Bytes::copy_from_slice(bytes).into());
        decoder.decode_sample(key(0), &field, &mut [FieldTarget::Fixed(&mut out)]).unwrap();
    }
    assert_eq!((counts.cropped(), counts.whole()), (4, 2));
}
