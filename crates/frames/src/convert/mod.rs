//! Planes become RGB of 8 bits.
//!
//! A number of colour is for the pixels for which it is coded: it is repeated, not interpolated. So do those who convert
//! with swscale and leave its filter alone, such as torchcodec, PyAV, decord and OpenCV; these then lose up to three levels by their
//! arithmetic, and this is within one level of `ffmpeg -vf scale=flags=neighbor+accurate_rnd+full_chroma_int+bitexact`.
//!
//! A matrix is all that is applied: the curves of high dynamic range (PQ, HLG) stay as they are, and primaries too.

mod join;
mod pixels;
mod problem;
mod weights;

use fearless_simd::{Level, Simd, dispatch};
pub use problem::ConvertProblem;
use spdl_media::VideoColor;

use crate::{FramePlanes, Plane, PlaneFormat, PlaneKind};
use pixels::{GreyRow, PairRow, PixelRow, PlaneRow, RgbRow, YuvRow};
use weights::{PlaneWeights, check_format};

/// Converts frames of one format, size and colour to RGB.
#[derive(Clone, Debug)]
pub struct RgbConversion {
    format: PlaneFormat,
    size: [u32; 2],
    meaning: PlaneMeaning,
    weights: PlaneWeights,
}

/// What the planes have, once their colour is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaneMeaning {
    Grey,
    /// These planes are red, green and blue.
    Rgb([usize; 3]),
    /// Luma and differences, of which each is for `1 << shift` pixels: in a row, and of a column.
    Yuv([u8; 2]),
}

/// The rows of one frame, which are converted one by one.
#[derive(Clone, Copy, Debug)]
pub struct RgbRows<'f> {
    conversion: &'f RgbConversion,
    planes: [Plane<'f>; 3],
}

impl RgbConversion {
    /// Plans the conversion of frames of this width and height.
    ///
    /// Where no range is said, luma and differences have the limited one, and grey planes the full one. Red, green and blue, and grey of 8
    /// bits, have the full one whatever is said, as swscale takes them: writers leave the flag unset.
    ///
    /// # Errors
    /// If the numbers have fewer than 8 bits or more than 16, colour is for more than two pixels in a row or a column, or the matrix
    /// is left open (2, 3) or unknown here.
    pub fn new(format: PlaneFormat, size: [u32; 2], color: &VideoColor) -> Result<Self, ConvertProblem> {
        check_format(format)?;
        let full = PlaneWeights::of_luma(format.bits, true);
        let (meaning, weights) = match format.kind {
            PlaneKind::Grey if format.bits == 8 => (PlaneMeaning::Grey, full),
            PlaneKind::Grey => {
                (PlaneMeaning::Grey, PlaneWeights::of_luma(format.bits, color.is_full_range.unwrap_or(true)))
            }
            PlaneKind::Rgb => (PlaneMeaning::Rgb([0, 1, 2]), full),
            // Green is in the place of luma, blue and red in those of their differences.
            PlaneKind::Yuv { shift: [0, 0] } if color.matrix == 0 => (PlaneMeaning::Rgb([2, 0, 1]), full),
            PlaneKind::Yuv { shift } => {
                let is_full_range = color.is_full_range.unwrap_or(false);
                (PlaneMeaning::Yuv(shift), PlaneWeights::of_matrix(format, color.matrix, is_full_range)?)
            }
        };
        Ok(Self { format, size, meaning, weights })
    }

    /// Writes the region (x, y, width, height) of a frame as rows of 3 bytes a pixel, without gaps. No other pixels are read.
    ///
    /// # Errors
    /// If the frame has another format or size, or its planes are too short.
    ///
    /// # Panics
    /// If the region is not in the frame, or `out` is not as long as its pixels.
    pub fn convert(&self, planes: &FramePlanes<'_>, region: [u32; 4], out: &mut [u8]) -> Result<(), ConvertProblem> {
        let rows = self.rows(planes)?;
        let [x, y, width, height] = region;
        assert_eq!(Some(out.len()), rgb_bytes([width, height]), "bytes of the region {region:?}");
        let row_bytes = (width as usize * 3).max(1);
        for (y, out) in (u64::from(y)..).zip(out.chunks_exact_mut(row_bytes)) {
            let y = u32::try_from(y).unwrap_or(u32::MAX);
            rows.write(y, x, out);
        }
        Ok(())
    }

    /// Takes a frame whose rows are to be converted.
    ///
    /// # Errors
    /// If the frame has another format or size, or its planes are too short.
    pub fn rows<'f>(&'f self, frame: &FramePlanes<'f>) -> Result<RgbRows<'f>, ConvertProblem> {
        if (frame.size, frame.format) != (self.size, self.format) {
            let (wanted, found) = ((self.size, self.format), (frame.size, frame.format));
            return Err(ConvertProblem::Frame { wanted, found });
        }
        for number in 0..self.plane_count() {
            let plane = &frame.planes[number];
            let [width, height] = self.plane_size(number);
            let row_bytes = width.saturating_mul(self.number_bytes());
            // The last row need not be followed by a gap.
            let bytes = plane.stride.saturating_mul(height.saturating_sub(1)).saturating_add(row_bytes);
            if (plane.stride < row_bytes && height > 1) || plane.bytes.len() < bytes {
                let (found, stride) = (plane.bytes.len(), plane.stride);
                return Err(ConvertProblem::Plane { number, found, stride, size: [width, height] });
            }
        }
        Ok(RgbRows { conversion: self, planes: frame.planes })
    }

    /// Returns how many planes are read.
    const fn plane_count(&self) -> usize {
        if matches!(self.meaning, PlaneMeaning::Grey) { 1 } else { 3 }
    }

    /// Returns by how many bits the width and the height of a plane are less than those of the frame.
    const fn shifts(&self, plane: usize) -> [u8; 2] {
        match self.meaning {
            PlaneMeaning::Yuv(shifts) if plane > 0 => shifts,
            _ => [0, 0],
        }
    }

    /// Returns the numbers in a row of a plane, and its rows.
    fn plane_size(&self, plane: usize) -> [usize; 2] {
        let shifts = self.shifts(plane);
        [0, 1].map(|axis| (self.size[axis] as usize).div_ceil(1 << shifts[axis]))
    }

    /// Returns the bytes of a number.
    const fn number_bytes(&self) -> usize {
        if self.format.bits == 8 { 1 } else { 2 }
    }
}

impl RgbRows<'_> {
    /// Writes the pixels of row `y` from column `x` on, 3 bytes each.
    ///
    /// # Panics
    /// If the frame does not have so many pixels there, or `out` has part of a pixel.
    pub fn write(&self, y: u32, x: u32, out: &mut [u8]) {
        let [width, height] = self.conversion.size;
        let pixels = out.len() / 3;
        assert!(out.len().is_multiple_of(3), "{} bytes of whole pixels", out.len());
        let end = (x as usize).saturating_add(pixels);
        assert!(y < height && end <= width as usize, "columns {x}..{end} of row {y} of {width}x{height}");
        let at = [x, y].map(|at| at as usize);
        dispatch!(Level::new(), simd => self.write_with(simd, at, out));
    }

    #[inline(always)]
    fn write_with<S: Simd>(&self, simd: S, at: [usize; 2], out: &mut [u8]) {
        if self.conversion.number_bytes() == 1 {
            self.write_as::<S, 1>(simd, at, out);
        } else {
            self.write_as::<S, 2>(simd, at, out);
        }
    }

    /// Writes pixels of numbers of `N` bytes.
    #[inline(always)]
    fn write_as<S: Simd, const N: usize>(&self, simd: S, [x, y]: [usize; 2], out: &mut [u8]) {
        let weights = &self.conversion.weights;
        let row = |plane, x: usize, out: &[u8]| self.row::<N>(plane, [x, y], out.len() / 3);
        match self.conversion.meaning {
            PlaneMeaning::Grey => GreyRow { weights, grey: row(0, x, out) }.write(simd, out),
            PlaneMeaning::Rgb(planes) => {
                RgbRow { weights, channels: planes.map(|plane| row(plane, x, out)) }.write(simd, out);
            }
            PlaneMeaning::Yuv([0, _]) => {
                YuvRow { weights, luma: row(0, x, out), differences: [1, 2].map(|plane| row(plane, x, out)) }
                    .write(simd, out);
            }
            PlaneMeaning::Yuv(_) => {
                let pairs = |x: usize, out: &[u8]| PairRow {
                    weights,
                    luma: row(0, x, out),
                    differences: [1, 2].map(|plane| row(plane, x, out)),
                };
                // The second pixel of a pair begins no block.
                let (first, out) = out.split_at_mut((x % 2 * 3).min(out.len()));
                pairs(x, first).write(simd, first);
                pairs(x + x % 2, out).write(simd, out);
            }
        }
    }

    /// Returns the numbers of a plane for so many pixels of a row, from a pixel on.
    #[inline(always)]
    fn row<const N: usize>(&self, number: usize, [x, y]: [usize; 2], pixels: usize) -> PlaneRow<'_, N> {
        let [x_shift, y_shift] = self.conversion.shifts(number);
        let [first, end] = [x >> x_shift, (x + pixels).div_ceil(1 << x_shift)];
        let Plane { bytes, stride } = self.planes[number];
        let row = &bytes[(y >> y_shift) * stride..];
        row[first * N..end * N].as_chunks().0
    }
}

/// Returns the bytes of RGB pixels; `None` if they are too many to count.
fn rgb_bytes([width, height]: [u32; 2]) -> Option<usize> {
    (width as usize).checked_mul(height as usize)?.checked_mul(3)
}

#[cfg(test)]
mod tests;
