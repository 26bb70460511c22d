//! A valid column of a job.

use serde::{Deserialize, Serialize};

use super::{ColumnKind, ColumnValue, ReturnedColumn, form, kind};
use crate::{KeyProblem, Transform};
use spdl_types::{DType, SampleShape};

/// A valid column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "form::ColumnForm", into = "form::ColumnForm")]
pub struct Column {
    /// Name in the batch.
    pub name: String,
    /// Fields of the record that it can come from; the first that exists is used.
    pub from: Vec<String>,
    /// How it is decoded.
    pub kind: ColumnKind,
    /// Type of its elements.
    pub dtype: DType,
    /// What it reads of the field, if that is not all of it.
    pub value: ColumnValue,
    /// The function that makes its values from what was decoded, if there is one.
    pub transform: Option<Transform>,
}

impl Column {
    /// Creates a column that holds the decoded values themselves.
    #[must_use]
    pub fn new(name: &str, from: &str, kind: ColumnKind, dtype: DType) -> Self {
        let value = ColumnValue::default();
        Self { name: name.to_owned(), from: vec![from.to_owned()], kind, dtype, value, transform: None }
    }

    /// Returns the keys from the root of a JSON document to the value; none if the field itself is the value.
    #[must_use]
    pub fn path(&self) -> &[String] {
        match &self.kind {
            ColumnKind::Json(json) => &json.path,
            _ => &self.value.path,
        }
    }

    /// Returns those of the dataset's classes that the column has, in the order of its numbers, if they are listed.
    #[must_use]
    pub fn classes(&self) -> Option<&[String]> {
        match &self.kind {
            ColumnKind::OneHot(one_hot) => one_hot.listed.as_deref(),
            _ => self.value.classes.as_deref(),
        }
    }

    /// Returns whether decoding looks at the dataset's classes.
    #[must_use]
    pub fn reads_classes(&self) -> bool {
        self.value.classes.is_some() || self.kind.reads_classes()
    }

    /// Returns the shape of what is decoded of one sample, before any function.
    #[must_use]
    pub fn decoded_shape(&self) -> SampleShape {
        self.value.shape(self.kind.shape())
    }

    /// Returns the shape of one sample in the batch.
    #[must_use]
    pub fn shape(&self) -> SampleShape {
        match &self.transform {
            None => self.decoded_shape(),
            Some(transform) => transform.returns.sample_shape(),
        }
    }

    /// Returns the shape of one sample: `[H, W, C]` or `[C, H, W]` for a picture, empty for a scalar, the declared
    /// shape for a function's result, and `None` if it is ragged.
    #[must_use]
    pub fn sample_shape(&self) -> Option<Vec<u32>> {
        match self.shape() {
            SampleShape::Fixed(shape) => Some(shape),
            SampleShape::Rows { .. } | SampleShape::Bytes { .. } => None,
        }
    }

    /// Returns the most bytes of one sample.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.shape().max_bytes(self.dtype)
    }

    /// Returns the type of the decoded elements, before any function.
    #[must_use]
    pub fn decoded_dtype(&self) -> DType {
        self.transform.as_ref().map_or(self.dtype, |transform| transform.takes)
    }

    /// Checks the column of a job with these columns for a dataset that lists no classes.
    pub(crate) fn check_without_classes(&self, columns: &[Self]) -> Result<(), KeyProblem> {
        if self.value.classes.is_some() {
            return Err(kind::no_classes());
        }
        let followed = self.kind.follows().and_then(|name| decoded_named(name, columns));
        self.kind.check_without_classes(followed.map(|column| &column.kind))
    }

    /// Returns the call that returns this column, and its number there; `None` if the column is decoded.
    #[must_use]
    pub const fn returned(&self) -> Option<&ReturnedColumn> {
        match &self.kind {
            ColumnKind::Returned(returned) => Some(returned),
            _ => None,
        }
    }

    /// Returns whether a function of the user's makes its values.
    #[must_use]
    pub const fn is_by_function(&self) -> bool {
        self.transform.is_some() || self.returned().is_some()
    }

    /// Checks the values of all keys, for a job with these columns.
    pub(crate) fn check(&self, columns: &[Self]) -> Result<(), KeyProblem> {
        if self.name.is_empty() {
            return Err(("name", "is empty".to_owned()));
        }
        if let Some(returned) = self.returned() {
            if self.transform.is_some() || !self.from.is_empty() || self.value != ColumnValue::default() {
                return Err(("from", "is for columns that are decoded".to_owned()));
            }
            self.kind.check(self.dtype)?;
            returned.check_in(&self.name, self.dtype, columns)?;
            for taken in &returned.call.columns {
                let first = decoded_named(&taken.name, columns);
                if first != Some(taken) {
                    return Err(("columns", format!("has `{}`, and another column has that name", taken.name)));
                }
                taken.check(columns)?;
            }
            return Ok(());
        }
        if !self.kind.reads_field() {
            if !self.from.is_empty() {
                let problem = format!("is not for decode = \"{}\", which reads no field", self.kind.name());
                return Err(("from", problem));
            }
        } else if self.from.is_empty() || self.from.iter().any(String::is_empty) {
            return Err(("from", format!("is `{}`; name a field, or several as `jpg|png`", self.from.join("|"))));
        }
        if let Some(name) = self.kind.follows() {
            let mut expected = self.kind.clone();
            let followed = decoded_named(name, columns);
            expected.follow(followed.map(|column| (&column.kind, &column.value.deltas[..])))?;
            if expected != self.kind {
                return Err(("follows", format!("is `{name}`, which the column does not fit")));
            }
        }
        self.kind.check(self.decoded_dtype())?;
        self.kind.check_value(&self.value, self.decoded_dtype())?;
        self.transform.as_ref().map_or(Ok(()), |transform| transform.check(&self.decoded_shape(), self.dtype))
    }
}

/// Returns the columns that are decoded for a job with these columns: first those of them that no call returns, and
/// then those that calls take, some of them more than once.
pub fn decoded_columns(columns: &[Column]) -> impl Iterator<Item = &Column> {
    let plain = columns.iter().filter(|column| column.returned().is_none());
    plain.chain(columns.iter().filter_map(Column::returned).flat_map(|returned| &returned.call.columns))
}

/// Returns the column of this name, as it is decoded for a job with these columns.
pub(crate) fn decoded_named<'c>(name: &str, columns: &'c [Column]) -> Option<&'c Column> {
    decoded_columns(columns).find(|column| column.name == name)
}
