//! Making datasets and checking them: [`pack`] writes shards from pictures, [`index`] makes a manifest for shards
//! that exist, [`verify`] reads a dataset and compares every byte with what the manifest says, [`unpack`] writes its
//! records back as files.

mod blocks;
mod catalog;
mod crop_ready;
mod fields;
mod folder;
mod index;
mod known;
mod originals;
mod pack;
mod replace;
mod report;
mod source;
mod unpack;
mod upload;
mod verify;

pub use folder::Overwrite;
pub use index::{IndexOptions, Knowledge, ShardList, index, index_until};
pub use originals::Against;
pub use pack::{Jpegs, PackOptions, PackOrder, pack, pack_until};
pub use report::{DatasetProgress, DatasetReport};
use source::LeftOutTally;
pub use source::{Annotations, FieldChoice, LeftOut, LeftOutReason, PackSource};
pub use unpack::{UnpackReport, unpack, unpack_until};
pub use verify::{PictureCheck, VerifyFault, VerifyOptions, VerifyReport, verify};

use crate::{FormatError, store::StoreError, tar::TarError};

/// Default size that shards are written at, in bytes: 256 MiB.
pub const DEFAULT_SHARD_BYTES: u64 = 256 << 20;

/// A dataset that cannot be made or checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// The store does not do what it should.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A shard is not a tar that can be used.
    #[error(transparent)]
    Tar(#[from] TarError),
    /// An index or manifest that the format cannot hold.
    #[error("`{url}` {source}")]
    Unwritable {
        /// The shard, or the dataset.
        url: String,
        /// Why not.
        source: FormatError,
    },
    /// A file or folder that should be packed cannot be.
    #[error("`{path}` {problem}")]
    Source {
        /// The file or folder, with the line where it is a list.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// An option makes no sense.
    #[error("`{option}` {problem}")]
    Option {
        /// Its name.
        option: &'static str,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// An option would lose what the manifest knows that is replaced.
    #[error("`{option}` {problem}")]
    Loses {
        /// The option's name.
        option: &'static str,
        /// What would be lost.
        problem: String,
    },
    /// There is something already where the dataset should be written.
    #[error("`{url}` exists already")]
    InUse {
        /// What is there.
        url: String,
    },
    /// A command that writes a dataset there is still at it, or was killed.
    #[error("a dataset in `{url}` was begun and is not finished")]
    Unfinished {
        /// The folder.
        url: String,
    },
    /// There is something already in the folder that a dataset should be unpacked to.
    #[error("`{path}` is not empty")]
    NotEmpty {
        /// The folder.
        path: String,
    },
    /// A record whose bytes are not those that were packed, or that cannot be a file.
    #[error("`{url}`, record `{record}`: {problem}")]
    Damaged {
        /// Its shard.
        url: String,
        /// Its key.
        record: String,
        /// What is wrong with it.
        problem: String,
    },
    /// There is nothing to make a dataset of.
    #[error("there is nothing in `{origin}`: {problem}")]
    Nothing {
        /// Where it was looked for.
        origin: String,
        /// What was looked for.
        problem: String,
    },
    /// It was given up because it was asked to.
    #[error("`{url}` was not finished: it was stopped, and nothing of it is left")]
    Stopped {
        /// The dataset or folder that is not there.
        url: String,
    },
}

impl DatasetError {
    /// Whether the same call can succeed later with nothing changed by anyone.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }

    /// What the user can do about it, for the `hint:` line.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Tar(error) => Some(error.fault.hint()),
            Self::Loses { .. } => Some(
                "leave the option out, make the new one elsewhere (`--out`), or give --discard-knowledge to lose the old one",
            ),
            Self::NotEmpty { .. } => Some("choose a folder that is empty or does not exist; nothing is overwritten"),
            Self::Damaged { .. } => Some("`spdl-ctl verify` names all that is wrong with a dataset"),
            Self::Unfinished { .. } => {
                Some("unless another command is writing there, clear away what is left of it with --force")
            }
            Self::InUse { .. } => Some("choose another folder, or replace what is there with --force"),
            _ => None,
        }
    }
}
