//! The layout of a batch in memory and on the wire.
//!
//! ```text
//! 0            Header (128 bytes)
//! 128          [Entry; capacity], 32 bytes each
//! ..           [Span; columns]: where each column's values lie
//! 64-aligned   fixed columns, in the job's order: capacity * bytes per sample
//! 64-aligned   ragged columns: [u64; capacity + 1] offsets into the values, in rows
//! 64-aligned   values of the ragged columns, end to end, each 64-aligned; as long as this batch needs
//! ```
//!
//! The job and the capacity fix the offset of everything except the ragged values, so samples can be decoded into their
//! places in any order. All numbers are little-endian. Readers check every offset before use.
//!
//! The samples of a ragged column are arrays with different numbers of rows. All rows have one shape. In a column of
//! bytes, a row is one byte.

mod view;

use bytemuck::{Pod, Zeroable};

pub use view::BatchView;

use crate::Column;
use spdl_types::{DType, Position, SampleId, SampleShape};

/// Alignment of every column, in bytes: a cache line.
pub const ALIGN: usize = 64;
/// The first bytes of every batch.
pub const MAGIC: [u8; 4] = *b"SPDB";
/// The version of this layout.
pub const VERSION: u16 = 1;

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 4],
    /// [`VERSION`].
    pub version: u16,
    /// Number of columns.
    pub columns: u16,
    /// The number of samples in this batch.
    pub entries: u32,
    /// The number of samples that the slot has room for.
    pub capacity: u32,
    /// Epoch of the global batch's first sample.
    pub epoch: u64,
    /// Offset of the global batch's first sample.
    pub offset: u64,
    /// Epoch of the position after the global batch: where a state saved after it resumes.
    pub next_epoch: u64,
    /// Offset of the position after the global batch.
    pub next_offset: u64,
    /// The rank that the batch is for.
    pub rank: u32,
    /// The number of ranks that the global batch is divided among.
    pub world: u32,
    /// Bytes from the start of the header to the end of the last value: what a stream has to carry.
    pub used_bytes: u64,
    /// One more than the labels of the global batch that are learned, as the plan has them; 0 if that is not known.
    pub learned: u64,
    /// Zero.
    pub reserved: [u64; 7],
}

/// The description of one sample of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Entry {
    /// The sample's id: after a substitution, the id of the sample that replaced it.
    pub id: u64,
    /// The sample's offset in its epoch's stream.
    pub offset: u64,
    /// The sample's epoch.
    pub epoch: u64,
    /// [`entry_flags`].
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

/// Bits of [`Entry::flags`].
pub mod entry_flags {
    /// The entry holds no sample (at the end of an `exact` epoch): its bytes are zero and it is not in the receipt.
    pub const INVALID: u32 = 1;
    /// The entry repeats a sample to fill the last batch of a `pad` epoch; not in the receipt.
    pub const PADDING: u32 = 2;
    /// The planned sample was bad; another one replaces it.
    pub const SUBSTITUTED: u32 = 4;
    /// The planned sample was bad; its bytes are zero.
    pub const MASKED: u32 = 8;
    /// The planned sample is redacted; another one replaces it.
    pub const REDACTED: u32 = 16;
}

impl Header {
    /// Position of the global batch's first sample.
    #[must_use]
    pub const fn from(&self) -> Position {
        Position::new(self.epoch, self.offset)
    }

    /// Position after the global batch.
    #[must_use]
    pub const fn next(&self) -> Position {
        Position::new(self.next_epoch, self.next_offset)
    }

    /// The labels that are learned in the global batch, on all ranks, as the plan has them; `None` if it does not know.
    #[must_use]
    pub const fn global_loss_tokens(&self) -> Option<u64> {
        self.learned.checked_sub(1)
    }

    /// What [`learned`](Self::learned) has for so many labels.
    #[must_use]
    pub const fn learned_of(loss_tokens: Option<u64>) -> u64 {
        match loss_tokens {
            Some(loss_tokens) => loss_tokens.saturating_add(1),
            None => 0,
        }
    }
}

impl Entry {
    /// Returns the sample's position in the stream.
    #[must_use]
    pub const fn position(&self) -> Position {
        Position::new(self.epoch, self.offset)
    }

    /// Returns the id of the sample.
    #[must_use]
    pub const fn sample(&self) -> SampleId {
        SampleId(self.id)
    }

    /// Whether the entry counts as a delivery: neither invalid nor padding.
    #[must_use]
    pub const fn is_delivery(&self) -> bool {
        self.flags & (entry_flags::INVALID | entry_flags::PADDING) == 0
    }

    /// Whether the entry is a sample to learn from or to count: a delivery that is not masked.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.is_delivery() && self.flags & entry_flags::MASKED == 0
    }
}

/// The place of a column's values, in bytes from the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// One column's place in the layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnLayout {
    /// The column's name.
    pub name: String,
    /// The type of the elements.
    pub dtype: DType,
    /// Where its bytes are: fixed or ragged.
    pub place: Place,
}

/// The place of a column's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Sample `i` lies at `offset + i * sample_bytes`.
    Fixed {
        /// First byte of the column.
        offset: usize,
        /// Bytes of one sample.
        sample_bytes: usize,
        /// Shape of one sample; empty for a scalar.
        shape: Vec<u32>,
    },
    /// The rows of sample `i` are `offsets[i]..offsets[i + 1]` of the values' rows.
    Ragged {
        /// First byte of the `u64` offsets.
        offsets: usize,
        /// Shape of one row; empty for a scalar.
        row: Vec<u32>,
        /// Bytes of one row.
        row_bytes: usize,
        /// The most bytes of one sample.
        max_bytes: usize,
    },
}

/// The layout of a job's batches, for a given capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    capacity: u32,
    columns: Vec<ColumnLayout>,
    spans: usize,
    values: usize,
    slot_bytes: usize,
}

/// A region that does not hold a batch of this layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum LayoutError {
    #[error("batch is {actual} bytes, shorter than the {needed} it must have")]
    Short { needed: usize, actual: usize },
    #[error("batch starts with {actual:02x?}, not with \"SPDB\"")]
    Magic { actual: [u8; 4] },
    #[error("batch has layout version {actual}; this program reads version {VERSION}")]
    Version { actual: u16 },
    #[error("batch field `{field}` is {actual}; the job's layout allows {allowed}")]
    Field { field: &'static str, actual: u64, allowed: u64 },
    #[error("column `{column}` of the batch points outside of it")]
    Span { column: String },
}

const fn align(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGN)
}

impl Layout {
    /// Computes the layout of batches of up to `capacity` samples of these columns.
    #[must_use]
    pub fn new(columns: &[Column], capacity: u32) -> Self {
        let n = capacity as usize;
        let spans = size_of::<Header>() + n * size_of::<Entry>();
        let mut end = align(spans + columns.len() * size_of::<Span>());
        let mut places = Vec::with_capacity(columns.len());
        let bytes_of = |shape: &[u32], dtype: DType| {
            let elements: usize = shape.iter().map(|side| *side as usize).product();
            elements * dtype.bytes()
        };
        for column in columns {
            places.push(column.sample_shape().map(|shape| {
                let sample_bytes = bytes_of(&shape, column.dtype);
                let offset = end;
                end = align(end + n * sample_bytes);
                Place::Fixed { offset, sample_bytes, shape }
            }));
        }
        for (column, place) in columns.iter().zip(&mut places) {
            let row = match column.shape() {
                SampleShape::Fixed(_) => continue,
                SampleShape::Rows { row, .. } => row,
                SampleShape::Bytes { .. } => Vec::new(),
            };
            let row_bytes = bytes_of(&row, column.dtype);
            let max_bytes = usize::try_from(column.max_bytes()).expect("a checked job has small samples");
            *place = Some(Place::Ragged { offsets: end, row, row_bytes, max_bytes });
            end = align(end + (n + 1) * size_of::<u64>());
        }
        let values = end;
        let mut laid = Vec::with_capacity(columns.len());
        for (column, place) in columns.iter().zip(places) {
            let place = place.expect("a column is fixed or ragged");
            if let Place::Ragged { max_bytes, .. } = place {
                end = align(end + n * max_bytes);
            }
            laid.push(ColumnLayout { name: column.name.clone(), dtype: column.dtype, place });
        }
        Self { capacity, columns: laid, spans, values, slot_bytes: end }
    }

    /// Returns the most samples that a batch can hold.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns the columns in the job's order.
    #[must_use]
    pub fn columns(&self) -> &[ColumnLayout] {
        &self.columns
    }

    /// Returns the bytes of a slot: the most that a batch can take. This is address space: pages that no batch touches
    /// take no memory.
    #[must_use]
    pub const fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Returns the bytes up to the ragged values: the least that a batch takes.
    #[must_use]
    pub const fn fixed_bytes(&self) -> usize {
        self.values
    }

    /// Splits a slot so that samples can be written independently of each other.
    ///
    /// # Panics
    /// If `slot` is shorter than [`Layout::slot_bytes`] or not aligned to 8 bytes, or `entries` exceeds the capacity.
    pub fn split<'a>(&self, slot: &'a mut [u8], entries: usize) -> SlotParts<'a> {
        assert!(entries <= self.capacity as usize, "{entries} entries in a slot for {}", self.capacity);
        assert!(slot.len() >= self.slot_bytes, "slot of {} bytes for {}", slot.len(), self.slot_bytes);
        let (head, rest) = slot.split_at_mut(size_of::<Header>());
        let (entry_bytes, mut rest) = rest.split_at_mut(entries * size_of::<Entry>());
        let mut at = size_of::<Header>() + entries * size_of::<Entry>();
        let mut fixed = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            if let Place::Fixed { offset, sample_bytes, .. } = column.place {
                let (_, tail) = std::mem::take(&mut rest).split_at_mut(offset - at);
                let (bytes, tail) = tail.split_at_mut(entries * sample_bytes);
                rest = tail;
                at = offset + bytes.len();
                fixed.push(Some(FixedColumn { sample_bytes, bytes }));
            } else {
                fixed.push(None);
            }
        }
        SlotParts {
            header: bytemuck::from_bytes_mut(head),
            entries: bytemuck::cast_slice_mut(entry_bytes),
            columns: fixed,
        }
    }

    /// Writes the ragged columns, the spans and the header: the last step of filling a slot. `ragged[c]` holds one
    /// slice per entry if column `c` is ragged, and is empty if it is fixed. Returns the bytes that the batch takes.
    ///
    /// # Panics
    /// If a ragged value is longer than its column allows or has no whole rows, or the counts do not match
    /// `header.entries`.
    pub fn finish<V: AsRef<[u8]>>(&self, slot: &mut [u8], mut header: Header, ragged: &[Vec<V>]) -> usize {
        assert_eq!(ragged.len(), self.columns.len(), "one list of values per column");
        let entries = header.entries as usize;
        let mut end = self.values;
        for (index, (column, values)) in self.columns.iter().zip(ragged).enumerate() {
            let span = match column.place {
                Place::Fixed { offset, sample_bytes, .. } => {
                    Span { offset: offset as u64, bytes: (entries * sample_bytes) as u64 }
                }
                Place::Ragged { offsets, row_bytes, max_bytes, .. } => {
                    assert_eq!(values.len(), entries, "values of column `{}`", column.name);
                    let start = end;
                    for (entry, value) in values.iter().enumerate() {
                        let value = value.as_ref();
                        assert!(value.len() <= max_bytes, "value of {} bytes where {max_bytes} fit", value.len());
                        assert!(
                            value.len().is_multiple_of(row_bytes),
                            "value of {} bytes, rows of {row_bytes}",
                            value.len()
                        );
                        write_u64(slot, offsets + entry * 8, ((end - start) / row_bytes) as u64);
                        slot[end..end + value.len()].copy_from_slice(value);
                        end += value.len();
                    }
                    write_u64(slot, offsets + entries * 8, ((end - start) / row_bytes) as u64);
                    let span = Span { offset: start as u64, bytes: (end - start) as u64 };
                    end = align(end);
                    span
                }
            };
            let at = self.spans + index * size_of::<Span>();
            slot[at..at + size_of::<Span>()].copy_from_slice(bytemuck::bytes_of(&span));
        }
        header.magic = MAGIC;
        header.version = VERSION;
        header.columns = u16::try_from(self.columns.len()).expect("a job has at most 64 columns");
        header.capacity = self.capacity;
        header.used_bytes = end as u64;
        header.reserved = [0; 7];
        slot[..size_of::<Header>()].copy_from_slice(bytemuck::bytes_of(&header));
        end
    }

    /// Checks that `bytes` hold a batch of this layout, every offset included.
    ///
    /// # Errors
    /// [`LayoutError`] for the first invalid value.
    pub fn read<'a>(&'a self, bytes: &'a [u8]) -> Result<BatchView<'a>, LayoutError> {
        if bytes.len() < self.values {
            return Err(LayoutError::Short { needed: self.values, actual: bytes.len() });
        }
        let header: Header = bytemuck::pod_read_unaligned(&bytes[..size_of::<Header>()]);
        if header.magic != MAGIC {
            return Err(LayoutError::Magic { actual: header.magic });
        }
        if header.version != VERSION {
            return Err(LayoutError::Version { actual: header.version });
        }
        let field = |field, actual: u64, allowed: u64| LayoutError::Field { field, actual, allowed };
        if usize::from(header.columns) != self.columns.len() {
            return Err(field("columns", header.columns.into(), self.columns.len() as u64));
        }
        if header.capacity != self.capacity {
            return Err(field("capacity", header.capacity.into(), self.capacity.into()));
        }
        if header.entries > self.capacity {
            return Err(field("entries", header.entries.into(), self.capacity.into()));
        }
        if header.used_bytes < self.values as u64 || header.used_bytes > bytes.len() as u64 {
            return Err(field("used_bytes", header.used_bytes, bytes.len() as u64));
        }
        let view = BatchView::of_checked(self, bytes, header);
        for index in 0..self.columns.len() {
            view.check_column(index)?;
        }
        Ok(view)
    }
}

fn write_u64(slot: &mut [u8], at: usize, value: u64) {
    slot[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// A slot, split for writing.
#[derive(Debug)]
pub struct SlotParts<'a> {
    /// The header. [`Layout::finish`] writes it; before that, this is the header of the previous batch.
    pub header: &'a mut Header,
    /// One entry per sample.
    pub entries: &'a mut [Entry],
    /// The fixed columns, by column index; `None` for a ragged column.
    pub columns: Vec<Option<FixedColumn<'a>>>,
}

/// The bytes of a fixed column, sample after sample.
#[derive(Debug)]
pub struct FixedColumn<'a> {
    /// Bytes of one sample.
    pub sample_bytes: usize,
    /// All samples.
    pub bytes: &'a mut [u8],
}

#[cfg(test)]
mod tests;
