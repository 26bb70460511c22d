//! The kind `float`: a number of any numeric type, or a decimal number in text.

use super::{DefaultValue, kind::unit_kind};
use spdl_types::DType;

unit_kind! {
    /// A number, which may have a fraction.
    FloatColumn = "float", [F32, F64, F16, Bf16];
    const IS_PLAIN: bool = true;
    const TAKES_DELTAS: bool = true;

    fn check_default(&self, default: &DefaultValue, dtype: DType) -> Result<(), String> {
        default.check_number(dtype)
    }
}
