//! A batch: a published slot, what is in it, and the way back to whoever fills it.

use std::{fmt, sync::Arc};

use spdl_shard::{Position, Receipt};
use spdl_wire::{
    layout::{BatchView, Entry, Header, Layout, LayoutError},
    slab::{Slab, SlotRef},
};

use crate::{Column, ColumnError, ContentDigest};

/// Where a slot goes when its batch is dropped.
pub trait FreeSlot: Send + Sync + 'static {
    /// The slot is read no more. Called from whichever thread drops the batch, so it must not block.
    fn free(&self, slot: u32);
}

/// A batch of samples, read in place: its columns borrow the slot, which goes back when the batch is dropped.
/// Holding many batches holds up the loader: it has as many slots as were asked for, and no more.
pub struct Batch {
    /// `None` only while dropping.
    slot: Option<SlotRef>,
    layout: Arc<Layout>,
    header: Header,
    free: Arc<dyn FreeSlot>,
}

impl Batch {
    /// The batch in a published slot. `free` gets the slot's number back, also when this fails.
    ///
    /// # Errors
    /// [`LayoutError`] when the slot does not hold a batch of `layout` in its first `used_bytes`.
    pub fn new(
        slot: SlotRef,
        used_bytes: u64,
        layout: Arc<Layout>,
        free: Arc<dyn FreeSlot>,
    ) -> Result<Self, LayoutError> {
        let mut batch = Self { header: bytemuck::Zeroable::zeroed(), slot: Some(slot), layout, free };
        let stride = batch.slot_bytes().len() as u64;
        let field = |actual, allowed| LayoutError::Field { field: "used_bytes", actual, allowed };
        if used_bytes > stride {
            return Err(field(used_bytes, stride));
        }
        let header = *batch.layout.read(&batch.slot_bytes()[..used_bytes as usize])?.header();
        if header.used_bytes != used_bytes {
            return Err(field(header.used_bytes, used_bytes));
        }
        batch.header = header;
        Ok(batch)
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
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry> + '_ {
        self.view().entries()
    }

    /// The columns, in the job's order.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = Column<'_>> {
        let view = self.view();
        (0..self.layout.columns().len()).map(move |index| Column::new(view, index))
    }

    /// The column of that name.
    ///
    /// # Errors
    /// [`ColumnError::Missing`], which lists the columns that there are.
    pub fn column(&self, name: &str) -> Result<Column<'_>, ColumnError> {
        let view = self.view();
        match view.column_index(name) {
            Some(index) => Ok(Column::new(view, index)),
            None => {
                let known: Vec<_> = self.layout.columns().iter().map(|c| format!("`{}`", c.name)).collect();
                Err(ColumnError::Missing { column: name.to_owned(), known: known.join(", ") })
            }
        }
    }

    /// All bytes of the batch, header included. They lie in one slot of a slab.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.slot_bytes()[..self.header.used_bytes as usize]
    }

    /// The slab that the batch lies in: the memory to page-lock.
    #[must_use]
    pub fn slab(&self) -> &Slab {
        self.read_slot().slab()
    }

    /// Number of its slot in the slab.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.read_slot().slot()
    }

    /// Where everything lies.
    #[must_use]
    pub const fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The batch as its layout sees it.
    #[must_use]
    pub fn view(&self) -> BatchView<'_> {
        BatchView::of_checked(&self.layout, self.bytes(), self.header)
    }

    /// Receipt of this batch alone.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        let mut receipt = Receipt::default();
        for entry in self.entries().filter(Entry::is_delivery) {
            receipt.add_sample(entry.position(), entry.sample());
        }
        receipt
    }

    /// Digest of the contents of this batch alone; reads every byte.
    #[must_use]
    pub fn content_digest(&self) -> ContentDigest {
        ContentDigest::of(&self.view())
    }

    fn slot_bytes(&self) -> &[u8] {
        self.read_slot()
    }

    fn read_slot(&self) -> &SlotRef {
        self.slot.as_ref().expect("a batch has its slot until it is dropped")
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            let number = slot.slot();
            drop(slot);
            self.free.free(number);
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("from", &self.from())
            .field("next", &self.next())
            .field("entries", &self.len())
            .field("bytes", &self.header.used_bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
