//! The kind `box_class`: looks the class of the sample's bounding box up in the dataset's list.

use std::{collections::HashMap, sync::Arc};

use spdl_types::DType;

use super::{ColumnDecoder, ColumnSample, ColumnSetup, DecoderError, FieldTarget, listed::ListedClasses};
use crate::decode::{
    cause::{self, BadSampleProblem, ValueResult},
    number::write_integer,
};

/// Decodes to class numbers.
pub(super) struct BoxClassDecoder {
    dtype: DType,
    classes: Arc<HashMap<String, i64>>,
    listed: Option<ListedClasses>,
}

impl BoxClassDecoder {
    pub(super) fn new(setup: &ColumnSetup<'_>) -> Result<Self, DecoderError> {
        if setup.classes.is_empty() {
            let (job, column) = (setup.job.to_owned(), setup.column.name.clone());
            return Err(DecoderError::NoClasses { job, column });
        }
        let (dtype, classes) = (setup.column.decoded_dtype(), setup.classes.clone());
        Ok(Self { dtype, classes, listed: ListedClasses::new(setup)? })
    }
}

impl ColumnDecoder for BoxClassDecoder {
    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let field = sample.field;
        let class = &sample.record.object(field)?.class;
        let Some(number) = self.classes.get(class.trim()).copied() else {
            let class = cause::quoted(class.as_bytes());
            return Err(BadSampleProblem::ClassUnknown { field: field.to_owned(), class });
        };
        let number = match &self.listed {
            Some(listed) => listed.of_field(number, field)?,
            None => number,
        };
        write_integer(number, self.dtype, field, || number.to_string(), target.fixed())
    }
}
