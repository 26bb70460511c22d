//! The kind `bool`: yes or no, as a value of the type bool, a number or text.

use super::{DefaultValue, kind::unit_kind};
use spdl_types::DType;

unit_kind! {
    /// Yes or no.
    BoolColumn = "bool", [Bool];
    const IS_PLAIN: bool = true;
    const TAKES_DELTAS: bool = true;

    fn check_default(&self, default: &DefaultValue, _: DType) -> Result<(), String> {
        if matches!(default, DefaultValue::Bool(_)) { Ok(()) } else { Err("true or false".to_owned()) }
    }
}
