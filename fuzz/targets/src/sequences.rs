//! Tables of sequences: what a job reads of the pools that were made of its dataset.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use spdl_sequence::{LongDocument, PackMethod, PoolEpoch, PoolLayout, SequenceParams, TokenPool};
use spdl_shard::{
    manifest::{BlockFacts, Manifest, ManifestBuilder, ShardFacts},
    samples::JobSamples,
    sequences::{
        CountedPool, LearnedTokens, LengthsAt, MadeSequences, PoolDocuments, SequenceTable, SequenceTableBuilder,
    },
    store::DatasetStore,
};
use spdl_types::Fingerprint;

use crate::{indexes::with_checksum, input::FuzzInput};

/// Where the number of pools is, and the rows of pools: `docs/spec/formats/sequences.md`.
const POOLS_AT: usize = 40;
const ROWS_AT: usize = 112;
const ROW_BYTES: usize = 16;
const VERSION_AT: usize = 8;

/// Checks that a table that opens agrees with its dataset, and that documents of the lengths that it has are packed or refused. The
/// input is the number of the dataset's blocks, the samples of each, and the file.
pub(crate) fn read(data: &[u8]) {
    let mut input = FuzzInput(data);
    let blocks = usize::from(input.byte());
    let blocks: Vec<u32> = (0..blocks).map(|_| 1 + u32::from(input.byte())).collect();
    let (file, manifest) = (Bytes::copy_from_slice(input.0), manifest_of(&blocks));
    for lengths in [LengthsAt::Table, LengthsAt::Indexes] {
        let made = MadeSequences { fingerprint: Fingerprint::of(&file), file: file.clone(), lengths };
        let _ = SequenceTable::of_memory(&made, &manifest, None);
    }
    let Ok(table) = SequenceTable::of_memory(&with_fingerprint(input.0), &manifest, None) else { return };
    let fill = table.fill();
    assert_eq!(fill.documents, manifest.samples());
    assert!(fill.padding() <= fill.places && (0.0..=1.0).contains(&fill.ratio()), "{fill:?}");
    assert_eq!(JobSamples::Sequences(table.clone()).facts(&manifest).samples, fill.sequences);
    let store = DatasetStore::open("/").expect("a folder");
    let (mut documents, mut block) = (0, 0);
    for (pool, sequences) in (0..).zip(table.pools().sequences()) {
        let (of_pool, in_pool) = (table.pools().blocks(pool).expect("a pool has blocks"), table.documents(pool));
        assert_eq!((of_pool.start, in_pool.start), (block, documents));
        (block, documents) = (of_pool.end, in_pool.end);
        let read = table.read_pool(&store, pool).now_or_never();
        let Ok(PoolDocuments { lengths, .. }) = read.expect("they are in memory") else { continue };
        assert_eq!(lengths.len() as u64, in_pool.end - in_pool.start);
        for method in METHODS {
            pack(SequenceParams { version: 1, seq_len: 16, added_tokens: 1, method }, lengths.clone(), *sequences);
        }
    }
    assert_eq!((block, documents), (manifest.block_count(), manifest.samples()));
}

const METHODS: [PackMethod; 2] =
    [PackMethod::BestFit { align: 4, max_documents: Some(3), long: LongDocument::Split }, PackMethod::Chunk];

/// Lays documents out, and finds the pieces of a pool that has as many sequences as its table says.
fn pack(params: SequenceParams, lengths: Box<[u32]>, sequences: u32) {
    let counted = PoolLayout::count(&params, &lengths).map(|fill| fill.sequences);
    let layout = PoolLayout::new(&params, lengths);
    assert_eq!(layout.as_ref().map(|layout| u64::from(layout.sequences())), counted.as_ref().map(|count| *count));
    let Some(layout) = layout.ok().filter(|layout| layout.sequences() == sequences && sequences > 0) else { return };
    let pool = PoolEpoch::new(Arc::new(layout), 7, 1, 0);
    let mut pieces = Vec::new();
    for sequence in [0, sequences / 2, sequences - 1] {
        pieces.clear();
        pool.pieces(sequence, &mut pieces);
        assert!(pieces.iter().all(|piece| piece.at + piece.tokens <= params.seq_len), "{pieces:?}");
    }
}

/// Returns the manifest of a dataset with these samples in its blocks.
pub(crate) fn manifest_of(blocks: &[u32]) -> Manifest {
    let mut first_record = 0;
    let facts: Vec<BlockFacts> = blocks
        .iter()
        .map(|&samples| {
            let (offset, first) = (u64::from(first_record), first_record);
            first_record += samples;
            BlockFacts { offset, bytes: samples, first_record: first, records: samples, samples }
        })
        .collect();
    let shard = ShardFacts {
        url: "shard".to_owned(),
        bytes: u64::from(first_record),
        etag: None,
        records: first_record,
        index_bytes: 1,
        index_hash: Fingerprint(0),
    };
    let mut manifest = ManifestBuilder::new("set");
    manifest.shard(&shard, &facts).expect("blocks that follow each other");
    manifest.finish().expect("a manifest")
}

/// Returns a file whose table has the correct length and checksum, and the table's fingerprint.
fn with_fingerprint(data: &[u8]) -> MadeSequences {
    let pools = data.get(POOLS_AT..).and_then(|rest| rest.first_chunk()).map_or(0, |pools| u32::from_le_bytes(*pools));
    // Version 2 has two more counts, and a number more in each row.
    let has_learned = data.get(VERSION_AT) == Some(&2);
    let (rows_at, row_bytes) = if has_learned { (ROWS_AT + 16, ROW_BYTES + 4) } else { (ROWS_AT, ROW_BYTES) };
    let end = (rows_at + pools as usize * row_bytes).min(data.len());
    let mut file = with_checksum(&data[..end]);
    let fingerprint = Fingerprint::of(&file);
    file.extend(&data[end..]);
    MadeSequences { file: file.into(), fingerprint, lengths: LengthsAt::Table }
}

/// Makes tables of these pools, each of blocks with the documents that it has, after the input's first bytes; with masks, if all their
/// documents have one.
fn seed(pools: &[&[&[u32]]], has_masks: bool) -> Vec<u8> {
    let blocks: Vec<u8> = pools.iter().copied().flatten().map(|documents| documents.len() as u8 - 1).collect();
    let (mut builder, mut end) = (SequenceTableBuilder::default(), 0);
    for blocks in pools {
        let of_pool = end..end + blocks.len() as u32;
        end = of_pool.end;
        let pool = TokenPool { blocks: of_pool, lengths: blocks.concat() };
        let params = SequenceParams { version: 1, seq_len: 16, added_tokens: 1, method: METHODS[0] };
        let pieces = pool.lengths.iter().map(|length| params.kept_tokens(*length).div_ceil(16)).sum::<u64>();
        let learned = vec![1; if has_masks { pieces as usize } else { 0 }];
        if has_masks {
            builder.add_learned(LearnedTokens { tokens: pieces, unlearned_documents: 0 });
        }
        let fill = pool.count(&params).expect("a few documents");
        builder.push(CountedPool::new(pool, fill, has_masks.then_some(learned)));
    }
    let made = builder.finish().expect("pools in order");
    [&[blocks.len() as u8], &blocks[..], &made.file].concat()
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    vec![
        seed(&[&[&[3, 0, 40], &[16]], &[&[1, 1, 1, 1, 1], &[15], &[200]]], false),
        seed(&[&[&[3, 0, 40], &[16]], &[&[1, 1, 1, 1, 1], &[15], &[200]]], true),
        seed(&[&[&[0, 0], &[0]], &[&[7]]], false),
        seed(&[&[&[u32::MAX - 1]]], false),
        seed(&[], false),
    ]
}
