//! Tables of sequences in a folder: what was written is read, and hostile or damaged files are errors that name the file.

use std::{fs, ops::Range, os::unix::fs::MetadataExt as _, path::PathBuf, sync::Arc};

use spdl_order::view::{SampleSet, SampleSetBuilder};
use spdl_sequence::{LongDocument, PackMethod, SequenceFill, SequenceParams, TokenPool};
use spdl_shard::{
    manifest::{BlockFacts, Manifest, ManifestBuilder, ShardFacts},
    samples::JobSamples,
    sequences::{
        CountedPool, LearnedTokens, LengthsAt, MadeSequences, PoolDocuments, SequenceTable, SequenceTableBuilder,
        open_sequences, save_sequences,
    },
    store::DatasetStore,
};
use spdl_types::{Fingerprint, SampleId};
use xxhash_rust::xxh3::xxh3_128;

/// Where the number of pools, the counts of all and the rows of pools begin.
const POOLS_AT: usize = 40;
const COUNTS_AT: usize = 48;
const ROWS_AT: usize = 112;
const ROW_BYTES: usize = 16;
/// Samples of the dataset's blocks, and the blocks of its pools.
const BLOCKS: [u32; 5] = [3, 2, 7, 4, 1];
const POOLS: [Range<u32>; 3] = [0..2, 2..3, 3..5];

fn manifest(blocks: &[u32]) -> Manifest {
    let (records, mut first_record) = (blocks.iter().sum(), 0);
    let blocks: Vec<BlockFacts> = blocks
        .iter()
        .map(|&samples| {
            let block = BlockFacts {
                offset: u64::from(first_record) * 8,
                bytes: samples * 8,
                first_record,
                records: samples,
                samples,
            };
            first_record += samples;
            block
        })
        .collect();
    let shard = ShardFacts {
        url: "a.tar".to_owned(),
        bytes: u64::from(records) * 8,
        etag: None,
        records,
        index_bytes: 9,
        index_hash: Fingerprint(1),
    };
    let mut builder = ManifestBuilder::new("texts");
    builder.shard(&shard, &blocks).unwrap();
    builder.finish().unwrap()
}

fn params() -> SequenceParams {
    let method = PackMethod::BestFit { align: 1, max_documents: None, long: LongDocument::Truncate };
    SequenceParams { version: 1, seq_len: 10, added_tokens: 0, method }
}

/// Makes a table of pools with these blocks and lengths of documents.
fn made(pools: impl IntoIterator<Item = (Range<u32>, Vec<u32>)>) -> MadeSequences {
    let mut builder = SequenceTableBuilder::default();
    for (blocks, lengths) in pools {
        let pool = TokenPool { blocks, lengths };
        let fill = pool.count(&params()).unwrap();
        builder.push(CountedPool::new(pool, fill, None));
    }
    builder.finish().unwrap()
}

/// The lengths of a pool's documents, one for each sample of its blocks.
fn lengths(pool: usize) -> Vec<u32> {
    let documents: u32 = POOLS[pool].clone().map(|block| BLOCKS[block as usize]).sum();
    (0..documents).map(|document| (document * 7 + pool as u32) % 13).collect()
}

fn example() -> MadeSequences {
    made((0..3).map(|pool| (POOLS[pool].clone(), lengths(pool))))
}

/// Learned tokens of the example's pieces: of each document that keeps tokens, one piece.
fn learned(pool: usize) -> Vec<u32> {
    lengths(pool).into_iter().filter(|length| *length > 0).map(|length| length / 2).collect()
}

/// The example, of documents with masks.
fn masked_example() -> MadeSequences {
    push_masked(SequenceTableBuilder::default()).finish().unwrap()
}

/// Adds the pools of the example, of documents with masks.
fn push_masked(mut builder: SequenceTableBuilder) -> SequenceTableBuilder {
    for (pool, blocks) in POOLS.into_iter().enumerate() {
        let tokens = learned(pool).iter().sum::<u32>().into();
        builder.add_learned(LearnedTokens { tokens, unlearned_documents: 1 });
        let documents = TokenPool { blocks, lengths: lengths(pool) };
        let fill = documents.count(&params()).unwrap();
        builder.push(CountedPool::new(documents, fill, Some(learned(pool))));
    }
    builder
}

/// A folder with a table of sequences.
struct Folder {
    folder: tempfile::TempDir,
    store: DatasetStore,
    manifest: Manifest,
}

impl Folder {
    fn new(blocks: &[u32]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = DatasetStore::open(folder.path().to_str().unwrap()).unwrap();
        fs::create_dir(folder.path().join(".spdl")).unwrap();
        Self { folder, store, manifest: manifest(blocks) }
    }

    fn path(&self, fingerprint: Fingerprint) -> PathBuf {
        self.folder.path().join(format!(".spdl/sequences-{fingerprint}.spdl"))
    }

    async fn open(&self, fingerprint: Fingerprint) -> Result<SequenceTable, String> {
        let opened = open_sequences(&self.store, &self.manifest, None, fingerprint).await;
        opened.map_err(|error| error.to_string())
    }

    /// Writes a file under the name of this table, and returns why it cannot be opened.
    async fn refused(&self, file: &[u8], fingerprint: Fingerprint) -> String {
        fs::write(self.path(fingerprint), file).unwrap();
        let error = self.open(fingerprint).await.expect_err("it is opened");
        assert!(error.contains(&format!("sequences-{fingerprint}.spdl")), "{error}");
        error
    }
}

/// Changes a table and returns it with the length, the checksum and the fingerprint that a hostile writer would give it.
fn lying(made: &MadeSequences, change: impl FnOnce(&mut [u8])) -> MadeSequences {
    let mut file = made.file.to_vec();
    change(&mut file);
    let pools = u32::from_le_bytes(*file[POOLS_AT..].first_chunk().unwrap()) as usize;
    let end = ROWS_AT.saturating_add(pools * ROW_BYTES).min(file.len());
    file[16..24].copy_from_slice(&(end as u64).to_le_bytes());
    let checksum = xxh3_128(&file[40..end]);
    file[24..40].copy_from_slice(&checksum.to_le_bytes());
    MadeSequences { fingerprint: Fingerprint::of(&file[..end]), file: file.into(), lengths: LengthsAt::Table }
}

#[tokio::test]
async fn a_table_that_was_written_is_read_with_the_lengths_of_each_pool() {
    let (folder, made) = (Folder::new(&BLOCKS), example());
    assert!(folder.open(made.fingerprint).await.unwrap_err().contains(&format!("sequences-{}.spdl", made.fingerprint)));
    save_sequences(&folder.store, &made).await.unwrap();
    let path = folder.path(made.fingerprint);
    assert!(path.is_file());
    let table = folder.open(made.fingerprint).await.unwrap();
    let in_memory = SequenceTable::of_memory(&made, &folder.manifest, None).unwrap();
    assert_eq!((table.fingerprint(), table.fill().documents), (made.fingerprint, 17));
    assert_eq!((table.pools(), table.fill()), (in_memory.pools(), in_memory.fill()));
    for (pool, blocks) in POOLS.iter().enumerate() {
        let number = pool as u32;
        assert_eq!(table.pools().blocks(number), Some(blocks.clone()));
        let expected = TokenPool { blocks: blocks.clone(), lengths: lengths(pool) };
        assert_eq!(table.pools().sequences()[pool], expected.count(&params()).unwrap().sequences as u32);
        for table in [&table, &in_memory] {
            assert_eq!(*table.read_pool(&folder.store, number).await.unwrap().lengths, expected.lengths);
            assert_eq!(table.documents(number).count(), expected.lengths.len());
        }
    }
    let facts = JobSamples::Sequences(table.clone()).facts(&folder.manifest);
    assert_eq!((facts.samples, facts.blocks), (table.fill().sequences, 3));
}

#[tokio::test]
async fn a_table_of_documents_with_masks_has_the_learned_tokens_of_their_pieces() {
    let (folder, made, plain) = (Folder::new(&BLOCKS), masked_example(), example());
    save_sequences(&folder.store, &made).await.unwrap();
    let table = folder.open(made.fingerprint).await.unwrap();
    let all: u32 = (0..3).flat_map(learned).sum();
    assert_eq!(table.learned(), Some(LearnedTokens { tokens: all.into(), unlearned_documents: 3 }));
    for pool in 0..3 {
        let of_pool = PoolDocuments { lengths: lengths(pool).into(), learned: Some(learned(pool).into()) };
        assert_eq!(table.read_pool(&folder.store, pool as u32).await.unwrap(), of_pool);
    }
    let pieces: usize = (0..3).map(|pool| learned(pool).len()).sum();
    assert_eq!(made.file.len(), plain.file.len() + 2 * 8 + 3 * 4 + pieces * 4, "4 bytes a piece, and a few");
    let plain = SequenceTable::of_memory(&plain, &folder.manifest, None).unwrap();
    assert_eq!((plain.learned(), plain.fill()), (None, table.fill()));
    for end in 0..made.file.len() {
        folder.refused(&made.file[..end], made.fingerprint).await;
    }
    for at in 0..made.file.len() {
        let mut damaged = made.file.to_vec();
        damaged[at] ^= 0x41;
        fs::write(folder.path(made.fingerprint), &damaged).unwrap();
        if let Ok(table) = folder.open(made.fingerprint).await {
            let reads = (0..3).map(|pool| table.read_pool(&folder.store, pool));
            let failed = futures::future::join_all(reads).await.iter().filter(|read| read.is_err()).count();
            assert_eq!(failed, 1, "byte {at}");
        }
    }
    // Numbers that cannot be, with the checksum that a hostile writer would give them.
    let against = "its counts contradict each other";
    for (count, value) in [(8, u64::MAX), (8, 1000), (9, 18)] {
        let at = COUNTS_AT + 8 * count;
        let mut lie = made.file.to_vec();
        lie[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let end = ROWS_AT + 16 + 3 * 20;
        let checksum = xxh3_128(&lie[40..end]);
        lie[24..40].copy_from_slice(&checksum.to_le_bytes());
        let error = folder.refused(&lie, Fingerprint::of(&lie[..end])).await;
        assert!(error.contains(against), "count {count} is {value}: {error}");
    }
}

#[test]
fn a_table_is_the_same_whatever_room_was_made_for_it() {
    let expected = masked_example();
    for (documents, pools) in [(0, 0), (17, 5), (1000, 3)] {
        let mut builder = SequenceTableBuilder::default();
        builder.reserve(documents, pools);
        let made = push_masked(builder).finish().unwrap();
        assert_eq!((made.fingerprint, &made.file), (expected.fingerprint, &expected.file), "{documents} {pools}");
    }
}

#[tokio::test]
async fn a_table_is_written_unless_it_is_there_with_all_lengths() {
    let (folder, made) = (Folder::new(&BLOCKS), example());
    save_sequences(&folder.store, &made).await.unwrap();
    let path = folder.path(made.fingerprint);
    let inode = || fs::metadata(&path).unwrap().ino();
    let first = inode();
    save_sequences(&folder.store, &made).await.unwrap();
    assert_eq!(inode(), first, "it is not written again");
    let mut damaged = made.file.to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    for file in [&damaged[..], &made.file[..50], &[&made.file[..], b"x"].concat(), b""] {
        fs::write(&path, file).unwrap();
        save_sequences(&folder.store, &made).await.unwrap();
        assert!(fs::read(&path).unwrap() == made.file, "{} bytes", file.len());
    }
}

#[tokio::test]
async fn each_field_that_lies_is_an_error_that_names_the_file() {
    let (folder, made) = (Folder::new(&BLOCKS), example());
    let row = |pool: usize, field: usize| ROWS_AT + pool * ROW_BYTES + 4 * field;
    let other = "it is of another dataset: it has";
    for (at, value, expected) in [
        (POOLS_AT, u32::MAX, "more pools than the dataset has blocks"),
        (POOLS_AT, 6, "more pools than the dataset has blocks"),
        (POOLS_AT, 4, "pool 3 ends before block"),
        (POOLS_AT, 2, other),
        (POOLS_AT, 0, other),
        (row(0, 0), 0, "pool 0 ends before block 0"),
        (row(1, 0), 2, "pool 1 ends before block 2"),
        (row(1, 0), u32::MAX, "pool 2 ends before block 5"),
        (row(2, 0), u32::MAX, other),
        (row(2, 0), 4, other),
        (row(0, 0), 1, other),
        (row(0, 1), u32::MAX, other),
        (row(0, 1), 4, other),
        (row(2, 1), 0, other),
        (row(0, 2), u32::MAX, "its pools do not add up to its counts"),
        (row(2, 2), 0, "its pools do not add up to its counts"),
    ] {
        let lie = lying(&made, |file| file[at..at + 4].copy_from_slice(&value.to_le_bytes()));
        let error = folder.refused(&lie.file, lie.fingerprint).await;
        assert!(error.contains(expected), "{value} at {at}: {error}");
        let error = SequenceTable::of_memory(&lie, &folder.manifest, None).unwrap_err().to_string();
        assert!(error.contains(expected), "{value} at {at}: {error}");
    }
    // Documents that are in no sequence, and moved from a pool to another.
    let moved = lying(&made, |file| (file[row(0, 1)], file[row(1, 1)]) = (6, 6));
    assert!(folder.refused(&moved.file, moved.fingerprint).await.contains(other));

    let SequenceFill { places, .. } = SequenceTable::of_memory(&made, &folder.manifest, None).unwrap().fill();
    let (sum, against) = ("its pools do not add up to its counts", "its counts contradict each other");
    for (count, value, expected) in [
        (0, u64::MAX, sum),
        (1, u64::MAX, against),
        (1, 0, against),
        (1, places + 1, against),
        (2, places + 1, against),
        (2, u64::MAX, against),
        (4, u64::MAX, sum),
        (4, 18, sum),
        (5, u64::MAX, against),
        (6, 18, against),
        (7, u64::MAX, against),
    ] {
        let at = COUNTS_AT + 8 * count;
        let lie = lying(&made, |file| file[at..at + 8].copy_from_slice(&value.to_le_bytes()));
        let error = folder.refused(&lie.file, lie.fingerprint).await;
        assert!(error.contains(expected), "count {count} is {value}: {error}");
    }
    let zero = lying(&made, |file| file[row(0, 2)..row(0, 2) + 4].copy_from_slice(&u32::MAX.to_le_bytes()));
    let all = lying(&zero, |file| {
        let before = u64::from_le_bytes(*file[COUNTS_AT..].first_chunk().unwrap());
        let added = u64::from(u32::MAX) - u64::from(example_sequences(0));
        file[COUNTS_AT..COUNTS_AT + 8].copy_from_slice(&(before + added).to_le_bytes());
    });
    assert!(folder.refused(&all.file, all.fingerprint).await.contains(against), "more sequences than places");
}

/// Returns the number of sequences of a pool of the example.
fn example_sequences(pool: usize) -> u32 {
    TokenPool { blocks: POOLS[pool].clone(), lengths: lengths(pool) }.count(&params()).unwrap().sequences as u32
}

#[tokio::test]
async fn a_file_that_is_cut_off_or_damaged_anywhere_is_an_error_that_names_it() {
    let (folder, made) = (Folder::new(&BLOCKS), example());
    for end in 0..made.file.len() {
        let error = folder.refused(&made.file[..end], made.fingerprint).await;
        assert!(error.contains("cut off") || end < 8, "{end}: {error}");
        let file = made.file.slice(..end);
        SequenceTable::of_memory(&MadeSequences { file, ..made }, &folder.manifest, None).unwrap_err();
    }
    let longer = [&made.file[..], b"more"].concat();
    assert!(folder.refused(&longer, made.fingerprint).await.contains("4 bytes follow its end"));

    let table_bytes = ROWS_AT + 3 * ROW_BYTES;
    for at in 0..table_bytes {
        let mut damaged = made.file.to_vec();
        damaged[at] ^= 0x41;
        folder.refused(&damaged, made.fingerprint).await;
    }
    for at in table_bytes..made.file.len() {
        let mut damaged = made.file.to_vec();
        damaged[at] ^= 0x41;
        fs::write(folder.path(made.fingerprint), &damaged).unwrap();
        // The table is intact, and so are the lengths of other pools.
        let table = folder.open(made.fingerprint).await.unwrap();
        let document = (at - table_bytes) as u64 / 4;
        for pool in 0..3 {
            let read = table.read_pool(&folder.store, pool).await;
            assert_eq!(read.is_err(), table.documents(pool).contains(&document), "byte {at}, pool {pool}");
            if let Err(error) = read {
                let error = error.to_string();
                assert!(error.contains("its checksum does not match"), "{error}");
                assert!(error.contains(&format!("sequences-{}.spdl", made.fingerprint)), "{error}");
            }
        }
    }
    // The file changes after it was opened.
    fs::write(folder.path(made.fingerprint), &made.file).unwrap();
    let table = folder.open(made.fingerprint).await.unwrap();
    fs::write(folder.path(made.fingerprint), &made.file[..table_bytes + 30]).unwrap();
    assert!(table.read_pool(&folder.store, 0).await.is_ok());
    for pool in [1, 2] {
        let error = table.read_pool(&folder.store, pool).await.unwrap_err().to_string();
        assert!(error.contains(&format!("sequences-{}.spdl", made.fingerprint)), "{error}");
    }
}

#[tokio::test]
async fn a_table_of_another_dataset_view_or_name_is_refused() {
    let (folder, made) = (Folder::new(&BLOCKS), example());
    let other = lying(&made, |file| file[ROWS_AT + 12] ^= 1);
    let error = folder.refused(&made.file, other.fingerprint).await;
    assert!(error.contains(&format!("its fingerprint is {}", made.fingerprint)), "{error}");
    for blocks in [&[3, 2, 7, 4][..], &[3, 2, 7, 4, 1, 1], &[3, 2, 6, 5, 1], &[9, 9, 9, 9, 9]] {
        let error = Folder::new(blocks).refused(&made.file, made.fingerprint).await;
        assert!(error.contains("it is of another dataset"), "{blocks:?}: {error}");
    }
    let view = |ids: &[u64]| {
        let mut builder = SampleSetBuilder::default();
        ids.iter().for_each(|id| builder.keep(SampleId(*id)).unwrap());
        Arc::new(builder.finish(17).unwrap())
    };
    let ids = [0, 4, 5, 11, 16];
    let of_view = self::made([(0..2, vec![9, 4]), (2..5, vec![5, 6, 30])]);
    save_sequences(&folder.store, &of_view).await.unwrap();
    let opened = async |view: Option<Arc<SampleSet>>| {
        let table = open_sequences(&folder.store, &folder.manifest, view, of_view.fingerprint).await;
        table.map(|table| table.fill().documents).map_err(|error| error.to_string())
    };
    assert_eq!(opened(Some(view(&ids))).await, Ok(5));
    assert!(opened(None).await.unwrap_err().contains("it has 5 documents, and this one 17"));
    for ids in [&[0, 4, 5, 11][..], &[0, 5, 6, 11, 16], &[0, 1, 2, 3, 4]] {
        let error = opened(Some(view(ids))).await.unwrap_err();
        assert!(error.contains("it is of another dataset or view"), "{ids:?}: {error}");
    }
}

#[tokio::test]
async fn a_table_that_is_longer_than_what_is_read_at_first_is_read_whole() {
    let blocks = vec![1; 20_000];
    let folder = Folder::new(&blocks);
    let made = made((0..20_000).map(|block| (block..block + 1, vec![block % 10])));
    save_sequences(&folder.store, &made).await.unwrap();
    let table = folder.open(made.fingerprint).await.unwrap();
    assert_eq!(*table.read_pool(&folder.store, 19_999).await.unwrap().lengths, [9]);
    for end in [256 << 10, ROWS_AT + 20_000 * ROW_BYTES - 1, ROWS_AT + 20_000 * ROW_BYTES, made.file.len() - 1] {
        assert!(folder.refused(&made.file[..end], made.fingerprint).await.contains("cut off"), "{end}");
    }
}
