//! Resizes RGB pictures of one byte per channel. Nothing else calls `fast_image_resize`: it is generic, and every crate
//! that calls it compiles it again for half a minute.

use fast_image_resize::{
    FilterType, ResizeAlg, ResizeOptions, Resizer as Resize,
    images::{TypedCroppedImage, TypedImage, TypedImageRef},
    pixels::U8x3,
};
use spdl_canvas::Filter;

/// The pixels of a picture, row by row.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// Three bytes for each pixel.
    pub pixels: &'a [u8],
    /// Pixels of a row.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

/// The part of a picture that is resized, in pixels from its left upper corner.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// First column.
    pub left: f64,
    /// First row.
    pub top: f64,
    /// Width of the part.
    pub width: f64,
    /// Height of the part.
    pub height: f64,
}

/// Returns the name that a filter has in `fast_image_resize`.
const fn algorithm(filter: Filter) -> ResizeAlg {
    match filter {
        Filter::Nearest => ResizeAlg::Nearest,
        Filter::Box => ResizeAlg::Convolution(FilterType::Box),
        Filter::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
        Filter::PlainBilinear => ResizeAlg::Interpolation(FilterType::Bilinear),
        Filter::Hamming => ResizeAlg::Convolution(FilterType::Hamming),
        Filter::CatmullRom => ResizeAlg::Convolution(FilterType::CatmullRom),
        Filter::Lanczos3 => ResizeAlg::Convolution(FilterType::Lanczos3),
    }
}

/// Resizes pictures, and reuses its buffers.
#[derive(Default)]
pub struct Resizer(Resize);

impl std::fmt::Debug for Resizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resizer").field("buffer_bytes", &self.0.size_of_internal_buffers()).finish()
    }
}

impl Resizer {
    /// Writes `height` rows of `width` RGB pixels to `out`, resized from `area` of the picture. Pixels outside of
    /// `columns` and `rows`, half-open ranges, are not read; `area` is relative to their first ones.
    ///
    /// # Panics
    /// If the lengths of `picture.pixels` and `out` do not match their sizes, or if the ranges are not inside of the
    /// picture, or the area not inside of the ranges.
    pub fn resize(
        &mut self,
        picture: Picture<'_>,
        [columns, rows]: [(u32, u32); 2],
        area: Area,
        filter: Filter,
        out: &mut [u8],
        [width, height]: [u32; 2],
    ) {
        let whole = [picture.width, picture.height];
        assert_eq!(Some(picture.pixels.len()), rgb_bytes(whole), "bytes of a picture of {whole:?}");
        assert_eq!(Some(out.len()), rgb_bytes([width, height]), "bytes of a result of {width}x{height}");
        let view = TypedImageRef::<U8x3>::from_buffer(picture.width, picture.height, picture.pixels)
            .unwrap_or_else(|error| panic!("{whole:?}: {error}"));
        let readable = TypedCroppedImage::new(view, columns.0, rows.0, columns.1 - columns.0, rows.1 - rows.0)
            .unwrap_or_else(|error| panic!("{columns:?} and {rows:?} of {whole:?}: {error}"));
        let mut target = TypedImage::<U8x3>::from_buffer(width, height, out)
            .unwrap_or_else(|error| panic!("{width}x{height}: {error}"));
        let options = ResizeOptions::new()
            .resize_alg(algorithm(filter))
            .crop(area.left, area.top, area.width, area.height)
            .use_alpha(false);
        self.0
            .resize_typed(&readable, &mut target, &options)
            .unwrap_or_else(|error| panic!("{area:?} of {whole:?} to {width}x{height}: {error}"));
    }

    /// Keeps buffers of at most `bytes` for the next picture.
    pub fn shrink_to(&mut self, bytes: usize) {
        if self.0.size_of_internal_buffers() > bytes {
            self.0.reset_internal_buffers();
        }
    }
}

/// Returns the bytes of a picture; `None` if they are too many to count.
fn rgb_bytes([width, height]: [u32; 2]) -> Option<usize> {
    (width as usize).checked_mul(height as usize)?.checked_mul(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a resizer that uses no vector instructions.
    #[allow(unsafe_code)]
    fn portable() -> Resizer {
        let mut resizer = Resize::new();
        // SAFETY: without extensions only baseline instructions are used, which every processor has.
        unsafe { resizer.set_cpu_extensions(fast_image_resize::CpuExtensions::None) };
        Resizer(resizer)
    }

    #[test]
    fn vector_instructions_do_not_change_the_result() {
        let bytes = include_bytes!("../../../assets/photos/chelsea.png");
        let picture = image::load_from_memory(bytes).unwrap().to_rgb8();
        let (width, height) = picture.dimensions();
        let picture = Picture { pixels: &picture, width, height };
        for (readable, [left, top, area_width, area_height], size) in [
            ([(0, 240), (0, 160)], [0.0, 0.0, 240.0, 160.0], [224, 224]),
            ([(0, 240), (0, 160)], [0.0, 0.0, 240.0, 160.0], [17, 5]),
            ([(13, 90), (5, 160)], [0.0, 0.0, 77.0, 155.0], [224, 31]),
            ([(0, 240), (0, 160)], [10.3, 1.9, 100.7, 150.2], [64, 64]),
            ([(7, 8), (159, 160)], [0.0, 0.0, 1.0, 1.0], [9, 3]),
        ] {
            let area = Area { left, top, width: area_width, height: area_height };
            for filter in Filter::ALL {
                let [portable, vector] = [portable(), Resizer::default()].map(|mut resizer| {
                    let mut out = vec![0; rgb_bytes(size).unwrap()];
                    resizer.resize(picture, readable, area, filter, &mut out, size);
                    out
                });
                assert!(portable == vector, "{readable:?} {area:?} {filter:?} {size:?}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "bytes of a picture of [2, 2]")]
    fn a_picture_with_too_few_bytes_is_refused() {
        let area = Area { left: 0.0, top: 0.0, width: 2.0, height: 2.0 };
        let picture = Picture { pixels: &[0; 11], width: 2, height: 2 };
        Resizer::default().resize(picture, [(0, 2), (0, 2)], area, Filter::Bilinear, &mut [0; 3], [1, 1]);
    }
}
