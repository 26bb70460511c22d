//! An array of a batch, described for in-place use by other libraries: the fields of DLPack in plain Rust.

use std::fmt;

use spdl_types::DType;

use crate::{BatchPlacement, DeviceError, StreamHandle, storage::Storage};

/// Returns DLPack's type code and number of bits of a type, always with one lane.
#[must_use]
pub const fn dlpack_type(dtype: DType) -> (u8, u8) {
    const INT: u8 = 0;
    const UINT: u8 = 1;
    const FLOAT: u8 = 2;
    const BFLOAT: u8 = 4;
    const BOOL: u8 = 6;
    match dtype {
        DType::U8 => (UINT, 8),
        DType::U16 => (UINT, 16),
        DType::U32 => (UINT, 32),
        DType::U64 => (UINT, 64),
        DType::I8 => (INT, 8),
        DType::I16 => (INT, 16),
        DType::I32 => (INT, 32),
        DType::I64 => (INT, 64),
        DType::F16 => (FLOAT, 16),
        DType::Bf16 => (BFLOAT, 16),
        DType::F32 => (FLOAT, 32),
        DType::F64 => (FLOAT, 64),
        DType::Bool => (BOOL, 8),
    }
}

/// An array of a batch. It keeps the memory of the whole batch: the slot or buffer is freed when the last tensor of the
/// batch is dropped. Cheap to clone.
#[derive(Clone)]
pub struct Tensor {
    address: usize,
    dtype: DType,
    shape: Vec<i64>,
    strides: Vec<i64>,
    storage: Storage,
}

impl Tensor {
    /// Creates a dense array in row-major order.
    pub(crate) fn dense(address: usize, dtype: DType, shape: Vec<i64>, storage: Storage) -> Self {
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis].max(1);
        }
        Self { address, dtype, shape, strides, storage }
    }

    /// Creates an array of pictures with shape `[n, 3, height, width]` that lies in memory as `[n, height, width, 3]`.
    pub(crate) fn channels_last(address: usize, dtype: DType, shape: [i64; 4], storage: Storage) -> Self {
        let [_, channels, height, width] = shape;
        let strides = vec![channels * height * width, 1, channels * width, channels];
        Self { address, dtype, shape: shape.into(), strides, storage }
    }

    /// Returns the address of the first element in the memory of its device. Read it only there, after
    /// [`Tensor::wait_on`], and only while this tensor or a clone of it lives.
    #[must_use]
    pub const fn address(&self) -> usize {
        self.address
    }

    /// Returns the type of the elements.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns DLPack's type code and number of bits of the elements, with one lane.
    #[must_use]
    pub const fn dlpack_type(&self) -> (u8, u8) {
        dlpack_type(self.dtype)
    }

    /// Returns the shape.
    #[must_use]
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Returns the distance from one element to the next along each axis, in elements.
    #[must_use]
    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    /// Returns the number of bytes of all elements, which lie without gaps.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shape.iter().map(|side| usize::try_from(*side).unwrap_or(0)).product::<usize>() * self.dtype.bytes()
    }

    /// Returns where the array lies.
    #[must_use]
    pub fn placement(&self) -> BatchPlacement {
        self.storage.placement()
    }

    /// Makes `stream` wait for the batch; see [`DeviceBatch::wait_on`](crate::DeviceBatch::wait_on).
    ///
    /// # Errors
    /// Returns [`DeviceError`] when the driver fails.
    pub fn wait_on(&self, stream: StreamHandle) -> Result<(), DeviceError> {
        self.storage.wait_on(stream)
    }

    /// Returns a copy of the bytes in this process's memory, in memory order. Waits for the batch and for the copy, so
    /// use it to inspect a batch, not in a training loop.
    ///
    /// # Errors
    /// Returns [`DeviceError`] when the driver fails; never on the host.
    pub fn to_host(&self) -> Result<Vec<u8>, DeviceError> {
        self.storage.read(self.address, self.bytes())
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dtype, shape, strides, .. } = self;
        write!(f, "Tensor({dtype:?} {shape:?}, strides {strides:?}, on {})", self.placement())
    }
}
