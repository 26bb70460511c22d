//! The kind `loss_mask`: which places of a sequence are learned.

use serde::{Deserialize, Serialize};

use super::{
    ColumnKind, Kind, KindKeys,
    kind::{followed_tokens, tokens_name},
};
use crate::KeyProblem;
use spdl_types::{DType, SampleShape};

/// The keys of a `loss_mask` column in a job file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LossMaskKeys {
    /// For loss_mask: the name of the `tokens` column. Required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
}

impl KindKeys for LossMaskKeys {
    const NAMES: &'static [&'static str] = &["follows"];
}

/// Whether each place of a sequence is learned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossMaskColumn {
    /// Name of the `tokens` column.
    pub follows: String,
    /// The tokens of a sequence: those of the column that it follows.
    pub seq_len: u32,
}

impl Kind for LossMaskColumn {
    const NAME: &'static str = "loss_mask";
    const EXAMPLE: &'static str = "follows = \"tokens\"";
    const READS_FIELD: bool = false;
    type Keys = LossMaskKeys;

    fn read(keys: &LossMaskKeys) -> Result<Self, KeyProblem> {
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
        &[DType::F32, DType::U8, DType::Bool]
    }

    fn shape(&self) -> SampleShape {
        SampleShape::Fixed(vec![self.seq_len])
    }
}
