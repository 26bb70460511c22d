//! The kind `text`: UTF-8, a ragged column.

use serde::{Deserialize, Serialize};

use super::{BytesColumn, BytesKeys, DefaultValue, Kind, kind::keys};
use spdl_types::{SampleShape, DType};
use crate::KeyProblem;

keys! {
    /// The keys of a `text` column in a job file.
    TextKeys {
        /// For text: the length of the longest value in UTF-8, 1 to 1073741824. A longer value is a bad sample. It reserves
        /// no memory. Default: 1048576.
        max_bytes: Option<u32>,
    }
}

/// The field's bytes, which have to be UTF-8: a ragged column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TextColumn(pub BytesColumn);

impl Kind for TextColumn {
    const NAME: &'static str = "text";
    const EXAMPLE: &'static str = "max_bytes = 100";
    const IS_PLAIN: bool = true;
    type Keys = TextKeys;

    fn read(keys: &TextKeys) -> Result<Self, KeyProblem> {
        BytesColumn::read(&BytesKeys { max_bytes: keys.max_bytes }).map(Self)
    }

    fn dtypes(&self) -> &'static [DType] {
        self.0.dtypes()
    }

    fn shape(&self) -> SampleShape {
        self.0.shape()
    }

    fn check(&self, dtype: DType) -> Result<(), KeyProblem> {
        self.0.check(dtype)
    }

    fn check_default(&self, default: &DefaultValue, _: DType) -> Result<(), String> {
        let DefaultValue::Text(text) = default else { return Err("a text".to_owned()) };
        let max_bytes = self.0.max_bytes;
        if text.len() <= max_bytes as usize { Ok(()) } else { Err(format!("a text of at most {max_bytes} bytes")) }
    }
}
