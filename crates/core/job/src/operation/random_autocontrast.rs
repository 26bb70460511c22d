//! The operation `random_autocontrast`.

use spdl_canvas::PixelOp;

use super::kind::random_op;

random_op! {
    /// Stretches each channel, so that its least value becomes 0 and its greatest one 255.
    RandomAutocontrast = "random_autocontrast", "{ p = 0.5 }", only_moves = false,
    |planner| planner.change(PixelOp::Autocontrast)
}
