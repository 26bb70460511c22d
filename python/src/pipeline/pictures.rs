//! The operations on decoded pictures: arrays of bytes with the dimensions height, width and channel.

use std::cell::RefCell;

use spdl_canvas::Filter;
use spdl_pixels::{
    ChannelFormat, Frame, Orientation, PictureSpec, PixelWriter,
    resize::{Area, Picture, Resizer},
};
use spdl_types::{DType, ImageLayout, Normalise};

use super::array::OwnedArray;

/// Bytes of buffers that a thread keeps for its next picture.
pub(super) const KEPT_BYTES: usize = 16 << 20;

/// The error of a native operation, as text that names its item.
pub(crate) type Problem = String;

/// Resizes pictures.
pub(crate) struct PictureResizer {
    /// Height and width.
    pub(crate) size: [u32; 2],
    /// Whether the middle of the picture is cut out in the proportions of `size`, rather than the picture distorted.
    pub(crate) crops_centre: bool,
}

/// Converts pictures to other types and layouts, and normalises them.
pub(crate) struct PictureNormaliser {
    pub(crate) dtype: DType,
    pub(crate) layout: ImageLayout,
    pub(crate) normalise: Option<Normalise>,
}

thread_local! {
    /// Buffers of the thread for resizing.
    static RESIZER: RefCell<Resizer> = RefCell::default();
}

impl PictureResizer {
    pub(crate) fn resize(&self, picture: &OwnedArray) -> Result<OwnedArray, Problem> {
        let [height, width] = sides(picture, "resize")?;
        let [rows, columns] = self.size;
        let [crop_width, crop_height] = shown_part([width, height], self.size, self.crops_centre);
        let [left, top] = [(width - crop_width) / 2, (height - crop_height) / 2];
        let readable = [(left, left + crop_width), (top, top + crop_height)];
        let area = Area { left: 0.0, top: 0.0, width: crop_width.into(), height: crop_height.into() };
        let mut resized = OwnedArray::zeros(DType::U8, &[rows as usize, columns as usize, 3]);
        let source = Picture { pixels: picture.bytes(), width, height };
        RESIZER.with_borrow_mut(|resizer| {
            resizer.resize(source, readable, area, Filter::Bilinear, resized.bytes_mut(), [columns, rows]);
            resizer.shrink_to(KEPT_BYTES);
        });
        Ok(resized)
    }
}

impl PictureNormaliser {
    pub(crate) fn normalise(&self, picture: &OwnedArray) -> Result<OwnedArray, Problem> {
        let [height, width] = sides(picture, "normalise")?;
        let frame = Frame { place: [0, 0], pixels: [width, height], orientation: Orientation::default() };
        let mut made = OwnedArray::zeros(self.dtype, &shape(self.layout, [height, width]));
        let spec = spec([width, height], self.dtype, self.layout, self.normalise);
        PixelWriter::new(&spec).write(picture.bytes(), &frame, made.bytes_mut());
        Ok(made)
    }
}

/// Returns height and width of a decoded picture.
fn sides(picture: &OwnedArray, operation: &str) -> Result<[u32; 2], Problem> {
    let sides = match *picture.shape() {
        [height, width, 3] if picture.dtype() == DType::U8 => u32::try_from(height).ok().zip(u32::try_from(width).ok()),
        _ => None,
    };
    let sides = sides.filter(|(height, width)| *height > 0 && *width > 0).map(|(height, width)| [height, width]);
    sides.ok_or_else(|| {
        let (dtype, shape) = (picture.dtype().name(), picture.shape());
        format!(
            "`{operation}` takes pictures as bytes with the shape [height, width, 3], and this is {dtype} {shape:?}"
        )
    })
}

/// Returns the description of RGB pictures with this width and height.
pub(super) fn spec(size: [u32; 2], dtype: DType, layout: ImageLayout, normalise: Option<Normalise>) -> PictureSpec {
    PictureSpec { size, format: ChannelFormat::default(), dtype, layout, normalise: normalise.map(Normalise::into) }
}

/// Returns width and height of the part of a picture that is shown as `size`, height and width.
pub(super) fn shown_part([width, height]: [u32; 2], [rows, columns]: [u32; 2], crops_centre: bool) -> [u32; 2] {
    if !crops_centre {
        return [width, height];
    }
    let (wide, high) = (u64::from(width) * u64::from(rows), u64::from(height) * u64::from(columns));
    let share = |side: u32, of: u64, other: u64| ((u64::from(side) * other / of) as u32).max(1);
    if wide > high { [share(width, wide, high), height] } else { [width, share(height, high, wide)] }
}

/// Returns the shape of the array of a picture of `rows` and `columns`.
pub(super) fn shape(layout: ImageLayout, [rows, columns]: [u32; 2]) -> [usize; 3] {
    let [rows, columns] = [rows as usize, columns as usize];
    match layout {
        ImageLayout::Nhwc => [rows, columns, 3],
        ImageLayout::Nchw => [3, rows, columns],
    }
}
