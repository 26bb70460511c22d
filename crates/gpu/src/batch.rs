//! A batch on a device: its arrays there, and the description of its samples on the host.

use std::{fmt, sync::Arc};

use spdl_client::{Batch, ColumnError, ContentDigest, Delivery};
use spdl_job::layout::{BatchView, Entry, Header, Layout};
use spdl_order::Receipt;
use spdl_types::{DType, Position};
use spdl_wire::slab::Slab;

use crate::{BatchPlacement, DeviceError, SequenceColumns, Sequences, StreamHandle, Tensor, storage::Storage};

/// A batch whose columns lie on a device. Its memory is reused when the batch and all its [tensors](Tensor) are dropped
/// and the work that the trainer had started on them is done.
///
/// On a CUDA device the copy may still be running when the trainer gets the batch: [`DeviceBatch::wait_on`] makes the
/// trainer's stream wait for it, without blocking a thread.
pub struct DeviceBatch {
    header: Header,
    entries: Arc<[Entry]>,
    columns: Arc<[DeviceColumn]>,
    sequences: Option<Sequences>,
    bytes: Tensor,
    layout: Arc<Layout>,
    storage: Storage,
}

/// A column of a [`DeviceBatch`].
#[derive(Clone, Debug)]
pub struct DeviceColumn {
    pub(crate) name: String,
    pub(crate) values: Tensor,
    pub(crate) offsets: Option<RaggedOffsets>,
}

/// The offsets of a ragged column, on the device for kernels and on the host for indexing.
#[derive(Clone, Debug)]
pub(crate) struct RaggedOffsets {
    pub(crate) tensor: Tensor,
    /// A copy of the slot's offsets: to read them from the device, the host would have to wait for it.
    pub(crate) on_host: Arc<[i64]>,
}

impl DeviceColumn {
    /// Returns the column's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the values: `[n, ...shape of a sample]`, or of a ragged column the rows of all samples one after the other,
    /// `[rows, ...shape of a row]`.
    #[must_use]
    pub const fn values(&self) -> &Tensor {
        &self.values
    }

    /// Returns where each sample of a ragged column begins among the values: `n + 1` offsets in rows, as i64. Returns
    /// `None` for a column whose samples have one shape.
    #[must_use]
    pub fn offsets(&self) -> Option<&Tensor> {
        self.offsets.as_ref().map(|offsets| &offsets.tensor)
    }

    /// Returns the same offsets as [`DeviceColumn::offsets`], in this process's memory: they are known before the copy
    /// to the device, and reading them waits for nothing.
    #[must_use]
    pub fn host_offsets(&self) -> Option<&[i64]> {
        self.offsets.as_ref().map(|offsets| &*offsets.on_host)
    }
}

impl DeviceBatch {
    /// Creates a batch whose bytes lie at `start`, in the same arrangement as in its slot. `sequences` are the columns that
    /// are read on the host.
    pub(crate) fn new(
        batch: &Batch,
        start: usize,
        columns: Vec<DeviceColumn>,
        sequences: Option<SequenceColumns>,
        storage: Storage,
    ) -> Self {
        let length = i64::try_from(batch.bytes().len()).expect("a batch is smaller than 2^40 bytes");
        Self {
            header: *batch.header(),
            entries: batch.entries().collect(),
            columns: columns.into(),
            sequences: sequences.map(|sequences| sequences.read(batch)),
            bytes: Tensor::dense(start, DType::U8, vec![length], storage.clone()),
            layout: batch.layout().clone(),
            storage,
        }
    }

    /// Returns where the batch lies.
    #[must_use]
    pub fn placement(&self) -> BatchPlacement {
        self.storage.placement()
    }

    /// Returns the batch's header.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the number of samples.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.header.entries as usize
    }

    /// Returns whether the batch has no samples, as for a rank of a world larger than the global batch.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.header.entries == 0
    }

    /// Returns the position of the global batch's first sample.
    #[must_use]
    pub const fn from(&self) -> Position {
        self.header.from()
    }

    /// Returns the position after the global batch, from which to resume once this batch is used.
    #[must_use]
    pub const fn next(&self) -> Position {
        self.header.next()
    }

    /// Returns the id, the position and the flags of each sample.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the receipt of this batch alone.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        let mut receipt = Receipt::default();
        for entry in self.entries.iter().filter(|entry| entry.is_delivery()) {
            receipt.add_sample(entry.position(), entry.sample());
        }
        receipt
    }

    /// Returns the columns, in the job's order.
    #[must_use]
    pub fn columns(&self) -> &[DeviceColumn] {
        &self.columns
    }

    /// Returns the column named `name`.
    ///
    /// # Errors
    /// Returns [`ColumnError::Missing`], which lists the columns of the batch.
    pub fn column(&self, name: &str) -> Result<&DeviceColumn, ColumnError> {
        self.columns.iter().find(|column| column.name == name).ok_or_else(|| {
            let known: Vec<_> = self.columns.iter().map(|column| format!("`{}`", column.name)).collect();
            ColumnError::Missing { column: name.to_owned(), known: known.join(", ") }
        })
    }

    /// Returns the lengths of documents and the number of labels that count, as they were when the batch came: reading
    /// them waits for nothing. `None` if the job has no [`SequenceColumns`].
    #[must_use]
    pub const fn sequences(&self) -> Option<&Sequences> {
        self.sequences.as_ref()
    }

    /// Returns all bytes of the batch as they were in its slot: header, entries and columns. Columns that were computed
    /// on the device lie elsewhere.
    #[must_use]
    pub const fn bytes(&self) -> &Tensor {
        &self.bytes
    }

    /// Returns the slab and the slot that hold the batch, or `None` when it was copied to a device.
    #[must_use]
    pub fn slot(&self) -> Option<(&Slab, u32)> {
        self.storage.slot()
    }

    /// Returns the digest of the contents as delivered, without the columns computed from them. Copies every byte to
    /// the host and waits for that.
    ///
    /// # Errors
    /// Returns [`DeviceError`] when the driver fails; never on the host.
    pub fn content_digest(&self) -> Result<ContentDigest, DeviceError> {
        let bytes = self.bytes.to_host()?;
        // The trainer may have overwritten the header, too: use the host's copy.
        Ok(ContentDigest::of(&BatchView::of_checked(&self.layout, &bytes, self.header)))
    }

    /// Makes later work on `stream` wait until the batch is on the device, without blocking a thread. The batch's
    /// memory is reused only after all work that was queued on the stream before the batch was dropped. Does nothing on
    /// the host. [`StreamHandle::PER_THREAD`] is another stream on each thread: call this on each thread that uses the
    /// batch.
    ///
    /// # Errors
    /// Returns [`DeviceError::ForeignStream`] for a stream of another device or context, [`DeviceError::Capturing`] for
    /// a stream that captures a CUDA graph, and other variants when the driver fails.
    pub fn wait_on(&self, stream: StreamHandle) -> Result<(), DeviceError> {
        self.storage.wait_on(stream)
    }

    /// Blocks this thread until the batch is on the device. Does nothing on the host.
    ///
    /// # Errors
    /// Returns [`DeviceError`] when the driver fails.
    pub fn synchronise(&self) -> Result<(), DeviceError> {
        self.storage.synchronise()
    }
}

impl Delivery for DeviceBatch {
    fn header(&self) -> &Header {
        &self.header
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.entries.iter().copied()
    }

    fn share(&self) -> Self {
        Self {
            header: self.header,
            entries: self.entries.clone(),
            columns: self.columns.clone(),
            sequences: self.sequences.clone(),
            bytes: self.bytes.clone(),
            layout: self.layout.clone(),
            storage: self.storage.clone(),
        }
    }
}

impl fmt::Debug for DeviceBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBatch")
            .field("from", &self.from())
            .field("next", &self.next())
            .field("entries", &self.len())
            .field("placement", &self.placement())
            .finish_non_exhaustive()
    }
}
