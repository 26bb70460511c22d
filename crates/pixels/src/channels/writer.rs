//! Converts pictures of floats to the column's type and layout.

use half::{bf16, f16};
use spdl_types::{DType, ImageDepth, ImageLayout};

use super::{ChannelFormat, ChannelPicture};
use crate::{PictureError, PictureSpec};

/// Writes the pictures of one column, whose pixels are floats.
pub struct ChannelWriter {
    spec: PictureSpec,
}

impl ChannelWriter {
    /// Creates the writer of pictures of this kind.
    #[must_use]
    pub const fn new(spec: PictureSpec) -> Self {
        Self { spec }
    }

    /// Returns the format of the pictures.
    #[must_use]
    pub const fn format(&self) -> ChannelFormat {
        self.spec.format
    }

    /// Returns the bytes of one sample.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let PictureSpec { size: [width, height], format, dtype, .. } = &self.spec;
        *width as usize * *height as usize * format.channels() * dtype.bytes()
    }

    /// Writes the values of a picture of the column's size.
    ///
    /// # Errors
    /// If a value is too large for the column's type.
    ///
    /// # Panics
    /// If there are not as many values as a picture has, or `out` is not as long as [`bytes`](Self::bytes).
    pub fn write(&self, values: &[f32], out: &mut [u8]) -> Result<(), PictureError> {
        assert_eq!(out.len(), self.bytes(), "bytes of a sample");
        assert_eq!(values.len() * self.spec.dtype.bytes(), out.len(), "values of a picture");
        match self.spec.dtype {
            DType::U8 => self.put(values, out, |_, value| [value.round() as u8]),
            DType::U16 => self.put(values, out, |_, value| (value.round() as u16).to_le_bytes()),
            DType::F16 => {
                self.check(values, |value| f16::from_f32(value).is_infinite())?;
                self.put(values, out, |c, value| f16::from_f32(self.float(c, value)).to_le_bytes());
            }
            DType::Bf16 => {
                self.check(values, |value| bf16::from_f32(value).is_infinite())?;
                self.put(values, out, |c, value| bf16::from_f32(self.float(c, value)).to_le_bytes());
            }
            DType::F32 => self.put(values, out, |c, value| self.float(c, value).to_le_bytes()),
            dtype => unreachable!("a valid job has no picture of type {dtype:?}"),
        }
        Ok(())
    }

    /// Checks that no finite value becomes infinite in the column's type, as `is_infinite` reports. Only pictures of
    /// floats can have values that large.
    fn check(&self, values: &[f32], is_infinite: impl Fn(f32) -> bool) -> Result<(), PictureError> {
        if self.spec.format.depth != ImageDepth::Bits32 {
            return Ok(());
        }
        let channels = self.spec.format.channels();
        let float = |(at, value): (usize, &f32)| (self.float(at % channels, *value), *value);
        let mut floats = values.iter().enumerate().map(float);
        match floats.find(|(float, value)| value.is_finite() && is_infinite(*float)) {
            Some((float, _)) => {
                let dtype = self.spec.dtype.name();
                Err(PictureError::Other(format!(
                    "a value of {float}, outside the range of {dtype}; `dtype = \"f32\"` holds it"
                )))
            }
            None => Ok(()),
        }
    }

    /// Returns the value of a channel in a column of floats.
    fn float(&self, channel: usize, value: f32) -> f32 {
        // At 8 bits, the result is as in a column that is decoded to 8-bit RGB: the values are whole, and white is 1.
        let value = match self.spec.format.depth {
            ImageDepth::Bits8 => value.round() / 255.0,
            ImageDepth::Bits16 | ImageDepth::Bits32 => value / self.spec.format.full(),
        };
        self.spec.normalise.as_ref().map_or(value, |by| (value - by.mean[channel]) / by.std[channel])
    }

    fn put<const N: usize>(&self, values: &[f32], out: &mut [u8], encode: impl Fn(usize, f32) -> [u8; N]) {
        let channels = self.spec.format.channels();
        let (elements, _) = out.as_chunks_mut::<N>();
        let pixels = elements.len() / channels;
        for (at, value) in values.iter().enumerate() {
            let (pixel, channel) = (at / channels, at % channels);
            let place = if self.spec.layout == ImageLayout::Nhwc { at } else { channel * pixels + pixel };
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
