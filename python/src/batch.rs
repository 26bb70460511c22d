//! A batch in Python's hands: its columns as tensors that share its slot.

use std::{
    mem::offset_of,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use pyo3::{
    prelude::*,
    types::{PyCapsule, PyDict},
};
use spdl_shard::job::DType;
use spdl_wire::layout::{Entry, Header, entry_flags};

use crate::dlpack::{self, View};

/// A batch that Python objects and tensors share. Its slot goes back with the last of them.
pub(crate) struct Shared {
    /// `None` only while dropping.
    batch: Option<spdl_client::Batch>,
    held: Arc<AtomicU32>,
    process: u32,
}

impl Shared {
    /// `held` counts the batches of its slab that are alive.
    pub(crate) fn new(batch: spdl_client::Batch, held: Arc<AtomicU32>) -> Self {
        held.fetch_add(1, Ordering::Relaxed);
        Self { batch: Some(batch), held, process: std::process::id() }
    }
}

impl Deref for Shared {
    type Target = spdl_client::Batch;

    fn deref(&self) -> &spdl_client::Batch {
        self.batch.as_ref().expect("there until dropped")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let batch = self.batch.take();
        if std::process::id() == self.process {
            drop(batch);
            self.held.fetch_sub(1, Ordering::Relaxed);
        } else {
            // In a forked child the slot is the parent's, and no thread is there to give it back.
            std::mem::forget(batch);
        }
    }
}

/// One batch as it lies in its slot.
#[pyclass(frozen, module = "spdl_cluster._native")]
pub(crate) struct Batch {
    shared: Arc<Shared>,
    /// Whether the loader's epoch ends with it.
    ends_epoch: bool,
}

impl Batch {
    pub(crate) fn new(shared: Arc<Shared>, ends_epoch: bool) -> Self {
        Self { shared, ends_epoch }
    }

    fn entry_column(&self, dtype: DType, field: usize) -> Column {
        let stride = size_of::<Entry>() / dtype.bytes();
        let view = View {
            dtype,
            shape: vec![self.shared.len() as i64],
            strides: vec![stride as i64],
            offset: size_of::<Header>() + field,
            as_bits: false,
        };
        Column { shared: self.shared.clone(), view, offsets: None }
    }
}

#[pymethods]
impl Batch {
    /// Adds `name: convert(column)` to `target` for every column, in the job's order; with `capsules`, `convert` gets the column's
    /// capsule where the column is not ragged.
    fn fill(
        &self,
        py: Python<'_>,
        target: &Bound<'_, PyDict>,
        convert: &Bound<'_, PyAny>,
        convert_ragged: &Bound<'_, PyAny>,
        capsules: bool,
    ) -> PyResult<()> {
        for column in self.shared.columns() {
            let exported = Column::new(&self.shared, &column);
            let value = if exported.offsets.is_some() {
                convert_ragged.call1((Bound::new(py, exported)?,))?
            } else if capsules {
                convert.call1((dlpack::export(py, &self.shared, &exported.view, false)?,))?
            } else {
                convert.call1((Bound::new(py, exported)?,))?
            };
            target.set_item(column.name(), value)?;
        }
        Ok(())
    }

    /// Whether the loader's epoch ends with this batch.
    #[getter]
    fn ends_epoch(&self) -> bool {
        self.ends_epoch
    }

    /// Samples in it.
    #[getter]
    fn samples(&self) -> usize {
        self.shared.len()
    }

    /// Epoch and offset of the global batch's first sample.
    #[getter]
    fn position(&self) -> (u64, u64) {
        let position = self.shared.from();
        (position.epoch, position.offset)
    }

    /// Epoch and offset after the global batch.
    #[getter]
    fn next_position(&self) -> (u64, u64) {
        let position = self.shared.next();
        (position.epoch, position.offset)
    }

    /// The sample id of each entry, i64.
    #[getter]
    fn ids(&self) -> Column {
        self.entry_column(DType::I64, offset_of!(Entry, id))
    }

    /// The epoch of each entry, i64.
    #[getter]
    fn epochs(&self) -> Column {
        self.entry_column(DType::I64, offset_of!(Entry, epoch))
    }

    /// The offset of each entry in its epoch's stream, i64.
    #[getter]
    fn offsets(&self) -> Column {
        self.entry_column(DType::I64, offset_of!(Entry, offset))
    }

    /// The flags of each entry, i32.
    #[getter]
    fn flags(&self) -> Column {
        self.entry_column(DType::I32, offset_of!(Entry, flags))
    }

    /// Bits of the flags, by name.
    #[staticmethod]
    fn flag_bits(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let bits = PyDict::new(py);
        bits.set_item("invalid", entry_flags::INVALID)?;
        bits.set_item("padding", entry_flags::PADDING)?;
        bits.set_item("substituted", entry_flags::SUBSTITUTED)?;
        bits.set_item("masked", entry_flags::MASKED)?;
        Ok(bits)
    }

    /// Address and bytes of the slab that it lies in.
    #[getter]
    fn slab(&self) -> (usize, usize) {
        let slab = self.shared.slab();
        (slab.as_ptr().addr(), slab.bytes())
    }

    /// Number of its slot in the slab.
    #[getter]
    fn slot(&self) -> u32 {
        self.shared.slot()
    }

    /// Receipt of this batch alone, 32 hexadecimal digits.
    fn receipt(&self) -> String {
        self.shared.receipt().to_string()
    }

    /// Digest of its contents, 32 hexadecimal digits; reads every byte.
    fn content_digest(&self, py: Python<'_>) -> String {
        py.detach(|| self.shared.content_digest().to_string())
    }
}

/// The name of a type, as a job file has it.
pub(crate) const fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::U8 => "u8",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::F16 => "f16",
        DType::Bf16 => "bf16",
        DType::F32 => "f32",
        DType::F64 => "f64",
    }
}

/// One column of a batch, or one field of its entries, as a DLPack tensor on the host that shares the batch's slot.
#[pyclass(frozen, module = "spdl_cluster._native")]
pub(crate) struct Column {
    shared: Arc<Shared>,
    view: View,
    /// Of a ragged column.
    offsets: Option<View>,
}

impl Column {
    fn new(shared: &Arc<Shared>, column: &spdl_client::Column<'_>) -> Self {
        let offset_of = |bytes: *const u8| bytes.addr() - shared.bytes().as_ptr().addr();
        let start = offset_of(column.bytes().as_ptr());
        let dtype = column.dtype();
        let (shape, offsets) = match (column.shape(), column.offsets()) {
            (Some(shape), _) => (shape.into_iter().map(|side| side as i64).collect(), None),
            (None, offsets) => {
                let offsets = offsets.expect("a column without a shape is ragged");
                let at = offset_of(offsets.as_ptr().cast());
                let offsets = View::dense(DType::I64, vec![offsets.len() as i64], at);
                (vec![(column.bytes().len() / dtype.bytes()) as i64], Some(offsets))
            }
        };
        Self { shared: shared.clone(), view: View::dense(dtype, shape, start), offsets }
    }
}

#[pymethods]
impl Column {
    /// Type of its elements: u8, i32, i64, f16, bf16, f32 or f64.
    #[getter]
    fn dtype(&self) -> &'static str {
        dtype_name(self.view.dtype)
    }

    /// Shape, samples first; of a ragged column, the number of all values.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, &self.view.shape)
    }

    /// Where each sample's values begin, and where the last ones end, in bytes, i64; `None` for a column that is not ragged.
    #[getter]
    fn offsets(&self) -> Option<Self> {
        let view = self.offsets.clone()?;
        Some(Self { shared: self.shared.clone(), view, offsets: None })
    }

    /// The same elements as unsigned integers of their width, for who does not know their type.
    fn bits(&self) -> Self {
        let view = View { as_bits: true, ..self.view.clone() };
        Self { shared: self.shared.clone(), view, offsets: None }
    }

    /// Address of its first element.
    fn data_ptr(&self) -> usize {
        self.shared.bytes().as_ptr().addr() + self.view.offset
    }

    /// A DLPack capsule: versioned where `max_version` is 1.0 or later.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let refuse = |problem: &str| Err(pyo3::exceptions::PyBufferError::new_err(problem.to_owned()));
        if stream.is_some() {
            return refuse("a tensor on the host has no stream");
        }
        if dl_device.is_some_and(|(kind, _)| kind != dlpack::CPU) {
            return refuse("the tensor is on the host");
        }
        if copy == Some(true) {
            return refuse("the tensor is shared, never copied; copy what is made of it");
        }
        dlpack::export(py, &self.shared, &self.view, max_version.is_some_and(|(major, _)| major >= 1))
    }

    /// The host: `(1, 0)`.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (dlpack::CPU, 0)
    }
}
