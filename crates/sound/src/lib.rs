//! Sound as samples: resampling. Pure functions of numbers in memory; files and codecs are other crates' matter.
//!
//! Samples are `f32`, full scale is from -1 to 1, and one call works on one channel: whoever wants one channel of several mixes
//! them first, which is less work than resampling each. A *frame* is what all channels have at one time, so a channel has one
//! sample for each frame.
//!
//! All arithmetic of samples is in this crate, so that only it has to be compiled with all optimisations. Sums are taken in one
//! order on every processor, with instructions that round alike, so a result depends on the samples alone.

#![forbid(unsafe_code)]

mod error;
mod resample;

pub use error::SoundError;
pub use resample::{ResamplerCache, SoundResampler};
