//! Decodes the first frame of a GIF on its canvas, as Pillow does: the rest of the canvas gets the frame's transparent
//! colour, or else the first of its palette; a frame that exceeds the canvas enlarges it.

use std::io::Cursor;

use gif::{ColorOutput, DecodeOptions, Decoder};

use super::{Alpha, PictureError, PictureLimits, Upright, checked_size, exif::upright, other};
use crate::channels::{RawPicture, RawSample};

/// A GIF whose first frame header has been read.
pub(super) struct Gif<'b> {
    decoder: Decoder<Cursor<&'b [u8]>>,
    width: usize,
    palette: [[u8; 3]; 256],
    /// The colour of the canvas outside the frame.
    open_colour: u8,
    /// The colour of the palette that is transparent.
    transparent: Option<u8>,
    /// The frame's place on the canvas: left, top, width and height.
    frame: [usize; 4],
}

pub(super) fn is_gif(bytes: &[u8]) -> bool {
    bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a")
}

pub(super) fn open(bytes: &[u8], limits: PictureLimits) -> Result<([u32; 2], Upright, Gif<'_>), PictureError> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    options.allow_unknown_blocks(true);
    let mut decoder = options.read_info(Cursor::new(bytes)).map_err(other)?;
    let canvas = [decoder.width(), decoder.height()].map(u32::from);
    let frame = decoder.next_frame_info().map_err(other)?.ok_or_else(|| other("a GIF without a picture"))?;
    let transparent = frame.transparent;
    let open_colour = transparent.unwrap_or(0);
    let frame = [frame.left, frame.top, frame.width, frame.height].map(u32::from);
    let [width, height] = [0, 1].map(|side| canvas[side].max(frame[side] + frame[2 + side]));
    let stored = checked_size(width, height, limits)?;
    // Colours past the end of the palette are black.
    let mut palette = [[0; 3]; 256];
    let colours = decoder.palette().map_err(other)?.as_chunks::<3>().0;
    palette.iter_mut().zip(colours).for_each(|(entry, colour)| *entry = *colour);
    let upright = upright(None, decoder.xmp_metadata());
    let (width, frame) = (width as usize, frame.map(|side| side as usize));
    Ok((stored, upright, Gif { decoder, width, palette, open_colour, transparent, frame }))
}

impl Gif<'_> {
    /// Returns the bytes that decoding uses in addition to the RGB pixels.
    pub(super) const fn scratch_bytes(&self) -> u64 {
        let [_, _, width, height] = self.frame;
        width as u64 * height as u64
    }

    /// Decodes the picture to RGB, on this background.
    pub(super) fn decode(mut self, background: Option<[u8; 3]>, pixels: &mut [u8]) -> Result<(), PictureError> {
        if let (Some(background), Some(transparent)) = (background, self.transparent) {
            self.palette[usize::from(transparent)] = background;
        }
        let palette = self.palette;
        self.paint(&palette, pixels)
    }

    /// Decodes a picture of this width and height to RGB and alpha.
    pub(super) fn decode_raw(mut self, [width, height]: [u32; 2]) -> Result<RawPicture, PictureError> {
        let mut palette = self.palette.map(|[r, g, b]| [r, g, b, 255]);
        if let Some(transparent) = self.transparent {
            palette[usize::from(transparent)][3] = 0;
        }
        let mut bytes = vec![0; width as usize * height as usize * 4];
        self.paint(&palette, &mut bytes)?;
        Ok(RawPicture { bytes, sample: RawSample::Byte, samples: 4, alpha: Alpha::Straight })
    }

    /// Decodes the picture to the colours of a palette.
    fn paint<const N: usize>(&mut self, palette: &[[u8; N]; 256], pixels: &mut [u8]) -> Result<(), PictureError> {
        let [left, top, width, height] = self.frame;
        let mut indices = vec![0; width * height];
        if !indices.is_empty() {
            self.decoder.read_into_buffer(&mut indices).map_err(other)?;
        }
        let pixels = pixels.as_chunks_mut::<N>().0;
        pixels.fill(palette[usize::from(self.open_colour)]);
        let rows = pixels.chunks_exact_mut(self.width).skip(top);
        for (row, indices) in rows.zip(indices.chunks_exact(width.max(1))) {
            for (pixel, index) in row[left..].iter_mut().zip(indices) {
                *pixel = palette[usize::from(*index)];
            }
        }
        Ok(())
    }
}
