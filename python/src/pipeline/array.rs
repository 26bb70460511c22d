//! Arrays that native operations return, in row-major order, and their export to Python.

use std::sync::Arc;

use pyo3::{exceptions::PyBufferError, prelude::*, sync::PyOnceLock, types::PyCapsule};
use spdl_gpu::BatchPlacement;
use spdl_types::DType;

use crate::{dlpack, tensor_view::TensorView};

/// An array in memory of its own.
#[derive(Debug)]
pub(crate) struct OwnedArray {
    dtype: DType,
    shape: Vec<i64>,
    elements: Elements,
}

/// The elements of an array.
#[derive(Debug)]
enum Elements {
    /// In words, so that every type of element is aligned.
    Words(Vec<u64>),
    /// Elements of one byte.
    Bytes(Vec<u8>),
}

impl OwnedArray {
    /// Makes an array of zeros.
    pub(crate) fn zeros(dtype: DType, shape: &[usize]) -> Self {
        let bytes = shape.iter().product::<usize>() * dtype.bytes();
        let shape = shape.iter().map(|side| i64::try_from(*side).expect("a side fits into memory")).collect();
        Self { dtype, shape, elements: Elements::Words(vec![0; bytes.div_ceil(size_of::<u64>())]) }
    }

    /// Makes an array of these bytes, one for each element of the shape.
    pub(crate) fn of_u8(shape: &[usize], bytes: Vec<u8>) -> Self {
        assert_eq!(bytes.len(), shape.iter().product::<usize>(), "bytes of {shape:?}");
        let shape = shape.iter().map(|side| i64::try_from(*side).expect("a side fits into memory")).collect();
        Self { dtype: DType::U8, shape, elements: Elements::Bytes(bytes) }
    }

    /// Makes an array from the bytes of its elements in row-major order, which must match the shape.
    pub(crate) fn of_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Self {
        let mut array = Self::zeros(dtype, shape);
        array.bytes_mut().copy_from_slice(bytes);
        array
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn shape(&self) -> &[i64] {
        &self.shape
    }

    fn byte_len(&self) -> usize {
        self.shape.iter().product::<i64>() as usize * self.dtype.bytes()
    }

    /// Returns the elements as bytes.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.byte_len();
        match &mut self.elements {
            Elements::Words(words) => &mut bytemuck::cast_slice_mut(words)[..bytes],
            Elements::Bytes(own) => own,
        }
    }

    /// Returns the elements as bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.elements {
            Elements::Words(words) => &bytemuck::cast_slice(words)[..self.byte_len()],
            Elements::Bytes(own) => own,
        }
    }

    /// Stacks arrays of one type and shape along a new first axis.
    pub(crate) fn stacked(arrays: &[Self]) -> Result<Self, String> {
        let Some(first) = arrays.first() else { return Err("a batch of no arrays has no shape".to_owned()) };
        let shape: Vec<usize> =
            std::iter::once(arrays.len() as i64).chain(first.shape.clone()).map(|n| n as usize).collect();
        let mut batch = Self::zeros(first.dtype, &shape);
        let bytes = first.byte_len();
        for (at, array) in arrays.iter().enumerate() {
            if (array.dtype, &array.shape) != (first.dtype, &first.shape) {
                let text = |array: &Self| format!("{} {:?}", array.dtype.name(), array.shape);
                let (first, array) = (text(first), text(array));
                return Err(format!(
                    "array 0 of a batch is {first}, and array {at} is {array}; a batch needs one shape"
                ));
            }
            batch.bytes_mut()[at * bytes..][..bytes].copy_from_slice(array.bytes());
        }
        Ok(batch)
    }

    /// Returns the array as Python sees it: one of numpy if numpy is installed, otherwise a DLPack exporter. Both use this
    /// memory.
    pub(crate) fn into_object(mut self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        static FROM_DLPACK: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
        let address = match &mut self.elements {
            Elements::Words(words) => words.as_mut_ptr().expose_provenance(),
            Elements::Bytes(bytes) => bytes.as_mut_ptr().expose_provenance(),
        };
        let view = TensorView::dense(self.dtype, self.shape.clone(), address);
        let exporter = NativeArray { owner: Arc::new(self), view }.into_pyobject(py)?.into_any();
        let find = || py.import("numpy").and_then(|numpy| numpy.getattr("from_dlpack")).ok().map(Bound::unbind);
        match FROM_DLPACK.get_or_init(py, find) {
            Some(from_dlpack) => from_dlpack.bind(py).call1((exporter,)),
            None => Ok(exporter),
        }
    }
}

/// An array as a DLPack exporter.
#[pyclass(frozen, module = "spdl_cluster._native")]
pub(crate) struct NativeArray {
    /// Keeps the elements alive, which only consumers touch.
    owner: Arc<OwnedArray>,
    view: TensorView,
}

#[pymethods]
impl NativeArray {
    /// Returns a DLPack capsule: a versioned one if `max_version` is 1.0 or later.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        if stream.is_some() || copy == Some(true) || dl_device.is_some_and(|device| device != self.__dlpack_device__())
        {
            return Err(PyBufferError::new_err("the array is on the host, has no stream and is shared, never copied"));
        }
        let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
        dlpack::export(py, self.owner.clone(), BatchPlacement::Host, &self.view, is_versioned)
    }

    /// Returns DLPack's type and number of the host.
    fn __dlpack_device__(&self) -> (i32, i32) {
        BatchPlacement::Host.dlpack_device()
    }
}
