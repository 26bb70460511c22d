//! Sound as samples: resampling, random changes for training, and the features that models of speech take. Pure functions of numbers in
//! memory; files and codecs are other crates' matter.
//!
//! Samples are `f32`, full scale is from -1 to 1, and a call works on a single channel. To get a mono result, mix the channels first: that
//! is less work than resampling each. A *frame* is what all channels have at one time, so a channel has one
//! sample for each frame.
//!
//! All arithmetic of samples is in this crate, so that only it has to be compiled with all optimisations. Sums are taken in one
//! order on every processor, with instructions that round alike, so a result depends on the samples alone.

#![forbid(unsafe_code)]

mod error;
mod features;
pub mod operations;
mod resample;

pub use error::SoundError;
pub use features::{FeaturePreset, MelFeatures};
pub use resample::{ResamplerCache, SoundResampler, greatest_common_divisor};
