//! A column that a user's function of several fields or columns returns: a `[[function]]` of a job file.

use serde::{Deserialize, Serialize};

use super::{BytesColumn, Column, ColumnKind, ColumnValue, Kind, NoKeys};
use crate::{Callable, KeyProblem, check::MAX_SAMPLE_BYTES, transform::Returns};
use spdl_types::{DType, SampleShape};

/// One of the columns that a call of a function returns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReturnedColumn {
    /// The call, which is the same for all columns that it returns.
    pub call: FunctionCall,
    /// Number of the column among those that the call returns.
    pub number: u32,
}

/// A call of a function, once for each sample, that takes several values and returns several columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The function, or the class whose objects are called.
    pub function: Callable,
    /// The fields that it takes as they are stored. Those with bars between are one: the first that the record has.
    pub fields: Vec<String>,
    /// The most bytes of a field; a longer one is a bad sample.
    pub max_bytes: u32,
    /// The columns that it takes as they are decoded. They are in the batch only if the job has them too.
    pub columns: Vec<Column>,
    /// What it returns.
    pub returns: Vec<ReturnedValue>,
}

/// The declaration of a column that a function returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnedValue {
    /// Name of the column.
    pub name: String,
    /// Type of its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: Returns,
}

impl FunctionCall {
    /// Returns all values that the function takes: the fields as columns of bytes, then the columns.
    #[must_use]
    pub fn takes(&self) -> Vec<Column> {
        let field = |name: &String| {
            let from = name.split('|').map(|field| field.trim().to_owned()).collect();
            let kind = ColumnKind::Bytes(BytesColumn { max_bytes: self.max_bytes });
            Column { name: name.clone(), from, kind, dtype: DType::U8, value: ColumnValue::default(), transform: None }
        };
        self.fields.iter().map(field).chain(self.columns.iter().cloned()).collect()
    }

    /// Returns the number of the column `name` among those that the function returns.
    fn number_of(&self, name: &str) -> Option<u32> {
        self.returns.iter().zip(0..).find_map(|(value, number)| (value.name == name).then_some(number))
    }

    /// Checks the keys of the `[[function]]`.
    pub(crate) fn check(&self) -> Result<(), KeyProblem> {
        self.function.check("call")?;
        if self.fields.is_empty() && self.columns.is_empty() {
            return Err(("fields", "is missing; name the fields or the `columns` that the function takes".to_owned()));
        }
        if self.fields.iter().any(|field| field.split('|').any(|name| name.trim().is_empty())) {
            return Err(("fields", "has an empty name".to_owned()));
        }
        if !(1..=MAX_SAMPLE_BYTES).contains(&self.max_bytes) {
            return Err(("max_bytes", format!("is {}, not in 1..={MAX_SAMPLE_BYTES}", self.max_bytes)));
        }
        for (number, name) in self.fields.iter().enumerate() {
            if self.fields[..number].contains(name) {
                return Err(("fields", format!("has `{name}` twice")));
            }
            if self.columns.iter().any(|column| column.name == *name) {
                let problem = format!("has `{name}`, which is in `columns` too; give the column another name");
                return Err(("fields", problem));
            }
        }
        for (number, column) in self.columns.iter().enumerate() {
            let name = &column.name;
            if self.columns[..number].iter().any(|other| other.name == *name) {
                return Err(("columns", format!("has `{name}` twice")));
            }
            if column.is_by_function() {
                return Err((
                    "columns",
                    format!("has `{name}`, which a function makes; a function takes what is decoded"),
                ));
            }
        }
        if self.returns.is_empty() {
            return Err(("returns", "is empty; declare the columns that the function returns".to_owned()));
        }
        for (value, number) in self.returns.iter().zip(0..) {
            if self.number_of(&value.name) != Some(number) {
                return Err(("returns", format!("has `{}` twice", value.name)));
            }
            value
                .shape
                .check(value.dtype)
                .map_err(|(key, problem)| ("returns", format!("has `{}`, whose `{key}` {problem}", value.name)))?;
        }
        Ok(())
    }
}

impl ReturnedColumn {
    /// Returns the declaration of the column; `None` if its number is out of range.
    fn value(&self) -> Option<&ReturnedValue> {
        self.call.returns.get(self.number as usize)
    }

    /// Checks that this column has this name and type, and that `columns` contain all columns of the call.
    pub(super) fn check_in(&self, name: &str, dtype: DType, columns: &[Column]) -> Result<(), KeyProblem> {
        if self.value().is_none_or(|value| value.name != name || value.dtype != dtype) {
            return Err(("returns", format!("of `{}` does not fit the column", self.call.function)));
        }
        for (value, number) in self.call.returns.iter().zip(0..) {
            let is_there = columns.iter().any(|column| {
                column.name == value.name
                    && column.returned().is_some_and(|other| other.number == number && other.call == self.call)
            });
            if !is_there {
                let problem =
                    format!("of `{}` has `{}`, and the job has no such column", self.call.function, value.name);
                return Err(("returns", problem));
            }
        }
        Ok(())
    }
}

impl Kind for ReturnedColumn {
    const NAME: &'static str = "returned";
    type Keys = NoKeys;

    /// Job files declare the function, never the column.
    fn read(_: &NoKeys) -> Result<Self, KeyProblem> {
        Err(("decode", "is not one of a job file".to_owned()))
    }

    fn dtypes(&self) -> &'static [DType] {
        DType::ALL
    }

    fn shape(&self) -> SampleShape {
        self.value().map_or(SampleShape::Fixed(Vec::new()), |value| value.shape.sample_shape())
    }

    fn check(&self, _: DType) -> Result<(), KeyProblem> {
        self.call.check()
    }
}
