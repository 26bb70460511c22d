//! The operation `random_vertical_flip`.

use super::kind::random_op;

random_op! {
    /// Mirrors top to bottom.
    RandomVerticalFlip = "random_vertical_flip", "{ p = 0.5 }", only_moves = true, |planner| planner.canvas().flip()
}
