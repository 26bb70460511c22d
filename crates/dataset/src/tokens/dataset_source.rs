//! The documents of a dataset, block by block, as the source that files of tokens are built of in parts.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use spdl_shard::{
    manifest::{Manifest, TokenizerFacts},
    store::DatasetStore,
};
use spdl_types::Fingerprint;
use tokio::runtime::Handle;

use super::{
    DocumentSource, EachDocument, SourceDocument, TokenPackOptions, documents::DocumentReader, pack::tokenizer_of,
};
use crate::{
    DatasetError,
    open_block::{OpenBlock, SharedReads},
};

/// The most units that a dataset is cut into, unless they would have fewer bytes than the least.
const MAX_UNITS: u64 = 4096;
/// The least bytes of a unit, unless the dataset has fewer.
const MIN_UNIT_BYTES: u64 = 16 << 20;

/// The documents of a dataset. A unit is a run of neighbouring blocks of a shard.
pub struct DatasetDocuments {
    from: DatasetStore,
    shards: DatasetStore,
    manifest: Arc<Manifest>,
    reader: DocumentReader,
    tokenizer: Option<TokenizerFacts>,
    /// The blocks of each unit, and their bytes.
    units: Vec<(Range<u32>, u64)>,
    read_bytes: AtomicU64,
}

impl DatasetDocuments {
    /// Opens the dataset in the folder `from`, whose documents are packed with these options.
    ///
    /// # Errors
    /// If it cannot be read, or an option is wrong.
    pub async fn open(from: &DatasetStore, options: &TokenPackOptions) -> Result<Self, DatasetError> {
        if options.shard_records.is_some() {
            let problem = "is for a dataset that is packed at once; with `part`, a shard has a size alone".to_owned();
            return Err(DatasetError::Option { option: "records-per-shard", problem });
        }
        let (reader, manifest) = (options.reader()?, Arc::new(from.manifest().await?));
        let tokenizer = tokenizer_of(&manifest, options.eos);
        let (from, shards, units) = (from.clone(), from.shards(&manifest)?, units_of(&manifest));
        Ok(Self { from, shards, manifest, reader, tokenizer, units, read_bytes: AtomicU64::new(0) })
    }
}

/// Cuts a dataset into units.
fn units_of(manifest: &Manifest) -> Vec<(Range<u32>, u64)> {
    let all: u64 = manifest.shards().map(|shard| shard.bytes).sum();
    let least = all.div_ceil(MAX_UNITS).max(MIN_UNIT_BYTES);
    let mut units: Vec<(Range<u32>, u64)> = Vec::new();
    for shard in 0..manifest.shard_count() {
        let blocks = manifest.shard_blocks(shard);
        let first = blocks.start;
        for number in blocks {
            let bytes = manifest.block(number).bytes;
            match units.last_mut() {
                Some((blocks, of_unit)) if number > first && *of_unit < least => {
                    (blocks.end, *of_unit) = (number + 1, *of_unit + bytes);
                }
                _ => units.push((number..number + 1, bytes)),
            }
        }
    }
    units
}

impl DocumentSource for DatasetDocuments {
    fn units(&self) -> usize {
        self.units.len()
    }

    fn bytes(&self) -> u64 {
        self.units.iter().map(|(_, bytes)| bytes).sum()
    }

    fn unit_bytes(&self, unit: usize) -> u64 {
        self.units[unit].1
    }

    fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Relaxed)
    }

    fn token_bytes(&self) -> u64 {
        self.bytes()
    }

    fn tokenizer(&self) -> Option<TokenizerFacts> {
        self.tokenizer
    }

    fn source(&self) -> String {
        format!("dataset `{}` with fingerprint {}", self.manifest.name(), self.manifest.fingerprint())
    }

    fn unit_fingerprint(&self, unit: usize) -> Fingerprint {
        let (Range { start, end }, _) = &self.units[unit];
        let blocks = [*start, *end].map(u32::to_le_bytes);
        Fingerprint::of(&[&self.manifest.fingerprint().0.to_le_bytes()[..], blocks.as_flattened()].concat())
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let eos = self.reader.eos.map_or_else(|| "none".to_owned(), |eos| eos.to_string());
        let facts = [("the field", self.reader.from.join("|")), ("the appended token", eos)];
        facts.map(|(name, value)| (name.to_owned(), value)).into()
    }

    fn read(&self, unit: usize, each: &mut EachDocument<'_>) -> Result<(), DatasetError> {
        let Self { manifest, reader, .. } = self;
        let (runtime, (blocks, _)) = (Handle::current(), self.units[unit].clone());
        let shard = manifest.block(blocks.start).shard;
        let index = runtime.block_on(self.from.index(&manifest.shard(shard)))?;
        let reads = Arc::<SharedReads>::default();
        for number in blocks {
            let (manifest, index, reads) = (manifest.clone(), index.clone(), reads.clone());
            let block = OpenBlock { block: manifest.block(number), manifest, index, reads };
            let ranges = block.ranges_of(|index, record| reader.field(index, record));
            let read = runtime.block_on(block.read(&self.shards, ranges))?;
            self.read_bytes.fetch_add(block.block.bytes, Relaxed);
            reader.each(&block, read, &mut |ids, named| {
                let problem = match ids {
                    Ok(ids) => each(SourceDocument::Ids(ids, None))?,
                    Err(problem) => Some(problem),
                };
                match problem {
                    Some(problem) => each(SourceDocument::Bad(named(problem))).map(drop),
                    None => Ok(()),
                }
            })?;
        }
        Ok(())
    }
}
