//! Converts pixels to the column's type and layout, turns the picture upright, and writes it once, into its place in
//! the slot.

use half::{bf16, f16};
use spdl_jpeg::{Error, Output, OutputLayout, STRIP_PIXELS};
use spdl_types::{DType, ImageColor, ImageLayout, Normalise};

use crate::{ChannelFormat, Orientation, luma::luma};

/// Describes what a picture becomes in the batch: its size, its channels, and the type and the order of its values.
#[derive(Clone, Debug, PartialEq)]
pub struct PictureSpec {
    /// Width and height.
    pub size: [u32; 2],
    /// The channels, and the bits of their values.
    pub format: ChannelFormat,
    /// Type of the values.
    pub dtype: DType,
    /// Order of the dimensions.
    pub layout: ImageLayout,
    /// Normalisation of float types, with a value for each channel; without it, floats are `value / 255`.
    pub normalise: Option<Normalise<Vec<f32>>>,
}

/// Maps channel and 8-bit value to the little-endian bytes of the column's type.
type PixelTable<const N: usize> = Box<[[[u8; N]; 256]; 3]>;

enum Encoding {
    Bytes,
    Half(PixelTable<2>),
    Single(PixelTable<4>),
}

/// Writes the pixels of one column.
pub struct PixelWriter {
    layout: ImageLayout,
    color: ImageColor,
    encoding: Encoding,
    /// Width and height.
    size: [u32; 2],
}

/// A picture that is ready to be decoded to an output.
pub(crate) trait RenderTo {
    /// Decodes it.
    fn render_to(self, output: &mut impl Output) -> Result<(), Error>;
}

/// The position of resampled pixels in the result.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// First column and row.
    pub place: [u32; 2],
    /// Columns and rows of the upright picture.
    pub pixels: [u32; 2],
    /// Orientation of the stored pixels.
    pub orientation: Orientation,
}

impl PixelWriter {
    /// Creates the writer of pictures of this kind, which are made from 8-bit RGB.
    ///
    /// # Panics
    /// If the type of the values is not u8, f16, bf16 or f32.
    pub fn new(spec: &PictureSpec) -> Self {
        let channels = spec.format.channels();
        let value = |channel: usize, byte: usize| {
            let value = byte as f32 / 255.0;
            // Rows of the table that stand for no channel are not read.
            let channel = channel.min(channels - 1);
            spec.normalise.as_ref().map_or(value, |by| (value - by.mean[channel]) / by.std[channel])
        };
        let encoding = match spec.dtype {
            DType::U8 => Encoding::Bytes,
            DType::F16 => Encoding::Half(table(|c, v| f16::from_f32(value(c, v)).to_le_bytes())),
            DType::Bf16 => Encoding::Half(table(|c, v| bf16::from_f32(value(c, v)).to_le_bytes())),
            DType::F32 => Encoding::Single(table(|c, v| value(c, v).to_le_bytes())),
            dtype => unreachable!("a valid job has no picture of type {dtype:?}"),
        };
        Self { layout: spec.layout, color: spec.format.color, encoding, size: spec.size }
    }

    /// Creates the writer of an RGB picture of one byte per channel, with this width and height.
    #[must_use]
    pub const fn of_rgb(size: [u32; 2]) -> Self {
        Self { layout: ImageLayout::Nhwc, color: ImageColor::Rgb, encoding: Encoding::Bytes, size }
    }

    /// Returns whether the channels are those of RGB.
    #[must_use]
    pub fn is_rgb(&self) -> bool {
        self.color == ImageColor::Rgb
    }

    const fn channels(&self) -> usize {
        self.color.channels() as usize
    }

    /// Returns the bytes of one sample.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let element = match self.encoding {
            Encoding::Bytes => 1,
            Encoding::Half(_) => 2,
            Encoding::Single(_) => 4,
        };
        self.size[0] as usize * self.size[1] as usize * self.channels() * element
    }

    /// Returns whether the resampled pixels are the result without any conversion.
    pub(crate) fn takes_as_is(&self, frame: &Frame) -> bool {
        matches!(self.encoding, Encoding::Bytes)
            && self.is_rgb()
            && self.layout == ImageLayout::Nhwc
            && frame.pixels == self.size
            && frame.orientation == Orientation::default()
    }

    /// Writes the RGB pixels of `frame`; the rest of the result becomes black.
    ///
    /// # Panics
    /// If `out` is not as long as [`bytes`](Self::bytes).
    pub fn write(&self, rgb: &[u8], frame: &Frame, out: &mut [u8]) {
        assert_eq!(out.len(), self.bytes(), "bytes of a sample");
        if frame.pixels != self.size {
            self.blacken(out);
        }
        match self.color {
            ImageColor::Rgb => self.write_as::<3, RgbChannels>(rgb, frame, out),
            ImageColor::Bgr => self.write_as::<3, Bgr>(rgb, frame, out),
            ImageColor::Gray => self.write_as::<1, Luma>(rgb, frame, out),
            color @ (ImageColor::Rgba | ImageColor::GrayAlpha) => panic!("{color:?} is not made of RGB"),
        }
    }

    fn write_as<const C: usize, M: Channels<C>>(&self, rgb: &[u8], frame: &Frame, out: &mut [u8]) {
        match &self.encoding {
            Encoding::Bytes => self.place::<1, C, M>(rgb, frame, out, |_, value| [value]),
            Encoding::Half(table) => self.place::<2, C, M>(rgb, frame, out, |c, value| table[c][usize::from(value)]),
            Encoding::Single(table) => self.place::<4, C, M>(rgb, frame, out, |c, value| table[c][usize::from(value)]),
        }
    }

    /// Decodes a picture to RGB, straight into its place; the rest of the result becomes black.
    pub(crate) fn render(&self, frame: &Frame, out: &mut [u8], picture: impl RenderTo) -> Result<(), Error> {
        assert_eq!(out.len(), self.bytes(), "bytes of a sample");
        assert!(self.is_rgb(), "{:?} is made of decoded pixels", self.color);
        if frame.pixels != self.size {
            self.blacken(out);
        }
        match &self.encoding {
            Encoding::Bytes => self.render_as(frame, out, picture, |_, value| [value]),
            Encoding::Half(table) => self.render_as(frame, out, picture, |c, value| table[c][usize::from(value)]),
            Encoding::Single(table) => self.render_as(frame, out, picture, |c, value| table[c][usize::from(value)]),
        }
    }

    fn render_as<const N: usize>(
        &self,
        frame: &Frame,
        out: &mut [u8],
        picture: impl RenderTo,
        encode: impl Fn(usize, u8) -> [u8; N],
    ) -> Result<(), Error> {
        let [left, top] = frame.place.map(|place| place as usize);
        let row_elements = self.size[0] as usize;
        let (elements, _) = out.as_chunks_mut::<N>();
        let start = top * row_elements + left;
        match self.layout {
            ImageLayout::Nhwc => {
                picture.render_to(&mut Pixels { elements: &mut elements[start * 3..], row_elements, encode })
            }
            ImageLayout::Nchw => {
                let plane_elements = elements.len() / 3;
                picture.render_to(&mut PlanarOutput {
                    elements: &mut elements[start..],
                    row_elements,
                    plane_elements,
                    encode,
                })
            }
        }
    }

    /// Writes a black picture.
    pub fn blacken(&self, out: &mut [u8]) {
        match &self.encoding {
            Encoding::Bytes => out.fill(0),
            Encoding::Half(table) => self.fill(out, [table[0][0], table[1][0], table[2][0]]),
            Encoding::Single(table) => self.fill(out, [table[0][0], table[1][0], table[2][0]]),
        }
    }

    fn fill<const N: usize>(&self, out: &mut [u8], black: [[u8; N]; 3]) {
        let (elements, _) = out.as_chunks_mut::<N>();
        match self.layout {
            ImageLayout::Nhwc if self.channels() == 1 => elements.fill(black[0]),
            ImageLayout::Nhwc => elements.as_chunks_mut::<3>().0.fill(black),
            ImageLayout::Nchw => {
                let plane = elements.len() / self.channels();
                for (plane, value) in elements.chunks_exact_mut(plane).zip(black) {
                    plane.fill(value);
                }
            }
        }
    }

    fn place<const N: usize, const C: usize, M: Channels<C>>(
        &self,
        rgb: &[u8],
        frame: &Frame,
        out: &mut [u8],
        encode: impl Fn(usize, u8) -> [u8; N],
    ) {
        let [width, height] = frame.pixels.map(|side| side as usize);
        let row_elements = self.size[0] as usize;
        let (elements, _) = out.as_chunks_mut::<N>();
        let plane = elements.len() / C;
        for y in 0..height {
            let source = OutputRow::new(frame.orientation, [width, height], y, 3);
            let start = (frame.place[1] as usize + y) * row_elements + frame.place[0] as usize;
            match self.layout {
                ImageLayout::Nhwc => {
                    let (row, _) = elements[start * C..(start + width) * C].as_chunks_mut::<C>();
                    for (x, to) in row.iter_mut().enumerate() {
                        let at = source.at(x);
                        let from = M::pixel([rgb[at], rgb[at + 1], rgb[at + 2]]);
                        *to = std::array::from_fn(|channel| encode(channel, from[channel]));
                    }
                }
                ImageLayout::Nchw => {
                    for channel in 0..C {
                        let row = &mut elements[channel * plane + start..][..width];
                        for (x, element) in row.iter_mut().enumerate() {
                            *element = encode(channel, M::value(rgb, source.at(x), channel));
                        }
                    }
                }
            }
        }
    }
}

/// Makes the channels of a column of RGB pixels.
trait Channels<const C: usize> {
    /// Returns the channels of a pixel.
    fn pixel(rgb: [u8; 3]) -> [u8; C];

    /// Returns one channel of the pixel at this place.
    fn value(rgb: &[u8], at: usize, channel: usize) -> u8;
}

struct RgbChannels;
struct Bgr;
struct Luma;

impl Channels<3> for RgbChannels {
    #[inline(always)]
    fn pixel(rgb: [u8; 3]) -> [u8; 3] {
        rgb
    }

    #[inline(always)]
    fn value(rgb: &[u8], at: usize, channel: usize) -> u8 {
        rgb[at + channel]
    }
}

impl Channels<3> for Bgr {
    #[inline(always)]
    fn pixel([r, g, b]: [u8; 3]) -> [u8; 3] {
        [b, g, r]
    }

    #[inline(always)]
    fn value(rgb: &[u8], at: usize, channel: usize) -> u8 {
        rgb[at + 2 - channel]
    }
}

impl Channels<1> for Luma {
    #[inline(always)]
    fn pixel(rgb: [u8; 3]) -> [u8; 1] {
        [luma(rgb)]
    }

    #[inline(always)]
    fn value(rgb: &[u8], at: usize, _: usize) -> u8 {
        luma([rgb[at], rgb[at + 1], rgb[at + 2]])
    }
}

/// An output for interleaved channels.
struct Pixels<'o, const N: usize, E> {
    elements: &'o mut [[u8; N]],
    row_elements: usize,
    encode: E,
}

impl<const N: usize, E: Fn(usize, u8) -> [u8; N]> Output for Pixels<'_, N, E> {
    const LAYOUT: OutputLayout = OutputLayout::Interleaved;

    #[inline(always)]
    fn put(&mut self, x: usize, y: usize, strip: &[u8; 3 * STRIP_PIXELS], count: usize) {
        let start = (y * self.row_elements + x) * 3;
        let put = |row: &mut [[u8; N]], strip: &[u8]| {
            for (pixel, rgb) in row.as_chunks_mut::<3>().0.iter_mut().zip(strip.as_chunks::<3>().0) {
                *pixel = [(self.encode)(0, rgb[0]), (self.encode)(1, rgb[1]), (self.encode)(2, rgb[2])];
            }
        };
        // The constant length lets the compiler optimise this case.
        if count == STRIP_PIXELS {
            put(&mut self.elements[start..start + 3 * STRIP_PIXELS], strip);
        } else {
            put(&mut self.elements[start..start + 3 * count], &strip[..3 * count]);
        }
    }
}

/// An output for planar channels.
struct PlanarOutput<'o, const N: usize, E> {
    elements: &'o mut [[u8; N]],
    row_elements: usize,
    plane_elements: usize,
    encode: E,
}

impl<const N: usize, E: Fn(usize, u8) -> [u8; N]> Output for PlanarOutput<'_, N, E> {
    const LAYOUT: OutputLayout = OutputLayout::Planar;

    #[inline(always)]
    fn put(&mut self, x: usize, y: usize, strip: &[u8; 3 * STRIP_PIXELS], count: usize) {
        for (channel, strip) in strip.as_chunks::<STRIP_PIXELS>().0.iter().enumerate() {
            let start = channel * self.plane_elements + y * self.row_elements + x;
            let encode = |value: u8| (self.encode)(channel, value);
            if count == STRIP_PIXELS {
                self.elements[start..start + STRIP_PIXELS].copy_from_slice(&strip.map(encode));
            } else {
                for (element, value) in self.elements[start..start + count].iter_mut().zip(strip) {
                    *element = encode(*value);
                }
            }
        }
    }
}

fn table<const N: usize>(encode: impl Fn(usize, usize) -> [u8; N]) -> PixelTable<N> {
    let mut table = Box::new([[[0; N]; 256]; 3]);
    for (channel, values) in table.iter_mut().enumerate() {
        for (value, bytes) in values.iter_mut().enumerate() {
            *bytes = encode(channel, value);
        }
    }
    table
}

/// The place of a row of the result among the values of resampled pixels. The first channel of pixel `x` is at
/// `first + x * step`.
pub(crate) struct OutputRow {
    first: isize,
    step: isize,
}

impl OutputRow {
    /// Finds row `y` of a result that is `width` x `height` pixels when upright, with `pixel_values` values per pixel.
    pub(crate) fn new(orientation: Orientation, [width, height]: [usize; 2], y: usize, pixel_values: usize) -> Self {
        let [stored_width, stored_height] = if orientation.transposed { [height, width] } else { [width, height] };
        let column = |at: usize| if orientation.columns_reversed { stored_width - 1 - at } else { at };
        let row = |at: usize| if orientation.rows_reversed { stored_height - 1 - at } else { at };
        let byte = |x: usize| {
            let (column, row) = if orientation.transposed { (column(y), row(x)) } else { (column(x), row(y)) };
            ((row * stored_width + column) * pixel_values) as isize
        };
        let first = byte(0);
        Self { first, step: if width > 1 { byte(1) - first } else { 0 } }
    }

    pub(crate) fn at(&self, x: usize) -> usize {
        (self.first + x as isize * self.step) as usize
    }
}
