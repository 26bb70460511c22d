//! The description of a function that a Python process gets.

use serde::Serialize;
use serde_json::{Map, Value as JsonValue};
use spdl_job::{Callable, Column, FunctionCall, Job, ReturnedValue, SourceDigest, Transform};
use spdl_types::{DType, SampleShape};

/// A Python function, with the values that it takes and returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Function {
    /// `package.module:function`.
    pub(crate) name: String,
    /// Its keyword arguments, or those of the class whose object is called.
    arguments: Map<String, JsonValue>,
    /// Whether it takes and returns dicts of values. If not, it takes one value and returns one.
    is_by_name: bool,
    pub(crate) takes: Vec<FunctionValue>,
    pub(crate) returns: Vec<FunctionValue>,
    /// The digest of its source, if the job has it.
    #[serde(skip)]
    pub(super) source: Option<SourceDigest>,
}

/// The type, the size and the place of an argument or of a returned value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FunctionValue {
    name: String,
    dtype: DType,
    /// Shape of an array; `None` if its first dimension differs, and for bytes.
    shape: Option<Vec<u32>>,
    /// Shape of a row of an array whose first dimension differs.
    row: Option<Vec<u32>>,
    /// Size of the whole array if its shape is fixed, of a row if its first dimension differs, and 1 for bytes.
    unit: usize,
    /// Size of the value; the maximum if it differs.
    pub(crate) bytes: usize,
    /// Where it begins in the memory for arguments, or in that for returned values.
    pub(crate) at: usize,
}

/// Alignment of values in memory.
const ALIGNMENT: usize = 64;

/// A list of values that is being laid out.
#[derive(Default)]
struct ValueLayout(Vec<FunctionValue>);

impl ValueLayout {
    fn add(mut self, name: &str, dtype: DType, shape: SampleShape) -> Self {
        let small = |bytes: u64| usize::try_from(bytes).expect("a checked job has small samples");
        let bytes = small(shape.max_bytes(dtype));
        let at = self.0.last().map_or(0, |last| (last.at + last.bytes).next_multiple_of(ALIGNMENT));
        let (shape, row, unit) = match shape {
            SampleShape::Fixed(shape) => (Some(shape), None, bytes),
            SampleShape::Rows { row, .. } => {
                let unit = small(SampleShape::Fixed(row.clone()).max_bytes(dtype));
                (None, Some(row), unit)
            }
            SampleShape::Bytes { .. } => (None, None, 1),
        };
        self.0.push(FunctionValue { name: name.to_owned(), dtype, shape, row, unit, bytes, at });
        self
    }
}

impl FunctionValue {
    /// Returns whether a value can have this size.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        bytes <= self.bytes && if self.shape.is_some() { bytes == self.bytes } else { bytes.is_multiple_of(self.unit) }
    }
}

impl Function {
    /// Returns the functions of a job in Python, with the names of their first columns.
    pub(crate) fn all(job: &Job) -> Vec<(&str, Self)> {
        let of = |column: &Column| match column.returned() {
            Some(returned) if returned.number > 0 => None,
            Some(returned) => Self::of_call(&returned.call),
            None => Self::of_column(column),
        };
        job.columns.iter().filter_map(|column| Some((column.name.as_str(), of(column)?))).collect()
    }

    /// Returns the Python function that makes a column's values of the decoded ones, if the column has one.
    pub(crate) fn of_column(column: &Column) -> Option<Self> {
        let Transform { function, takes, .. } =
            column.transform.as_ref().filter(|made| made.function.rust().is_none())?;
        let takes = ValueLayout::default().add(&column.name, *takes, column.decoded_shape());
        let returns = ValueLayout::default().add(&column.name, column.dtype, column.shape());
        Some(Self::new(function, false, takes, returns))
    }

    /// Returns the function of a call, if it is in Python.
    pub(crate) fn of_call(call: &FunctionCall) -> Option<Self> {
        if call.function.rust().is_some() {
            return None;
        }
        let takes = |layout: ValueLayout, column: Column| layout.add(&column.name, column.dtype, column.shape());
        let takes = call.takes().into_iter().fold(ValueLayout::default(), takes);
        let returns = |layout: ValueLayout, ReturnedValue { name, dtype, shape }: &ReturnedValue| {
            layout.add(name, *dtype, shape.sample_shape())
        };
        Some(Self::new(&call.function, true, takes, call.returns.iter().fold(ValueLayout::default(), returns)))
    }

    fn new(function: &Callable, is_by_name: bool, takes: ValueLayout, returns: ValueLayout) -> Self {
        let arguments = function.arguments.values().expect("a checked job has valid arguments");
        let (name, source) = (function.name.clone(), function.source);
        Self { name, arguments, is_by_name, takes: takes.0, returns: returns.0, source }
    }

    /// Returns the size of the larger one of all arguments and all returned values.
    pub(super) fn largest_bytes(&self) -> usize {
        let end = |values: &[FunctionValue]| values.last().map_or(0, |last| last.at + last.bytes);
        end(&self.takes).max(end(&self.returns))
    }
}
