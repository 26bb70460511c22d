//! The description of a function that a Python process gets.

use serde::Serialize;
use spdl_core::job::{Column, DType, Returns, Transform};

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
    /// Shape of an array; `None` for bytes.
    shape: Option<Vec<u32>>,
    /// Size of the value; for bytes, the maximum.
    pub(crate) bytes: usize,
}

impl Value {
    fn new(dtype: DType, shape: Option<Vec<u32>>, max_bytes: u32) -> Self {
        let elements = shape.as_ref().map(|shape| shape.iter().map(|side| *side as usize).product::<usize>());
        Self { dtype, bytes: elements.map_or(max_bytes as usize, |count| count * dtype.bytes()), shape }
    }
}

impl Function {
    /// Returns the function of a column, if it has one.
    pub(crate) fn of(column: &Column) -> Option<Self> {
        let Transform { function, decoded, takes, returns } = column.transform()?;
        let longest = match decoded {
            spdl_core::job::Decoded::Bytes { max_bytes } => *max_bytes,
            _ => 0,
        };
        let returns = match returns {
            Returns::Fixed { shape } => Value::new(column.dtype, Some(shape.clone()), 0),
            Returns::Ragged { max_bytes } => Value::new(column.dtype, None, *max_bytes),
        };
        Some(Self { name: function.clone(), takes: Value::new(*takes, decoded.sample_shape(), longest), returns })
    }

    /// Returns the size of the larger one of argument and returned value.
    pub(super) fn largest_bytes(&self) -> usize {
        self.takes.bytes.max(self.returns.bytes)
    }
}
