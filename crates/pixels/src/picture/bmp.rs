//! Decodes run-length encoded BMPs (RLE4 and RLE8). Pixels that the runs skip get the first colour of the palette, as
//! in Pillow and ImageMagick.

use super::{PictureError, PictureLimits, checked_size, other};

/// Bytes before the header that contains the size.
const FILE_HEADER_BYTES: usize = 14;

/// A run-length encoded BMP whose header has been read.
pub(super) struct RunLengthBmp<'b> {
    palette: Vec<[u8; 3]>,
    runs: &'b [u8],
    size: [usize; 2],
    /// Whether a byte holds two pixels.
    is_rle4: bool,
}

/// Reads the header; returns `None` if the bytes are not a run-length encoded BMP.
pub(super) fn open(bytes: &[u8], limits: PictureLimits) -> Result<Option<([u32; 2], RunLengthBmp<'_>)>, PictureError> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let header = |at: usize| u32_at(FILE_HEADER_BYTES + at);
    let (Some(header_bytes @ 40..=1024), Some(width), Some(height)) = (header(0), header(4), header(8)) else {
        return Ok(None);
    };
    let (Some(planes_and_bits), Some(compression)) = (header(12), header(16)) else { return Ok(None) };
    let is_rle4 = match (bytes.starts_with(b"BM"), planes_and_bits >> 16, compression) {
        (true, 8, 1) => false,
        (true, 4, 2) => true,
        _ => return Ok(None),
    };
    if height > i32::MAX as u32 {
        return Err(other("a BMP of runs from the top down"));
    }
    let stored = checked_size(width, height, limits)?;
    let most = if is_rle4 { 16 } else { 256 };
    let colours = match header(32) {
        Some(count @ 1..) => (count as usize).min(most),
        _ => most,
    };
    let palette = bytes.get(FILE_HEADER_BYTES + header_bytes as usize..).unwrap_or_default();
    let palette = palette.as_chunks::<4>().0.iter().take(colours).map(|[b, g, r, _]| [*r, *g, *b]).collect();
    let runs = u32_at(10).and_then(|start| bytes.get(start as usize..));
    let runs = runs.ok_or_else(|| other("a BMP that ends before its pixels"))?;
    Ok(Some((stored, RunLengthBmp { palette, runs, size: stored.map(|side| side as usize), is_rle4 })))
}

impl RunLengthBmp<'_> {
    /// Decodes the picture to RGB.
    pub(super) fn decode(self, pixels: &mut [u8]) -> Result<(), PictureError> {
        let Self { palette, mut runs, size: [width, height], is_rle4 } = self;
        let colour = |index: u8| palette.get(usize::from(index)).copied().unwrap_or_default();
        pixels.as_chunks_mut::<3>().0.fill(colour(0));
        let truncated = || other("a BMP of runs that is cut off");
        let mut take = |count: usize| {
            let (taken, rest) = runs.split_at_checked(count).ok_or_else(truncated)?;
            runs = rest;
            Ok::<_, PictureError>(taken)
        };
        // Rows are stored from the bottom up; pixels beyond the end of a row are dropped.
        let (mut x, mut row) = (0, 0);
        let mut put = |x: usize, row: usize, index: u8| {
            if x < width && row < height {
                pixels[((height - 1 - row) * width + x) * 3..][..3].copy_from_slice(&colour(index));
            }
        };
        let nibble = |byte: u8, at: usize| if at.is_multiple_of(2) { byte >> 4 } else { byte & 15 };
        while row < height {
            let &[count, second] = take(2)?.first_chunk::<2>().expect("two bytes");
            match (count, second) {
                (0, 0) => (x, row) = (0, row + 1),
                (0, 1) => break,
                (0, 2) => {
                    let &[right, up] = take(2)?.first_chunk::<2>().expect("two bytes");
                    (x, row) = (x + usize::from(right), row + usize::from(up));
                }
                (0, count) => {
                    let count = usize::from(count);
                    let bytes = if is_rle4 { count.div_ceil(2) } else { count };
                    let indices = take(bytes)?;
                    for at in 0..count {
                        put(x + at, row, if is_rle4 { nibble(indices[at / 2], at) } else { indices[at] });
                    }
                    // Skips the padding to a 16-bit boundary, if the file has it.
                    let _ = take(bytes % 2);
                    x += count;
                }
                (count, value) => {
                    for at in 0..usize::from(count) {
                        put(x + at, row, if is_rle4 { nibble(value, at) } else { value });
                    }
                    x += usize::from(count);
                }
            }
        }
        Ok(())
    }
}
