//! Merges runs into shards: each shard has some slices of all runs.

use std::{cmp::Reverse, collections::BinaryHeap, ops::Range, sync::Arc};

use futures::{StreamExt, TryStreamExt, stream};
use spdl_shard::{
    format::{
        megatron::IdxHeader,
        token_files::{DS_LOSS_SUFFIX, END_BYTES},
    },
    store::DatasetStore,
};
use spdl_store::StoreError;
use tokio::task::JoinSet;

use super::{
    BuildCounts,
    kept::KeptRuns,
    merged::MergedRun,
    run::{HEAD_BYTES, RunFacts, SliceStart, index},
    work::{BuildPlan, RunTotals, run_name},
};
use crate::{
    DatasetError,
    folder::is_shard_name_of,
    tokens::{TokenEncoding, TokenShardWriter, writer::shard_stem},
};

/// Number of indexes of runs that are read at once.
const INDEXES_AT_ONCE: usize = 8;
/// Memory for what is read ahead of all runs of a shard, in bytes, and the limits of what is read of one run at once.
const READ_BYTES: u64 = 32 << 20;
const MIN_CHUNK_BYTES: u64 = 16 << 10;
const MAX_CHUNK_BYTES: u64 = 4 << 20;
/// The limit on disk, where what is read stays in the processor's cache until it is taken.
const MAX_LOCAL_CHUNK_BYTES: u64 = 1 << 20;

/// A shard to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PlannedTokens {
    /// The runs that it has documents of, and their ranges.
    parts: Vec<(u32, Range<u64>)>,
    documents: u64,
    /// Bytes of its tokens with their masks.
    bytes: u64,
}

/// Assigns slices to shards of at most so many bytes, unless a slice alone has more.
struct Cutter {
    shard_bytes: u64,
    shards: Vec<PlannedTokens>,
}

impl Cutter {
    /// Adds a slice, and returns the number of its shard.
    fn add(&mut self, documents: u64, bytes: u64) -> usize {
        let is_full = |shard: &PlannedTokens| shard.documents > 0 && shard.bytes + bytes > self.shard_bytes;
        if self.shards.last().is_none_or(|last| documents > 0 && is_full(last)) {
            self.shards.push(PlannedTokens::default());
        }
        let shard = self.shards.last_mut().expect("there is one");
        shard.documents += documents;
        shard.bytes += bytes;
        self.shards.len() - 1
    }

    /// Adds a range of a run to a shard.
    fn add_part(&mut self, shard: usize, run: u32, range: Range<u64>) {
        let parts = &mut self.shards[shard].parts;
        match parts.last_mut() {
            Some((last, known)) if *last == run && known.end == range.start => known.end = range.end,
            _ if range.is_empty() => {}
            _ => parts.push((run, range)),
        }
    }
}

/// Returns the documents and the bytes of tokens between two starts.
fn between(start: SliceStart, end: SliceStart) -> (u64, u64) {
    let documents = end.documents - start.documents;
    (documents, (end.offset - start.offset).saturating_sub(documents * HEAD_BYTES))
}

/// Plans the shards from the indexes of all runs.
pub(super) async fn plan_shards(
    to: &DatasetStore,
    plan: &BuildPlan,
    kept: &KeptRuns,
) -> Result<(Vec<PlannedTokens>, RunTotals), DatasetError> {
    let indexes =
        || stream::iter(0..plan.units()).map(|unit| any_index(to, plan, kept, unit)).buffered(INDEXES_AT_ONCE);
    let mut totals = RunTotals::default();
    let mut cutter = Cutter { shard_bytes: plan.shard_bytes, shards: Vec::new() };
    let mut slices = vec![(0, 0); plan.slices as usize];
    let mut runs = std::pin::pin!(indexes().enumerate());
    while let Some((unit, run)) = runs.next().await {
        let (facts, index) = run?;
        totals.add(facts.totals);
        if plan.seed.is_some() && index.len() != slices.len() + 1 {
            let problem = "has another number of slices than is planned: begin anew with --force".to_owned();
            return Err(DatasetError::Parts { url: to.url_of(&run_name(unit as u32)), problem });
        }
        for (slice, pair) in index.windows(2).enumerate() {
            let (documents, bytes) = between(pair[0], pair[1]);
            if plan.seed.is_some() {
                slices[slice].0 += documents;
                slices[slice].1 += bytes;
            } else {
                let shard = cutter.add(documents, bytes);
                cutter.add_part(shard, unit as u32, pair[0].offset..pair[1].offset);
            }
        }
    }
    if plan.seed.is_some() {
        let shard_of: Vec<usize> = slices.iter().map(|(documents, bytes)| cutter.add(*documents, *bytes)).collect();
        // Of all indexes together, only the ends of shards are in memory.
        let mut runs = std::pin::pin!(indexes().enumerate());
        while let Some((unit, run)) = runs.next().await {
            for (pair, shard) in run?.1.windows(2).zip(&shard_of) {
                cutter.add_part(*shard, unit as u32, pair[0].offset..pair[1].offset);
            }
        }
    }
    cutter.shards.retain(|shard| shard.documents > 0);
    Ok((cutter.shards, totals))
}

/// Returns the index of a unit's run, in memory or from the store.
async fn any_index(
    to: &DatasetStore,
    plan: &BuildPlan,
    kept: &KeptRuns,
    unit: u32,
) -> Result<(RunFacts, Vec<SliceStart>), DatasetError> {
    match kept.run(unit) {
        Some(run) => Ok(run.index()),
        None => index(to, plan, unit).await,
    }
}

/// Writes the shards that are not there yet, some at once, and returns the names of all.
pub(super) async fn write_shards(
    to: &DatasetStore,
    encoding: TokenEncoding,
    shards: Vec<PlannedTokens>,
    at_once: usize,
    kept: &Arc<KeptRuns>,
    counts: &Arc<BuildCounts>,
) -> Result<Vec<String>, DatasetError> {
    let suffixes = encoding.suffixes();
    to.remove_temporaries("", |name| suffixes.iter().any(|suffix| is_shard_name_of(name, suffix)))?;
    let names = (0..shards.len() as u64).map(|number| format!("{}{}", shard_stem(number), encoding.suffix())).collect();
    counts.begin_shards(shards.iter().map(|shard| shard.bytes).sum(), shards.len() as u64);
    let mut writing = JoinSet::new();
    for (number, shard) in (0..).zip(shards) {
        while writing.len() >= at_once {
            writing.join_next().await.expect("there is one").expect("writing does not panic")?;
        }
        let (to, kept, counts) = (to.clone(), Arc::clone(kept), Arc::clone(counts));
        writing.spawn(async move { write_shard(&to, encoding, number, shard, &kept, &counts).await });
    }
    while let Some(written) = writing.join_next().await {
        written.expect("writing does not panic")?;
    }
    Ok(names)
}

async fn write_shard(
    to: &DatasetStore,
    encoding: TokenEncoding,
    number: u64,
    shard: PlannedTokens,
    kept: &KeptRuns,
    counts: &BuildCounts,
) -> Result<(), DatasetError> {
    if is_there(to, encoding, number, &shard).await? {
        counts.add_shard(shard.bytes);
        return Ok(());
    }
    let most = if to.local_folder().is_some() { MAX_LOCAL_CHUNK_BYTES } else { MAX_CHUNK_BYTES };
    let chunk_bytes = (READ_BYTES / shard.parts.len().max(1) as u64).clamp(MIN_CHUNK_BYTES, most);
    let readers = shard.parts.into_iter().map(|(unit, part)| async move {
        let mut reader = MergedRun::open(to, kept, unit, part, chunk_bytes);
        Ok::<_, DatasetError>((reader.head().await?, reader))
    });
    let opened: Vec<_> = stream::iter(readers).buffered(INDEXES_AT_ONCE).try_collect().await?;
    let (mut heads, mut readers) = (BinaryHeap::new(), Vec::new());
    for (place, (head, reader)) in opened.into_iter().enumerate() {
        // Of equal hashes, those of the first unit come first.
        heads.extend(head.map(|hash| Reverse((hash, place))));
        readers.push(reader);
    }
    let mut writer = TokenShardWriter::new(to, encoding, number, u64::MAX, None)?;
    while let Some(Reverse((_, place))) = heads.pop() {
        let reader: &mut MergedRun<'_> = &mut readers[place];
        writer.add(reader.document().await?).await?;
        heads.extend(reader.head().await?.map(|hash| Reverse((hash, place))));
    }
    writer.finish().await?;
    let written = writer.shards().first().map_or(0, |written| written.documents);
    if written != shard.documents {
        let problem =
            format!("has {written} documents of {}: a run changed meanwhile; tokenize again", shard.documents);
        return Err(DatasetError::Parts { url: to.url_of(&shard_stem(number)), problem });
    }
    counts.add_shard(shard.bytes);
    Ok(())
}

/// Returns whether all files of a shard are there.
async fn is_there(
    to: &DatasetStore,
    encoding: TokenEncoding,
    number: u64,
    shard: &PlannedTokens,
) -> Result<bool, DatasetError> {
    for (suffix, bytes) in sizes(encoding, shard) {
        match to.meta(&format!("{}{suffix}", shard_stem(number))).await {
            Ok(meta) if meta.size == bytes => {}
            Ok(_) | Err(StoreError::Missing { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Returns the suffixes and sizes of the files of a shard, the last written first.
fn sizes(encoding: TokenEncoding, shard: &PlannedTokens) -> Vec<(&'static str, u64)> {
    let (documents, tokens) = (shard.documents, shard.bytes / encoding.token_bytes());
    let index = if encoding.has_masks() {
        documents * END_BYTES
    } else {
        let (dtype, entries) = (encoding.dtype(), documents + 1);
        IdxHeader { dtype, sequences: documents, entries, has_modes: false }.document_index(&(0..entries)).end
    };
    let mut sizes = vec![(encoding.index_suffix(), index)];
    sizes.extend(encoding.has_masks().then_some((DS_LOSS_SUFFIX, tokens)));
    sizes.push((encoding.suffix(), tokens * encoding.dtype().bytes() as u64));
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_ends_before_the_slice_that_would_make_it_too_long() {
        let mut cutter = Cutter { shard_bytes: 10, shards: Vec::new() };
        let slices = [(1, 4), (0, 0), (2, 6), (1, 30), (0, 0), (1, 1)];
        assert_eq!(slices.map(|(documents, bytes)| cutter.add(documents, bytes)), [0, 0, 0, 1, 1, 2]);
        for (shard, range) in [(0, 0..5), (0, 5..5), (0, 5..20), (0, 30..31)] {
            cutter.add_part(shard, 7, range);
        }
        cutter.add_part(0, 8, 3..3);
        assert_eq!(cutter.shards[0], PlannedTokens { parts: vec![(7, 0..20), (7, 30..31)], documents: 3, bytes: 10 });
    }
}
