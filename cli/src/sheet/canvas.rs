//! The pixels of a sheet, and what is drawn on them.

use std::io::Cursor;

use image::{ImageFormat, Rgb, RgbImage};

use super::font;

/// Colours of classes, which differ also in their brightness.
const COLOURS: [[u8; 3]; 8] = [
    [230, 159, 0],
    [86, 180, 233],
    [0, 158, 115],
    [240, 228, 66],
    [0, 114, 178],
    [213, 94, 0],
    [204, 121, 167],
    [148, 103, 189],
];

/// Returns the colour of a class.
pub(super) const fn colour(class: i64) -> [u8; 3] {
    COLOURS[class.rem_euclid(COLOURS.len() as i64) as usize]
}

/// A white picture that is drawn on.
pub(super) struct SheetCanvas(RgbImage);

impl SheetCanvas {
    pub(super) fn new(width: usize, height: usize) -> Self {
        Self(RgbImage::from_pixel(width as u32, height as u32, Rgb([255; 3])))
    }

    /// Sets a pixel, if it lies in the picture.
    pub(super) fn set(&mut self, [x, y]: [usize; 2], colour: [u8; 3]) {
        if let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y))
            && let Some(pixel) = self.0.get_pixel_mut_checked(x, y)
        {
            *pixel = Rgb(colour);
        }
    }

    /// Draws the edge of a box, two pixels wide.
    pub(super) fn edge(&mut self, [left, top, right, bottom]: [usize; 4], colour: [u8; 3]) {
        for inner in 0..2 {
            for x in left..=right {
                self.set([x, top + inner], colour);
                self.set([x, bottom.saturating_sub(inner)], colour);
            }
            for y in top..=bottom {
                self.set([left + inner, y], colour);
                self.set([right.saturating_sub(inner), y], colour);
            }
        }
    }

    /// Writes as many letters as fit into `width` pixels, on a ground if there is one.
    pub(super) fn text(&mut self, [left, top]: [usize; 2], text: &str, width: usize, ground: Option<[u8; 3]>) {
        for (nth, letter) in text.chars().take(width / font::ADVANCE).enumerate() {
            let left = left + nth * font::ADVANCE;
            let columns = font::columns(letter);
            for (x, column) in columns.into_iter().chain([0]).enumerate() {
                for y in 0..font::HEIGHT {
                    match (column >> y & 1 == 1, ground) {
                        (true, _) => self.set([left + x, top + y], [0; 3]),
                        (false, Some(ground)) => self.set([left + x, top + y], ground),
                        (false, None) => {}
                    }
                }
            }
        }
    }

    pub(super) fn png(&self) -> Result<Vec<u8>, String> {
        let mut file = Cursor::new(Vec::new());
        self.0.write_to(&mut file, ImageFormat::Png).map_err(|error| error.to_string())?;
        Ok(file.into_inner())
    }
}
