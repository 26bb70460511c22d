//! Realistic JPEGs, made without a network: crops of nine bundled photographs, mixed, jittered and with added sensor
//! noise.
//!
//! They are the input of the demo, the tests and the benchmarks. Their entropy is that of ImageNet's pictures, because
//! plain noise or gradients decode at another speed.

mod draw;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use image::RgbImage;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use rayon::prelude::*;
use spdl_canvas::Filter;
use spdl_pixels::resize::{Area, Picture, Resizer};

use draw::Draws;

/// The bundled photographs; a class is a photograph's index in this list. Licences: `assets/photos/README.md`.
const PHOTOGRAPHS: [(&str, &[u8]); 9] = [
    ("astronaut", include_bytes!("../../../assets/photos/astronaut.png")),
    ("brick", include_bytes!("../../../assets/photos/brick.png")),
    ("chelsea", include_bytes!("../../../assets/photos/chelsea.png")),
    ("coffee", include_bytes!("../../../assets/photos/coffee.png")),
    ("grace_hopper", include_bytes!("../../../assets/photos/grace_hopper.jpg")),
    ("grass", include_bytes!("../../../assets/photos/grass.png")),
    ("hubble_deep_field", include_bytes!("../../../assets/photos/hubble_deep_field.jpg")),
    ("motorcycle", include_bytes!("../../../assets/photos/motorcycle_left.png")),
    ("rocket", include_bytes!("../../../assets/photos/rocket.jpg")),
];

/// Sizes of photographs from the web. The most common size is repeated, so that the mean is 225,000 pixels.
const SIZES: [(u32, u32); 12] = [
    (500, 375),
    (500, 375),
    (500, 375),
    (500, 375),
    (500, 375),
    (375, 500),
    (375, 500),
    (500, 333),
    (333, 500),
    (500, 500),
    (640, 480),
    (800, 600),
];

/// Number of entries of the noise table: a power of two, and many times longer than a row so that no pattern is
/// visible.
const NOISE_LEN: usize = 1 << 16;

/// The decoded bundled photographs, from which any number of pictures can be made.
#[derive(Debug)]
pub struct Pictures {
    photographs: Vec<RgbImage>,
    /// Normally distributed values with a standard deviation of 256.
    noise: Vec<i32>,
}

/// How a pixel's colour is changed, and how much noise is added. In each factor, 256 stands for 1.
struct Look {
    mix: i32,
    gain: [i32; 3],
    lift: i32,
    saturation: i32,
    noise: i32,
}

impl Default for Pictures {
    fn default() -> Self {
        Self::new()
    }
}

impl Pictures {
    /// Decodes the bundled photographs (a tenth of a second, once).
    #[must_use]
    pub fn new() -> Self {
        let photographs = PHOTOGRAPHS
            .par_iter()
            .map(|(name, bytes)| match image::load_from_memory(bytes) {
                Ok(photograph) => photograph.into_rgb8(),
                Err(error) => panic!("bundled photograph `{name}`: {error}"),
            })
            .collect();
        let mut draws = Draws::new(0, 0);
        let noise = (0..NOISE_LEN).map(|_| draws.normal()).collect();
        Self { photographs, noise }
    }

    /// Returns the names of the classes, in class order.
    pub fn classes() -> impl ExactSizeIterator<Item = &'static str> {
        PHOTOGRAPHS.iter().map(|(name, _)| *name)
    }

    /// Returns the class of picture `index`: the photograph that most of it comes from.
    #[must_use]
    pub const fn class(index: u64) -> u32 {
        (index % PHOTOGRAPHS.len() as u64) as u32
    }

    /// Returns picture `index` of the set `seed` as JPEG bytes: a pure function of the two numbers.
    #[must_use]
    pub fn picture(&self, seed: u64, index: u64) -> Vec<u8> {
        let mut draws = Draws::new(seed, index);
        let (width, height) = SIZES[draws.below(SIZES.len() as u64) as usize];
        let main = self.crop(Self::class(index) as usize, (width, height), &mut draws);
        let other = self.crop(draws.below(PHOTOGRAPHS.len() as u64) as usize, (width, height), &mut draws);
        let look = Look::draw(&mut draws);
        let mut pixels = main;
        self.blend(&mut pixels, &other, width as usize, &look, &mut draws);
        let quality = draws.between(88, 96) as u8;
        encode(&pixels, width as u16, height as u16, quality)
    }

    /// Returns a random part of a photograph, resized to `width` x `height`, as RGB bytes.
    fn crop(&self, photograph: usize, (width, height): (u32, u32), draws: &mut Draws) -> Vec<u8> {
        let source = &self.photographs[photograph];
        let (full_width, full_height) = (f64::from(source.width()), f64::from(source.height()));
        let aspect = f64::from(width) / f64::from(height);
        let widest = full_width.min(full_height * aspect);
        let crop_width = widest * draws.between(600, 1000) as f64 / 1000.0;
        let crop_height = (crop_width / aspect).min(full_height);
        // Crops begin at whole pixels. In the middle of a pixel, a weight of exactly zero can make fast_image_resize
        // 6.1 start the first column after the second, and read memory before the picture.
        let left = ((full_width - crop_width) * draws.between(0, 1000) as f64 / 1000.0).floor();
        let top = ((full_height - crop_height) * draws.between(0, 1000) as f64 / 1000.0).floor();
        let area = Area { left, top, width: crop_width, height: crop_height };
        let picture = Picture { pixels: source.as_raw(), width: source.width(), height: source.height() };
        let whole = [(0, source.width()), (0, source.height())];
        let mut pixels = vec![0; width as usize * height as usize * 3];
        Resizer::default().resize(picture, whole, area, Filter::CatmullRom, &mut pixels, [width, height]);
        if draws.below(2) == 1 {
            mirror(&mut pixels, width as usize);
        }
        pixels
    }

    /// Mixes `other` into `pixels`, changes the colours, and adds noise row by row.
    fn blend(&self, pixels: &mut [u8], other: &[u8], width: usize, look: &Look, draws: &mut Draws) {
        for (row, other) in pixels.chunks_exact_mut(width * 3).zip(other.chunks_exact(width * 3)) {
            let start = draws.below((NOISE_LEN - width * 3) as u64) as usize;
            let noise = &self.noise[start..start + width * 3];
            for ((pixel, other), noise) in row.chunks_exact_mut(3).zip(other.chunks_exact(3)).zip(noise.chunks_exact(3))
            {
                look.apply(pixel, other, noise);
            }
        }
    }
}

impl Look {
    fn draw(draws: &mut Draws) -> Self {
        let contrast = draws.between(210, 310) as i32;
        let gain = [(); 3].map(|()| contrast * draws.between(236, 276) as i32 / 256);
        Self {
            mix: draws.between(0, 120) as i32,
            gain,
            lift: draws.between(0, 40) as i32 - 20,
            saturation: draws.between(200, 300) as i32,
            noise: draws.between(1200, 3800) as i32,
        }
    }

    /// Changes one pixel. Most of the noise is common to the three channels, as in a demosaicked sensor image.
    fn apply(&self, pixel: &mut [u8], other: &[u8], noise: &[i32]) {
        let mut mixed = [0_i32; 3];
        for channel in 0..3 {
            let (main, other) = (i32::from(pixel[channel]), i32::from(other[channel]));
            mixed[channel] = (((main << 8) + (other - main) * self.mix - (128 << 8)) * self.gain[channel]) >> 16;
        }
        let grey = (mixed[0] + 2 * mixed[1] + mixed[2]) >> 2;
        for channel in 0..3 {
            let coloured = grey + (((mixed[channel] - grey) * self.saturation) >> 8);
            let noise = ((3 * noise[0] + noise[channel]) * self.noise) >> 18;
            pixel[channel] = (coloured + 128 + self.lift + noise).clamp(0, 255) as u8;
        }
    }
}

/// Writes pictures `0..count` of the set `seed` under `dir`, one folder for each class. Calls `progress` with the
/// number written so far, from any thread. Uses folders that exist and overwrites files that exist.
///
/// # Errors
/// Errors of the file system.
pub fn write_image_folder(dir: &Path, count: u64, seed: u64, progress: impl Fn(u64) + Sync) -> io::Result<()> {
    write_image_folder_while(dir, count, seed, |written| {
        progress(written);
        true
    })
}

/// Writes pictures as [`write_image_folder`] does, until `progress` returns false. A `.jpg` file is always complete.
///
/// # Errors
/// Errors of the file system; of the kind [`Interrupted`](io::ErrorKind::Interrupted) when `progress` returned false.
pub fn write_image_folder_while(
    dir: &Path,
    count: u64,
    seed: u64,
    progress: impl Fn(u64) -> bool + Sync,
) -> io::Result<()> {
    let pictures = Pictures::new();
    let folders: Vec<_> = Pictures::classes().map(|class| dir.join(class)).collect();
    folders.iter().try_for_each(fs::create_dir_all)?;
    let written = AtomicU64::new(0);
    (0..count).into_par_iter().try_for_each(|index| {
        let folder = &folders[Pictures::class(index) as usize];
        let partial = folder.join(format!("{index:07}.partial"));
        fs::write(&partial, pictures.picture(seed, index))?;
        fs::rename(&partial, folder.join(format!("{index:07}.jpg")))?;
        let goes_on = progress(written.fetch_add(1, Ordering::Relaxed) + 1);
        if goes_on { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    })
}

/// Mirrors RGB `pixels`: reverses each row.
fn mirror(pixels: &mut [u8], width: usize) {
    for row in pixels.chunks_exact_mut(width * 3) {
        row.reverse();
        for pixel in row.chunks_exact_mut(3) {
            pixel.swap(0, 2);
        }
    }
}

fn encode(pixels: &[u8], width: u16, height: u16, quality: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pixels.len() / 4);
    let mut encoder = Encoder::new(&mut bytes, quality);
    encoder.set_sampling_factor(SamplingFactor::R_4_2_0);
    encoder
        .encode(pixels, width, height, ColorType::Rgb)
        .unwrap_or_else(|error| panic!("{width}x{height} at quality {quality}: {error}"));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the luminance's horizontal and vertical sampling factors from the frame header.
    fn luminance_sampling(jpeg: &[u8]) -> (u8, u8) {
        let frame = jpeg.windows(2).position(|two| two == [0xFF, 0xC0]).expect("a baseline frame");
        let factors = jpeg[frame + 11];
        assert_eq!(jpeg[frame + 14], 0x11, "the first chroma channel has one sample per block");
        (factors >> 4, factors & 15)
    }

    #[test]
    fn a_picture_depends_on_its_seed_and_index_only() {
        let (one, two) = (Pictures::new(), Pictures::new());
        assert_eq!(one.picture(7, 3), two.picture(7, 3));
        assert_ne!(one.picture(7, 3), one.picture(7, 12), "same class, another picture");
        assert_ne!(one.picture(7, 3), one.picture(8, 3));
    }

    #[test]
    fn a_picture_whose_first_column_had_a_weight_of_zero_is_made() {
        let jpeg = Pictures::new().picture(0, 507);
        assert_eq!(image::load_from_memory(&jpeg).expect("a picture decodes").width(), 500);
    }

    #[test]
    fn pictures_have_the_statistics_of_photographs() {
        let pictures = Pictures::new();
        let sizes: Vec<(u64, u64)> = (0..180)
            .into_par_iter()
            .map(|index| {
                let jpeg = pictures.picture(1, index);
                assert_eq!(luminance_sampling(&jpeg), (2, 2));
                let decoded = image::load_from_memory(&jpeg).expect("a picture decodes");
                (jpeg.len() as u64, u64::from(decoded.width()) * u64::from(decoded.height()))
            })
            .collect();
        let bytes = sizes.iter().map(|(bytes, _)| bytes).sum::<u64>() as f64;
        let pixels = sizes.iter().map(|(_, pixels)| pixels).sum::<u64>() as f64;
        let (mean_bytes, bits_per_pixel) = (bytes / sizes.len() as f64, bytes * 8.0 / pixels);
        assert!((95_000.0..120_000.0).contains(&mean_bytes), "{mean_bytes} bytes on average");
        assert!((3.4..4.2).contains(&bits_per_pixel), "{bits_per_pixel} bits per pixel");
    }

    #[test]
    fn a_folder_has_one_folder_for_each_class() {
        let dir = tempfile::tempdir().unwrap();
        let calls = AtomicU64::new(0);
        let seen = |written| {
            calls.fetch_max(written, Ordering::Relaxed);
        };
        write_image_folder(dir.path(), 20, 5, seen).unwrap();
        assert_eq!(calls.into_inner(), 20);
        for (class, name) in Pictures::classes().enumerate() {
            let files = fs::read_dir(dir.path().join(name)).unwrap().count() as u64;
            assert_eq!(files, (0..20).filter(|&index| Pictures::class(index) == class as u32).count() as u64);
        }
    }
}
