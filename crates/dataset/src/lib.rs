//! Makes and checks datasets: [`pack`] writes shards from pictures, [`DatasetWriter`] from records that a program
//! makes, and [`pack_part`] and [`merge`] divide a pack into parts; [`pack_tokens`] writes Megatron's files; [`index`] makes a manifest for existing shards;
//! [`verify`] reads a dataset and compares every byte with the manifest; [`unpack`] writes its records back as files.

mod beside;
mod blocks;
mod catalog;
mod check;
mod classes;
mod coded_anew;
mod crop_ready;
mod cut;
mod dots;
mod fields;
mod fit;
mod folder;
mod format;
mod hidden;
mod in_parts;
mod index;
mod kept_sequences;
mod keys;
mod listing;
mod look;
mod members;
mod old_manifest;
mod open_block;
mod originals;
mod pack;
mod parts;
mod passing_tables;
mod patterns;
mod progress;
mod record;
mod replace;
mod report;
mod scalable;
mod scan;
mod sequences;
mod sizes;
mod sorter;
mod source;
mod split;
mod stages;
pub mod tar;
mod tokens;
mod unpack;
mod upload;
mod verify;
pub mod view;
mod write;

pub(crate) use blocks::BlockCutter;
pub(crate) use catalog::Catalog;
pub use classes::ClassOrder;
pub(crate) use cut::slice;
pub use fit::{Misfits, misfits, misfits_of_sounds};
pub use folder::{NewFolders, Overwrite};
pub(crate) use format::MemberTable;
pub use format::{FileTable, is_picture_file};
pub use hidden::is_hidden;
pub use in_parts::{PackPart, PartReport, merge, pack_part, pack_part_until};
pub use index::{FolderPictures, IndexOptions, OldMetadata, ShardList, index, index_until};
pub use kept_sequences::{KeptSequences, MadePacking, SequencePacking};
pub(crate) use listing::Listing;
pub use look::{LookAt, SampleReader, SeenField, SeenRecord};
pub use originals::Against;
pub use pack::{Jpegs, PackOptions, PackOrder, pack, pack_until};
pub use patterns::{FileOfFolder, files_of};
pub use progress::DatasetProgress;
pub(crate) use progress::ScanCounts;
pub use report::{DatasetReport, LeftOutShard};
pub use scalable::JpegAsItIs;
pub(crate) use scan::{BadShards, DatasetOddities, Outline, Scan, ScannedShard, ShardResult};
pub use sequences::{
    CountLearned, CountTokens, EvaluatedSequences, LongDocuments, LossRequest, SequenceRequest, evaluate_pools,
    evaluate_sequences,
};
pub use sizes::{CountPixels, EvaluatedSizes, SampleMeasure, SizeRequest, evaluate_sizes};
use source::LeftOutTally;
pub use source::{Annotations, FieldChoice, LABEL_FIELD, LeftOut, LeftOutReason, PackSource};
pub(crate) use source::{
    at_line, field_name, is_picture, is_sound, is_unread_picture, is_video, note_of_pictures, pictures, read_text,
    text_of, wrong,
};
use spdl_shard::FormatError;
use spdl_store::{StoreError, TemporaryError};
pub(crate) use split::refuse_as_classes;
pub use split::{Splits, split_of};
pub(crate) use stages::{Memory, MemoryBound, RunningStages};
pub use tokens::{
    DatasetDocuments, DocumentSource, EachDocument, ReadTokens, SourceDocument, TokenBuildOptions, TokenBuildProgress,
    TokenBuildReport, TokenDocuments, TokenEncoding, TokenPackOptions, TokenPartReport, TokenShard, TokenShardWriter,
    build_token_part, build_tokens, merge_tokens, pack_tokens, pack_tokens_until,
};
pub use unpack::{UnpackReport, unpack, unpack_until};
pub use verify::{PictureCheck, VerifyFault, VerifyOptions, VerifyReport, verify};
use view::Undecided;
pub use write::{DatasetWriter, NewRecord, WriteOptions};

use spdl_pipeline::BuildError;

use crate::tar::TarError;

/// Default size at which shards are closed, in bytes: 256 MiB.
pub const DEFAULT_SHARD_BYTES: u64 = 256 << 20;

/// Why a dataset cannot be made or checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum DatasetError {
    /// The store reports an error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A shard is not a usable tar.
    #[error(transparent)]
    Tar(#[from] TarError),
    /// The format cannot hold the index or manifest.
    #[error("`{url}` {source}")]
    Unwritable { url: String, source: FormatError },
    /// A file or folder cannot be packed.
    #[error("`{path}` {problem}")]
    Source { path: String, problem: String },
    /// The value of an option is invalid.
    #[error("`{option}` {problem}")]
    Option { option: &'static str, problem: String },
    /// An option would lose metadata of the manifest that is replaced.
    #[error("`{option}` {problem}")]
    Loses { option: &'static str, problem: String },
    /// The place where the dataset should be written is occupied.
    #[error("`{url}` exists already")]
    InUse { url: String },
    /// A shard would replace a file that belongs to no dataset.
    #[error("`{url}` is in the way: no dataset in the folder has it")]
    NotOurs { url: String },
    /// Another command is still writing a dataset to this folder, or was killed.
    #[error("a dataset in `{url}` was begun and is not finished")]
    Unfinished { url: String },
    /// The folder that a dataset should be unpacked to is not empty.
    #[error("`{path}` is not empty")]
    NotEmpty { path: String },
    /// A record that a program makes cannot be written.
    #[error("sample {number} (key `{key}`) {problem}")]
    Record { number: u64, key: String, problem: String },
    /// Two records of a shard have one key.
    #[error("`{url}`: two samples of a shard have the key `{key}`")]
    KeyTwice { url: String, key: String },
    /// A part of a pack cannot be used or merged.
    #[error("`{url}` {problem}")]
    Parts { url: String, problem: String },
    /// A record cannot be a file, or its bytes differ from those that were packed.
    #[error("`{url}`, record `{record}`: {problem}")]
    Damaged { url: String, record: String, problem: String },
    /// The source holds nothing to make a dataset from.
    #[error("there is nothing in `{origin}`: {problem}")]
    Nothing { origin: String, problem: String },
    /// More shards are bad than may be left out, or all of them.
    #[error("`{url}`: shards that cannot be read: {bad}, and {allowed}; the last of them: {last}")]
    BadShards { url: String, bad: u32, allowed: String, last: Box<DatasetError> },
    /// The shards are of several splits.
    #[error("`{url}` has several splits: {found}")]
    Splits { url: String, found: String },
    /// The folders that would become classes have the names of splits.
    #[error("in `{url}`, folders that would be classes are called as splits: {folders}")]
    SplitFolders { url: String, folders: String },
    /// Pictures of a tar are fields of few records, and look as if each were meant as a record.
    #[error("`{url}`: {found}")]
    DottedKeys { url: String, found: String },
    /// A temporary file for names or indexes, which do not fit into memory, cannot be used.
    #[error(transparent)]
    Temporary(#[from] TemporaryError),
    /// The pipeline that does the work cannot start.
    #[error(transparent)]
    Pipeline(#[from] BuildError),
    /// A key of a view is wrong.
    #[error("`view.{key}` {problem}")]
    View { key: &'static str, problem: String },
    /// It cannot be decided whether a view keeps a record, because the record is damaged.
    #[error("shard `{shard}`, record `{record}`: {problem}")]
    Undecided { shard: String, record: String, problem: String },
    /// A document cannot be read, or has other tokens than are allowed.
    #[error("shard `{shard}`, document `{record}`: {problem}")]
    Document { shard: String, record: String, problem: String },
    /// The documents of a dataset cannot be packed into sequences.
    #[error("`sequence` {problem}")]
    Sequence { problem: String },
    /// A view keeps nothing.
    #[error("`view` keeps none of the {samples} samples of the dataset")]
    EmptyView { samples: u64 },
    /// The work ended before it was complete because it was asked to stop.
    #[error("`{url}` was not finished: it was stopped, and nothing of it is left")]
    Stopped { url: String },
}

impl DatasetError {
    /// Returns whether the same call can succeed later although nothing was changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }

    /// Returns whether a shard's bytes are the cause, so that the others can be read.
    pub(crate) fn is_of_shard(&self) -> bool {
        let is_of_file = |error: &StoreError| matches!(error, StoreError::Changed { .. } | StoreError::Format { .. });
        match self {
            Self::Tar(_) | Self::Source { .. } | Self::Unwritable { .. } => true,
            Self::Store(error) => is_of_file(error),
            _ => false,
        }
    }

    /// Returns what the user can do about it, for the `hint:` line.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Tar(error) => Some(error.fault.hint()),
            Self::Loses { .. } => Some(
                "leave the option out, make the new one elsewhere (`--out`), or give --discard-metadata to lose the old one",
            ),
            Self::KeyTwice { .. } => Some("give each sample a key of its own, or none to have them numbered"),
            Self::NotEmpty { .. } => Some("choose a folder that is empty or does not exist; nothing is overwritten"),
            Self::Damaged { .. } => Some("`spdl-ctl verify` names all that is wrong with a dataset"),
            Self::BadShards { .. } => {
                Some("look at the shards, copy them once more, or allow more with --skip-bad-shards")
            }
            Self::Splits { .. } => {
                Some("give `--split NAME` for a dataset of one of them, or `--all-splits` for one of them all")
            }
            Self::SplitFolders { .. } => {
                Some("give one of the folders, for a dataset of it; or `--all-splits` if they are the classes")
            }
            Self::DottedKeys { .. } => Some(
                "give `--key-ends-at last-dot` if each picture is a record, or `first-dot` if they belong together",
            ),
            Self::Unfinished { .. } => {
                Some("if no other command writes there, remove the unfinished files with --force")
            }
            Self::Temporary(_) => Some(
                "names and indexes that do not fit into memory go to the dataset's folder, or to TMPDIR if that is no local one: \
                 give it room",
            ),
            Self::NotOurs { .. } => {
                Some("choose another folder, or move the file away; what is of no dataset is not overwritten")
            }
            Self::InUse { .. } => Some("choose another folder, or replace the existing one with --force"),
            _ => None,
        }
    }
}
