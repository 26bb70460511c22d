//! The kind `one_hot`: 1 at the place of the sample's class, and 0 at all others.

use std::{collections::HashMap, sync::Arc};

use spdl_job::{DefaultValue, OneHotColumn};
use spdl_shard::format::Content;
use spdl_types::DType;

use super::{ColumnDecoder, ColumnSample, ColumnSetup, DecoderError, FieldTarget, int, listed::ListedClasses};
use crate::decode::{
    cause::{BadSampleProblem, ValueResult},
    number::write_float,
};

/// Decodes a class to a probability of each class.
pub(super) struct OneHotDecoder {
    dtype: DType,
    classes: u32,
    numbers: Arc<HashMap<String, i64>>,
    /// Whether a field can only be a name.
    is_named: bool,
    /// The dataset's classes that it has, if the column lists them.
    listed: Option<ListedClasses>,
}

impl OneHotDecoder {
    pub(super) fn new(column: &OneHotColumn, setup: &ColumnSetup<'_>) -> Result<Self, DecoderError> {
        let numbers = match &column.names {
            Some(names) => Arc::new(names.iter().cloned().zip(0..).collect()),
            None => setup.classes.clone(),
        };
        let dtype = setup.column.decoded_dtype();
        let listed = ListedClasses::new(setup)?;
        Ok(Self { dtype, classes: column.classes, numbers, is_named: column.names.is_some(), listed })
    }

    /// Returns the place of the class that a field holds.
    fn place(&self, content: Content, field: &str) -> Result<i64, BadSampleProblem> {
        let class = self.class(content, field)?;
        self.listed.as_ref().map_or(Ok(class), |listed| listed.of_field(class, field))
    }

    /// Returns the number of the class that a field holds: the number itself, or that of a name.
    fn class(&self, content: Content, field: &str) -> Result<i64, BadSampleProblem> {
        if self.is_named {
            let text = content.into_file();
            return self.number_of(&text).ok_or_else(|| BadSampleProblem::name_unknown(field, &text));
        }
        let content = int::array_or_text(content, field)?;
        int::whole_number(&content, field).or_else(|problem| match &content {
            Content::File(text) => self.number_of(text).ok_or(problem),
            Content::Array(_) => Err(problem),
        })
    }

    fn number_of(&self, name: &[u8]) -> Option<i64> {
        self.numbers.get(std::str::from_utf8(name).ok()?.trim()).copied()
    }
}

impl ColumnDecoder for OneHotDecoder {
    fn write_default(&self, default: &DefaultValue, target: &mut FieldTarget<'_>) -> ValueResult {
        let (field, out) = ("default", target.fixed());
        match default {
            DefaultValue::Number(place) => {
                let place = int::whole_number(&Content::File(place.clone().into()), field)?;
                self.write(place, field, out)
            }
            DefaultValue::Text(name) => self.write(self.place(Content::File(name.clone().into()), field)?, field, out),
            DefaultValue::Bool(_) => unreachable!("a valid job has a class, not {default}"),
        }
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let ColumnSample { field, content, .. } = sample;
        self.write(self.place(content, field)?, field, target.fixed())
    }
}

impl OneHotDecoder {
    /// Writes 1 at the place of a class, and 0 at all others.
    fn write(&self, class: i64, field: &str, out: &mut [u8]) -> ValueResult {
        let Some(class) = u32::try_from(class).ok().filter(|class| *class < self.classes) else {
            let (field, classes) = (field.to_owned(), self.classes);
            return Err(BadSampleProblem::NoSuchClass { field, class, classes });
        };
        out.fill(0);
        let bytes = self.dtype.bytes();
        write_float(1.0, self.dtype, field, String::new, &mut out[class as usize * bytes..][..bytes])
    }
}
