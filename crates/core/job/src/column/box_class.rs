//! The kind `box_class`: the class number of the sample's bounding box.

use serde::{Deserialize, Serialize};

use super::{ColumnKind, Kind, NoKeys};
use crate::KeyProblem;
use spdl_types::DType;

/// The class number of the sample's bounding box, by the dataset's class list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxClassColumn;

impl Kind for BoxClassColumn {
    const NAME: &'static str = "box_class";
    const IS_UNIT: bool = true;
    const TAKES_CLASSES: bool = true;
    type Keys = NoKeys;

    fn read(_: &NoKeys) -> Result<Self, KeyProblem> {
        Ok(Self)
    }

    fn check_without_classes(&self, _: Option<&ColumnKind>) -> Result<(), KeyProblem> {
        Err(("decode", "is `box_class`, and the dataset lists no classes".to_owned()))
    }

    fn reads_classes(&self) -> bool {
        true
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::I64, DType::I32]
    }
}
