//! The kind `is_pad`: which places of a column with `deltas` are outside the series of the sample's record.

use spdl_job::IsPadColumn;

use super::{ColumnDecoder, ColumnSample, FieldTarget};
use crate::decode::cause::ValueResult;

/// Writes a byte for each place.
pub(super) struct IsPadDecoder {
    places: Vec<i32>,
}

impl IsPadDecoder {
    pub(super) fn new(column: &IsPadColumn) -> Self {
        Self { places: column.places.clone() }
    }
}

impl ColumnDecoder for IsPadDecoder {
    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        for (place, is_pad) in self.places.iter().zip(target.fixed()) {
            *is_pad = sample.record.is_pad(*place).into();
        }
        Ok(())
    }
}
