//! MDS, the format of MosaicML Streaming: `index.json` lists shards, each with a table of its samples in front.
//!
//! Indexing reads only `index.json` and these tables. Plain shards are read by ranges: a field's range is that of its
//! sample, which begins with the sizes of its values. Compressed shards are read as a whole.

mod build;
mod encoding;
mod index;
mod index_json;
mod picture;
mod scan;

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use spdl_types::Fingerprint;

use super::{Format, ShardIndex, Takes, compressed};
use crate::{
    FormatError,
    dataset::{DatasetError, Listing, Scan, ShardResult, is_hidden_shard},
};

/// Returns whether this is the name of a chunk of LitData. Such a folder is taken for MDS, so that reading its
/// `index.json` fails with an error that names LitData.
fn is_lit_data(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or_default();
    file.starts_with("chunk-") && file.ends_with(".bin")
}

/// MDS.
#[derive(Debug)]
pub(super) struct Mds;

impl Format for Mds {
    fn name(&self) -> &'static str {
        "mds"
    }

    fn open_index(&self, bytes: Bytes, expected: Fingerprint) -> Result<Arc<dyn ShardIndex>, FormatError> {
        compressed::open_index(bytes, expected, index::MdsIndex::open)
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

    fn scan<'s>(&self, scan: Scan<'s>) -> BoxStream<'s, Result<ShardResult, DatasetError>> {
        scan::scan(scan)
    }
}
