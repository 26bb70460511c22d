//! A decoder for baseline JPEG that decodes what a crop needs, at the scale it needs.
//!
//! Bytes, a rectangle and a size go in, and pixels come out, strip by strip, already resized (antialiased bilinear, as
//! PIL's), mirrored and turned. On the way, coefficients outside of the rectangle are passed over several at a time,
//! whole restart segments are not looked at, samples are computed at the smallest of the scales 8, 4, 2 and 1 in 8 that
//! covers the result, and each component is resampled straight from the samples it has. The result is the same on
//! every machine, to the byte.
//!
//! What it does not decode (progressive pictures, arithmetic coding, CMYK, 12 bits) is reported as
//! [`Error::Unsupported`]. A picture that is cut off is an error, never grey pixels. What libjpeg passes over in a header is
//! passed over here too, and told as an [`Oddity`]; [`tidied`] writes such a picture as the standard has it, for other decoders.
//!
//! ```no_run
//! use spdl_jpeg::{Axis, Jpeg, Limits, Request, Rgb, Scratch};
//!
//! let bytes = std::fs::read("cat.jpg").unwrap();
//! let jpeg = Jpeg::open(&bytes, Limits::default()).unwrap();
//! let side = |readable: u32| Axis {
//!     readable: (0, readable), from: 0.0, extent: f64::from(readable), pixels: 224, reversed: false,
//! };
//! let [width, height] = jpeg.size();
//! let mut pixels = vec![0; 224 * 224 * 3];
//! let request = Request { x: side(width), y: side(height), transposed: false };
//! jpeg.render(&request, &mut Scratch::new(), &mut Rgb::new(&mut pixels, 224)).unwrap();
//! ```

mod bits;
mod error;
mod floor;
mod fuzz;
mod header;
mod huffman;
mod idct;
mod kernel;
mod limits;
mod markers;
mod oddity;
mod output;
mod plan;
mod render;
mod rewrite;
mod scan;
mod segments;
mod standard;
mod taps;
mod tidy;
#[cfg(target_arch = "x86_64")]
mod vector;
mod window;

pub use error::{Error, Unsupported};
#[doc(hidden)]
pub use floor::{Floor, floor, ranges};
#[doc(hidden)]
pub use fuzz::fuzz;
pub use header::Jpeg;
pub use limits::Limits;
pub use oddity::{Oddities, Oddity};
pub use output::{Layout, Output, Rgb};
pub use plan::Request;
pub use render::Scratch;
pub use rewrite::{has_same_coefficients, rewrite};
pub use segments::SegmentTable;
pub use taps::Axis;
pub use tidy::{Tidied, tidied};

/// Pixels that an [`Output`] gets at once, at most.
pub const STRIP_PIXELS: usize = kernel::STRIP;
