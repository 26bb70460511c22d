//! Reads the fields of a shard while its bytes pass: the checksum of each field, and the content of the wanted ones.

use bytes::{Bytes, BytesMut};

use crate::index::{Field, RecordIndex, Segments};

/// A field as read from the shard's bytes.
pub(super) struct FoundField<'i> {
    /// Its record's key.
    pub(super) key: &'i str,
    /// The field as the index describes it.
    pub(super) field: Field<'i>,
    /// The table of segments, if the field is a crop-ready picture.
    pub(super) segments: Option<Segments<'i>>,
    /// CRC-32C of the bytes that were read.
    pub(super) crc32c: u32,
    /// The bytes that were read, if they were wanted.
    pub(super) content: Option<Bytes>,
}

/// A field that has not been read to its end.
type Waiting<'i> = (&'i str, Field<'i>, Option<Segments<'i>>);

/// Cuts the fields out of a shard that arrives in chunks. The fields lie one after the other, so they complete in the
/// order of the bytes.
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

    /// Reads the next chunk and returns the fields that end in it. Content that lies in one chunk is not copied.
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

    /// Returns the number of bytes that were read.
    pub(super) const fn bytes(&self) -> u64 {
        self.offset
    }

    /// Returns the fields that are incomplete or missing.
    pub(super) fn rest(self) -> impl Iterator<Item = Waiting<'i>> {
        self.open.into_iter().chain(self.fields)
    }
}
