//! The kind `category`: looks a name up in the column's list, or in the dataset's classes.

use std::{collections::HashMap, sync::Arc};

use spdl_job::{CategoryColumn, DefaultValue};
use spdl_types::DType;

use super::{ColumnDecoder, ColumnSample, ColumnSetup, DecoderError, FieldTarget, int::int};
use crate::decode::{
    cause::{BadSampleProblem, ValueResult},
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
    fn write_default(&self, default: &DefaultValue, target: &mut FieldTarget<'_>) -> ValueResult {
        match default {
            DefaultValue::Text(name) => self.write(name.as_bytes(), "default", target.fixed()),
            DefaultValue::Number(number) => int(number.as_bytes(), self.dtype, "default", target.fixed()),
            DefaultValue::Bool(_) => unreachable!("a valid job has a name or a number, not {default}"),
        }
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        self.write(&sample.content.into_file(), sample.field, target.fixed())
    }
}

impl CategoryDecoder {
    /// Writes the number of a name.
    fn write(&self, name: &[u8], field: &str, out: &mut [u8]) -> ValueResult {
        let number = std::str::from_utf8(name).ok().and_then(|name| self.numbers.get(name.trim()));
        let number = *number.ok_or_else(|| BadSampleProblem::name_unknown(field, name))?;
        write_integer(number, self.dtype, field, || number.to_string(), out)
    }
}
