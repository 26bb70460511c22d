//! Finds loose files, groups them into records, and gives these the values of a table.

mod coco;
mod delimited;
mod frames;
mod kaldi;
mod packet_tables;
mod paths;
mod records;
mod scan;
mod shar;
mod table;
mod transcripts;

pub(crate) use packet_tables::{LONG_BYTES, MAX_SOUND_BYTES, is_matroska};
pub use records::is_picture_file;
use records::{is_sound_file, is_video_file};
pub(super) use scan::numbers as class_numbers;
pub use table::FileTable;
pub(super) use table::RowFields;

use futures::stream::BoxStream;
use spdl_shard::format::{Format, files::LooseFiles};

use super::{FormatScan, Takes};
use crate::{DatasetError, Listing, Scan, ShardResult, hidden::is_hidden};

/// Finds loose files.
#[derive(Debug)]
pub(super) struct LooseFileScan;

impl FormatScan for LooseFileScan {
    fn format(&self) -> &'static dyn Format {
        &LooseFiles
    }

    /// A shard of loose files is a list of them, and no object.
    fn is_shard(&self, _name: &str) -> bool {
        false
    }

    fn takes(&self) -> Takes {
        Takes::Files
    }

    fn recognises(&self, folder: &Listing) -> bool {
        let is_one = |name: &str| is_picture_file(name) || is_sound_file(name) || is_video_file(name);
        folder.iter().any(|object| is_one(object.name) && !is_hidden(object.name))
    }

    fn takes_table(&self) -> bool {
        true
    }

    fn takes_frames(&self) -> bool {
        true
    }

    fn refuses_boxes(&self) -> Option<&'static str> {
        Some(
            "needs the annotations, and loose files are not read when they are indexed; pack them: with \
             `--annotations-beside` or `--annotations DIR`, `spdl-ctl pack` makes a sample of each box",
        )
    }

    fn scan<'s>(&self, scan: Scan<'s>) -> BoxStream<'s, Result<ShardResult, DatasetError>> {
        scan::scan(scan)
    }
}
