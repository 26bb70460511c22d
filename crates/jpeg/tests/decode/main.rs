//! Tests of the decoder's public API against a second decoder that is written for readability.

mod exact;
mod hostile;
mod plain;
mod progressive;
mod progressive_writer;
mod quality;
mod rewrite;
mod scalable;
mod segments;

use std::cell::RefCell;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use spdl_jpeg::{Axis, Error, Jpeg, Limits, PictureRequest, Rgb, Scratch, testing::XorShift};

/// Loads a bundled photograph as RGB pixels.
fn photograph(name: &str) -> image::RgbImage {
    let path = format!("{}/../../assets/photos/{name}.png", env!("CARGO_MANIFEST_DIR"));
    image::open(path).expect("a bundled photograph").into_rgb8()
}

/// How to encode a picture.
#[derive(Clone, Copy, Debug)]
struct Style {
    quality: u8,
    sampling: SamplingFactor,
    interval: u16,
    grey: bool,
}

const STYLE: Style = Style { quality: 92, sampling: SamplingFactor::R_4_2_0, interval: 0, grey: false };

fn encoded(picture: &image::RgbImage, style: Style) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, style.quality);
    encoder.set_sampling_factor(style.sampling);
    encoder.set_restart_interval(style.interval);
    let (width, height) = (picture.width() as u16, picture.height() as u16);
    let grey = image::DynamicImage::ImageRgb8(picture.clone()).into_luma8();
    let (pixels, color) =
        if style.grey { (grey.as_raw(), ColorType::Luma) } else { (picture.as_raw(), ColorType::Rgb) };
    encoder.encode(pixels, width, height, color).expect("a picture that can be written");
    bytes
}

/// Cuts a part of odd position and size from a photograph.
fn cut(name: &str, [width, height]: [u32; 2]) -> image::RgbImage {
    image::imageops::crop_imm(&photograph(name), 33, 21, width, height).to_image()
}

/// Returns an axis of `length` pixels, starting at `from`, at their own size.
fn unscaled(from: u32, length: u32) -> Axis {
    scaled(from, length, length)
}

/// Returns an axis that reads only `length` pixels, starting at `from`, and makes `pixels` of them.
fn scaled(from: u32, length: u32, pixels: u32) -> Axis {
    let readable = (from, from + length);
    Axis { readable, from: f64::from(from), extent: f64::from(length), pixels, reversed: false }
}

fn rendered_with(scratch: &mut Scratch, bytes: &[u8], request: &PictureRequest) -> Result<Vec<u8>, Error> {
    let jpeg = Jpeg::open(bytes, Limits::default())?;
    let [columns, rows] = request.result_size().map(|side| side as usize);
    let mut out = vec![0xaa; columns * rows * 3];
    jpeg.render(request, scratch, &mut Rgb::new(&mut out, columns))?;
    Ok(out)
}

/// Renders with and without vector instructions, and checks that the results are equal.
fn rendered(bytes: &[u8], request: &PictureRequest) -> Result<Vec<u8>, Error> {
    thread_local! {
        static SCRATCHES: RefCell<[Scratch; 2]> = RefCell::new([Scratch::new(), Scratch::portable()]);
    }
    let [vector, portable] = SCRATCHES
        .with_borrow_mut(|scratches| scratches.each_mut().map(|scratch| rendered_with(scratch, bytes, request)));
    assert!(vector == portable, "vector instructions change {request:?}");
    vector
}
