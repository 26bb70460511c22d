//! Random resized crops, as in training, and pseudo-random numbers, for tests and benchmarks of decoders.

use crate::{Axis, PictureRequest};

/// Pixels along one side of the result.
pub const TARGET: u32 = 224;

/// Left, top, width and height.
pub type Rect = [u32; 4];

/// Returns the request for the whole rectangle, resized.
pub fn request([left, top, width, height]: Rect) -> PictureRequest {
    let axis = |from: u32, length: u32| {
        let readable = (from, from + length);
        Axis { readable, from: f64::from(from), extent: f64::from(length), pixels: TARGET, reversed: false }
    };
    PictureRequest { x: axis(left, width), y: axis(top, height), transposed: false }
}

/// Pseudo-random numbers (xorshift).
pub struct XorShift(u64);

impl Default for XorShift {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl XorShift {
    /// Begins a sequence of numbers with a seed, which must not be 0.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Draws a number from 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws a whole number below `n`, which must not be 0.
    pub const fn below(&mut self, n: usize) -> usize {
        (self.next() >> 16) as usize % n
    }
}

/// Draws a crop as torchvision's `RandomResizedCrop` does with its defaults.
pub fn random_resized_crop([width, height]: [u32; 2], draw: &mut XorShift) -> Rect {
    loop {
        let area = f64::from(width) * f64::from(height) * (0.08 + 0.92 * draw.unit());
        let aspect = ((draw.unit() * 2.0 - 1.0) * (4.0f64 / 3.0).ln()).exp();
        let [across, down] = [area * aspect, area / aspect].map(|square| square.sqrt().round() as u32);
        if (1..=width).contains(&across) && (1..=height).contains(&down) {
            let mut at_most = |most: u32| (draw.unit() * f64::from(most + 1)) as u32;
            return [at_most(width - across), at_most(height - down), across, down];
        }
    }
}
