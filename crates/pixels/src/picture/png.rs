//! Decodes PNGs row by row, so that a large picture needs little memory, and reads their orientation.

use std::io::{Cursor, Read};

use flate2::read::ZlibDecoder;
use png::{BitDepth, ColorType, Transformations};

use super::{PictureError, PictureLimits, Upright, alpha::Alpha, checked_size, exif::upright, other, rows::Rows};
use crate::channels::{RawPicture, RawSample};

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Maximum bytes of text that are inflated to look for an orientation.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// A PNG whose header has been read.
pub(super) struct Png<'b> {
    reader: png::Reader<Cursor<&'b [u8]>>,
    channels: usize,
    is_wide: bool,
    /// The colour that shows through transparent pixels; without it, opacity is ignored.
    pub(super) background: Option<[u8; 3]>,
}

pub(super) fn is_png(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE)
}

pub(super) fn open(bytes: &[u8], limits: PictureLimits) -> Result<([u32; 2], Upright, Png<'_>), PictureError> {
    // Limits the decoder's own buffers, which hold a few rows. Memory of the size of the picture is reserved separately
    // before it is allocated.
    let allowed = usize::try_from(limits.pixels.saturating_mul(8)).unwrap_or(usize::MAX);
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), png::Limits { bytes: allowed });
    decoder.set_ignore_text_chunk(true);
    let info = decoder.read_header_info().map_err(other)?;
    let stored = checked_size(info.width, info.height, limits)?;
    decoder.set_transformations(Transformations::EXPAND);
    let reader = decoder.read_info().map_err(other)?;
    let (color, depth) = reader.output_color_type();
    let is_wide = match depth {
        BitDepth::Eight => false,
        BitDepth::Sixteen => true,
        depth => return Err(other(format_args!("samples of {depth:?} bits"))),
    };
    let channels = match color {
        ColorType::Grayscale => 1,
        ColorType::GrayscaleAlpha => 2,
        ColorType::Rgb => 3,
        ColorType::Rgba => 4,
        ColorType::Indexed => return Err(other("a palette that is missing")),
    };
    Ok((stored, metadata(bytes), Png { reader, channels, is_wide, background: None }))
}

impl Png<'_> {
    pub(super) fn is_interlaced(&self) -> bool {
        self.reader.info().interlaced
    }

    /// Returns whether values have 16 bits.
    pub(super) const fn is_wide(&self) -> bool {
        self.is_wide
    }

    fn pixel_bytes(&self) -> usize {
        self.channels * if self.is_wide { 2 } else { 1 }
    }

    /// Returns the bytes that decoding uses in addition to the RGB pixels: a few rows, or all rows of an interlaced
    /// picture.
    pub(super) fn scratch_bytes(&self, [width, height]: [u32; 2]) -> u64 {
        let rows = if self.is_interlaced() { u64::from(height) } else { 4 };
        u64::from(width) * rows * self.pixel_bytes() as u64 + INFLATE_BYTES
    }

    /// Returns the bytes that [`decode_raw`](Self::decode_raw) uses, with its result.
    pub(super) fn raw_bytes(&self, [width, height]: [u32; 2]) -> u64 {
        u64::from(width) * u64::from(height) * self.pixel_bytes() as u64 + self.scratch_bytes([width, 4])
    }

    /// Decodes the whole picture to its samples.
    pub(super) fn decode_raw(mut self) -> Result<RawPicture, PictureError> {
        let size = self.reader.output_buffer_size().ok_or_else(|| other("a picture beyond all memory"))?;
        let mut bytes = vec![0; size];
        self.reader.next_frame(&mut bytes).map_err(other)?;
        let sample = if self.is_wide { RawSample::WideBigEndian } else { RawSample::Byte };
        Ok(RawPicture { bytes, sample, samples: self.channels, alpha: Alpha::Straight })
    }

    /// Decodes the first `rows` rows of the picture to RGB, and the others only where it is interlaced.
    pub(super) fn decode(mut self, rows: u32, pixels: &mut [u8]) -> Result<(), PictureError> {
        if !self.is_interlaced() {
            let row_bytes = self.reader.info().width as usize * 3;
            return pixels.chunks_exact_mut(row_bytes).take(rows as usize).try_for_each(|row| self.next_row(row));
        }
        let bytes = self.reader.output_buffer_size().ok_or_else(|| other("a picture beyond all memory"))?;
        let mut raw = vec![0; bytes];
        self.reader.next_frame(&mut raw).map_err(other)?;
        to_rgb(&raw, pixels, self.channels, self.is_wide, self.background);
        Ok(())
    }
}

/// Memory for inflating: its window and its input buffer.
const INFLATE_BYTES: u64 = 256 << 10;

impl Rows for Png<'_> {
    fn next_row(&mut self, rgb: &mut [u8]) -> Result<(), PictureError> {
        let (channels, is_wide, background) = (self.channels, self.is_wide, self.background);
        let row = self.reader.next_row().map_err(other)?.ok_or_else(|| other("rows are missing"))?;
        to_rgb(row.data(), rgb, channels, is_wide, background);
        Ok(())
    }
}

/// Converts rows to RGB. Samples of 16 bits are big-endian; without a background, alpha is dropped.
fn to_rgb(raw: &[u8], rgb: &mut [u8], channels: usize, is_wide: bool, background: Option<[u8; 3]>) {
    if let Some(background) = background.filter(|_| channels.is_multiple_of(2)) {
        let over = |color: [u8; 3], alpha: u8| Alpha::Straight.over(background, color, alpha);
        return match (channels, is_wide) {
            (2, false) => convert(raw, rgb, |[l, a]: [u8; 2]| over([l; 3], a)),
            (2, true) => convert(raw, rgb, |[l, m, a, b]: [u8; 4]| over([narrow([l, m]); 3], narrow([a, b]))),
            (_, false) => convert(raw, rgb, |[r, g, b, a]: [u8; 4]| over([r, g, b], a)),
            (_, true) => convert(raw, rgb, |p: [u8; 8]| {
                let [r, g, b, a] = [0, 2, 4, 6].map(|at| narrow([p[at], p[at + 1]]));
                over([r, g, b], a)
            }),
        };
    }
    match (channels, is_wide) {
        (1, false) => convert(raw, rgb, |[l]: [u8; 1]| [l; 3]),
        (2, false) => convert(raw, rgb, |[l, _]: [u8; 2]| [l; 3]),
        (3, false) => rgb.copy_from_slice(raw),
        (4, false) => convert(raw, rgb, |[r, g, b, _]: [u8; 4]| [r, g, b]),
        (1, true) => convert(raw, rgb, |[l, m]: [u8; 2]| [narrow([l, m]); 3]),
        (2, true) => convert(raw, rgb, |[l, m, ..]: [u8; 4]| [narrow([l, m]); 3]),
        (3, true) => convert(raw, rgb, |p: [u8; 6]| [narrow([p[0], p[1]]), narrow([p[2], p[3]]), narrow([p[4], p[5]])]),
        _ => convert(raw, rgb, |p: [u8; 8]| [narrow([p[0], p[1]]), narrow([p[2], p[3]]), narrow([p[4], p[5]])]),
    }
}

fn convert<const N: usize>(raw: &[u8], rgb: &mut [u8], of: impl Fn([u8; N]) -> [u8; 3]) {
    for (pixel, raw) in rgb.as_chunks_mut::<3>().0.iter_mut().zip(raw.as_chunks::<N>().0) {
        *pixel = of(*raw);
    }
}

/// Returns the nearest 8-bit value of a 16-bit one.
fn narrow(bytes: [u8; 2]) -> u8 {
    super::nearest(u16::from_be_bytes(bytes))
}

/// Reads the orientation from all chunks, also those after the picture: from EXIF in the standard chunk, from EXIF as
/// ImageMagick writes it, or from XMP.
fn metadata(bytes: &[u8]) -> Upright {
    let (mut exif, mut profile, mut xmp) = (None, None, None);
    let mut at = SIGNATURE.len();
    while let Some(&[a, b, c, d, ref kind @ ..]) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let Some(data) = bytes.get(at + 8..).and_then(|rest| rest.get(..length)) else { break };
        match kind {
            b"eXIf" => exif = Some(data.to_vec()),
            b"tEXt" | b"zTXt" | b"iTXt" => {
                let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
                let (keyword, text) = (&data[..end], data.get(end + 1..).unwrap_or_default());
                match keyword {
                    b"Raw profile type exif" | b"Raw profile type APP1" => {
                        profile = text_of(kind, text).and_then(|text| raw_profile(&text)).or(profile);
                    }
                    b"XML:com.adobe.xmp" => xmp = text_of(kind, text).or(xmp),
                    _ => {}
                }
            }
            _ => {}
        }
        at += 12 + length;
    }
    upright(exif.as_deref().or(profile.as_deref()), xmp.as_deref())
}

/// Returns the text after the keyword of a chunk, inflated if necessary.
fn text_of(kind: &[u8], body: &[u8]) -> Option<Vec<u8>> {
    let (is_deflated, text) = match kind {
        b"tEXt" => (false, body),
        b"zTXt" => (true, body.get(1..)?),
        _ => {
            // Two bytes (whether the text is deflated, and how), then language and translated keyword.
            let (flags, mut text) = body.split_at_checked(2)?;
            for _ in 0..2 {
                text = text.get(text.iter().position(|byte| *byte == 0)? + 1..)?;
            }
            (flags[0] != 0, text)
        }
    };
    if !is_deflated {
        return Some(text.to_vec());
    }
    let mut inflated = Vec::new();
    ZlibDecoder::new(text).take(MAX_TEXT_BYTES).read_to_end(&mut inflated).ok()?;
    Some(inflated)
}

/// Parses an ImageMagick profile: a newline, a name, a length, and lines of hexadecimal digits.
fn raw_profile(text: &[u8]) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.splitn(4, |byte| *byte == b'\n').nth(3)?.iter().copied().filter(u8::is_ascii_hexdigit).collect();
    let value = |digit: u8| (digit as char).to_digit(16).expect("a digit") as u8;
    let bytes: Vec<u8> = digits.as_chunks::<2>().0.iter().map(|[high, low]| value(*high) << 4 | value(*low)).collect();
    // A profile of type APP1 may hold XMP instead.
    (bytes.starts_with(b"Exif\0\0") || bytes.starts_with(b"II") || bytes.starts_with(b"MM")).then_some(bytes)
}
