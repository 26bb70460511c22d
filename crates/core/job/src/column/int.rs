//! The kind `int`: a decimal integer in text.

use super::{DefaultValue, kind::unit_kind};
use spdl_types::DType;

unit_kind! {
    /// A decimal integer in text.
    IntColumn = "int", [I64, I32];
    const IS_PLAIN: bool = true;
    const TAKES_CLASSES: bool = true;
    const TAKES_DELTAS: bool = true;

    fn check_default(&self, default: &DefaultValue, dtype: DType) -> Result<(), String> {
        default.check_number(dtype)
    }
}
