//! The description of a function that a Python process gets.

use serde::Serialize;
use spdl_core::job::{Column, DType, SampleShape, Transform};

/// A Python function, with the values that it takes and returns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Function {
    /// `package.module:function`.
    pub(crate) name: String,
    pub(crate) takes: Value,
    pub(crate) returns: Value,
}

/// The type and size of an argument or of a returned value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Value {
    dtype: DType,
    /// Shape of an array; `None` if its first dimension differs, and for bytes.
    shape: Option<Vec<u32>>,
    /// Shape of a row of an array whose first dimension differs.
    row: Option<Vec<u32>>,
    /// Size of the value; the maximum if it differs.
    pub(crate) bytes: usize,
}

impl Value {
    fn new(dtype: DType, shape: SampleShape) -> Self {
        let bytes = usize::try_from(shape.max_bytes(dtype)).expect("a checked job has small samples");
        let (shape, row) = match shape {
            SampleShape::Fixed(shape) => (Some(shape), None),
            SampleShape::Rows { row, .. } => (None, Some(row)),
            SampleShape::Bytes { .. } => (None, None),
        };
        Self { dtype, shape, row, bytes }
    }
}

impl Function {
    /// Returns the function of a column, if it has one.
    pub(crate) fn of(column: &Column) -> Option<Self> {
        let Transform { function, takes, .. } = column.transform.as_ref()?;
        let (takes, returns) = (Value::new(*takes, column.kind.shape()), Value::new(column.dtype, column.shape()));
        Some(Self { name: function.clone(), takes, returns })
    }

    /// Returns the size of the larger one of argument and returned value.
    pub(super) fn largest_bytes(&self) -> usize {
        self.takes.bytes.max(self.returns.bytes)
    }
}
