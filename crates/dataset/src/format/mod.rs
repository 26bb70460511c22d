//! How the shards of each format are found in a folder, and their indexes made.
//!
//! [`Format`] opens what a [`FormatScan`] has indexed. All else works with these two traits and knows no format by name.
//! A new format is a module here and an entry in the table `SCANS`, beside its `Format` in `spdl-shard`.

mod array_record;
mod files;
mod footer_files;
mod lerobot;
mod mds;
mod megatron;
mod members;
mod parquet;
mod read_shards;
mod tar;
mod tfrecord;
mod token_files;
mod token_shards;

pub use files::{FileTable, is_picture_file};
pub(crate) use files::{LONG_BYTES, MAX_SOUND_BYTES, is_matroska};
pub(crate) use members::MemberTable;

use std::fmt;

use futures::stream::BoxStream;
use spdl_shard::{format::Format, index::is_index};

use crate::{DatasetError, Listing, Scan, ShardResult, hidden::is_hidden_shard};

/// All formats. A folder for which no format is given has the first format of this table that recognises it.
static SCANS: [&dyn FormatScan; 10] = [
    &tar::TarScan,
    &mds::MdsScan,
    &lerobot::LeRobotScan,
    &parquet::ParquetScan,
    &tfrecord::TfRecordScan,
    &array_record::ArrayRecordScan,
    &megatron::MegatronScan,
    &token_files::DatatroveScan,
    &token_files::RawTokensScan,
    &files::LooseFileScan,
];

/// Finds the shards of a format.
pub(crate) trait FormatScan: fmt::Debug + Send + Sync {
    /// Returns the format.
    fn format(&self) -> &'static dyn Format;

    /// Returns whether an object of this name is a shard by itself, unless it is hidden.
    fn is_shard(&self, name: &str) -> bool;

    /// Returns whether an object that [is a shard](Self::is_shard) by its name belongs to one of another name.
    fn is_beside_shard(&self, _name: &str) -> bool {
        false
    }

    /// Returns whether [`dtype`](crate::IndexOptions::dtype) and [`end_token`](crate::IndexOptions::end_token) are for it.
    fn takes_token_options(&self) -> bool {
        false
    }

    /// Returns whether a table can say more of its records.
    fn takes_table(&self) -> bool {
        false
    }

    /// Returns whether the pictures of a folder can be [the frames of a video](crate::FolderPictures::Frames).
    fn takes_frames(&self) -> bool {
        false
    }

    /// Returns which objects of a folder are taken if the user chose none. Default: its shards.
    fn takes(&self) -> Takes {
        Takes::Shards
    }

    /// Returns whether a folder that holds these objects has this format.
    fn recognises(&self, folder: &Listing) -> bool {
        folder.iter().any(|object| self.is_shard(object.name) && !is_hidden_shard(object.name))
    }

    /// Returns why a record cannot have a sample for each box of its annotation; `None` if it can.
    fn refuses_boxes(&self) -> Option<&'static str> {
        Some("is only for tars")
    }

    /// The suffixes of its shards in lower case, and what the user can do with such files where `pack` looks for files of records.
    fn as_they_are(&self) -> (&'static [&'static str], &'static str) {
        (&[], "")
    }

    /// Finds the shards and blocks of a dataset among the objects that were chosen or [taken](Self::takes), in order, and
    /// makes the index of each shard.
    fn scan<'s>(&self, scan: Scan<'s>) -> BoxStream<'s, Result<ShardResult, DatasetError>>;
}

/// The objects of a folder that a format takes if the user chose none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// The shards.
    Shards,
    /// The shards, or all objects if none is named like a shard.
    ShardsOrAll,
    /// All objects; one of them lists which of them are shards.
    Listed,
    /// All objects: each may be a field of a record.
    Files,
}

/// Returns whether the name of the file at `path` contains one of `marks`, by which programs name shards, such as
/// `.tfrecord` in `train.tfrecord-00000-of-00010`.
fn is_named_so(path: &str, marks: &[&str]) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    marks.iter().any(|mark| name.contains(mark)) && !is_index(name)
}

/// Returns how the shards of `format` are found.
pub(crate) fn scan_of(format: &dyn Format) -> &'static dyn FormatScan {
    let found = SCANS.into_iter().find(|scan| scan.format().name() == format.name());
    found.unwrap_or_else(|| panic!("the shards of `{}` cannot be found", format.name()))
}

/// Returns how to find what the rows of a table are about in a folder: members of tars, if the table says so, or there are tars and not
/// the file, or the folder of frames, of the first row; or else files.
pub(crate) fn scan_of_table(table: &FileTable, folder: &Listing) -> &'static dyn FormatScan {
    let first = table.files().next().unwrap_or_default();
    let is_first = |name: &str| name.strip_prefix(first).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let has_tars = || folder.iter().any(|object| tar::TarScan.is_shard(object.name));
    let has_first = || folder.iter().any(|object| is_first(object.name));
    if table.is_of_files() && (!has_tars() || has_first()) { &files::LooseFileScan } else { &tar::TarScan }
}

/// Returns how files of tokens alone are found, which the options for them mean.
pub(crate) fn with_token_options() -> Option<&'static dyn FormatScan> {
    SCANS.into_iter().find(|scan| scan.takes_token_options())
}

/// Returns what the user can do with a file of this suffix, if it is a shard of a format.
pub(crate) fn as_they_are(suffix: &str) -> Option<&'static str> {
    let mut all = SCANS.into_iter().map(FormatScan::as_they_are);
    all.find(|(suffixes, _)| suffixes.contains(&suffix)).map(|(_, hint)| hint)
}

/// Returns how the shards of a folder that holds these objects are found, if a format recognises it.
pub(crate) fn recognise(folder: &Listing) -> Option<&'static dyn FormatScan> {
    SCANS.into_iter().find(|scan| scan.recognises(folder))
}

#[cfg(test)]
mod tests {
    use spdl_shard::format::{format_called, format_names};

    use super::*;

    #[test]
    fn the_shards_of_each_format_can_be_found() {
        for name in format_names() {
            assert_eq!(scan_of(format_called(name).unwrap()).format().name(), name);
        }
        assert_eq!(SCANS.len(), format_names().count());
    }

    #[test]
    fn files_are_known_by_the_names_that_programs_give_them() {
        let is_shard = |path: &str| array_record::ArrayRecordScan.is_shard(path);
        for name in ["a.array_record", "x/mnist-train.array_record-00000-of-00010", "b.arrayrecord"] {
            assert!(is_shard(name), "{name}");
        }
        for name in
            ["a.array_record.idx", "a.array_record-00000-of-00010.idx.new", "x.array_record/info.json", "a.tfrecord"]
        {
            assert!(!is_shard(name), "{name}");
        }
    }
}
