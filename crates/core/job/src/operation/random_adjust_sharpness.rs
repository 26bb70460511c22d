//! The operation `random_adjust_sharpness`.

use spdl_canvas::PixelOp;

use super::kind::random_op;

random_op! {
    /// Sharpens or smooths the picture.
    RandomAdjustSharpness = "random_adjust_sharpness", "{ sharpness_factor = 2 }", only_moves = false,
    /// 0 smooths, 1 changes nothing, 2 sharpens.
    #[schemars(range(min = 0, max = 1000))]
    sharpness_factor: f32 = (0.0..=1000.0), "0..1000",
    |planner, sharpness_factor| planner.change(PixelOp::Sharpness(sharpness_factor))
}
