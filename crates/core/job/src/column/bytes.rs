//! The kind `bytes`: the field as it is, a ragged column.

use serde::{Deserialize, Serialize};

use super::{Kind, kind::keys};
use spdl_types::{SampleShape, DType};
use crate::{KeyProblem, check::MAX_SAMPLE_BYTES};

const DEFAULT_MAX_BYTES: u32 = 1 << 20;

keys! {
    /// The keys of a `bytes` column in a job file.
    BytesKeys {
        /// For bytes: the length of the longest value, 1 to 1073741824. A longer value is a bad sample. It reserves no
        /// memory. Default: 1048576.
        max_bytes: Option<u32>,
    }
}

/// The field's bytes as they are: a ragged column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BytesColumn {
    /// The most bytes of one sample; a longer one is a bad sample.
    pub max_bytes: u32,
}

impl Kind for BytesColumn {
    const NAME: &'static str = "bytes";
    const EXAMPLE: &'static str = "max_bytes = 100";
    type Keys = BytesKeys;

    fn read(keys: &BytesKeys) -> Result<Self, KeyProblem> {
        Ok(Self { max_bytes: keys.max_bytes.unwrap_or(DEFAULT_MAX_BYTES) })
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::U8]
    }

    fn shape(&self) -> SampleShape {
        SampleShape::Bytes { max_bytes: self.max_bytes }
    }

    fn check(&self, _: DType) -> Result<(), KeyProblem> {
        let Self { max_bytes } = self;
        if (1..=MAX_SAMPLE_BYTES).contains(max_bytes) {
            return Ok(());
        }
        Err(("max_bytes", format!("is {max_bytes}, not in 1..={MAX_SAMPLE_BYTES}")))
    }
}
