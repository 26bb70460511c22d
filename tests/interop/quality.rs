//! Compares crops with Pillow's decode and resize, and with libjpeg-turbo's scaled decoding.

use std::{collections::BTreeMap, fs};

use serde_json::{Value, json};
use spdl_jpeg::{Axis, Jpeg, Limits, PictureRequest, Rgb, Scratch};
use spdl_testkit::{
    python::{python, run_script},
    root,
};

/// The photographs, with the left, top, width and height of a crop of each, which is scaled by 1, 1/2 and less.
const CROPS: [(&str, [u32; 4]); 9] = [
    ("rocket.jpg", [0, 0, 640, 427]),
    ("rocket.jpg", [201, 33, 333, 301]),
    ("hubble_deep_field.jpg", [13, 7, 900, 801]),
    ("hubble_deep_field.jpg", [401, 322, 255, 311]),
    ("grace_hopper.jpg", [5, 11, 500, 489]),
    ("astronaut.png", [0, 0, 512, 512]),
    ("astronaut.png", [99, 15, 310, 290]),
    ("coffee.png", [77, 3, 460, 390]),
    ("motorcycle_left.png", [40, 50, 610, 440]),
];
const SIZES: [u32; 4] = [224, 112, 64, 24];

/// Returns the bytes of a bundled JPEG, or of another photograph encoded as one.
fn jpeg(name: &str) -> Vec<u8> {
    let path = root().join("assets/photos").join(name);
    if name.ends_with(".jpg") {
        return fs::read(path).unwrap();
    }
    let picture = image::open(path).unwrap().into_rgb8();
    let mut bytes = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 92);
    encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::R_4_2_0);
    let (width, height) = (picture.width() as u16, picture.height() as u16);
    encoder.encode(picture.as_raw(), width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    bytes
}

fn crop(bytes: &[u8], [left, top, width, height]: [u32; 4], pixels: u32) -> Vec<u8> {
    let axis = |from: u32, length: u32| {
        let readable = (from, from + length);
        Axis { readable, from: f64::from(from), extent: f64::from(length), pixels, reversed: false }
    };
    let request = PictureRequest { x: axis(left, width), y: axis(top, height), transposed: false };
    let mut out = vec![0; (pixels * pixels * 3) as usize];
    let jpeg = Jpeg::open(bytes, Limits::default()).unwrap();
    jpeg.render(&request, &mut Scratch::new(), &mut Rgb::new(&mut out, pixels as usize)).unwrap();
    out
}

#[test]
fn crops_are_no_further_from_pillows_than_those_of_libjpeg_turbos_scaled_decoding() {
    let python = python();
    let folder = tempfile::tempdir().unwrap();
    let mut cases = Vec::new();
    for (number, (name, rect)) in CROPS.into_iter().enumerate() {
        let bytes = jpeg(name);
        let picture = folder.path().join(format!("{number}.jpg"));
        fs::write(&picture, &bytes).unwrap();
        for size in SIZES {
            let ours = folder.path().join(format!("{number}-{size}.rgb"));
            fs::write(&ours, crop(&bytes, rect, size)).unwrap();
            cases.push(json!({ "jpeg": picture, "rect": rect, "size": size, "ours": ours }));
        }
    }
    let list = folder.path().join("cases.json");
    fs::write(&list, Value::from(cases.clone()).to_string()).unwrap();
    let measured = run_script(&python, "tests/interop/psnr.py", [list]);
    let measured: Vec<(f64, f64, u64)> = serde_json::from_value(measured).unwrap();
    let mut sums = BTreeMap::new();
    for ((ours, scaled, scale), case) in measured.iter().zip(&cases) {
        // At full scale, libjpeg-turbo's pixels are the reference's own. At 1/8, both decoders give the means of
        // blocks.
        let least = if *scale == 1 { 50.0 } else { scaled - 0.25 };
        assert!(*ours >= least, "1/{scale}: {ours:.2} dB instead of {least:.2} dB or more: {case}");
        let sum = sums.entry(*scale).or_insert((0.0, 0.0, 0));
        *sum = (sum.0 + ours, sum.1 + scaled, sum.2 + 1);
    }
    for scale in [2, 4, 8] {
        let (ours, scaled, count) = sums[&scale];
        let (ours, scaled) = (ours / f64::from(count), scaled / f64::from(count));
        println!("1/{scale}: {ours:.2} dB, libjpeg-turbo {scaled:.2} dB, at the mean of {count}");
        assert!(ours >= scaled, "1/{scale}: {ours:.2} dB instead of {scaled:.2} dB or more");
    }
    assert!(sums.contains_key(&1), "a case at full scale");
}
