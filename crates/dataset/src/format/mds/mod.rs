//! Finds the shards of MDS, the format of MosaicML Streaming, which `index.json` lists.

mod index_json;
mod scan;

use futures::stream::BoxStream;
use spdl_shard::format::{Format, mds::Mds};

use super::{FormatScan, Takes};
use crate::{DatasetError, Listing, Scan, ShardResult, hidden::is_hidden_shard};

/// Returns whether this is the name of a chunk of LitData. Such a folder is taken for MDS, so that reading its
/// `index.json` fails with an error that names LitData.
fn is_lit_data(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or_default();
    file.starts_with("chunk-") && file.ends_with(".bin")
}

/// Finds MDS.
#[derive(Debug)]
pub(super) struct MdsScan;

impl FormatScan for MdsScan {
    fn format(&self) -> &'static dyn Format {
        &Mds
    }

    fn is_shard(&self, name: &str) -> bool {
        name.split_once(".mds").is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with('.'))
    }

    fn takes(&self) -> Takes {
        Takes::Listed
    }

    fn recognises(&self, folder: &Listing) -> bool {
        let has = |is_one: &dyn Fn(&str) -> bool| {
            folder.iter().any(|object| is_one(object.name) && !is_hidden_shard(object.name))
        };
        has(&index_json::is_index) && has(&|name| self.is_shard(name) || is_lit_data(name))
    }

    fn as_they_are(&self) -> (&'static [&'static str], &'static str) {
        (
            &["mds"],
            "`spdl-ctl index` makes a dataset of MDS shards, as they are; their `index.json` has to lie beside them",
        )
    }

    fn scan<'s>(&self, scan: Scan<'s>) -> BoxStream<'s, Result<ShardResult, DatasetError>> {
        scan::scan(scan)
    }
}
