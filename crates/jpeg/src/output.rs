//! The destinations of decoded pixels.

use crate::kernel::STRIP;

/// The order of the bytes in a strip of 16 pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputLayout {
    /// Red, green and blue of the first pixel, then of the next.
    Interleaved,
    /// 16 bytes of red, 16 of green, 16 of blue.
    Planar,
}

/// Receives the pixels of a picture.
pub trait Output {
    /// The order of bytes that this output expects.
    const LAYOUT: OutputLayout;

    /// Receives `count` pixels, 1 to 16, of row `y` from column `x` on. Each pixel of the result comes exactly once.
    fn put(&mut self, x: usize, y: usize, strip: &[u8; 3 * STRIP], count: usize);
}

/// Writes RGB pixels to rows in memory.
#[derive(Debug)]
pub struct Rgb<'o> {
    bytes: &'o mut [u8],
    row_bytes: usize,
}

impl<'o> Rgb<'o> {
    /// Creates an output whose rows have `row_pixels` pixels.
    pub fn new(bytes: &'o mut [u8], row_pixels: usize) -> Self {
        Self { bytes, row_bytes: row_pixels * 3 }
    }
}

impl Output for Rgb<'_> {
    const LAYOUT: OutputLayout = OutputLayout::Interleaved;

    #[inline(always)]
    fn put(&mut self, x: usize, y: usize, strip: &[u8; 3 * STRIP], count: usize) {
        let start = y * self.row_bytes + x * 3;
        if count == STRIP {
            self.bytes[start..start + 3 * STRIP].copy_from_slice(strip);
        } else {
            self.bytes[start..start + 3 * count].copy_from_slice(&strip[..3 * count]);
        }
    }
}
