//! Tests of the channels of pictures, and of transparent pixels.

use image::{DynamicImage, ImageFormat, RgbaImage};
use spdl_pixels::luma;

use super::*;

const STEPS: &str =
    "{ random_resized_crop = { size = [20, 28] } }, { random_flip = { p = 1.0 } }, { center_crop = [24, 28] }";

/// Pictures of every kind of pixel, and what Pillow makes of them: RGB without opacity, the grey values, RGBA, and RGB on
/// [`BACKGROUND`].
pub(super) const OF_PILLOW: [(&str, &[u8], &[u8]); 13] = {
    macro_rules! pictures {
        ($($name:literal),*) => {
            [$((
                $name,
                include_bytes!(concat!("../../../tests/data/pictures/", $name)),
                include_bytes!(concat!("../../../tests/data/pictures/", $name, ".expected")),
            )),*]
        };
    }
    pictures!(
        "rgb.png",
        "rgba.png",
        "rgba.webp",
        "rgba.tiff",
        "grey.png",
        "grey_alpha.png",
        "palette_trns.png",
        "palette_trns.gif",
        "big_palette.tiff",
        "grey_trns.png",
        "rgb_trns.png",
        "bits.png",
        "bits_trns.png"
    )
};
const BACKGROUND: &str = "background = [255, 128, 0]";

#[test]
fn every_kind_of_pixel_becomes_what_pillow_makes_of_it() {
    const PIXELS: usize = 6 * 10;
    let whole = "{ resize = [6, 10] }";
    for (name, bytes, expected) in OF_PILLOW {
        let (rgb, expected) = expected.split_at(PIXELS * 3);
        let (gray, expected) = expected.split_at(PIXELS);
        let (_, laid) = expected.split_at(PIXELS * 4);
        for (keys, expected) in [("", rgb), ("color = \"gray\"", gray), (BACKGROUND, laid)] {
            let ours = picture(whole, keys, bytes).unwrap();
            assert_eq!(ours.len(), expected.len(), "{name} {keys}");
            let most = ours.iter().zip(expected).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
            assert!(most <= 1, "{name} {keys}: {most} levels\n{ours:?}\n{expected:?}");
        }
    }
}

/// Formats with the crop decoder, a library and rows.
fn all_ways() -> [(&'static str, Vec<u8>); 3] {
    let png = encoded(&reference(CAT), ImageFormat::Png);
    [("crop", CAT.to_vec()), ("turned", ASTRONAUT_EXIF.to_vec()), ("whole", png)]
}

#[test]
fn bgr_has_the_channels_of_rgb_in_the_other_order() {
    for (name, bytes) in all_ways() {
        let mut expected = picture(STEPS, "", &bytes).unwrap();
        expected.as_chunks_mut::<3>().0.iter_mut().for_each(|pixel| pixel.reverse());
        assert_eq!(picture(STEPS, "color = \"bgr\"", &bytes).unwrap(), expected, "{name}");
        let planes = picture(STEPS, "color = \"bgr\"\nlayout = \"nchw\"", &bytes).unwrap();
        let interleaved: Vec<u8> =
            (0..24 * 28).flat_map(|at| [0, 1, 2].map(|channel| planes[channel * 24 * 28 + at])).collect();
        assert_eq!(interleaved, expected, "{name}");
    }
}

#[test]
fn gray_is_the_luma_of_the_colours() {
    for (name, bytes) in all_ways() {
        let rgb = picture(STEPS, "", &bytes).unwrap();
        let expected: Vec<u8> = rgb.as_chunks::<3>().0.iter().map(|pixel| luma(*pixel)).collect();
        for layout in ["nhwc", "nchw"] {
            let gray = picture(STEPS, &format!("color = \"gray\"\nlayout = \"{layout}\""), &bytes).unwrap();
            assert_eq!(gray, expected, "{name}, {layout}");
        }
        let normalise = "normalise = { mean = [0.5], std = [0.25] }";
        let floats = picture(STEPS, &format!("color = \"gray\"\ndtype = \"f32\"\n{normalise}"), &bytes).unwrap();
        let value = |byte: &u8| ((f32::from(*byte) / 255.0 - 0.5) / 0.25).to_le_bytes();
        assert_eq!(floats, expected.iter().flat_map(value).collect::<Vec<_>>(), "{name}");
    }
    // A grey picture is what it is.
    let grey = DynamicImage::ImageLuma8(reference(CAT).to_luma8());
    let bytes = encoded(&grey, ImageFormat::Png);
    assert_eq!(picture("{ resize = [160, 240] }", "color = \"gray\"", &bytes).unwrap(), grey.as_bytes());
}

#[test]
fn operations_of_a_gray_column_see_a_grey_picture() {
    let stretch = "{ resize = [30, 40] }, { random_autocontrast = 1.0 }";
    let gray = picture(stretch, "color = \"gray\"", CAT).unwrap();
    let before = picture("{ resize = [30, 40] }", "color = \"gray\"", CAT).unwrap();
    assert_ne!(gray, before);
    // Stretching each channel of the colours alone would not reach both ends.
    assert!(gray.iter().min() == Some(&0) && gray.iter().max() >= Some(&254));
    for colours in ["{ color_jitter = { saturation = [3, 3], hue = [0.4, 0.4] } }", "\"grayscale\""] {
        let ops = format!("{{ resize = [30, 40] }}, {colours}");
        assert_eq!(picture(&ops, "color = \"gray\"", CAT).unwrap(), before, "{colours}");
    }
}

/// Returns a picture of all opacities, and what it is on a background in exact arithmetic.
fn transparent(background: [u8; 3]) -> (DynamicImage, Vec<u8>) {
    let picture = RgbaImage::from_fn(32, 8, |x, y| image::Rgba([200, (x * 8) as u8, 9, (y * 32 + x) as u8]));
    let over = |pixel: &image::Rgba<u8>| {
        let [r, g, b, a] = pixel.0;
        let share = f64::from(a) / 255.0;
        std::array::from_fn::<_, 3, _>(|at| {
            (f64::from([r, g, b][at]) * share + f64::from(background[at]) * (1.0 - share)).round() as u8
        })
    };
    let expected = picture.pixels().flat_map(over).collect();
    (picture.into(), expected)
}

#[test]
fn opacity_is_ignored_unless_there_is_a_background() {
    let whole = "{ resize = [8, 32] }";
    let (rgba, expected) = transparent([255, 128, 0]);
    let is_near = |a: &[u8], b: &[u8]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.abs_diff(*b) <= 1);
    for picture_of in [rgba.clone(), DynamicImage::ImageRgba16(rgba.to_rgba16())] {
        for format in [ImageFormat::Png, ImageFormat::Tiff, ImageFormat::WebP] {
            if format == ImageFormat::WebP && picture_of.color() != rgba.color() {
                continue;
            }
            let name = format!("{format:?} {:?}", picture_of.color());
            let bytes = encoded(&picture_of, format);
            assert_eq!(picture(whole, "", &bytes).unwrap(), rgba.to_rgb8().into_raw(), "{name}");
            let laid = picture(whole, "background = [255, 128, 0]", &bytes).unwrap();
            assert!(is_near(&laid, &expected), "{name}");
        }
    }
    let opaque = encoded(&reference(CAT), ImageFormat::Png);
    let size = "{ resize = [160, 240] }";
    assert_eq!(picture(size, "background = 255", &opaque).unwrap(), picture(size, "", &opaque).unwrap());
}

#[test]
fn grey_values_with_alpha_and_transparent_colours_of_a_gif_show_the_background() {
    let values = image::GrayAlphaImage::from_fn(4, 1, |x, _| image::LumaA([100, [0, 85, 170, 255][x as usize]]));
    let grey = encoded(&DynamicImage::ImageLumaA8(values), ImageFormat::Png);
    let laid = picture("{ resize = [1, 4] }", "color = \"gray\"\nbackground = 255", &grey).unwrap();
    assert_eq!(laid, [255, 203, 152, 100]);
    let holes = RgbaImage::from_fn(4, 1, |x, _| image::Rgba([10, 20, 30, if x < 2 { 0 } else { 255 }]));
    let gif = encoded(&holes.into(), ImageFormat::Gif);
    let laid = picture("{ resize = [1, 4] }", "background = [1, 2, 3]", &gif).unwrap();
    assert_eq!(laid, [[1, 2, 3], [1, 2, 3], [10, 20, 30], [10, 20, 30]].concat());
}

#[test]
fn a_large_picture_that_comes_in_rows_shows_its_background() {
    let large = RgbaImage::from_pixel(1400, 1100, image::Rgba([200, 0, 7, 51]));
    let bytes = encoded(&large.into(), ImageFormat::Png);
    let laid = picture("{ resize = [11, 14] }", "background = 255", &bytes).unwrap();
    assert!(laid.as_chunks::<3>().0.iter().all(|pixel| *pixel == [244, 204, 205]));
}

#[test]
fn a_mask_follows_a_gray_picture() {
    let values = image::GrayImage::from_fn(240, 160, |x, _| image::Luma([(x / 120) as u8]));
    let mask = encoded(&DynamicImage::ImageLuma8(values), ImageFormat::Png);
    let follower = "name = \"mask\"\nfrom = \"seg\"\ndecode = \"mask\"\nfollows = \"image\"";
    let fields: [(&str, &[u8]); 2] = [("jpg", CAT), ("seg", &mask)];
    let of = |color: &str| decode(&job(&[&image_column(STEPS, color), follower]), key(3), &fields).unwrap().remove(1);
    assert_eq!(of("color = \"gray\""), of(""));
}
