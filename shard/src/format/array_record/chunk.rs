//! Chunks of Riegeli/records: the header with its checksums, and the records of a simple chunk.
//!
//! ```text
//! chunk    hash of the header (8), bytes of the data (8), hash of the data (8), kind (1), records (7), decoded bytes (8); data
//! simple   compression (1), bytes of the sizes (varint), sizes: a varint for each record; values, one after the other
//! ```
//!
//! If they are compressed, sizes and values each begin with their decompressed length, as a varint. Every 64 KiB of a file
//! begin with a header of 24 bytes, wherever that falls in a chunk. It serves readers that look for the next chunk after
//! damage, and is passed over. The format is described at <https://github.com/google/riegeli/blob/master/doc>.

use bytes::{Bytes, BytesMut};
use highway::{HighwayHash as _, HighwayHasher, Key};

use crate::format::{Compression, protobuf::ProtobufMessage};

/// Distance between the block headers of a file, in bytes: there is one at every multiple of it.
pub(super) const BLOCK_BYTES: u64 = 64 << 10;
const BLOCK_HEADER_BYTES: u64 = 24;
const CHUNK_HEADER_BYTES: usize = 40;
/// Riegeli's key of all hashes: `Riegeli/records` and a line feed, twice.
const KEY: Key = Key([0x2f69_6c65_6765_6952, 0x0a73_6472_6f63_6572, 0x2f69_6c65_6765_6952, 0x0a73_6472_6f63_6572]);
/// Kinds of chunks.
const SIMPLE: u8 = b'r';
const TRANSPOSED: u8 = b't';
/// Largest decompressed size of a zstd block, in bytes. A compressed block has at least three bytes.
const MAX_ZSTD_BLOCK_BYTES: usize = 128 << 10;
const MIN_ZSTD_BLOCK_BYTES: usize = 3;
/// Largest size of the varint that states the size of a record, in bytes.
pub(super) const MAX_SIZE_BYTES: u64 = 10;

/// The error text for transposed chunks.
pub(super) const TRANSPOSED_PROBLEM: &str =
    "was written with `transpose:true`, which is not read: write it again with `transpose:false`, the default";

/// A chunk whose checksums are right.
#[derive(Debug)]
pub(super) struct ArrayRecordChunk {
    kind: u8,
    pub(super) records: u64,
    /// The size of all values, as the header states it.
    pub(super) decoded_bytes: u64,
    data: Bytes,
}

/// Records that were decompressed, one after the other.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) bytes: Vec<u8>,
    /// Where each record ends.
    pub(super) ends: Vec<u32>,
}

impl ArrayRecordChunk {
    /// Reads the chunk that begins at byte `at` of the file; `stored` are the file's bytes from there, to the end of the chunk
    /// or a later one.
    ///
    /// # Errors
    /// What is wrong with the chunk, as words that follow its name.
    pub(super) fn read(stored: Bytes, at: u64) -> Result<Self, String> {
        let mut framed = Framed { stored, at };
        let header = framed.take(CHUNK_HEADER_BYTES).ok_or("is cut off")?;
        let number = |at: usize| u64::from_le_bytes(*header[at..].first_chunk().expect("a header of 40 bytes"));
        if hash(&header[8..]) != number(0) {
            return Err("has a header whose checksum is wrong".to_owned());
        }
        let data = usize::try_from(number(8)).ok().and_then(|bytes| framed.take(bytes)).ok_or("is cut off")?;
        if hash(&data) != number(16) {
            return Err("has other bytes than were written: its checksum is wrong".to_owned());
        }
        Ok(Self { kind: header[24], records: number(24) >> 8, decoded_bytes: number(32), data })
    }
}

/// Bytes of a file, with the headers of blocks among them.
struct Framed {
    stored: Bytes,
    /// Where they begin in the file.
    at: u64,
}

impl Framed {
    /// Takes `bytes` bytes and skips the block headers among them; `None` if there are fewer.
    fn take(&mut self, bytes: usize) -> Option<Bytes> {
        if bytes > self.stored.len() {
            return None;
        }
        let first = self.run(bytes)?;
        if first.len() == bytes {
            return Some(first);
        }
        let mut taken = BytesMut::with_capacity(bytes);
        taken.extend_from_slice(&first);
        while taken.len() < bytes {
            taken.extend_from_slice(&self.run(bytes - taken.len())?);
        }
        Some(taken.freeze())
    }

    /// Takes at most `bytes` bytes, up to the next block header; `None` if there are none.
    fn run(&mut self, bytes: usize) -> Option<Bytes> {
        let header = BLOCK_HEADER_BYTES.saturating_sub(self.at % BLOCK_BYTES);
        if header as usize >= self.stored.len() {
            return (bytes == 0).then(Bytes::new);
        }
        let _ = self.stored.split_to(header as usize);
        self.at += header;
        let room = (BLOCK_BYTES - self.at % BLOCK_BYTES) as usize;
        let run = self.stored.split_to(bytes.min(room).min(self.stored.len()));
        self.at += run.len() as u64;
        Some(run)
    }
}

/// Decompresses chunks. It keeps the state of zstd from chunk to chunk, because a file can have one chunk for each
/// record.
pub(super) struct ChunkDecompressor {
    zstd: zstd::bulk::Decompressor<'static>,
}

impl ChunkDecompressor {
    pub(super) fn new() -> Result<Self, String> {
        let zstd = zstd::bulk::Decompressor::new().map_err(|error| format!("does not decompress: {error}"))?;
        Ok(Self { zstd })
    }

    /// Appends the records of a chunk, which take at most `max_bytes`. After an error, `values` are as before. The
    /// caller has compared the number of records with the expected one.
    ///
    /// # Errors
    /// What is wrong with the chunk, as words that follow its name.
    pub(super) fn records(
        &mut self,
        chunk: &ArrayRecordChunk,
        max_bytes: u64,
        values: &mut Values,
    ) -> Result<(), String> {
        let (bytes, records) = (values.bytes.len(), values.ends.len());
        let result = self.append(chunk, max_bytes, values);
        if result.is_err() {
            values.bytes.truncate(bytes);
            values.ends.truncate(records);
        }
        result
    }

    fn append(&mut self, chunk: &ArrayRecordChunk, max_bytes: u64, values: &mut Values) -> Result<(), String> {
        match chunk.kind {
            SIMPLE => {}
            TRANSPOSED => return Err(TRANSPOSED_PROBLEM.to_owned()),
            kind => return Err(format!("is of the kind `{}`, and has no records", kind.escape_ascii())),
        }
        if chunk.decoded_bytes > max_bytes {
            return Err(format!("has {} bytes once it is decompressed, more than {max_bytes}", chunk.decoded_bytes));
        }
        let (compression, rest) = chunk.data.split_first().ok_or("has no data")?;
        let codec = Codec::of(*compression)
            .ok_or_else(|| format!("has the unknown compression `{}`", compression.escape_ascii()))?;
        let mut rest = ByteCursor(rest);
        let sizes_bytes = rest.varint().ok_or("is cut off in its sizes")?;
        let sizes = rest.take(sizes_bytes).ok_or("is cut off in its sizes")?;
        let mut decompressed = Vec::new();
        let sizes = match codec {
            None => sizes,
            Some(codec) => {
                let max_bytes = chunk.records.saturating_mul(MAX_SIZE_BYTES);
                self.decompress(codec, ByteCursor(sizes), max_bytes, &mut decompressed)?;
                &decompressed[..]
            }
        };
        let start = values.bytes.len() as u64;
        read_ends(chunk, sizes, start, &mut values.ends)?;
        match codec {
            None => values.bytes.extend_from_slice(rest.0),
            Some(codec) => self.decompress(codec, rest, chunk.decoded_bytes, &mut values.bytes)?,
        }
        match values.bytes.len() as u64 - start {
            bytes if bytes == chunk.decoded_bytes => Ok(()),
            bytes => Err(format!("has {bytes} bytes of records, and claims {}", chunk.decoded_bytes)),
        }
    }

    /// Decompresses `compressed`, which begins with its decompressed length, and appends at most `max_bytes`.
    fn decompress(
        &mut self,
        codec: Codec,
        mut compressed: ByteCursor<'_>,
        max_bytes: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        let bytes = compressed.varint().ok_or("is cut off before its compressed bytes")?;
        let compressed = compressed.0;
        if bytes > max_bytes {
            return Err(format!("claims {bytes} decompressed bytes, more than {max_bytes}"));
        }
        let damaged = |problem: String| format!("is damaged: {problem}");
        let start = out.len();
        match codec {
            Codec::Zstd => {
                let most = (compressed.len() / MIN_ZSTD_BLOCK_BYTES).saturating_mul(MAX_ZSTD_BLOCK_BYTES);
                if bytes > most as u64 {
                    return Err(format!("claims {bytes} decompressed bytes, more than it can hold"));
                }
                out.resize(start + bytes as usize, 0);
                let read = self.zstd.decompress_to_buffer(compressed, &mut out[start..]);
                let read = read.map_err(|error| damaged(format!("it does not decompress with zstd: {error}")))?;
                out.truncate(start + read);
            }
            Codec::Other(compression) => {
                let mut decompressed = Vec::new();
                let result = compression.decompress(compressed, bytes, &mut decompressed);
                result.map_err(|error| damaged(error.to_string()))?;
                out.append(&mut decompressed);
            }
        }
        match (out.len() - start) as u64 {
            read if read == bytes => Ok(()),
            read => Err(damaged(format!("it decompresses to {read} bytes, and claims {bytes}"))),
        }
    }
}

/// Reads the sizes of records and appends where each record ends; the first one begins at `start`.
fn read_ends(chunk: &ArrayRecordChunk, sizes: &[u8], start: u64, ends: &mut Vec<u32>) -> Result<(), String> {
    // Each size takes a byte or more.
    if chunk.records > sizes.len() as u64 {
        return Err(format!("has the sizes of fewer than its {} records", chunk.records));
    }
    let (mut sizes, mut end) = (ProtobufMessage::new(sizes, 0..sizes.len()), start);
    let all = start.saturating_add(chunk.decoded_bytes);
    ends.reserve(chunk.records as usize);
    for record in 0..chunk.records {
        let size = sizes.varint().ok_or_else(|| format!("is cut off in the size of its record {record}"))?;
        end = end.checked_add(size).filter(|end| *end <= all).ok_or("has records longer than itself")?;
        ends.push(u32::try_from(end).map_err(|_| "has records of more than 4 GiB")?);
    }
    match sizes.is_at_end() && end == all {
        true => Ok(()),
        false => Err("has sizes that are not those of its records".to_owned()),
    }
}

/// How sizes and values are compressed.
#[derive(Clone, Copy, Debug)]
enum Codec {
    Zstd,
    Other(Compression),
}

impl Codec {
    /// Returns the codec of a chunk. The outer `None` means an unknown codec, the inner one no compression.
    const fn of(code: u8) -> Option<Option<Self>> {
        match code {
            0 => Some(None),
            b'z' => Some(Some(Self::Zstd)),
            b'b' => Some(Some(Self::Other(Compression::Brotli))),
            b's' => Some(Some(Self::Other(Compression::Snappy))),
            _ => None,
        }
    }
}

/// Cuts bytes into parts, from the front.
struct ByteCursor<'b>(&'b [u8]);

impl<'b> ByteCursor<'b> {
    fn varint(&mut self) -> Option<u64> {
        let mut message = ProtobufMessage::new(self.0, 0..self.0.len());
        let number = message.varint()?;
        self.0 = message.rest();
        Some(number)
    }

    fn take(&mut self, bytes: u64) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.0 = rest;
        Some(taken)
    }
}

fn hash(bytes: &[u8]) -> u64 {
    HighwayHasher::new(KEY).hash64(bytes)
}
