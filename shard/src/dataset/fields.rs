//! The fields of a shard whose bytes pass: the checksum of each, and the content of those that are wanted.

use bytes::{Bytes, BytesMut};

use crate::index::{Field, RecordIndex, Segments};

/// A field as the shard's bytes have it.
pub(super) struct FoundField<'i> {
    /// Its record's key.
    pub(super) key: &'i str,
    /// What the index says of it.
    pub(super) field: Field<'i>,
    /// Where it is a crop-ready picture: its segments.
    pub(super) segments: Option<Segments<'i>>,
    /// CRC-32C of the bytes that came.
    pub(super) crc32c: u32,
    /// The bytes that came, where they were wanted.
    pub(super) content: Option<Bytes>,
}

/// A field that was not read to its end.
type Waiting<'i> = (&'i str, Field<'i>, Option<Segments<'i>>);

/// Cuts the fields out of a shard that comes in chunks. They lie one after the other, as the bytes come.
pub(super) struct FieldReader<'i> {
    fields: Box<dyn Iterator<Item = Waiting<'i>> + Send + 'i>,
    open: Option<Waiting<'i>>,
    offset: u64,
    crc32c: u32,
    content: BytesMut,
}

impl<'i> FieldReader<'i> {
    pub(super) fn new(index: &'i RecordIndex) -> Self {
        let mut fields = Box::new(
            index
                .records()
                .flat_map(|record| record.fields().map(move |field| (record.key, field, record.segments(field.name)))),
        );
        let open = fields.next();
        Self { fields, open, offset: 0, crc32c: 0, content: BytesMut::new() }
    }

    /// Reads the next chunk and gives the fields that end in it. Content that lies in one chunk is not copied.
    pub(super) fn read(
        &mut self,
        chunk: &Bytes,
        is_wanted: impl Fn(&str, &Field<'i>, Option<Segments<'i>>) -> bool,
    ) -> Vec<FoundField<'i>> {
        let end = self.offset + chunk.len() as u64;
        let mut found = Vec::new();
        while let Some((key, field, segments)) = self.open {
            let field_end = field.offset + u64::from(field.bytes);
            let part = field.offset.clamp(self.offset, end)..field_end.clamp(self.offset, end);
            let part = chunk.slice((part.start - self.offset) as usize..(part.end - self.offset) as usize);
            self.crc32c = crc32c::crc32c_append(self.crc32c, &part);
            let is_wanted = is_wanted(key, &field, segments);
            if field_end > end {
                if is_wanted {
                    self.content.extend_from_slice(&part);
                }
                break;
            }
            let content = is_wanted.then(|| {
                if self.content.is_empty() {
                    return part;
                }
                self.content.extend_from_slice(&part);
                self.content.split().freeze()
            });
            found.push(FoundField { key, field, segments, crc32c: std::mem::take(&mut self.crc32c), content });
            self.open = self.fields.next();
        }
        self.offset = end;
        found
    }

    /// Bytes that were read.
    pub(super) const fn bytes(&self) -> u64 {
        self.offset
    }

    /// The fields that did not come whole.
    pub(super) fn rest(self) -> impl Iterator<Item = Waiting<'i>> {
        self.open.into_iter().chain(self.fields)
    }
}
