//! The operation `random_invert`.

use spdl_canvas::PixelOp;

use super::kind::random_op;

random_op! {
    /// Subtracts each value from 255.
    RandomInvert = "random_invert", "{ p = 0.5 }", only_moves = false, |planner| planner.change(PixelOp::Invert)
}
