//! What is done with a picture, as data: where the pixels of a result come from, and the operations that change them. The
//! operations of a job plan it, `spdl-pixels` and `spdl-operations` do it, and boxes and masks follow it.

mod axis_span;
mod geometry;
mod matrix;
mod pixel_op;
mod resample_plan;
mod warp;

pub use axis_span::AxisSpan;
pub use geometry::{Canvas, MovedBox, PixelBox, Rectangle};
pub use matrix::Matrix;
pub use pixel_op::{MixedChain, PadWith, PixelOp, View};
pub use resample_plan::{Filter, ResamplePlan};
pub use warp::{Sampling, Warp};
