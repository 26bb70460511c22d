//! The limits on what is decoded.

/// The largest picture to decode. A few bytes of a hostile picture can claim gigabytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pixels along one side. Default 16,384. With a higher value, a broken header can cost more memory.
    pub side_pixels: u32,
    /// Total number of pixels. Default 2^27. With a higher value, each decoding thread can take more memory: up to
    /// three bytes per pixel of the crop.
    pub pixels: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { side_pixels: 16_384, pixels: 1 << 27 }
    }
}
