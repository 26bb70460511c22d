//! One sample on a sheet: its picture, and what the other columns say about it.

use super::{
    PictureShape, SheetColumn, SheetValues,
    canvas::{SheetCanvas, colour},
    font,
};

/// Shorter sides are enlarged to at least so many pixels.
const LEAST_SIDE: usize = 96;
/// Longer sides are reduced to at most so many pixels.
const MOST_SIDE: usize = 320;
/// Lines of text below a picture.
const LINES: usize = 3;
/// Height of a line of text.
const LINE: usize = font::HEIGHT + 2;

/// A sample that is drawn.
pub(super) struct SheetTile {
    shape: PictureShape,
    /// The pixels of the picture, with its mask.
    pixels: Vec<[u8; 3]>,
    /// Boxes in pixels of the picture: left, top, right and bottom, the number of its class, and what is written on it.
    boxes: Vec<([f32; 4], i64, String)>,
    lines: Vec<String>,
}

impl SheetTile {
    pub(super) fn new(pictures: &SheetColumn, columns: &[SheetColumn], sample: usize, classes: &[String]) -> Self {
        let shape = pictures.picture().expect("the column has pictures");
        let mut tile = Self { shape, pixels: pixels(pictures, shape, sample), boxes: Vec::new(), lines: Vec::new() };
        let named = |number: i64| usize::try_from(number).ok().and_then(|number| classes.get(number));
        let shown = |number: i64| named(number).map_or_else(|| number.to_string(), |name| format!("{number} {name}"));
        let whole: Vec<&SheetColumn> = columns.iter().filter(|column| column.is_of_whole_numbers()).collect();
        let label = whole.iter().find(|column| column.name == "label").or(whole.first().filter(|_| whole.len() == 1));
        for column in columns {
            let rows = column.rows(sample);
            match (&column.values, &column.shape[1..], &column.offsets) {
                (SheetValues::F32(values), [4], Some(_)) => {
                    let labels = columns.iter().find(|other| other.is_of_boxes(column));
                    for row in rows {
                        let number = labels.map(|labels| labels.whole(row));
                        let text = number.map_or_else(String::new, shown);
                        let sides = std::array::from_fn(|side| values[4 * row + side]);
                        tile.boxes.push((tile.in_pixels(sides), number.unwrap_or(0), text));
                    }
                }
                (SheetValues::U8(_) | SheetValues::I64(_), [height, width], None)
                    if [*width, *height] == [shape.width, shape.height] =>
                {
                    tile.cover(column, rows.start);
                }
                (SheetValues::I64(values), [], None) => {
                    let is_label = label.is_some_and(|label| std::ptr::eq(*label, column));
                    rows.for_each(|row| {
                        tile.lines.push(if is_label {
                            shown(values[row])
                        } else {
                            format!("{}: {}", column.name, values[row])
                        })
                    });
                }
                (SheetValues::F32(values), [], None) => {
                    rows.for_each(|row| tile.lines.push(format!("{}: {}", column.name, values[row])))
                }
                (SheetValues::U8(values), [], Some(_)) => {
                    if let Ok(text) = std::str::from_utf8(&values[rows]) {
                        tile.lines.push(text.lines().next().unwrap_or_default().to_owned());
                    }
                }
                _ => {}
            }
        }
        tile
    }

    /// Returns width and height, with the lines of text.
    pub(super) fn size(&self) -> [usize; 2] {
        let [width, height] = self.shown();
        [width, height + LINES * LINE]
    }

    /// Returns the size of the picture on the sheet.
    fn shown(&self) -> [usize; 2] {
        let PictureShape { width, height, .. } = self.shape;
        let (short, long) = (width.min(height), width.max(height));
        let enlarged = LEAST_SIDE.div_ceil(short).min(MOST_SIDE / long).max(1);
        let reduced = if long > MOST_SIDE { MOST_SIDE as f64 / long as f64 } else { enlarged as f64 };
        [width, height].map(|side| ((side as f64 * reduced) as usize).max(1))
    }

    pub(super) fn draw(&self, canvas: &mut SheetCanvas, [left, top]: [usize; 2]) {
        let [width, height] = self.shown();
        for y in 0..height {
            for x in 0..width {
                let [column, row] = [x * self.shape.width / width, y * self.shape.height / height];
                canvas.set([left + x, top + y], self.pixels[row * self.shape.width + column]);
            }
        }
        for (sides, class, text) in &self.boxes {
            let scales = [width as f32 / self.shape.width as f32, height as f32 / self.shape.height as f32];
            let at = |side: usize| (sides[side] * scales[side % 2]).max(0.0) as usize;
            let [x0, y0, x1, y1] =
                [at(0).min(width - 1), at(1).min(height - 1), at(2).min(width - 1), at(3).min(height - 1)];
            canvas.edge([left + x0, top + y0, left + x1, top + y1], colour(*class));
            if y0 + 2 + font::HEIGHT <= height {
                canvas.text([left + x0 + 2, top + y0 + 2], text, width - x0, Some(colour(*class)));
            }
        }
        for (nth, line) in self.lines.iter().take(LINES).enumerate() {
            canvas.text([left, top + height + 2 + nth * LINE], line, width, None);
        }
    }

    /// Converts a box whose numbers are shares of the picture.
    fn in_pixels(&self, sides: [f32; 4]) -> [f32; 4] {
        let are_shares = sides.iter().all(|side| (0.0..=1.0).contains(side));
        let scales = if are_shares { [self.shape.width as f32, self.shape.height as f32] } else { [1.0; 2] };
        std::array::from_fn(|side| sides[side] * scales[side % 2])
    }

    /// Lays the colours of a mask's classes over the picture; 0 is the background.
    fn cover(&mut self, mask: &SheetColumn, sample: usize) {
        let first = sample * self.pixels.len();
        for (nth, pixel) in self.pixels.iter_mut().enumerate() {
            let class = mask.whole(first + nth);
            if class != 0 {
                let over = if class == 255 { [255; 3] } else { colour(class) };
                *pixel = std::array::from_fn(|channel| pixel[channel].midpoint(over[channel]));
            }
        }
    }
}

impl SheetColumn {
    fn is_of_whole_numbers(&self) -> bool {
        matches!(self.values, SheetValues::I64(_)) && self.shape.len() == 1 && self.offsets.is_none()
    }

    /// Returns whether it has a whole number for each of these boxes.
    fn is_of_boxes(&self, boxes: &Self) -> bool {
        matches!(self.values, SheetValues::I64(_))
            && self.shape.len() == 1
            && self.offsets.is_some()
            && self.offsets == boxes.offsets
    }

    /// Returns a value as a whole number.
    fn whole(&self, nth: usize) -> i64 {
        match &self.values {
            SheetValues::U8(values) => values[nth].into(),
            SheetValues::I64(values) => values[nth],
            SheetValues::F32(values) => values[nth] as i64,
        }
    }
}

/// Returns the pixels of a picture. Floats of 0 to 1 are levels; others, as those that were normalised, are stretched to all levels.
fn pixels(column: &SheetColumn, shape: PictureShape, sample: usize) -> Vec<[u8; 3]> {
    let PictureShape { width, height, channels, is_planar } = shape;
    let count = width * height;
    let first = sample * count * channels;
    let place = |pixel: usize, channel: usize| {
        let channel = channel.min(channels - 1);
        first + if is_planar { channel * count + pixel } else { pixel * channels + channel }
    };
    let level: Box<dyn Fn(usize) -> u8> = match &column.values {
        SheetValues::U8(values) => Box::new(|nth| values[nth]),
        SheetValues::I64(values) => Box::new(|nth| values[nth].clamp(0, 255) as u8),
        SheetValues::F32(values) => {
            let of_sample = values[first..first + count * channels].iter().filter(|value| value.is_finite());
            let (least, most) =
                of_sample.fold((f32::MAX, f32::MIN), |(least, most), value| (least.min(*value), most.max(*value)));
            let (least, most) = if least >= 0.0 && most <= 1.0 { (0.0, 1.0) } else { (least, most) };
            let scale = 255.0 / (most - least).max(f32::MIN_POSITIVE);
            Box::new(move |nth| ((values[nth] - least) * scale).round() as u8)
        }
    };
    (0..count).map(|pixel| std::array::from_fn(|channel| level(place(pixel, channel)))).collect()
}
