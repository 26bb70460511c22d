//! Where pixels go.

use crate::kernel::STRIP;

/// How the bytes of a strip of 16 pixels lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Red, green and blue of the first pixel, then of the next.
    Interleaved,
    /// 16 bytes of red, 16 of green, 16 of blue.
    Planar,
}

/// Takes the pixels of a picture.
pub trait Output {
    /// How it wants them.
    const LAYOUT: Layout;

    /// Takes `count` pixels, 1 to 16, of row `y` from column `x` on. Every pixel of the result comes once.
    fn put(&mut self, x: usize, y: usize, strip: &[u8; 3 * STRIP], count: usize);
}

/// RGB pixels in rows.
#[derive(Debug)]
pub struct Rgb<'o> {
    bytes: &'o mut [u8],
    row_bytes: usize,
}

impl<'o> Rgb<'o> {
    /// Rows of `row_pixels` pixels each.
    pub fn new(bytes: &'o mut [u8], row_pixels: usize) -> Self {
        Self { bytes, row_bytes: row_pixels * 3 }
    }
}

impl Output for Rgb<'_> {
    const LAYOUT: Layout = Layout::Interleaved;

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
