//! The kind `document_ids`: which document of a sequence each token is of.

use serde::{Deserialize, Serialize};

use super::{
    ColumnKind, Kind, KindKeys,
    kind::{followed_tokens, tokens_name},
};
use crate::KeyProblem;
use spdl_types::{DType, SampleShape};

/// The keys of a `document_ids` column in a job file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DocumentIdsKeys {
    /// For document_ids: the name of the `tokens` column. Required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
}

impl KindKeys for DocumentIdsKeys {
    const NAMES: &'static [&'static str] = &["follows"];
}

/// The number of the document that each token of a sequence is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DocumentIdsColumn {
    /// Name of the `tokens` column.
    pub follows: String,
    /// The tokens of a sequence: those of the column that it follows.
    pub seq_len: u32,
}

impl Kind for DocumentIdsColumn {
    const NAME: &'static str = "document_ids";
    const EXAMPLE: &'static str = "follows = \"tokens\"";
    const READS_FIELD: bool = false;
    type Keys = DocumentIdsKeys;

    fn read(keys: &DocumentIdsKeys) -> Result<Self, KeyProblem> {
        Ok(Self { follows: tokens_name(keys.follows.as_ref())?, seq_len: 0 })
    }

    fn follows(&self) -> Option<&str> {
        Some(&self.follows)
    }

    fn follow(&mut self, followed: &ColumnKind) -> Result<(), KeyProblem> {
        self.seq_len = followed_tokens(&self.follows, followed)?;
        Ok(())
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::I32]
    }

    fn shape(&self) -> SampleShape {
        SampleShape::Fixed(vec![self.seq_len])
    }
}
