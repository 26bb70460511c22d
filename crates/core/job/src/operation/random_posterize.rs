//! The operation `random_posterize`.

use spdl_canvas::PixelOp;

use super::kind::random_op;

random_op! {
    /// Keeps the highest `bits` of each value.
    RandomPosterize = "random_posterize", "{ bits = 4 }", only_moves = false,
    /// The number of bits to keep.
    #[schemars(range(min = 0, max = 8))]
    bits: u32 = (0..=8), "0..=8",
    |planner, bits| planner.change(PixelOp::Posterize(bits))
}
