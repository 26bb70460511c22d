//! A batch of samples in a slot of a slab, which is freed when the batch is dropped.

use std::{fmt, sync::Arc};

use spdl_job::layout::{BatchView, Entry, Header, Layout, LayoutError};
use spdl_order::Receipt;
use spdl_types::Position;
use spdl_wire::slab::{Slab, SlotRef};

use crate::{BatchColumn, ColumnError, ContentDigest};

/// Takes a slot back when its batch is dropped.
pub trait FreeSlot: Send + Sync + 'static {
    /// Gives the slot back to the process that fills it. The thread that drops the batch calls this, so it must not
    /// block.
    fn free(&self, slot: u32);
}

/// A batch of samples that is read in place: its columns borrow the slot, and dropping the batch frees the slot. The
/// loader has a fixed number of slots ([`Settings::slots`](crate::Settings::slots)); while the trainer holds them all,
/// no batch arrives.
pub struct Batch {
    slot: Arc<HeldSlot>,
    layout: Arc<Layout>,
    header: Header,
}

/// A slot that is freed when the batch in it is dropped, or the last of those that share it.
struct HeldSlot {
    /// `None` only while this is being dropped.
    slot: Option<SlotRef>,
    free: Arc<dyn FreeSlot>,
}

impl Batch {
    /// Reads the batch in a published slot. `free` gets the slot's number when the batch is dropped, also when this
    /// fails.
    ///
    /// # Errors
    /// Returns [`LayoutError`] when the first `used_bytes` of the slot do not hold a batch of `layout`.
    pub fn new(
        slot: SlotRef,
        used_bytes: u64,
        layout: Arc<Layout>,
        free: Arc<dyn FreeSlot>,
    ) -> Result<Self, LayoutError> {
        let slot = Arc::new(HeldSlot { slot: Some(slot), free });
        let mut batch = Self { header: bytemuck::Zeroable::zeroed(), slot, layout };
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

    /// Returns how many labels are learned in the global batch of sequences, on all ranks: what each divides its sum of losses by. Bad
    /// documents, which are found after the plan, count as if they were not. `None` if the job has no labels, or masks and the method `chunk`.
    ///
    /// The lengths of the documents of the global batch are in a column `global_lengths`, which `Sequence::documents_of_global_lengths` divides.
    #[must_use]
    pub const fn global_loss_tokens(&self) -> Option<u64> {
        self.header.global_loss_tokens()
    }

    /// Returns the id, the position and the flags of each sample.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry> + '_ {
        self.view().entries()
    }

    /// Returns the columns, in the job's order.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = BatchColumn<'_>> {
        let view = self.view();
        (0..self.layout.columns().len()).map(move |index| BatchColumn::new(view, index))
    }

    /// Returns the column named `name`.
    ///
    /// # Errors
    /// Returns [`ColumnError::Missing`], which lists the columns of the batch.
    pub fn column(&self, name: &str) -> Result<BatchColumn<'_>, ColumnError> {
        let view = self.view();
        match view.column_index(name) {
            Some(index) => Ok(BatchColumn::new(view, index)),
            None => {
                let known: Vec<_> = self.layout.columns().iter().map(|c| format!("`{}`", c.name)).collect();
                Err(ColumnError::Missing { column: name.to_owned(), known: known.join(", ") })
            }
        }
    }

    /// Returns all bytes of the batch, header included. They lie in one slot of a slab.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.slot_bytes()[..self.header.used_bytes as usize]
    }

    /// Returns the slab that holds the batch: the memory to page-lock.
    #[must_use]
    pub fn slab(&self) -> &Slab {
        self.read_slot().slab()
    }

    /// Returns the number of the batch's slot in the slab.
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.read_slot().slot()
    }

    /// Returns the layout: where each array of the batch lies.
    #[must_use]
    pub const fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Returns the batch as a view of its layout.
    #[must_use]
    pub fn view(&self) -> BatchView<'_> {
        BatchView::of_checked(&self.layout, self.bytes(), self.header)
    }

    /// Returns the receipt of this batch alone.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        let mut receipt = Receipt::default();
        for entry in self.entries().filter(Entry::is_delivery) {
            receipt.add_sample(entry.position(), entry.sample());
        }
        receipt
    }

    /// Returns the digest of this batch's contents alone. Reads every byte.
    #[must_use]
    pub fn content_digest(&self) -> ContentDigest {
        ContentDigest::of(&self.view())
    }

    /// Returns the same batch again, in the same slot, which is freed when all of them are dropped.
    pub(crate) fn share(&self) -> Self {
        Self { slot: self.slot.clone(), layout: self.layout.clone(), header: self.header }
    }

    fn slot_bytes(&self) -> &[u8] {
        self.read_slot()
    }

    fn read_slot(&self) -> &SlotRef {
        self.slot.slot.as_ref().expect("a slot is held until it is dropped")
    }
}

impl Drop for HeldSlot {
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
