//! Frames of videos: packets are decoded by libavcodec in child processes, and planes become RGB.

mod planes;

pub use planes::{FramePlanes, Plane, PlaneFormat, PlaneKind};
