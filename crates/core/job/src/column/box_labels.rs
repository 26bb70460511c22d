//! The kind `box_labels`: a number for each box of a `boxes` column, such as its class; a ragged column.

use serde::{Deserialize, Serialize};

use super::{BoxStorage, CategoryColumn, ColumnKind, Kind, kind::{keys, no_names, not_of_kind}};
use spdl_types::{SampleShape, DType};
use crate::KeyProblem;

const DEFAULT_KEY: &str = "category_id";

keys! {
    /// The keys of a `box_labels` column in a job file.
    BoxLabelsKeys {
        /// For box_labels: the name of the `boxes` column. Required.
        follows: Option<String>,
        /// For box_labels: the key of COCO's annotations that has the label, a number or a name. Default: `category_id`.
        key: Option<String>,
        /// For box_labels: the names, whose numbers are 0, 1, 2 and so on. A sample with another name is a bad sample.
        /// Default: the dataset's classes.
        names: Option<Vec<String>>,
    }
}

/// A number for each box of a picture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoxLabelsColumn {
    /// Name of the `boxes` column.
    pub follows: String,
    /// The key of COCO's annotations that has the label.
    pub key: String,
    /// The names in the order of their numbers; `None` for the dataset's classes.
    pub names: Option<Vec<String>>,
    /// The most boxes of one sample: that of the column that it follows.
    pub max_rows: u32,
}

impl Kind for BoxLabelsColumn {
    const NAME: &'static str = "box_labels";
    const EXAMPLE: &'static str = "follows = \"boxes\"";
    type Keys = BoxLabelsKeys;

    fn read(keys: &BoxLabelsKeys) -> Result<Self, KeyProblem> {
        let BoxLabelsKeys { follows, key, names } = keys.clone();
        let Some(follows) = follows else {
            let problem = "is missing; write the name of the boxes column that the labels are of";
            return Err(("follows", problem.to_owned()));
        };
        Ok(Self { follows, key: key.unwrap_or_else(|| DEFAULT_KEY.to_owned()), names, max_rows: 0 })
    }

    fn follows(&self) -> Option<&str> {
        Some(&self.follows)
    }

    fn follow(&mut self, followed: &ColumnKind) -> Result<(), KeyProblem> {
        let ColumnKind::Boxes(boxes) = followed else {
            return Err(not_of_kind(&self.follows, followed, "boxes"));
        };
        self.max_rows = boxes.max_rows;
        Ok(())
    }

    fn check_without_classes(&self, followed: Option<&ColumnKind>) -> Result<(), KeyProblem> {
        // Those of other forms can be numbers.
        let has_names = matches!(followed, Some(ColumnKind::Boxes(boxes)) if boxes.stored_as == BoxStorage::Voc);
        if has_names && self.names.is_none() { Err(no_names()) } else { Ok(()) }
    }

    fn reads_classes(&self) -> bool {
        self.names.is_none()
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::I64, DType::I32, DType::F32]
    }

    fn shape(&self) -> SampleShape {
        SampleShape::Rows { row: Vec::new(), max_rows: self.max_rows }
    }

    fn check(&self, dtype: DType) -> Result<(), KeyProblem> {
        if self.key.is_empty() {
            return Err(("key", "is empty; leave it out for `category_id`".to_owned()));
        }
        CategoryColumn { names: self.names.clone() }.check(dtype)
    }
}
