//! A batch on a device: its arrays there, and what its samples are.

use std::{fmt, sync::Arc};

use spdl_shard::{Position, Receipt, job::DType};
use spdl_wire::{
    layout::{BatchView, Entry, Header, Layout},
    slab::Slab,
};

use super::{DeviceError, Placement, StreamHandle, Tensor, tensor::Keeper};
use crate::{Batch, ColumnError, ContentDigest, Delivery};

/// A batch whose columns lie on a device. Its memory goes back when it and all [tensors](Tensor) of it are dropped and
/// what the trainer had begun with them is done.
///
/// On a CUDA device the copy may still be under way when the batch is handed over: [`DeviceBatch::wait_on`] makes
/// the trainer's stream wait for it, and no thread.
pub struct DeviceBatch {
    header: Header,
    entries: Box<[Entry]>,
    columns: Vec<DeviceColumn>,
    bytes: Tensor,
    layout: Arc<Layout>,
    keeper: Keeper,
}

/// A column of a [`DeviceBatch`].
#[derive(Clone, Debug)]
pub struct DeviceColumn {
    pub(crate) name: String,
    pub(crate) values: Tensor,
    pub(crate) offsets: Option<Tensor>,
}

impl DeviceColumn {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The values: `[n, ...shape of a sample]`; of a ragged column, the values of all samples end to end.
    #[must_use]
    pub const fn values(&self) -> &Tensor {
        &self.values
    }

    /// Where each sample of a ragged column begins among its values: `n + 1` offsets in bytes, as i64. `None` for a
    /// column whose samples have one shape.
    #[must_use]
    pub const fn offsets(&self) -> Option<&Tensor> {
        self.offsets.as_ref()
    }
}

impl DeviceBatch {
    /// A batch whose bytes lie at `start`, as they lay in its slot.
    pub(crate) fn new(batch: &Batch, start: usize, columns: Vec<DeviceColumn>, keeper: Keeper) -> Self {
        let length = i64::try_from(batch.bytes().len()).expect("a batch is smaller than 2^40 bytes");
        Self {
            header: *batch.header(),
            entries: batch.entries().collect(),
            columns,
            bytes: Tensor::dense(start, DType::U8, vec![length], keeper.clone()),
            layout: batch.layout().clone(),
            keeper,
        }
    }

    pub(crate) const fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// Where it lies.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.keeper.placement()
    }

    /// The header.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Samples in it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.header.entries as usize
    }

    /// Whether it has no sample: a rank of a world larger than the batch.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.header.entries == 0
    }

    /// Position of the global batch's first sample.
    #[must_use]
    pub const fn from(&self) -> Position {
        self.header.from()
    }

    /// Position after the global batch: where to go on once this batch is used.
    #[must_use]
    pub const fn next(&self) -> Position {
        self.header.next()
    }

    /// What each sample is: its id, its place in the stream, its flags.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Receipt of this batch alone.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        let mut receipt = Receipt::default();
        for entry in self.entries.iter().filter(|entry| entry.is_delivery()) {
            receipt.add_sample(entry.position(), entry.sample());
        }
        receipt
    }

    /// The columns, in the job's order.
    #[must_use]
    pub fn columns(&self) -> &[DeviceColumn] {
        &self.columns
    }

    /// The column of that name.
    ///
    /// # Errors
    /// [`ColumnError::Missing`], which lists the columns that there are.
    pub fn column(&self, name: &str) -> Result<&DeviceColumn, ColumnError> {
        self.columns.iter().find(|column| column.name == name).ok_or_else(|| {
            let known: Vec<_> = self.columns.iter().map(|column| format!("`{}`", column.name)).collect();
            ColumnError::Missing { column: name.to_owned(), known: known.join(", ") }
        })
    }

    /// All bytes of the batch as they lay in its slot: header, entries and columns. Columns that were made of others lie
    /// elsewhere.
    #[must_use]
    pub const fn bytes(&self) -> &Tensor {
        &self.bytes
    }

    /// The slab that it lies in, and its slot there; `None` for a batch that was copied to a device.
    #[must_use]
    pub fn slot(&self) -> Option<(&Slab, u32)> {
        match &self.keeper {
            Keeper::Host(batch) => Some(batch.slot()),
            Keeper::Cuda(_) => None,
        }
    }

    /// Digest of the contents as they were delivered, without what was made of them. Fetches every byte, and waits for that.
    ///
    /// # Errors
    /// [`DeviceError`] from the driver; never on the host.
    pub fn content_digest(&self) -> Result<ContentDigest, DeviceError> {
        let bytes = self.bytes.to_host()?;
        // The trainer may have written over the header, too.
        Ok(ContentDigest::of(&BatchView::of_checked(&self.layout, &bytes, self.header)))
    }

    /// Makes what is put on `stream` from now on wait until the batch is there. It blocks no thread. The batch's memory is
    /// not used again before all that was put on the stream until the batch is dropped has run. Nothing to do on the host.
    ///
    /// # Errors
    /// [`DeviceError`] from the driver.
    pub fn wait_on(&self, stream: StreamHandle) -> Result<(), DeviceError> {
        self.keeper.wait_on(stream)
    }

    /// Waits, with this thread, until the batch is there. Nothing to do on the host.
    ///
    /// # Errors
    /// [`DeviceError`] from the driver.
    pub fn synchronise(&self) -> Result<(), DeviceError> {
        self.keeper.synchronise()
    }
}

impl Delivery for DeviceBatch {
    fn header(&self) -> &Header {
        &self.header
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.entries.iter().copied()
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
