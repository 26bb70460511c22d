//! Where the elements of a tensor lie: type, shape, strides and address.

use spdl_gpu::Tensor;
use spdl_types::DType;

/// The shape of a tensor, in elements. Its memory is part of the batch that it is exported with.
#[derive(Clone, Debug)]
pub(crate) struct TensorView {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<i64>,
    pub(crate) strides: Vec<i64>,
    /// Address of the first element.
    pub(crate) address: usize,
    /// Exported as unsigned integers of the same width, for consumers that do not know the type.
    pub(crate) as_bits: bool,
}

impl TensorView {
    /// Describes elements in row-major order.
    pub(crate) fn dense(dtype: DType, shape: Vec<i64>, address: usize) -> Self {
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis].max(1);
        }
        Self { dtype, shape, strides, address, as_bits: false }
    }

    /// Describes a tensor of a batch on a device.
    pub(crate) fn of(tensor: &Tensor) -> Self {
        let (shape, strides) = (tensor.shape().to_vec(), tensor.strides().to_vec());
        Self { dtype: tensor.dtype(), shape, strides, address: tensor.address(), as_bits: false }
    }

    /// Returns the bytes from the first element to the end of the last; 0 for a tensor without elements.
    pub(crate) fn span_bytes(&self) -> usize {
        if self.shape.contains(&0) {
            return 0;
        }
        let last: i64 = self.shape.iter().zip(&self.strides).map(|(side, stride)| (side - 1) * stride).sum();
        (usize::try_from(last).expect("strides are not negative") + 1) * self.dtype.bytes()
    }
}
