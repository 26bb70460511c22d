//! A batch that was checked, for reading.

use super::{ALIGN, Entry, Header, Layout, LayoutError, Place, Span};

/// A checked batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchView<'a> {
    layout: &'a Layout,
    bytes: &'a [u8],
    header: Header,
}

impl<'a> BatchView<'a> {
    /// Creates the view of a batch for which [`Layout::read`] returned `header`, without checking the batch again. If
    /// the region is shared with a peer that breaks the protocol and writes to it, samples are wrong or empty, and
    /// nothing worse happens.
    #[must_use]
    pub const fn of_checked(layout: &'a Layout, bytes: &'a [u8], header: Header) -> Self {
        Self { layout, bytes, header }
    }

    /// Returns the header.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the layout that it was read with.
    #[must_use]
    pub const fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// Returns the number of samples.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.header.entries as usize
    }

    /// Whether it holds no sample.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.header.entries == 0
    }

    /// Returns the entries: one for each sample.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry> + use<'a> {
        let start = size_of::<Header>();
        let bytes = &self.bytes[start..start + self.len() * size_of::<Entry>()];
        bytes.chunks_exact(size_of::<Entry>()).map(bytemuck::pod_read_unaligned)
    }

    /// Returns the index of the column of that name.
    #[must_use]
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.layout.columns.iter().position(|column| column.name == name)
    }

    /// Returns all bytes of column `index`: the samples of a fixed column, the values of a ragged one.
    ///
    /// # Panics
    /// When there is no such column.
    #[must_use]
    pub fn column_bytes(&self, index: usize) -> &'a [u8] {
        match self.layout.columns[index].place {
            Place::Fixed { offset, sample_bytes, .. } => &self.bytes[offset..offset + self.len() * sample_bytes],
            // The span was checked but is read again: a peer may have changed it.
            Place::Ragged { row_bytes, .. } => {
                let span = self.span(index);
                let end = if holds_rows(&span, row_bytes) { span.offset.saturating_add(span.bytes) } else { 0 };
                slice(self.bytes, span.offset, end)
            }
        }
    }

    /// Returns the bytes of sample `entry` in column `index`.
    ///
    /// # Panics
    /// When there is no such column or sample.
    #[must_use]
    pub fn sample_bytes(&self, index: usize, entry: usize) -> &'a [u8] {
        assert!(entry < self.len(), "sample {entry} of a batch of {}", self.len());
        let bytes = self.column_bytes(index);
        match self.layout.columns[index].place {
            Place::Fixed { sample_bytes, .. } => &bytes[entry * sample_bytes..(entry + 1) * sample_bytes],
            Place::Ragged { offsets, row_bytes, .. } => {
                let at = offsets + entry * 8;
                let place = |at| read_u64(self.bytes, at).saturating_mul(row_bytes as u64);
                slice(bytes, place(at), place(at + 8))
            }
        }
    }

    /// Returns the `len() + 1` offsets of ragged column `index`, in rows, as little-endian `u64` bytes; `None` if it is fixed.
    #[must_use]
    pub fn ragged_offset_bytes(&self, index: usize) -> Option<&'a [u8]> {
        match self.layout.columns[index].place {
            Place::Fixed { .. } => None,
            Place::Ragged { offsets, .. } => Some(&self.bytes[offsets..offsets + (self.len() + 1) * 8]),
        }
    }

    /// Returns the shape of all values of column `index`: `[n, ...shape of a sample]`, or `[rows, ...shape of a row]`
    /// for a ragged column.
    ///
    /// # Panics
    /// When there is no such column.
    #[must_use]
    pub fn values_shape(&self, index: usize) -> Vec<usize> {
        let (first, rest) = match &self.layout.columns[index].place {
            Place::Fixed { shape, .. } => (self.len(), shape),
            Place::Ragged { row, row_bytes, .. } => (self.column_bytes(index).len() / row_bytes, row),
        };
        std::iter::once(first).chain(rest.iter().map(|side| *side as usize)).collect()
    }

    fn span(&self, index: usize) -> Span {
        let at = self.layout.spans + index * size_of::<Span>();
        bytemuck::pod_read_unaligned(&self.bytes[at..at + size_of::<Span>()])
    }

    /// Checks where the values of column `index` lie.
    pub(super) fn check_column(&self, index: usize) -> Result<(), LayoutError> {
        let column = &self.layout.columns[index];
        let error = || LayoutError::Span { column: column.name.clone() };
        let span = self.span(index);
        let end = span.offset.checked_add(span.bytes).ok_or_else(error)?;
        let entries = self.len();
        let right = match column.place {
            Place::Fixed { offset, sample_bytes, .. } => {
                span.offset == offset as u64 && span.bytes == (entries * sample_bytes) as u64
            }
            Place::Ragged { offsets, row_bytes, max_bytes, .. } => {
                let places = (0..=entries).map(|entry| read_u64(self.bytes, offsets + entry * 8));
                let steps = places.clone().zip(places.clone().skip(1));
                let (rows, max_rows) = (span.bytes / row_bytes as u64, (max_bytes / row_bytes) as u64);
                span.offset >= self.layout.values as u64
                    && holds_rows(&span, row_bytes)
                    && places.clone().next() == Some(0)
                    && places.clone().next_back() == Some(rows)
                    && steps.into_iter().all(|(from, to)| from <= to && to - from <= max_rows)
            }
        };
        if right && end <= self.header.used_bytes { Ok(()) } else { Err(error()) }
    }
}

pub(super) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Whether a span is aligned and holds whole rows, so that its bytes can be read as elements.
const fn holds_rows(span: &Span, row_bytes: usize) -> bool {
    span.offset.is_multiple_of(ALIGN as u64) && span.bytes.is_multiple_of(row_bytes as u64)
}

/// Returns the bytes from `from` to `to`, or an empty slice if they are out of range. The empty slice is aligned as
/// `bytes` are, too, because slices are read as elements.
fn slice(bytes: &[u8], from: u64, to: u64) -> &[u8] {
    let place = |at| usize::try_from(at).unwrap_or(usize::MAX);
    bytes.get(place(from)..place(to)).unwrap_or(&bytes[..0])
}
