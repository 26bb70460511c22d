//! MDS, the format of MosaicML Streaming: `index.json` lists shards, each with a table of its samples in front.
//!
//! Indexing reads only `index.json` and these tables. Plain shards are read by ranges: a field's range is that of its
//! sample, which begins with the sizes of its values. Compressed shards are read as a whole.

mod build;
mod encoding;
mod index;
mod picture;

use std::sync::Arc;

use bytes::Bytes;
use spdl_types::Fingerprint;

use super::{Format, ShardIndex, compressed};
use crate::FormatError;

pub use build::MdsFacts;
pub use encoding::MdsEncoding;

/// MDS.
#[derive(Debug)]
pub struct Mds;

impl Format for Mds {
    fn name(&self) -> &'static str {
        "mds"
    }

    fn open_index(&self, bytes: Bytes, expected: Fingerprint) -> Result<Arc<dyn ShardIndex>, FormatError> {
        compressed::open_index(bytes, expected, index::MdsIndex::open)
    }
}
