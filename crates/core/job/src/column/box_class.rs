//! The kind `box_class`: the class number of the sample's bounding box.

use super::{ColumnKind, kind::unit_kind};
use crate::KeyProblem;

unit_kind! {
    /// The class number of the sample's bounding box, by the dataset's class list.
    BoxClassColumn = "box_class", [I64, I32];
    const TAKES_CLASSES: bool = true;

    fn check_without_classes(&self, _: Option<&ColumnKind>) -> Result<(), KeyProblem> {
        Err(("decode", "is `box_class`, and the dataset lists no classes".to_owned()))
    }

    fn reads_classes(&self) -> bool {
        true
    }
}
