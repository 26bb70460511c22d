//! Compares resized pictures with exact arithmetic on the whole picture, and with other decoders.

use super::*;

/// Returns the peak signal-to-noise ratio in dB.
fn psnr(actual: &[u8], exact: &[f64]) -> f64 {
    assert_eq!(actual.len(), exact.len());
    let squares = actual.iter().zip(exact).map(|(a, b)| (f64::from(*a) - b).powi(2));
    10.0 * (255.0 * 255.0 * exact.len() as f64 / squares.sum::<f64>()).log10()
}

#[test]
fn resizing_is_as_good_as_exact_arithmetic() {
    let size = [301, 233];
    use SamplingFactor::{R_4_2_0, R_4_2_2, R_4_4_0, R_4_4_4};
    for sampling in [R_4_2_0, R_4_2_2, R_4_4_0, R_4_4_4] {
        let bytes = encoded(&cut("astronaut", [301, 233]), Style { sampling, ..STYLE });
        let picture = plain::decode(&bytes);
        let mut draw = XorShift::new(7);
        for round in 0..25 {
            let [width, height] = size.map(|side| 8 + draw.below(side as usize - 8) as u32);
            let left = draw.below((size[0] - width + 1) as usize) as u32;
            let top = draw.below((size[1] - height + 1) as usize) as u32;
            // Use more than half the size, so that the transform is not reduced.
            let [columns, rows] = [width, height].map(|side| side / 2 + 1 + draw.below(side as usize) as u32);
            let inside = round % 3 > 0;
            let readable = |from: u32, length: u32, side: u32| if inside { (from, from + length) } else { (0, side) };
            let x = Axis { readable: readable(left, width, size[0]), ..scaled(left, width, columns) };
            let y = Axis { readable: readable(top, height, size[1]), ..scaled(top, height, rows) };
            let ours = rendered(&bytes, &PictureRequest { x, y, transposed: false }).unwrap();
            let rect = [left, top, width, height].map(f64::from);
            let exact = picture.resized(rect, [columns as usize, rows as usize], [x.readable, y.readable]);
            let ratio = psnr(&ours, exact.as_flattened());
            assert!(ratio > 53.0, "{sampling:?} {rect:?} to {columns}x{rows}: {ratio} dB");
        }
    }
}

#[test]
fn reduced_scales_are_close_to_the_whole_picture() {
    for (name, least) in [("chelsea", 38.0), ("astronaut", 30.0), ("coffee", 30.0)] {
        let photograph = photograph(name);
        let size = [photograph.width(), photograph.height()];
        for sampling in [SamplingFactor::R_4_2_0, SamplingFactor::R_4_2_2, SamplingFactor::R_4_4_4] {
            let bytes = encoded(&photograph, Style { sampling, ..STYLE });
            let picture = plain::decode(&bytes);
            for target in [size[1] / 2, size[1] / 3, size[1] / 4, size[1] / 7, size[1] / 8, size[1] / 13, 3, 1] {
                let x = scaled(0, size[0], target);
                let y = scaled(0, size[1], target);
                let ours = rendered(&bytes, &PictureRequest { x, y, transposed: false }).unwrap();
                let rect = [0.0, 0.0, f64::from(size[0]), f64::from(size[1])];
                let exact = picture.resized(rect, [target as usize; 2], [x.readable, y.readable]);
                let ratio = psnr(&ours, exact.as_flattened());
                assert!(ratio > least, "{name} {sampling:?} to {target}: {ratio} dB");
            }
        }
    }
}

#[test]
fn other_decoders_see_the_same_picture() {
    for (sampling, least) in
        [(SamplingFactor::R_4_2_0, 45.0), (SamplingFactor::R_4_2_2, 45.0), (SamplingFactor::R_4_4_4, 49.0)]
    {
        let bytes = encoded(&photograph("coffee"), Style { sampling, ..STYLE });
        let other = image::load_from_memory(&bytes).unwrap().into_rgb8();
        let [x, y] = [other.width(), other.height()].map(|side| unscaled(0, side));
        let ours = rendered(&bytes, &PictureRequest { x, y, transposed: false }).unwrap();
        let exact: Vec<f64> = other.as_raw().iter().map(|value| f64::from(*value)).collect();
        let ratio = psnr(&ours, &exact);
        assert!(ratio > least, "{sampling:?}: {ratio} dB");
    }
}

#[test]
fn pictures_of_other_programs_are_seen_as_others_see_them() {
    for name in ["grace_hopper", "hubble_deep_field", "rocket"] {
        let path = format!("{}/../../assets/photos/{name}.jpg", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(path).expect("a bundled photograph");
        let other = image::load_from_memory(&bytes).unwrap().into_rgb8();
        let [x, y] = [other.width(), other.height()].map(|side| unscaled(0, side));
        let ours = rendered(&bytes, &PictureRequest { x, y, transposed: false }).unwrap();
        let exact: Vec<f64> = other.as_raw().iter().map(|value| f64::from(*value)).collect();
        let ratio = psnr(&ours, &exact);
        assert!(ratio > 45.0, "{name}: {ratio} dB");
    }
}
