//! The definition of an operation.

use serde::{Serialize, de::DeserializeOwned};

use super::{ImageOp, NumberOrRange, OperationProblem, PicturePlanner};
use crate::{KeyProblem, Size, check::MAX_SIDE};

/// An operation on a picture: its keys in a job file, and how it is planned.
pub trait Operation: Serialize + DeserializeOwned {
    /// Its name in a job file.
    const NAME: &'static str;
    /// Its keys in a job file. The value of the first one may stand for all of them.
    const KEYS: &'static [&'static str];
    /// An example of its value in a job file, for errors.
    const EXAMPLE: &'static str;
    /// The number of pictures that it makes of one. An operation that makes several has to be the last.
    const PICTURES: u32 = 1;
    /// Whether it only moves pixels, whatever its keys are.
    const ONLY_MOVES: bool = false;

    /// Returns the height and width after this step, given those before it (`None` if they differ from picture to
    /// picture). Most operations keep the size.
    fn output_size(&self, before: Option<[u32; 2]>) -> Option<[u32; 2]> {
        before
    }

    /// Returns the most pixels of a result, if the operation gives pictures sizes of their own, up to that.
    fn max_pixels(&self) -> Option<u32> {
        None
    }

    /// Returns whether the operation only moves pixels, at most blending them, and adds pixels at the border. Such an
    /// operation works on pictures of any channels and depth.
    fn only_moves(&self) -> bool {
        Self::ONLY_MOVES
    }

    /// Returns the field of the record that the step reads besides the picture's, if there is one.
    fn field(&self) -> Option<&str> {
        None
    }

    /// Checks the values of its keys.
    fn check(&self) -> Result<(), KeyProblem> {
        Ok(())
    }

    /// Makes the operation's draws and adds its steps to the plan of a picture.
    ///
    /// # Errors
    /// Why it cannot be done on the picture.
    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem>;
}

/// Checks the size of an operation's result.
pub(super) fn check_size(size: Size) -> Result<(), KeyProblem> {
    let size = size.height_width();
    if size.iter().any(|side| !(1..=MAX_SIDE).contains(side)) {
        return Err(("size", format!("is {size:?} pixels, not in 1..={MAX_SIDE}")));
    }
    Ok(())
}

/// The default of most probabilities.
pub(super) const fn half() -> f32 {
    0.5
}

/// Checks the probability of an operation.
pub(crate) fn check_probability(name: &'static str, p: f32) -> Result<(), KeyProblem> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err((name, format!("has p = {p}, not in 0..1")))
}

/// Checks the range of an angle, in degrees.
pub(super) fn check_degrees(key: &'static str, degrees: NumberOrRange) -> Result<(), KeyProblem> {
    let [low, high] = degrees.around(0.0, f32::NEG_INFINITY);
    if -3600.0 <= low && low <= high && high <= 3600.0 {
        return Ok(());
    }
    Err((key, format!("is {degrees}; give a number from 0 on, or [low, high], in -3600..3600")))
}

/// The deepest nesting of operations within operations.
const MAX_DEPTH: usize = 4;

/// Checks the operations within an operation.
pub(super) fn check_nested(ops: &[ImageOp]) -> Result<(), KeyProblem> {
    let key = "transforms";
    if ops.is_empty() {
        return Err((key, "is empty".to_owned()));
    }
    if depth(ops) > MAX_DEPTH {
        return Err((key, format!("is nested more than {MAX_DEPTH} deep")));
    }
    for op in ops {
        if op.field().is_some() || op.pictures() > 1 {
            return Err((key, format!("has `{}`, which has to stand by itself", op.name())));
        }
        op.check().map_err(|(own, problem)| (key, format!("has {}: `{own}` {problem}", op.name())))?;
    }
    Ok(())
}

fn depth(ops: &[ImageOp]) -> usize {
    let below = |op: &ImageOp| match op {
        ImageOp::RandomApply(op) => depth(&op.transforms),
        ImageOp::RandomChoice(op) => depth(&op.transforms),
        _ => 0,
    };
    1 + ops.iter().map(below).max().unwrap_or(0)
}

/// Checks the number of strengths that operations have.
pub(super) fn check_magnitude(bins: u32) -> Result<(), KeyProblem> {
    if (2..=1000).contains(&bins) {
        return Ok(());
    }
    Err(("num_magnitude_bins", format!("is {bins}, not in 2..=1000")))
}

/// Defines an operation whose keys are its probability and at most one more, within a range: its name, an example, whether it only
/// moves pixels, and what it adds to the plan of a picture where it happens.
macro_rules! random_op {
    (
        $(#[$doc:meta])* $Op:ident = $name:literal, $example:literal, only_moves = $only_moves:literal,
        $($(#[$key_doc:meta])* $key:ident: $Key:ty = $range:expr, $shown:literal,)?
        |$planner:ident $(, $value:ident)?| $step:expr
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $Op {
            $($(#[$key_doc])* pub $key: $Key,)?
            /// Probability.
            #[serde(default = "crate::operation::kind::half")]
            #[schemars(range(min = 0, max = 1))]
            pub p: f32,
        }

        impl $crate::Operation for $Op {
            const NAME: &'static str = $name;
            const KEYS: &'static [&'static str] = &[$(stringify!($key),)? "p"];
            const EXAMPLE: &'static str = $example;
            const ONLY_MOVES: bool = $only_moves;

            fn check(&self) -> Result<(), $crate::KeyProblem> {
                $(
                    if !$range.contains(&self.$key) {
                        return Err((stringify!($key), format!("is {}, not in {}", self.$key, $shown)));
                    }
                )?
                $crate::operation::kind::check_probability(Self::NAME, self.p)
            }

            fn plan(&self, $planner: &mut $crate::PicturePlanner<'_>) -> Result<(), $crate::OperationProblem> {
                if $planner.happens(self.p) {
                    $(let $value = self.$key;)?
                    $step;
                }
                Ok(())
            }
        }
    };
}
pub(super) use random_op;
