//! A decoder for baseline and progressive JPEG that decodes what a crop needs, at the scale it needs.
//!
//! The input is bytes, a rectangle and a size. The output is pixels, strip by strip, already resized (antialiased
//! bilinear, as in PIL), mirrored and transposed. The result is the same on all machines, to the byte. The decoder
//! saves work in four ways:
//!
//! - It skips coefficients outside the rectangle, several at a time.
//! - It does not decode restart segments that the rectangle does not touch.
//! - It computes samples at the smallest of the scales 8/8, 4/8, 2/8 and 1/8 that covers the result.
//! - It resamples each component directly from its own samples.
//!
//! The blocks of a progressive picture come in several scans, each of which has to be read from its beginning. The
//! decoder does not read scans that the scale does not use, reads none beyond the rectangle's last row, and keeps and
//! transforms coefficients only inside the rectangle. The pixels are those of a baseline picture with the same
//! coefficients.
//!
//! A picture that it does not decode (arithmetic coding, CMYK, 12 bits) is [`Error::Unsupported`]. A truncated picture
//! is an error, never grey pixels: of a progressive one, each component needs a scan of DC coefficients, and each scan
//! that is read all its blocks. Later scans may be missing, as in libjpeg, if there is an end marker; the picture then
//! has [`Deviation::MissingScans`]. Faults in a header that libjpeg ignores are ignored here too, and
//! reported as a [`Deviation`]; [`sanitised`] rewrites such a picture to follow the standard, for other decoders.
//!
//! ```no_run
//! use spdl_jpeg::{Axis, Jpeg, Limits, PictureRequest, Rgb, Scratch};
//!
//! let bytes = std::fs::read("cat.jpg").unwrap();
//! let jpeg = Jpeg::open(&bytes, Limits::default()).unwrap();
//! let side = |readable: u32| Axis {
//!     readable: (0, readable), from: 0.0, extent: f64::from(readable), pixels: 224, reversed: false,
//! };
//! let [width, height] = jpeg.size();
//! let mut pixels = vec![0; 224 * 224 * 3];
//! let request = PictureRequest { x: side(width), y: side(height), transposed: false };
//! jpeg.render(&request, &mut Scratch::new(), &mut Rgb::new(&mut pixels, 224)).unwrap();
//! ```

mod bit_writer;
mod bits;
mod deviation;
mod error;
mod fuzz;
mod header;
mod huffman;
mod idct;
mod kernel;
mod limits;
mod lower_bound;
mod markers;
mod optimal;
mod output;
mod plan;
mod progressive;
mod render;
mod rewrite;
mod sanitise;
pub mod scalable;
mod scan;
mod segments;
mod standard;
mod taps;
#[doc(hidden)]
pub mod testing;
mod vector;
mod whole;
mod window;

pub use deviation::{Deviation, Deviations};
pub use error::{Error, Unsupported};
#[doc(hidden)]
pub use fuzz::{fuzz, fuzz_scalable};
pub use header::Jpeg;
pub use limits::Limits;
#[doc(hidden)]
pub use lower_bound::{LowerBound, lower_bound, ranges};
pub use output::{Output, OutputLayout, Rgb};
pub use plan::PictureRequest;
pub use render::Scratch;
pub use rewrite::{has_same_coefficients, rewrite};
pub use sanitise::{Sanitised, sanitised};
pub use segments::segment_lengths;
pub use taps::Axis;

/// The largest number of pixels that an [`Output`] gets at once.
pub const STRIP_PIXELS: usize = kernel::STRIP;
