//! A batch as a Python object: its columns as tensors that share its memory.

use std::{mem::offset_of, sync::Arc};

use pyo3::{
    exceptions::{PyAttributeError, PyBufferError},
    prelude::*,
    types::{PyBytes, PyCapsule, PyDict, PyFrozenSet},
};
use spdl_gpu::{BatchPlacement, SequenceColumns, Sequences, StreamHandle};
use spdl_job::layout::{Entry, Header, entry_flags};
use spdl_types::DType;

use crate::{
    batch_memory::{BatchMemory, Offsets, SharedBatch},
    dlpack,
    errors::{self, ErrorKind},
    tensor_view::TensorView,
    values::{SlabMemory, StreamPosition},
};

/// One batch, in its slot or on a device.
#[pyclass(frozen, module = "spdl_cluster._native")]
pub(crate) struct NativeBatch {
    shared: Arc<SharedBatch>,
    /// Whether the loader's epoch ends with this batch.
    ends_epoch: bool,
    /// The columns that say how long documents are.
    sequences: Option<SequenceColumns>,
}

impl NativeBatch {
    pub(crate) fn new(shared: Arc<SharedBatch>, ends_epoch: bool, sequences: Option<SequenceColumns>) -> Self {
        Self { shared, ends_epoch, sequences }
    }

    fn entry_column(&self, dtype: DType, field: usize) -> DlpackColumn {
        let stride = size_of::<Entry>() / dtype.bytes();
        let view = TensorView {
            dtype,
            shape: vec![self.shared.len() as i64],
            strides: vec![stride as i64],
            address: self.shared.bytes().0 + size_of::<Header>() + field,
            as_bits: false,
        };
        DlpackColumn { shared: self.shared.clone(), view }
    }

    fn read_sequences(&self, py: Python<'_>) -> Option<Sequences> {
        let columns = self.sequences?;
        match &**self.shared {
            BatchMemory::Slot(batch) => Some(py.detach(|| columns.read(batch))),
            BatchMemory::Device(batch) => batch.sequences().cloned(),
        }
    }

    fn has_no_slot(&self) -> PyErr {
        PyAttributeError::new_err(format!(
            "the batch was copied to `{}`; its slot is another batch's",
            self.shared.placement()
        ))
    }
}

/// Fails in a fork of the process that opened the device: CUDA does not work there.
fn check_process(py: Python<'_>, shared: &SharedBatch) -> PyResult<()> {
    let BatchPlacement::Cuda { .. } = shared.placement() else { return Ok(()) };
    if shared.is_owner_process() {
        return Ok(());
    }
    let problem = format!("the batch is on `{}`, which a forked process cannot use", shared.placement());
    Err(ErrorKind::Forked.error(py, &problem, Some("copy what a child needs to the host before the fork")))
}

fn wait_on(py: Python<'_>, shared: &SharedBatch, stream: StreamHandle) -> PyResult<()> {
    check_process(py, shared)?;
    shared.wait_on(stream).map_err(|error| errors::of_device(py, &error, ""))
}

#[pymethods]
impl NativeBatch {
    /// Adds `name: convert(column)` to `target` for every column, in the job's order. With `capsules`, `convert` gets
    /// the column's capsule instead. For a ragged column it adds `convert_ragged(values, offsets, host_offsets)`: two
    /// columns, and the bytes of the offsets as i64. With `only`, it adds no others.
    fn fill(
        &self,
        py: Python<'_>,
        target: &Bound<'_, PyDict>,
        convert: &Bound<'_, PyAny>,
        convert_ragged: &Bound<'_, PyAny>,
        capsules: bool,
        only: Option<&Bound<'_, PyFrozenSet>>,
    ) -> PyResult<()> {
        for column in self.shared.columns() {
            if let Some(only) = only
                && !only.contains(column.name)?
            {
                continue;
            }
            let exported = |view| DlpackColumn { shared: self.shared.clone(), view };
            let value = if let Some(Offsets { view, on_host }) = column.offsets {
                let on_host = PyBytes::new(py, on_host.as_flattened());
                convert_ragged.call1((exported(column.values), exported(view), on_host))?
            } else if capsules {
                convert.call1((dlpack::export_batch(py, &self.shared, &column.values, false)?,))?
            } else {
                convert.call1((exported(column.values),))?
            };
            target.set_item(column.name, value)?;
        }
        Ok(())
    }

    /// Makes work that is enqueued on `stream` from now on wait until the batch is there. When the batch is dropped,
    /// its memory is reused only after the work that was enqueued there. No effect on the host.
    fn wait_on(&self, py: Python<'_>, stream: usize) -> PyResult<()> {
        wait_on(py, &self.shared, dlpack::stream(stream))
    }

    /// Returns for each sequence the lengths of its documents, and the number of its labels that are not -100, if there are
    /// labels. `None` if the job has no column of lengths. Of a batch on a device, it reads the host's copy.
    #[allow(clippy::type_complexity, reason = "a tuple in Python")]
    fn sequences(&self, py: Python<'_>) -> Option<(Vec<Vec<i32>>, Option<Vec<u64>>)> {
        let Sequences { document_lengths, loss_tokens, .. } = self.read_sequences(py)?;
        Some((document_lengths?, loss_tokens))
    }

    /// Returns for each sequence of the global batch the lengths of its documents. `None` if the job has no column of them, or its rows
    /// cannot hold them. Of a batch on a device, it reads the host's copy.
    fn global_lengths(&self, py: Python<'_>) -> Option<Vec<Vec<i32>>> {
        self.read_sequences(py)?.global_lengths
    }

    /// Returns how many labels of the global batch are learned, on all ranks; `None` if that is not known.
    #[getter]
    fn global_loss_tokens(&self) -> Option<u64> {
        self.shared.global_loss_tokens()
    }

    /// Whether the loader's epoch ends with this batch.
    #[getter]
    fn ends_epoch(&self) -> bool {
        self.ends_epoch
    }

    /// Returns the number of samples in the batch.
    #[getter]
    fn samples(&self) -> usize {
        self.shared.len()
    }

    /// Returns the position of the global batch's first sample.
    #[getter]
    fn position(&self) -> StreamPosition {
        self.shared.from().into()
    }

    /// Returns the position after the global batch.
    #[getter]
    fn next_position(&self) -> StreamPosition {
        self.shared.next().into()
    }

    /// Returns the sample id of each entry, i64.
    #[getter]
    fn ids(&self) -> DlpackColumn {
        self.entry_column(DType::I64, offset_of!(Entry, id))
    }

    /// Returns the epoch of each entry, i64.
    #[getter]
    fn epochs(&self) -> DlpackColumn {
        self.entry_column(DType::I64, offset_of!(Entry, epoch))
    }

    /// Returns the offset of each entry in its epoch's stream, i64.
    #[getter]
    fn offsets(&self) -> DlpackColumn {
        self.entry_column(DType::I64, offset_of!(Entry, offset))
    }

    /// Returns the flags of each entry, i32.
    #[getter]
    fn flags(&self) -> DlpackColumn {
        self.entry_column(DType::I32, offset_of!(Entry, flags))
    }

    /// Returns the bits of the flags, by name.
    #[staticmethod]
    fn flag_bits(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let bits = PyDict::new(py);
        bits.set_item("invalid", entry_flags::INVALID)?;
        bits.set_item("padding", entry_flags::PADDING)?;
        bits.set_item("substituted", entry_flags::SUBSTITUTED)?;
        bits.set_item("redacted", entry_flags::REDACTED)?;
        bits.set_item("masked", entry_flags::MASKED)?;
        Ok(bits)
    }

    /// Returns the slab that the batch lies in.
    #[getter]
    fn slab(&self) -> PyResult<SlabMemory> {
        let (slab, _) = self.shared.slot().ok_or_else(|| self.has_no_slot())?;
        Ok(SlabMemory { address: slab.as_ptr().addr(), bytes: slab.bytes() })
    }

    /// Returns the number of the batch's slot in the slab.
    #[getter]
    fn slot(&self) -> PyResult<u32> {
        self.shared.slot().map(|(_, slot)| slot).ok_or_else(|| self.has_no_slot())
    }

    /// Returns the receipt of this batch alone, 32 hexadecimal digits.
    fn receipt(&self) -> String {
        self.shared.receipt().to_string()
    }

    /// Returns the digest of the batch's contents, 32 hexadecimal digits; reads every byte.
    fn content_digest(&self, py: Python<'_>) -> PyResult<String> {
        check_process(py, &self.shared)?;
        let digest = py.detach(|| self.shared.content_digest());
        digest.map(|digest| digest.to_string()).map_err(|error| errors::of_device(py, &error, ""))
    }
}

/// One column of a batch, or one field of its entries, as a DLPack tensor that shares the batch's memory.
#[pyclass(frozen, module = "spdl_cluster._native")]
pub(crate) struct DlpackColumn {
    shared: Arc<SharedBatch>,
    view: TensorView,
}

#[pymethods]
impl DlpackColumn {
    /// Returns the type of the elements, as a job names it: u8, f32, bf16, bool ...
    #[getter]
    fn dtype(&self) -> &'static str {
        self.view.dtype.name()
    }

    /// Returns the shape, samples first; for a ragged column, the rows of all samples first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, &self.view.shape)
    }

    /// Returns the same elements as unsigned integers of their width, for consumers that do not know their type.
    fn bits(&self) -> Self {
        let view = TensorView { as_bits: true, ..self.view.clone() };
        Self { shared: self.shared.clone(), view }
    }

    /// Returns the address of the first element, on the batch's device.
    fn data_ptr(&self) -> usize {
        self.view.address
    }

    /// Returns a DLPack capsule: a versioned one if `max_version` is 1.0 or later. On a device, work that is enqueued
    /// on `stream` from now on waits until the batch is there. `stream` is DLPack's number; `None` is the default
    /// stream, and with -1 the consumer synchronises itself.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let (refuse, placement) = (|problem: String| Err(PyBufferError::new_err(problem)), self.shared.placement());
        if dl_device.is_some_and(|device| device != placement.dlpack_device()) {
            return refuse(format!("the tensor is on `{placement}`, and is not copied elsewhere"));
        }
        if copy == Some(true) {
            return refuse("the tensor is shared, never copied; copy what is derived from it".to_owned());
        }
        match (placement, stream) {
            (BatchPlacement::Host, None) => {}
            (BatchPlacement::Host, Some(_)) => return refuse("a tensor on the host has no stream".to_owned()),
            (BatchPlacement::Cuda { .. }, None) => wait_on(py, &self.shared, StreamHandle::LEGACY)?,
            (BatchPlacement::Cuda { .. }, Some(-1)) => check_process(py, &self.shared)?,
            (BatchPlacement::Cuda { .. }, Some(stream)) => match usize::try_from(stream) {
                Ok(stream @ 1..) => wait_on(py, &self.shared, dlpack::stream(stream))?,
                _ => {
                    return refuse(format!(
                        "stream {stream} is none of DLPack's; 1 is the default stream, 2 a thread's"
                    ));
                }
            },
        }
        dlpack::export_batch(py, &self.shared, &self.view, max_version.is_some_and(|(major, _)| major >= 1))
    }

    /// Returns DLPack's type and number of the device: `(1, 0)` for the host, `(2, N)` for `cuda:N`.
    fn __dlpack_device__(&self) -> (i32, i32) {
        self.shared.placement().dlpack_device()
    }
}
