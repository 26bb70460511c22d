//! The kind `labels`: what a model learns at each place of a sequence.

use serde::{Deserialize, Serialize};

use super::{
    ColumnKind, Kind, KindKeys,
    kind::{followed_tokens, tokens_name},
};
use crate::KeyProblem;
use spdl_types::{DType, SampleShape};

/// The keys of a `labels` column in a job file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LabelsKeys {
    /// For labels: the name of the `tokens` column. Required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
    /// For labels: whether the label of a place is the next id, as torchtitan and Megatron take them. If not, it is the id at
    /// the place, and the model shifts, as in Transformers; the first label of each document is then -100. Default: `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shifted: Option<bool>,
}

impl KindKeys for LabelsKeys {
    const NAMES: &'static [&'static str] = &["follows", "shifted"];
}

/// The id that each place of a sequence has to predict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelsColumn {
    /// Name of the `tokens` column.
    pub follows: String,
    /// Whether the label of a place is the next id.
    pub shifted: bool,
    /// The tokens of a sequence: those of the column that it follows.
    pub seq_len: u32,
}

impl Kind for LabelsColumn {
    const NAME: &'static str = "labels";
    const EXAMPLE: &'static str = "follows = \"tokens\"";
    const READS_FIELD: bool = false;
    type Keys = LabelsKeys;

    fn read(keys: &LabelsKeys) -> Result<Self, KeyProblem> {
        Ok(Self { follows: tokens_name(keys.follows.as_ref())?, shifted: keys.shifted.unwrap_or(true), seq_len: 0 })
    }

    fn follows(&self) -> Option<&str> {
        Some(&self.follows)
    }

    fn follow(&mut self, followed: &ColumnKind) -> Result<(), KeyProblem> {
        self.seq_len = followed_tokens(&self.follows, followed)?;
        Ok(())
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::I64, DType::I32]
    }

    fn shape(&self) -> SampleShape {
        SampleShape::Fixed(vec![self.seq_len])
    }
}
