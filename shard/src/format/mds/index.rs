//! The index of an MDS shard: its table of samples, and its columns. `docs/spec/formats/mds.md` has the layout.

use std::{collections::HashSet, ops::Range};

use bytes::Bytes;
use spdl_types::Fingerprint;

use super::encoding::MdsEncoding;
use crate::{
    FormatError,
    envelope::{FileKind, check_expected, sections_of, u32_at, u64_at, wrong},
    format::{Checksum, FetchedBytes, Field, FieldValue, OpenError, Record, ShardIndex, StoredObject},
    manifest::Shard,
};

pub(super) const KIND: FileKind =
    FileKind { name: "MDS index", magic: *b"SPDLMDS\n", version: 1, header_bytes: HEADER_BYTES };
pub(super) const HEADER_BYTES: usize = 72;
pub(super) const COLUMN_BYTES: usize = 12;
/// Most columns of a sample: as many as a record index has names of fields.
pub(super) const MAX_COLUMNS: u32 = 1 << 16;

/// The index of an MDS shard, which was checked when it was opened.
pub(super) struct MdsIndex {
    bytes: Bytes,
    samples: u32,
    /// Offset of the table of samples.
    offsets: usize,
    columns: Vec<MdsColumn>,
    checksum: Option<Checksum>,
    /// The prefix of the keys of all samples.
    prefix: String,
}

/// A column of an MDS shard.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MdsColumn {
    name: String,
    /// Size of its values in bytes; `None` if the sample has it.
    bytes: Option<u32>,
    encoding: MdsEncoding,
}

impl MdsIndex {
    /// Opens the index whose hash in the manifest is `expected`.
    pub(super) fn open(bytes: Bytes, expected: Fingerprint) -> Result<Self, FormatError> {
        check_expected(&KIND, &bytes, expected)?;
        let [samples, columns, names_bytes, encodings_bytes, prefix_bytes, checksum_bytes] =
            [48, 52, 56, 60, 64, 68].map(|at| u32_at(&bytes, at));
        if columns > MAX_COLUMNS {
            return Err(wrong("it has more than 65536 columns"));
        }
        let lengths = [
            4 * (u64::from(samples) + 1),
            COLUMN_BYTES as u64 * u64::from(columns),
            names_bytes.into(),
            encodings_bytes.into(),
            prefix_bytes.into(),
            checksum_bytes.into(),
        ];
        let [offsets, columns_at, names, encodings, prefix, checksum] = sections_of(HEADER_BYTES, lengths, &bytes)?;
        let section = |range: Range<usize>, what: &str| {
            let text = std::str::from_utf8(&bytes[range]).map_err(|_| wrong(&format!("its {what} is not UTF-8")))?;
            Ok::<_, FormatError>(text.to_owned())
        };
        let columns = columns_of(
            &bytes[columns_at..names],
            &section(names..encodings, "table of names")?,
            &section(encodings..prefix, "table of encodings")?,
        )?;
        let prefix = section(prefix..checksum, "beginning of keys")?;
        let checksum = match &section(checksum..bytes.len(), "checksum")?[..] {
            "" => None,
            text => Some(Checksum::read(text).ok_or_else(|| wrong("its checksum is unknown"))?),
        };
        if prefix.len() > MAX_PREFIX_BYTES {
            return Err(wrong("its keys are too long"));
        }
        let index = Self { bytes, samples, offsets, columns, checksum, prefix };
        index.check_samples()?;
        Ok(index)
    }

    /// Checks that samples follow each other and end with the shard.
    fn check_samples(&self) -> Result<(), FormatError> {
        let mut end = self.offset(0);
        for sample in 1..=self.samples {
            let next = self.offset(sample);
            if next < end {
                return Err(wrong(&format!("sample {} does not follow the one before it", sample - 1)));
            }
            end = next;
        }
        if end == self.shard_bytes() { Ok(()) } else { Err(wrong("its samples do not end with the shard")) }
    }

    /// Returns where sample number `sample` begins in the shard, or where the last one ends.
    fn offset(&self, sample: u32) -> u64 {
        u32_at(&self.bytes, self.offsets + 4 * sample as usize).into()
    }

    /// Returns the value of column number `number` in the bytes of a sample; `None` if the sample is cut off or has more
    /// bytes than its values.
    fn value(&self, sample: &Bytes, number: usize) -> Option<Bytes> {
        let mut sizes = 0;
        let mut value = 0..0;
        let mut end: usize = 4 * self.columns.iter().filter(|column| column.bytes.is_none()).count();
        for (nth, column) in self.columns.iter().enumerate() {
            let bytes = match column.bytes {
                Some(bytes) => bytes,
                None => {
                    sizes += 4;
                    u32::from_le_bytes(*sample.get(sizes - 4..sizes)?.first_chunk()?)
                }
            };
            let start = end;
            end = end.checked_add(bytes as usize)?;
            if nth == number {
                value = start..end;
            }
        }
        (end == sample.len()).then(|| sample.slice(value))
    }
}

/// Reads the columns: `entries` have their sizes, and where their texts end.
fn columns_of(entries: &[u8], names: &str, encodings: &str) -> Result<Vec<MdsColumn>, FormatError> {
    let (mut name_at, mut encoding_at, mut known) = (0, 0, HashSet::new());
    let mut columns = Vec::new();
    for entry in entries.chunks_exact(COLUMN_BYTES) {
        let [bytes, name_end, encoding_end] = [0, 4, 8].map(|at| u32_at(entry, at));
        let name = names.get(name_at..name_end as usize).filter(|name| !name.is_empty());
        let encoding = encodings.get(encoding_at..encoding_end as usize);
        let (Some(name), Some(encoding)) = (name, encoding) else {
            return Err(wrong("its table of columns is out of order"));
        };
        (name_at, encoding_at) = (name_end as usize, encoding_end as usize);
        if !known.insert(name) {
            return Err(wrong(&format!("it has the column `{}` twice", name.escape_debug())));
        }
        let read = MdsEncoding::named(encoding);
        let encoding = read.ok_or_else(|| wrong(&format!("the encoding `{}` is unknown", encoding.escape_debug())))?;
        columns.push(MdsColumn { name: name.to_owned(), bytes: (bytes > 0).then_some(bytes), encoding });
    }
    match (name_at, encoding_at) == (names.len(), encodings.len()) {
        true => Ok(columns),
        false => Err(wrong("its table of columns has unused bytes")),
    }
}

/// Upper limit of the prefix of a shard's keys, in bytes: the longest path of a shard, and a slash.
const MAX_PREFIX_BYTES: usize = 4097;

impl ShardIndex for MdsIndex {
    fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    fn shard_bytes(&self) -> u64 {
        u64_at(&self.bytes, 40)
    }

    fn record_count(&self) -> u32 {
        self.samples
    }

    fn record(&self, record: u32) -> Record<'_> {
        Record::numbered(self, record, &self.prefix, self.columns.len())
    }

    fn field(&self, record: &Record<'_>, nth: u32) -> Field<'_> {
        let [start, end] = [record.number, record.number + 1].map(|sample| self.offset(sample));
        let name = &self.columns[nth as usize].name;
        Field { name, offset: start, bytes: (end - start) as u32, shared_by: 1, crc32c: None, value: None }
    }

    fn object(&self, shard: &Shard<'_>) -> Option<StoredObject> {
        Some(StoredObject::of_file(shard, shard.bytes))
    }

    fn checksum(&self) -> Option<&Checksum> {
        self.checksum.as_ref()
    }

    fn has_plain_fields(&self) -> bool {
        false
    }

    fn open(&self, field: &Field<'_>, fetched: &FetchedBytes<'_>) -> Result<FieldValue, OpenError> {
        let range = field.offset..field.offset.saturating_add(field.bytes.into());
        let sample = fetched(range).ok_or(OpenError::Missing)?;
        let known = self.columns.iter().position(|column| column.name == field.name);
        let column = known.expect("the field is one of this index");
        let Some(value) = self.value(&sample, column) else {
            let problem = format!("lies in a sample of {} bytes whose values have other sizes", sample.len());
            return Err(OpenError::Malformed(problem));
        };
        self.columns[column].encoding.value(value).map_err(OpenError::Malformed)
    }
}

impl std::fmt::Debug for MdsIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MdsIndex")
            .field("samples", &self.samples)
            .field("columns", &self.columns)
            .field("bytes", &self.shard_bytes())
            .finish_non_exhaustive()
    }
}
