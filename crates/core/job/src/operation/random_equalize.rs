//! The operation `random_equalize`.

use spdl_canvas::PixelOp;

use super::kind::random_op;

random_op! {
    /// Equalizes the histogram of each channel.
    RandomEqualize = "random_equalize", "{ p = 0.5 }", only_moves = false, |planner| planner.change(PixelOp::Equalize)
}
