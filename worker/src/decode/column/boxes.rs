//! The kind `boxes`: the bounding boxes that are left in the picture.

use spdl_job::BoxesColumn;

use super::{ColumnDecoder, ColumnSample, ColumnSetup, FieldTarget};
use crate::decode::{boxes::BoxReader, cause::BadSampleProblem};

/// Decodes to boxes of four numbers.
pub(super) struct BoxesDecoder {
    reader: BoxReader,
}

impl BoxesDecoder {
    pub(super) fn new(column: &BoxesColumn, setup: &ColumnSetup<'_>) -> Self {
        Self { reader: BoxReader::new(setup.number, column, setup.columns) }
    }
}

impl ColumnDecoder for BoxesDecoder {
    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> Result<(), BadSampleProblem> {
        let ColumnSample { seed, key, record, resources, .. } = sample;
        let boxes = self.reader.read((seed, key), resources.limits, record)?;
        let numbers = boxes.kept.iter().flat_map(|(_, numbers)| numbers);
        *target.ragged() = numbers.flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>().into();
        Ok(())
    }
}
