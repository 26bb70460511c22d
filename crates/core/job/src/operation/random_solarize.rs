//! The operation `random_solarize`.

use spdl_canvas::PixelOp;

use super::kind::random_op;

random_op! {
    /// Inverts all values of at least `threshold`.
    RandomSolarize = "random_solarize", "{ threshold = 128 }", only_moves = false,
    /// The lowest value that is inverted.
    #[schemars(range(min = 0, max = 255))]
    threshold: f32 = (0.0..=255.0), "0..255",
    |planner, threshold| planner.change(PixelOp::Solarize(threshold))
}
