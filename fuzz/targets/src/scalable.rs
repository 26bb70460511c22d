//! Scalable packed pictures, and JPEGs to pack.

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use spdl_jpeg::{Limits, fuzz_scalable, scalable::pack};

/// Checks a packed picture, or packs a JPEG: see [`fuzz_scalable`].
pub(crate) fn read(data: &[u8]) {
    fuzz_scalable(data);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let samplings = [SamplingFactor::R_4_2_0, SamplingFactor::R_4_2_2, SamplingFactor::R_4_4_4];
    let mut seeds = Vec::new();
    for (at, sampling) in samplings.into_iter().enumerate() {
        for (color, [width, height]) in [(ColorType::Rgb, [70, 40]), (ColorType::Luma, [33, 65])] {
            let count = width * height * if color == ColorType::Rgb { 3 } else { 1 };
            // Waves with some noise: values in all bands.
            let pixels: Vec<u8> = (0..count as u32)
                .map(|at| {
                    (at.wrapping_mul(2_654_435_761) >> 26) as u8 + ((f64::from(at) / 40.0).sin() * 90.0 + 90.0) as u8
                })
                .collect();
            let mut jpeg = Vec::new();
            let mut encoder = Encoder::new(&mut jpeg, [60, 85, 98][at]);
            encoder.set_sampling_factor(sampling);
            encoder.set_restart_interval(at as u16 * 2);
            encoder.encode(&pixels, width as u16, height as u16, color).expect("a picture can be written");
            seeds.push(pack(&jpeg, Limits::default()).expect("a picture can be packed"));
            seeds.push(jpeg);
        }
    }
    seeds
}
