//! The operation `random_flip`.

use super::kind::random_op;

random_op! {
    /// Mirrors left to right.
    RandomFlip = "random_flip", only_moves = true, |planner| planner.canvas().mirror()
}
