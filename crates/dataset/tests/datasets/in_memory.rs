//! Decodes shards that consist of one file in memory.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use spdl_shard::{
    format::{DecodedBlock, Format, ShardIndex},
    manifest::{ManifestBuilder, ShardFacts},
};
use spdl_types::Fingerprint;

/// Decodes what ranges of a shard have. A range of which bytes lie beyond the file was not fetched.
pub(crate) fn decoded(
    format: &'static dyn Format,
    file: &[u8],
    index: &dyn ShardIndex,
    ranges: &[Range<u64>],
) -> Arc<dyn DecodedBlock> {
    let mut builder = ManifestBuilder::new("a").format(format);
    let facts = ShardFacts {
        url: "a".into(),
        bytes: index.shard_bytes(),
        etag: None,
        records: index.record_count(),
        index_bytes: index.bytes().len() as u64,
        index_hash: Fingerprint::of(index.bytes()),
    };
    builder.shard(&facts, &[]).unwrap();
    let plan = index.plan(&builder.finish().unwrap().shard(0), ranges);
    let fetched = |range: Range<u64>| {
        let mut found = Vec::new();
        for part in &plan {
            let (start, end) = (part.at, part.at + (part.range.end - part.range.start));
            let wanted = range.start.max(start)..range.end.min(end);
            if wanted.start < wanted.end {
                let at = part.range.start + (wanted.start - start);
                found.extend_from_slice(file.get(at as usize..(at + wanted.end - wanted.start) as usize)?);
            }
        }
        (found.len() as u64 == range.end - range.start).then(|| Bytes::from(found))
    };
    index.decode(ranges, &fetched).unwrap()
}
