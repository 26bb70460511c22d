//! The operation `random_flip`.

use super::kind::random_op;

random_op! {
    /// Mirrors left to right.
    RandomFlip = "random_flip", "{ p = 0.5 }", only_moves = true, |planner| planner.canvas().mirror()
}
