//! A batch as a loader returned it: in its slot, or on a device.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use spdl_client::ContentDigest;
use spdl_gpu::{BatchPlacement, DeviceBatch, DeviceError, StreamHandle};
use spdl_order::Receipt;
use spdl_types::{DType, Position};
use spdl_wire::slab::Slab;

use crate::tensor_view::TensorView;

/// The memory that a batch lies in.
pub(crate) enum BatchMemory {
    Slot(spdl_client::Batch),
    Device(DeviceBatch),
}

impl From<spdl_client::Batch> for BatchMemory {
    fn from(batch: spdl_client::Batch) -> Self {
        Self::Slot(batch)
    }
}

impl From<DeviceBatch> for BatchMemory {
    fn from(batch: DeviceBatch) -> Self {
        Self::Device(batch)
    }
}

/// The arrays of a column: its name, its values, and for a ragged column the offset where each sample begins.
pub(crate) struct Arrays<'a> {
    pub(crate) name: &'a str,
    pub(crate) values: TensorView,
    pub(crate) offsets: Option<Offsets>,
}

/// The offsets of a ragged column.
pub(crate) struct Offsets {
    /// Where they lie in the batch, which may be on a device.
    pub(crate) view: TensorView,
    /// Each of them as the bytes of an i64, in the order of this machine.
    pub(crate) on_host: Vec<[u8; 8]>,
}

impl BatchMemory {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Slot(batch) => batch.len(),
            Self::Device(batch) => batch.len(),
        }
    }

    pub(crate) fn from(&self) -> Position {
        match self {
            Self::Slot(batch) => batch.from(),
            Self::Device(batch) => batch.from(),
        }
    }

    pub(crate) fn next(&self) -> Position {
        match self {
            Self::Slot(batch) => batch.next(),
            Self::Device(batch) => batch.next(),
        }
    }

    pub(crate) fn global_loss_tokens(&self) -> Option<u64> {
        match self {
            Self::Slot(batch) => batch.global_loss_tokens(),
            Self::Device(batch) => batch.header().global_loss_tokens(),
        }
    }

    pub(crate) fn receipt(&self) -> Receipt {
        match self {
            Self::Slot(batch) => batch.receipt(),
            Self::Device(batch) => batch.receipt(),
        }
    }

    pub(crate) fn content_digest(&self) -> Result<ContentDigest, DeviceError> {
        match self {
            Self::Slot(batch) => Ok(batch.content_digest()),
            Self::Device(batch) => batch.content_digest(),
        }
    }

    pub(crate) fn placement(&self) -> BatchPlacement {
        match self {
            Self::Slot(_) => BatchPlacement::Host,
            Self::Device(batch) => batch.placement(),
        }
    }

    /// Returns the slab and the number of the slot; `None` for a batch that was copied to a device.
    pub(crate) fn slot(&self) -> Option<(&Slab, u32)> {
        match self {
            Self::Slot(batch) => Some((batch.slab(), batch.slot())),
            Self::Device(batch) => batch.slot(),
        }
    }

    /// Returns the address and the number of the batch's bytes, on the device that it is on.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        match self {
            Self::Slot(batch) => (batch.bytes().as_ptr().addr(), batch.bytes().len()),
            Self::Device(batch) => (batch.bytes().address(), batch.bytes().bytes()),
        }
    }

    pub(crate) fn wait_on(&self, stream: StreamHandle) -> Result<(), DeviceError> {
        match self {
            Self::Slot(_) => Ok(()),
            Self::Device(batch) => batch.wait_on(stream),
        }
    }

    /// Returns the columns in the job's order.
    pub(crate) fn columns(&self) -> Vec<Arrays<'_>> {
        match self {
            Self::Slot(batch) => batch.columns().map(|column| in_slot(&column)).collect(),
            Self::Device(batch) => {
                let columns = batch.columns().iter();
                let arrays = columns.map(|column| Arrays {
                    name: column.name(),
                    values: TensorView::of(column.values()),
                    offsets: column.offsets().zip(column.host_offsets()).map(|(offsets, on_host)| Offsets {
                        view: TensorView::of(offsets),
                        on_host: on_host.iter().map(|offset| offset.to_ne_bytes()).collect(),
                    }),
                });
                arrays.collect()
            }
        }
    }
}

fn in_slot<'a>(column: &spdl_client::BatchColumn<'a>) -> Arrays<'a> {
    let (dtype, address) = (column.dtype(), column.bytes().as_ptr().addr());
    let shape = column.values_shape().into_iter().map(|side| side as i64).collect();
    let offsets = column.offsets().map(|offsets| Offsets {
        view: TensorView::dense(DType::I64, vec![offsets.len() as i64], offsets.as_ptr().addr()),
        on_host: offsets.iter().map(|offset| offset.to_ne_bytes()).collect(),
    });
    Arrays { name: column.name(), values: TensorView::dense(dtype, shape, address), offsets }
}

/// A batch that Python objects and tensors share. Its memory is released with the last of them.
pub(crate) struct SharedBatch {
    /// `None` only while dropping.
    batch_memory: Option<BatchMemory>,
    held: Arc<AtomicU32>,
    process: u32,
}

impl SharedBatch {
    /// Shares a batch. `held` counts the live batches among those that can exist at once.
    pub(crate) fn new(batch_memory: BatchMemory, held: Arc<AtomicU32>) -> Self {
        held.fetch_add(1, Ordering::Relaxed);
        Self { batch_memory: Some(batch_memory), held, process: std::process::id() }
    }

    /// Whether this process received the batch, and is no fork of the process that did.
    pub(crate) fn is_owner_process(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Deref for SharedBatch {
    type Target = BatchMemory;

    fn deref(&self) -> &BatchMemory {
        self.batch_memory.as_ref().expect("there until dropped")
    }
}

impl Drop for SharedBatch {
    fn drop(&mut self) {
        let batch_memory = self.batch_memory.take();
        if self.is_owner_process() {
            drop(batch_memory);
            self.held.fetch_sub(1, Ordering::Relaxed);
        } else {
            // In a forked child the memory is the parent's, and no thread exists that could release it.
            std::mem::forget(batch_memory);
        }
    }
}
