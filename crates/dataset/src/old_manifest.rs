//! The metadata of a manifest that is about to be replaced, which the shards alone do not contain.

use std::collections::HashMap;

use spdl_shard::{
    format::{Format, Record, ShardIndex},
    index::IndexFile,
    manifest::{BlockFacts, Manifest, MetadataPlace},
    store::DatasetStore,
};
use spdl_store::StoreError;

use super::{DatasetError, IndexOptions, OldMetadata, scan::ScannedShard};

/// The existing manifest, if any, and whether its metadata has to be kept.
pub(super) struct OldManifest {
    manifest: Option<Manifest>,
    /// Numbers of its shards by their names.
    shards: HashMap<String, u32>,
    metadata: OldMetadata,
}

impl OldManifest {
    /// Collects the metadata of `manifest`, which is about to be replaced.
    pub(super) fn of(manifest: Option<Manifest>, metadata: OldMetadata) -> Self {
        let names = manifest.iter().flat_map(Manifest::shards);
        let shards = (0..).zip(names).map(|(number, shard)| (shard.url.to_owned(), number)).collect();
        Self { manifest, shards, metadata }
    }

    /// Returns whether there is a manifest that is replaced.
    pub(super) const fn exists(&self) -> bool {
        self.manifest.is_some()
    }

    /// Returns whether there is one whose indexes lie at `place`.
    pub(super) fn has_indexes_at(&self, place: MetadataPlace) -> bool {
        self.manifest.as_ref().is_some_and(|manifest| manifest.place() == place)
    }

    /// Restores the metadata of a shard whose fields are the same. Returns whether its record index can stay as it is.
    pub(super) async fn restore(
        &self,
        to: &DatasetStore,
        format: &'static dyn Format,
        options: &IndexOptions,
        shard: &mut ScannedShard,
    ) -> Result<bool, DatasetError> {
        let manifest = self.manifest.as_ref().filter(|manifest| manifest.format() == format);
        let Some((manifest, &number)) = manifest.zip(self.shards.get(&shard.facts.url)) else {
            return Ok(false);
        };
        let old = manifest.shard(number);
        let blocks: Vec<BlockFacts> =
            manifest.shard_blocks(number).map(|block| BlockFacts::of(manifest, block)).collect();
        if self.metadata == OldMetadata::Discard || old.bytes != shard.facts.bytes {
            return Ok(false);
        }
        let index = match to.index(&old).await {
            Ok(index) => Some(index),
            // An index that is missing or broken holds no metadata.
            Err(StoreError::Missing { .. } | StoreError::Format { .. } | StoreError::Changed { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        if (old.index_hash, old.index_bytes) != (shard.facts.index_hash, shard.facts.index_bytes) {
            let Some(index) = &index else { return Ok(false) };
            let new = format.open_index(shard.index.read()?, shard.facts.index_hash);
            let new = new.map_err(|source| DatasetError::Unwritable { url: shard.facts.url.clone(), source })?;
            if !has_same_fields(&**index, &*new) {
                return Ok(false);
            }
            if options.boxes.is_some() && index.sample_count() != new.sample_count() {
                return Err(self.lost("boxes", "gives records other numbers of samples"));
            }
            shard.odd.records_without_samples = index.records().filter(|record| record.samples == 0).count() as u64;
            shard.index = IndexFile::of(index.bytes().clone(), old.index_hash);
            shard.facts.index_hash = old.index_hash;
            shard.facts.index_bytes = old.index_bytes;
        }
        if options.block_bytes.is_some() && blocks != shard.blocks {
            return Err(self.lost("block_size", "cuts the shards into other blocks"));
        }
        shard.blocks = blocks;
        Ok(index.is_some())
    }

    /// Returns the given classes, or the old ones if none are given.
    pub(super) fn classes(&self, given: &[String]) -> Result<Vec<String>, DatasetError> {
        let Some(manifest) = self.manifest.as_ref().filter(|_| self.metadata == OldMetadata::Keep) else {
            return Ok(given.to_vec());
        };
        let old: Vec<String> = manifest.classes().map(str::to_owned).collect();
        if !given.is_empty() && !old.is_empty() && *given != old {
            return Err(self.lost("classes", "gives the classes other names or numbers"));
        }
        Ok(if given.is_empty() { old } else { given.to_vec() })
    }

    fn lost(&self, option: &'static str, what: &str) -> DatasetError {
        let fingerprint = self.manifest.as_ref().map(Manifest::fingerprint).unwrap_or_default();
        let problem = format!(
            "{what} than the manifest that is there: the dataset would be another one, and no job or checkpoint of the old \
             one ({fingerprint}) could go on"
        );
        DatasetError::Loses { option, problem }
    }
}

/// Returns whether the records have the same keys, fields, checksums and values in the same places. Records without checksums
/// never count as the same.
fn has_same_fields(a: &dyn ShardIndex, b: &dyn ShardIndex) -> bool {
    let is_same = |(a, b): (Record<'_>, Record<'_>)| {
        a.key == b.key
            && a.fields().eq(b.fields())
            && a.fields().all(|field| field.crc32c.is_some() || field.value.is_some())
    };
    a.record_count() == b.record_count() && a.records().zip(b.records()).all(is_same)
}
