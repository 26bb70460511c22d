//! Compressed shards: an object that is compressed as a whole, and is decompressed as a whole. Such a shard is one block.
//!
//! Any format can have them. Its index describes the decompressed bytes, and lies in an envelope of its own that has what
//! is known about the object. `docs/spec/formats/compressed.md` has the layout.

mod decompress;
mod index;

use super::Checksum;

pub use decompress::Decompressor;
pub(super) use index::open_index;
pub use index::seal_index;

/// Upper limit of the size of a compressed shard, stored and decompressed, in bytes: it has to be in memory as a whole.
pub const MAX_COMPRESSED_SHARD_BYTES: u64 = 1 << 30;

/// How an object is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// One or more gzip streams, one after the other.
    Gzip,
    /// A zlib stream.
    Zlib,
    /// One or more zstd frames, one after the other.
    Zstd,
    /// A brotli stream.
    Brotli,
    /// One or more bzip2 streams, one after the other.
    Bzip2,
    /// A block of snappy, without frames.
    Snappy,
}

impl Compression {
    const ALL: [Self; 6] = [Self::Gzip, Self::Zlib, Self::Zstd, Self::Brotli, Self::Bzip2, Self::Snappy];

    /// Returns its name, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
            Self::Brotli => "brotli",
            Self::Bzip2 => "bzip2",
            Self::Snappy => "snappy",
        }
    }

    /// Returns its number in an index.
    const fn number(self) -> u32 {
        match self {
            Self::Gzip => 1,
            Self::Zlib => 2,
            Self::Zstd => 3,
            Self::Brotli => 4,
            Self::Bzip2 => 5,
            Self::Snappy => 6,
        }
    }

    fn numbered(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|compression| compression.number() == number)
    }
}

/// An object that becomes a shard when it is decompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compressed {
    /// How it is compressed.
    pub compression: Compression,
    /// Its size in bytes.
    pub object_bytes: u64,
    /// Size of the shard that it becomes, in bytes.
    pub shard_bytes: u64,
    /// The checksum of the object, if one was known when it was indexed.
    pub checksum: Option<Checksum>,
}

/// Why an object does not decompress to the shard that was indexed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum CompressionError {
    /// The object has another checksum than was indexed.
    #[error("{0}")]
    Checksum(String),
    /// The compressed bytes are damaged.
    #[error("it does not decompress with {}: {problem}", compression.name())]
    Damaged { compression: Compression, problem: String },
    /// The object decompresses to another number of bytes.
    #[error("it decompresses to {} {limit} bytes", if *is_more { "more than" } else { "fewer than" })]
    OtherSize { limit: u64, is_more: bool },
}
