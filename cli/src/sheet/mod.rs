//! A picture of a batch: its pictures side by side, with their masks, boxes, labels and texts.

mod canvas;
mod font;
mod tile;

use self::{canvas::SheetCanvas, tile::SheetTile};

/// The most samples on a sheet.
pub const MAX_SAMPLES: usize = 64;
/// Pixels between two samples.
const GAP: usize = 6;

/// A column of a batch, for a sheet.
#[derive(Clone, Debug)]
pub struct SheetColumn {
    /// Its name.
    pub name: String,
    /// The sides of all values: the samples and the sides of one; of a ragged column the rows and the sides of a row.
    pub shape: Vec<usize>,
    /// Of a ragged column, where the rows of each sample begin, and where the last ones end.
    pub offsets: Option<Vec<usize>>,
    /// The values.
    pub values: SheetValues,
}

/// The values of a column.
#[derive(Clone, Debug)]
pub enum SheetValues {
    /// Bytes, or levels of pixels.
    U8(Vec<u8>),
    /// Whole numbers.
    I64(Vec<i64>),
    /// Numbers.
    F32(Vec<f32>),
}

/// Draws the first samples of a batch with these columns, and returns a PNG. `classes` are names for the numbers of the column `label`, or of the only one of
/// whole numbers, and for those of boxes.
///
/// # Errors
/// If no column has pictures, or a column has other values than its shape says.
pub fn png(columns: &[SheetColumn], most: usize, classes: &[String]) -> Result<Vec<u8>, String> {
    for column in columns {
        column.check()?;
    }
    let pictures = columns.iter().find(|column| column.picture().is_some());
    let pictures =
        pictures.ok_or("no column has pictures: arrays of 8 bits or floats with 1 or 3 channels, all of one size")?;
    let tiles: Vec<SheetTile> =
        (0..pictures.shape[0].min(most)).map(|sample| SheetTile::new(pictures, columns, sample, classes)).collect();
    let Some(first) = tiles.first() else { return Err("the batch has no samples".to_owned()) };
    let side = (1..).find(|side| side * side >= tiles.len()).expect("a number is large enough");
    let [width, height] = first.size().map(|side| side + GAP);
    let mut canvas = SheetCanvas::new(GAP + side.min(tiles.len()) * width, GAP + tiles.len().div_ceil(side) * height);
    for (nth, tile) in tiles.iter().enumerate() {
        tile.draw(&mut canvas, [GAP + nth % side * width, GAP + nth / side * height]);
    }
    canvas.png()
}

/// Where the values of a column's pictures lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PictureShape {
    width: usize,
    height: usize,
    channels: usize,
    /// Whether the channels come before height and width.
    is_planar: bool,
}

impl SheetColumn {
    fn check(&self) -> Result<(), String> {
        let count = match &self.values {
            SheetValues::U8(values) => values.len(),
            SheetValues::I64(values) => values.len(),
            SheetValues::F32(values) => values.len(),
        };
        let is_whole = self.shape.iter().try_fold(1_usize, |product, side| product.checked_mul(*side)) == Some(count);
        let rows = self.shape.first().copied().unwrap_or(0);
        let are_offsets = self
            .offsets
            .as_ref()
            .is_none_or(|offsets| offsets.is_sorted() && offsets.iter().all(|offset| *offset <= rows));
        if is_whole && are_offsets && !self.shape.is_empty() {
            return Ok(());
        }
        Err(format!("column `{}` has {count} values, and its shape is {:?}", self.name, self.shape))
    }

    /// Returns the shape of its pictures, if it has some.
    fn picture(&self) -> Option<PictureShape> {
        let is_level = !matches!(self.values, SheetValues::I64(_));
        match *self.shape {
            [_, height, width, channels @ (1 | 3)] if is_level => {
                Some(PictureShape { width, height, channels, is_planar: false })
            }
            [_, channels @ (1 | 3), height, width] if is_level => {
                Some(PictureShape { width, height, channels, is_planar: true })
            }
            _ => None,
        }
        .filter(|shape| self.offsets.is_none() && shape.width > 0 && shape.height > 0)
    }

    /// Returns the rows of a sample.
    fn rows(&self, sample: usize) -> std::ops::Range<usize> {
        match &self.offsets {
            Some(offsets) if sample + 1 < offsets.len() => offsets[sample]..offsets[sample + 1],
            Some(_) => 0..0,
            None => sample..(sample + 1).min(self.shape[0]),
        }
    }
}

#[cfg(test)]
mod tests;
