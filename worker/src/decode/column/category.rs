//! The kind `category`: looks a name up in the column's list, or in the dataset's classes.

use std::{collections::HashMap, sync::Arc};

use spdl_job::CategoryColumn;
use spdl_types::DType;

use super::{ColumnDecoder, ColumnSample, ColumnSetup, DecoderError, FieldTarget};
use crate::decode::{
    cause::{self, BadSampleProblem},
    number::write_integer,
};

/// Decodes names to their numbers.
pub(super) struct CategoryDecoder {
    dtype: DType,
    numbers: Arc<HashMap<String, i64>>,
}

impl CategoryDecoder {
    pub(super) fn new(column: &CategoryColumn, setup: &ColumnSetup<'_>) -> Result<Self, DecoderError> {
        let numbers = match &column.names {
            Some(names) => Arc::new(names.iter().cloned().zip(0..).collect()),
            None if setup.classes.is_empty() => {
                let (job, column) = (setup.job.to_owned(), setup.column.name.clone());
                return Err(DecoderError::NoNames { job, column });
            }
            None => setup.classes.clone(),
        };
        Ok(Self { dtype: setup.column.decoded_dtype(), numbers })
    }
}

impl ColumnDecoder for CategoryDecoder {
    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> Result<(), BadSampleProblem> {
        let field = sample.field;
        let bytes = sample.content.into_file();
        let number = std::str::from_utf8(&bytes).ok().and_then(|name| self.numbers.get(name.trim()));
        match number {
            Some(number) => write_integer(*number, self.dtype, field, || number.to_string(), target.fixed()),
            None => {
                let name = cause::quoted(&bytes);
                Err(BadSampleProblem::NameUnknown { field: field.to_owned(), name })
            }
        }
    }
}
