//! The kind `boxes`: the bounding boxes that are left in the picture.

use super::{ColumnDecoder, ColumnSample, FieldTarget};
use crate::decode::{boxes::FollowedBoxes, cause::BadSampleProblem};

/// Decodes to boxes of four numbers.
pub(super) struct BoxesDecoder(pub(super) FollowedBoxes);

impl ColumnDecoder for BoxesDecoder {
    fn fields(&self) -> Vec<&str> {
        self.0.fields()
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> Result<(), BadSampleProblem> {
        let ColumnSample { seed, key, record, resources, .. } = sample;
        let boxes = self.0.kept(seed, key, record, resources.limits)?;
        let numbers = boxes.kept.iter().flat_map(|(_, numbers)| numbers);
        *target.ragged() = numbers.flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>().into();
        Ok(())
    }
}
