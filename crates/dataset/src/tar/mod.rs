//! WebDataset tar shards: a reader that returns records with the place of every field, and a writer.
//!
//! The reader is our own and not the `tar` crate's for three reasons. It takes chunks from any store, without a
//! blocking `Read`. It reports the exact byte at which a shard is wrong, also where the shard is cut off inside a
//! member. It bounds the long names that the crate reads without limit.

mod header;
mod odd;
mod pax;
mod read;
mod record;
mod write;

pub(crate) use odd::OddTally;
pub use odd::{OddMembers, TarAnomaly};
pub use read::{Member, TarEvent, TarReader};
pub use record::{KeyEnd, RecordReader, ScannedField, ScannedRecord, TarEnd};
pub(crate) use write::append_member_header;
pub use write::{TAR_END, append_member, padding_bytes};

/// Ending of the names of shards.
pub(crate) const TAR_SUFFIX: &str = ".tar";

/// Size of the blocks that a tar consists of, in bytes.
pub const TAR_BLOCK_BYTES: usize = 512;

/// Size of the longest name of a member that is read, in bytes.
pub const MAX_EXTENSION_BYTES: u64 = 1 << 20;

/// A shard that is not a usable tar.
#[derive(Debug, thiserror::Error)]
#[error("shard `{shard}` at byte {offset}: {fault}")]
pub struct TarError {
    /// The shard's name.
    pub shard: String,
    /// Offset of the fault in the shard, in bytes.
    pub offset: u64,
    /// The fault at that offset.
    pub fault: TarFault,
}

/// The faults of a tar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum TarFault {
    /// The shard ends before the tar does.
    #[error("the tar is cut off: {0}")]
    CutOff(&'static str),
    /// The shard is a compressed tar.
    #[error("the tar is compressed with {0}, which its name does not say")]
    Compressed(&'static str),
    /// The bytes where a member's header is expected are not a header.
    #[error("not a tar header: its checksum is wrong")]
    HeaderChecksum,
    /// A field of a header is invalid.
    #[error("the header's {0} is invalid")]
    Header(&'static str),
    /// The name of a member is too long.
    #[error("a member's name of {0} bytes, more than {MAX_EXTENSION_BYTES}")]
    ExtensionTooLong(u64),
    /// The member is of a kind that cannot be read in place.
    #[error("member `{0}` is a sparse file, which cannot be read in place")]
    Sparse(String),
    /// A field is too large for the record index.
    #[error("member `{path}` has {bytes} bytes, more than {}", u32::MAX)]
    TooLarge { path: String, bytes: u64 },
    /// A record has two fields with the same name.
    #[error("record `{key}` has two fields called `{field}`")]
    FieldTwice { key: String, field: String },
    /// The tar has a member twice.
    #[error("member `{0}` is in the tar twice")]
    MemberTwice(String),
}

impl TarFault {
    /// Returns what the user can do about the fault.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Compressed(_) => {
                "decompress it (`gunzip`, `zstd -d`, `xz -d`): pictures are compressed already; or name it `.tar.gz` or \
                 `.tar.zst`, which are read as they are"
            }
            Self::Sparse(_) => "write the tar again without `--sparse`",
            Self::FieldTwice { .. } => "names that differ in case only are one field; rename one of them",
            Self::MemberTwice(_) => {
                "programs differ in which of them they read; write the tar again with one of them, as after unpacking it with \
                 `tar -x`, which keeps the last"
            }
            Self::TooLarge { .. } => "leave the member out of the shard",
            _ => "copy the shard once more, or leave out what is damaged: `index --skip-bad-shards N`",
        }
    }
}
