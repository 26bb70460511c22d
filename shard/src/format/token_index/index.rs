//! The index of a run of documents: where each ends. `docs/spec/formats/tokens.md` has the layout.

use std::ops::Range;

use bytes::Bytes;
use spdl_types::{DType, Fingerprint};

use super::{LOSS, LOSS_SUFFIX, MODES, TOKENS, file_of};
use crate::{
    FormatError,
    envelope::{FileKind, check_expected, last_before, sections_of, text, u32_at, u64_at, wrong},
    format::{
        Array, FetchedBytes, Field, FieldValue, ObjectRange, ObjectRole, OpenError, Record, RecordKey, ShardIndex,
        StoredObject,
        shard_index::{plan_of_object, stored_bytes},
    },
    manifest::Shard,
};

pub(super) const KIND: FileKind =
    FileKind { name: "token index", magic: *b"SPDLTOK\n", version: 1, header_bytes: HEADER_BYTES };
pub(super) const HEADER_BYTES: usize = 88;
/// The flag of an index with modes.
pub(super) const HAS_MODES: u32 = 1;
/// The flag of an index of a file with a mask of the loss.
pub(super) const HAS_LOSS: u32 = 2;
/// Upper limit of the prefix of a shard's keys, in bytes: the longest path of a shard.
const MAX_PREFIX_BYTES: usize = 4097;

/// The index of a run of documents, which was checked when it was opened.
pub(in crate::format) struct TokenIndex {
    bytes: Bytes,
    dtype: DType,
    documents: u32,
    /// The names of the fields, in their order.
    fields: Vec<&'static str>,
    /// Offsets of the tables: ends of documents, ends of their modes, modes, first documents of blocks, and the prefix of keys.
    ends: usize,
    mode_ends: usize,
    modes: usize,
    blocks: usize,
    prefix: usize,
}

impl TokenIndex {
    /// Opens the index whose hash in the manifest is `expected`.
    pub(in crate::format) fn open(bytes: Bytes, expected: Fingerprint) -> Result<Self, FormatError> {
        check_expected(&KIND, &bytes, expected)?;
        let [documents, dtype, flags, modes_bytes, blocks, prefix_bytes] =
            [64, 68, 72, 76, 80, 84].map(|at| u32_at(&bytes, at));
        let dtype = DType::ALL.get(dtype as usize).ok_or_else(|| wrong("the type of its tokens is unknown"))?;
        if flags & !(HAS_MODES | HAS_LOSS) != 0 {
            return Err(wrong("it has flags that are unknown"));
        }
        let (has_modes, has_loss) = (flags & HAS_MODES != 0, flags & HAS_LOSS != 0);
        if !has_modes && modes_bytes > 0 || !has_loss && blocks > 0 {
            return Err(wrong("it has modes or blocks without the flag of them"));
        }
        let lengths = [
            4 * u64::from(documents),
            if has_modes { 4 * u64::from(documents) } else { 0 },
            modes_bytes.into(),
            4 * u64::from(blocks),
            prefix_bytes.into(),
        ];
        let [ends, mode_ends, modes, blocks, prefix] = sections_of(HEADER_BYTES, lengths, &bytes)?;
        if bytes.len() - prefix > MAX_PREFIX_BYTES || std::str::from_utf8(&bytes[prefix..]).is_err() {
            return Err(wrong("its keys are too long, or not UTF-8"));
        }
        let names = [(TOKENS, true), (LOSS, has_loss), (MODES, has_modes)];
        let fields = names.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect();
        let index = Self { bytes, dtype: *dtype, documents, fields, ends, mode_ends, modes, blocks, prefix };
        index.check()?;
        Ok(index)
    }

    /// Checks that documents, their modes and the blocks follow each other, and lie in the file.
    fn check(&self) -> Result<(), FormatError> {
        let width = self.token_bytes();
        let most = (u64::from(u32::MAX) / width) as u32;
        if let Some(document) = first_wrong(self.numbers(self.ends..self.mode_ends), most) {
            return Err(wrong(&format!("document {document} ends before it begins, or has 4 GiB or more")));
        }
        let end = self.tokens_before(self.documents);
        let file_end = self.offset().checked_add(end * width);
        if file_end.is_none_or(|end| end > self.file_bytes()) {
            return Err(wrong("its documents end behind the file"));
        }
        if self.first_document().checked_add(self.documents.into()).is_none() {
            return Err(wrong("its documents have numbers of more than 64 bits"));
        }
        let mode_ends = self.numbers(self.mode_ends..self.modes);
        if let Some(document) = first_wrong(mode_ends, u32::MAX) {
            return Err(wrong(&format!("the modes of document {document} end before they begin")));
        }
        let mode_end = mode_ends.last().map_or(0, |end| u32::from_le_bytes(*end));
        if mode_end as usize != self.blocks - self.modes {
            return Err(wrong("it has modes of no document"));
        }
        let mut before = None;
        for first in self.numbers(self.blocks..self.prefix) {
            let first = u32::from_le_bytes(*first);
            let follows = before.map_or(first == 0, |before| first > before);
            if !follows || first >= self.documents {
                return Err(wrong("its blocks are out of order"));
            }
            before = Some(first);
        }
        if self.has_loss() && before.is_none() && self.documents > 0 {
            return Err(wrong("it has documents in no block"));
        }
        if self.has_loss() && !(self.offset().is_multiple_of(width) && self.file_bytes().is_multiple_of(width)) {
            return Err(wrong("its file has a part of a token"));
        }
        Ok(())
    }

    /// Returns the numbers of a table.
    fn numbers(&self, range: Range<usize>) -> &[[u8; 4]] {
        self.bytes[range].as_chunks().0
    }

    fn file_bytes(&self) -> u64 {
        u64_at(&self.bytes, 40)
    }

    fn offset(&self) -> u64 {
        u64_at(&self.bytes, 48)
    }

    fn first_document(&self) -> u64 {
        u64_at(&self.bytes, 56)
    }

    const fn token_bytes(&self) -> u64 {
        self.dtype.bytes() as u64
    }

    fn has_loss(&self) -> bool {
        u32_at(&self.bytes, 72) & HAS_LOSS != 0
    }

    /// Returns the number of tokens in the documents before number `document`.
    fn tokens_before(&self, document: u32) -> u64 {
        document.checked_sub(1).map_or(0, |last| u32_at(&self.bytes, self.ends + 4 * last as usize).into())
    }

    fn block_count(&self) -> usize {
        (self.prefix - self.blocks) / 4
    }

    /// Returns the first document of block number `block`, or the number of documents after the last one.
    fn block_start(&self, block: usize) -> u32 {
        if block == self.block_count() { self.documents } else { u32_at(&self.bytes, self.blocks + 4 * block) }
    }

    /// Returns the number of the last block for whose first document `is_before` holds, which is that of the first block, too.
    fn last_block(&self, is_before: impl Fn(u32) -> bool) -> usize {
        last_before(self.block_count() as u32, |block| is_before(self.block_start(block as usize))) as usize
    }

    /// Returns where a document's tokens, and the masks of them, begin in the shard.
    fn places(&self, document: u32) -> (u64, u64) {
        let (width, before) = (self.token_bytes(), self.tokens_before(document));
        if !self.has_loss() {
            return (before * width, 0);
        }
        let block = self.last_block(|first| first <= document);
        let [start, end] = [block, block + 1].map(|block| self.tokens_before(self.block_start(block)));
        let at = start * (width + 1);
        (at + (before - start) * width, at + (end - start) * width + (before - start))
    }

    fn file(&self, shard: &Shard<'_>) -> StoredObject {
        let etag = shard.etag.map(str::to_owned);
        StoredObject { url: file_of(shard).to_owned(), bytes: self.file_bytes(), etag, role: ObjectRole::File }
    }

    /// Returns the object that has the masks of the loss.
    fn loss_file(&self, shard: &Shard<'_>) -> StoredObject {
        let url = format!("{}{LOSS_SUFFIX}", file_of(shard));
        StoredObject { url, bytes: self.file_bytes() / self.token_bytes(), etag: None, role: ObjectRole::File }
    }
}

impl ShardIndex for TokenIndex {
    fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    fn shard_bytes(&self) -> u64 {
        self.tokens_before(self.documents) * (self.token_bytes() + u64::from(self.has_loss()))
    }

    fn record_count(&self) -> u32 {
        self.documents
    }

    fn record(&self, record: u32) -> Record<'_> {
        assert!(record < self.documents, "record {record} of {}", self.documents);
        let key = RecordKey::Numbered(text(&self.bytes[self.prefix..]), self.first_document() + u64::from(record));
        let fields = self.fields.len() as u32;
        Record { index: self, number: record, key, first_sample: record, samples: 1, first_field: 0, fields }
    }

    fn field(&self, record: &Record<'_>, nth: u32) -> Field<'_> {
        let (name, number) = (self.fields[nth as usize], record.number);
        let field = Field { name, offset: 0, bytes: 0, shared_by: 1, crc32c: None, value: None };
        if name == MODES {
            let end = |document: u32| u32_at(&self.bytes, self.mode_ends + 4 * document as usize) as usize;
            let start = number.checked_sub(1).map_or(0, end);
            let value = &self.bytes[self.modes + start..self.modes + end(number)];
            return Field { bytes: value.len() as u32, value: Some(value), ..field };
        }
        let (tokens_at, loss_at) = self.places(number);
        let tokens = self.tokens_before(number + 1) - self.tokens_before(number);
        match name {
            LOSS => Field { offset: loss_at, bytes: tokens as u32, ..field },
            _ => Field { offset: tokens_at, bytes: (tokens * self.token_bytes()) as u32, ..field },
        }
    }

    fn field_number(&self, _record: &Record<'_>, name: &str) -> Option<u32> {
        self.fields.iter().position(|field| *field == name).map(|nth| nth as u32)
    }

    fn array_length(&self, record: &Record<'_>, nth: u32) -> Option<u64> {
        let tokens = self.tokens_before(record.number + 1) - self.tokens_before(record.number);
        (self.fields[nth as usize] != MODES).then_some(tokens)
    }

    fn array_lengths(&self, records: Range<u32>, name: &str) -> Option<Vec<u32>> {
        let Range { start, end } = records;
        assert!(start <= end && end <= self.documents, "records {start} to {end} of {}", self.documents);
        let ends = &self.numbers(self.ends..self.mode_ends)[start as usize..end as usize];
        // The index was checked: no document ends before it begins, and all in 32 bits.
        let mut lengths = Vec::with_capacity(ends.len());
        if let Some((first, others)) = ends.split_first() {
            lengths.push(u32::from_le_bytes(*first) - self.tokens_before(start) as u32);
            let length = |(before, end): (&[u8; 4], &[u8; 4])| {
                u32::from_le_bytes(*end).wrapping_sub(u32::from_le_bytes(*before))
            };
            lengths.extend(ends.iter().zip(others).map(length));
        }
        (name == TOKENS).then_some(lengths)
    }

    fn object(&self, shard: &Shard<'_>) -> Option<StoredObject> {
        (!self.has_loss()).then(|| self.file(shard))
    }

    fn offset_in_object(&self) -> Option<u64> {
        Some(self.offset())
    }

    fn has_plain_fields(&self) -> bool {
        false
    }

    fn plan(&self, shard: &Shard<'_>, ranges: &[Range<u64>]) -> Vec<ObjectRange> {
        if !self.has_loss() {
            return plan_of_object(self, shard, ranges);
        }
        let (width, mut plan) = (self.token_bytes(), Vec::new());
        let (file, loss) = (self.file(shard), self.loss_file(shard));
        for wanted in ranges.iter().filter(|wanted| !wanted.is_empty()) {
            let first = self.last_block(|first| self.tokens_before(first) * (width + 1) <= wanted.start);
            for block in first..self.block_count() {
                let [start, end] = [block, block + 1].map(|block| self.tokens_before(self.block_start(block)));
                let (at, tokens) = (start * (width + 1), end - start);
                if at >= wanted.end {
                    break;
                }
                let parts = [
                    (&file, at, self.offset() + start * width, tokens * width),
                    (&loss, at + tokens * width, self.offset() / width + start, tokens),
                ];
                for (object, at, object_at, bytes) in parts {
                    let (from, to) = (wanted.start.max(at), wanted.end.min(at + bytes));
                    if from < to {
                        let range = object_at + (from - at)..object_at + (to - at);
                        plan.push(ObjectRange { object: object.clone(), range, at: from });
                    }
                }
            }
        }
        plan
    }

    fn open(&self, field: &Field<'_>, fetched: &FetchedBytes<'_>) -> Result<FieldValue, OpenError> {
        let elements = stored_bytes(&self.bytes, field, fetched)?;
        if elements.len() != field.bytes as usize {
            return Err(OpenError::Malformed(format!("has {} bytes, and its index {}", elements.len(), field.bytes)));
        }
        let dtype = match field.name {
            MODES => DType::I8,
            LOSS => DType::U8,
            _ => self.dtype,
        };
        let shape = vec![elements.len() as u64 / dtype.bytes() as u64];
        Ok(Array { dtype, shape, elements }.into())
    }
}

/// Returns the number of the first entry of a table of ends that is less than the one before, or by more than `most` greater.
fn first_wrong(ends: &[[u8; 4]], most: u32) -> Option<usize> {
    let is_wrong = |before: u32, end: &[u8; 4]| {
        let end = u32::from_le_bytes(*end);
        end < before || end.wrapping_sub(before) > most
    };
    let (first, others) = ends.split_first()?;
    if is_wrong(0, first) {
        return Some(0);
    }
    let pairs = || ends.iter().zip(others).map(|(before, end)| is_wrong(u32::from_le_bytes(*before), end));
    // All are looked at, so that the loop has no branch for each.
    let is_any = pairs().fold(false, |any, is_wrong| any | is_wrong);
    if is_any { pairs().position(|is_wrong| is_wrong).map(|pair| pair + 1) } else { None }
}

impl std::fmt::Debug for TokenIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenIndex")
            .field("dtype", &self.dtype)
            .field("documents", &self.documents)
            .field("fields", &self.fields)
            .field("bytes", &self.shard_bytes())
            .finish_non_exhaustive()
    }
}
