//! Frames of videos: packets are decoded by libavcodec in child processes, and planes become RGB.

mod convert;
mod planes;

pub use convert::{ConvertProblem, RgbConversion, RgbRows};
pub use planes::{FramePlanes, Plane, PlaneFormat, PlaneKind};
