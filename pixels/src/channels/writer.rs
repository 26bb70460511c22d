//! Converts pictures of floats to the column's type and layout.

use half::{bf16, f16};
use spdl_core::job::{DType, ImageColumn, ImageDepth, ImageLayout, Normalise};

use super::{ChannelFormat, ChannelPicture};

/// Writes the pictures of one column, whose pixels are floats.
pub struct ChannelWriter {
    format: ChannelFormat,
    dtype: DType,
    layout: ImageLayout,
    normalise: Option<Normalise<Vec<f32>>>,
    /// Width and height.
    size: [u32; 2],
}

impl ChannelWriter {
    /// Creates the writer of a column whose elements have the type `dtype`.
    #[must_use]
    pub fn new(column: &ImageColumn, dtype: DType) -> Self {
        let ([height, width], normalise) = (column.size, column.normalise.clone());
        let format = ChannelFormat::new(column, dtype);
        Self { format, dtype, layout: column.layout, normalise, size: [width, height] }
    }

    /// Returns what the values of its pictures are.
    #[must_use]
    pub const fn format(&self) -> ChannelFormat {
        self.format
    }

    /// Returns the bytes of one sample.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.size[0] as usize * self.size[1] as usize * self.format.channels() * self.dtype.bytes()
    }

    /// Writes the values of a picture of the column's size.
    ///
    /// # Panics
    /// If there are not as many values as a picture has, or `out` is not as long as [`bytes`](Self::bytes).
    pub fn write(&self, values: &[f32], out: &mut [u8]) {
        assert_eq!(out.len(), self.bytes(), "bytes of a sample");
        assert_eq!(values.len() * self.dtype.bytes(), out.len(), "values of a picture");
        match self.dtype {
            DType::U8 => self.put(values, out, |_, value| [value.round() as u8]),
            DType::U16 => self.put(values, out, |_, value| (value.round() as u16).to_le_bytes()),
            DType::F16 => self.put(values, out, |c, value| f16::from_f32(self.float(c, value)).to_le_bytes()),
            DType::Bf16 => self.put(values, out, |c, value| bf16::from_f32(self.float(c, value)).to_le_bytes()),
            DType::F32 => self.put(values, out, |c, value| self.float(c, value).to_le_bytes()),
            dtype => unreachable!("a valid job has no picture of type {dtype:?}"),
        }
    }

    /// Returns the value of a channel in a column of floats.
    fn float(&self, channel: usize, value: f32) -> f32 {
        // At 8 bits as in a column that never was floats: the values are whole, and white is 1.
        let value = match self.format.depth {
            ImageDepth::Bits8 => value.round() / 255.0,
            ImageDepth::Bits16 | ImageDepth::Bits32 => value / self.format.full(),
        };
        self.normalise.as_ref().map_or(value, |by| (value - by.mean[channel]) / by.std[channel])
    }

    fn put<const N: usize>(&self, values: &[f32], out: &mut [u8], encode: impl Fn(usize, f32) -> [u8; N]) {
        let channels = self.format.channels();
        let (elements, _) = out.as_chunks_mut::<N>();
        let pixels = elements.len() / channels;
        for (at, value) in values.iter().enumerate() {
            let (pixel, channel) = (at / channels, at % channels);
            let place = if self.layout == ImageLayout::Nhwc { at } else { channel * pixels + pixel };
            elements[place] = encode(channel, *value);
        }
    }
}

impl ChannelPicture {
    /// Returns the values of pictures of this height that lie one below the other.
    pub fn pictures(&self, height: u32) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.size[0] as usize * height as usize * self.format.channels())
    }
}
