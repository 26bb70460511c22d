//! What is decoded at most.

/// The largest picture that is decoded: a few bytes of a hostile one can claim gigabytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pixels on a side; 16 384 by default. Raised, a broken header can cost more memory.
    pub side_pixels: u32,
    /// Pixels in all; 2^27 by default. Raised, each decoding thread can take more memory: up to three bytes a pixel of
    /// the crop.
    pub pixels: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { side_pixels: 16_384, pixels: 1 << 27 }
    }
}
