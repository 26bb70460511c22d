//! The lengths of a pool's documents, from the indexes of the shards that have them.

use spdl_store::StoreError;

use super::{SequenceTable, builder::checksum_of};
use crate::{format::token_index::TOKENS, manifest::Manifest, store::DatasetStore};

impl SequenceTable {
    /// Reads the lengths of a pool's documents, which are those that were packed.
    pub(super) async fn indexed_lengths(
        &self,
        at: &DatasetStore,
        manifest: &Manifest,
        pool: u32,
    ) -> Result<Box<[u32]>, StoreError> {
        let documents = self.documents(pool);
        let mut lengths = Vec::with_capacity((documents.end - documents.start) as usize);
        let mut open = None;
        for block in self.pools.blocks(pool).into_iter().flatten().map(|block| manifest.block(block)) {
            let index = match open.take() {
                Some((shard, index)) if shard == block.shard => index,
                _ => at.index(&manifest.shard(block.shard)).await?,
            };
            let records = block.first_record..block.first_record + block.records;
            lengths.extend(index.array_lengths(records, TOKENS).unwrap_or_default());
            open = Some((block.shard, index));
        }
        if checksum_of([&lengths[..]]) != self.checksums[pool as usize] {
            let problem =
                format!("documents of pool {pool} have other lengths in their indexes than when they were packed");
            return Err(StoreError::Changed { url: at.url().to_owned(), problem });
        }
        Ok(lengths.into())
    }
}
