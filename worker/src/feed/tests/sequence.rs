//! Tests of feeds whose samples are sequences: documents of tokens that were packed.

use std::{collections::BTreeMap, time::Duration};

use spdl_dataset::{EvaluatedSequences, IndexOptions, SequenceRequest, evaluate_sequences, index};
use spdl_job::{JobFile, SourceDatasetFacts, layout::Entry};
use spdl_shard::{
    samples::JobSamples,
    sequences::{LengthsAt, MadeSequences, save_sequences},
    store::DatasetStore,
};

use super::{
    fixture::resources_with,
    tokens::{BAD, file, ids},
    *,
};
use crate::decode::count_tokens;

/// Tokens of a sequence.
pub(super) const SEQ_LEN: usize = 512;
const EOS: i32 = 5000;
/// The columns of a job of sequences.
pub(super) const COLUMNS: &str = r#"[
    { name = "tokens", from = "input_ids|txt|tokens", decode = "tokens" },
    { name = "labels", decode = "labels", follows = "tokens" },
    { name = "positions", decode = "positions", follows = "tokens" },
    { name = "lengths", decode = "document_lengths", follows = "tokens" },
    { name = "document_ids", decode = "document_ids", follows = "tokens" },
    { name = "loss_mask", decode = "loss_mask", follows = "tokens", dtype = "u8" },
]"#;

/// A sequence as a trainer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) id: u64,
    flags: u32,
    pub(super) tokens: Vec<i32>,
    pub(super) labels: Vec<i64>,
    positions: Vec<i32>,
    pub(super) lengths: Vec<i32>,
    document_ids: Vec<i32>,
    loss_mask: Vec<u8>,
}

fn numbers<const N: usize, T>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|bytes| number(*bytes)).collect()
}

/// Packs the fixture's documents, and returns resources that know the result.
pub(super) async fn packed(sequence: &str, more: &str) -> (FeedFixture, Arc<Resources>, EvaluatedSequences) {
    let fixture =
        FeedFixture::of_values(file, "global_batch = 6", "name = \"tokens\"\nfrom = \"txt\"\ndecode = \"tokens\"");
    packed_of(fixture, sequence, more).await
}

/// Packs the documents of a fixture's dataset, whose job becomes one of sequences.
async fn packed_of(
    mut fixture: FeedFixture,
    sequence: &str,
    more: &str,
) -> (FeedFixture, Arc<Resources>, EvaluatedSequences) {
    let text = format!(
        r#"
            name = "packed"
            dataset = "{}"
            seed = 5
            global_batch = 6
            epochs = 2
            {more}
            sequence = {{ seq_len = {SEQ_LEN}, pool_tokens = 60000, {sequence} }}
            column = {COLUMNS}
        "#,
        fixture.job.dataset
    );
    let mut job = JobFile::parse(&text, "job.toml").unwrap();
    let (evaluated, facts) = pack(&job, &fixture.job.dataset).await;
    job.sequence.as_mut().unwrap().pools = Some(evaluated.made.fingerprint);
    fixture.job = job.freeze(&facts.given).unwrap();
    let resources = knowing(&evaluated, PLENTY);
    (fixture, resources, evaluated)
}

/// Packs the documents of a dataset as a job says. Returns the facts about the sequences, too.
pub(super) async fn pack(job: &JobFile, dataset: &str) -> (EvaluatedSequences, SourceDatasetFacts) {
    let keys = job.sequence_keys().unwrap().expect("the job packs");
    let store = DatasetStore::open(dataset).unwrap();
    let manifest = store.manifest().await.unwrap();
    let request = SequenceRequest {
        from: ["input_ids", "txt", "tokens"].map(str::to_owned).into(),
        params: keys.params(),
        pool_tokens: keys.pool_tokens,
        view: None,
        unread_allowed: 0,
        count: Arc::new(count_tokens),
        loss: None,
    };
    let evaluated = evaluate_sequences(&store, &manifest, request, &|_| ()).await.unwrap();
    let given = JobSamples::Sequences(evaluated.table.clone()).facts(&manifest);
    (evaluated, SourceDatasetFacts { given, ids: manifest.samples() })
}

/// Returns new resources that know what was packed, with this memory.
fn knowing(evaluated: &EvaluatedSequences, memory_bytes: u64) -> Arc<Resources> {
    let stores = StoreAccess { sequences: vec![evaluated.made.clone()], ..StoreAccess::default() };
    resources_with(memory_bytes, Access { stores, ..Access::default() })
}

pub(super) async fn rows_of(
    resources: &Arc<Resources>,
    session: &Session,
    rank: u32,
    from: Position,
) -> BTreeMap<Position, Row> {
    let mut feed = start(resources, session, rank, from);
    let mut rows = BTreeMap::new();
    while let Some(of_batch) = next_rows(&mut feed).await {
        for (position, row) in of_batch {
            assert!(rows.insert(position, row).is_none(), "{position:?} was delivered twice");
        }
    }
    rows
}

/// Returns the rows of the next batch; `None` at the end.
async fn next_rows(feed: &mut RankFeed) -> Option<Vec<(Position, Row)>> {
    let next = tokio::time::timeout(Duration::from_secs(60), feed.next()).await.expect("a batch within a minute");
    let FeedEvent::Filled { slot, used_bytes, .. } = next.unwrap() else { return None };
    let bytes = feed.slab().read(slot).unwrap();
    let batch = feed.layout().read(&bytes[..used_bytes as usize]).unwrap();
    let row = |(number, entry): (usize, Entry)| {
        let of = |column: usize| batch.sample_bytes(column, number);
        let row = Row {
            id: entry.id,
            flags: entry.flags,
            tokens: numbers(of(0), i32::from_le_bytes),
            labels: numbers(of(1), i64::from_le_bytes),
            positions: numbers(of(2), i32::from_le_bytes),
            lengths: numbers(of(3), i32::from_le_bytes),
            document_ids: numbers(of(4), i32::from_le_bytes),
            loss_mask: of(5).to_vec(),
        };
        (entry.position(), row)
    };
    let rows = batch.entries().enumerate().map(row).collect();
    drop(bytes);
    feed.free(slot).unwrap();
    Some(rows)
}

pub(super) async fn run_rows(resources: &Arc<Resources>, session: &Session) -> BTreeMap<Position, Row> {
    let ranks = (0..session.world).map(|rank| rows_of(resources, session, rank, Position::START));
    let mut all = BTreeMap::new();
    for rows in futures::future::join_all(ranks).await {
        all.extend(rows);
    }
    all
}

/// Returns the pieces that documents are cut into, each with the tokens that may follow it.
fn expected_pieces() -> BTreeMap<Vec<i32>, Vec<Option<i32>>> {
    let mut pieces = BTreeMap::<_, Vec<_>>::new();
    for document in 0..SAMPLES {
        let mut tokens: Vec<i32> = ids(document).into_iter().map(i32::from).collect();
        if document == BAD {
            tokens[2] = 1000;
        }
        if !tokens.is_empty() {
            tokens.push(EOS);
        }
        for (number, piece) in tokens.chunks(SEQ_LEN).enumerate() {
            let next = tokens.get((number + 1) * SEQ_LEN).copied();
            pieces.entry(piece.to_vec()).or_default().push(next);
        }
    }
    pieces
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_token_comes_once_in_an_epoch_and_every_world_gets_the_same_sequences() {
    let (fixture, resources, evaluated) = packed(&format!("eos = {EOS}, align = 1"), "epoch_end = \"partial\"").await;
    assert!(evaluated.table.pools().sequences().len() > 1, "several pools");
    let alone = run_rows(&resources, &fixture.session(1)).await;
    let per_epoch = evaluated.table.fill().sequences;
    assert_eq!(alone.len() as u64, 2 * per_epoch);
    let mut mates = Vec::new();
    for epoch in 0..2 {
        let mut left = expected_pieces();
        let mut of_epoch = Vec::new();
        for row in alone.iter().filter(|(at, _)| at.epoch == epoch).map(|(_, row)| row) {
            let mut at = 0;
            for (number, length) in row.lengths.iter().enumerate() {
                let range = at..at + *length as usize;
                let piece = row.tokens[range.clone()].to_vec();
                let nexts = left.get_mut(&piece).unwrap_or_else(|| panic!("no document has {piece:?}"));
                let label = row.labels[range.end - 1];
                let next = nexts.iter().position(|next| next.map_or(-100, i64::from) == label).unwrap();
                nexts.remove(next);
                if nexts.is_empty() {
                    left.remove(&piece);
                }
                for place in range.clone() {
                    if place + 1 < range.end {
                        assert_eq!(row.labels[place], i64::from(row.tokens[place + 1]));
                    }
                    assert_eq!(row.loss_mask[place], u8::from(row.labels[place] != -100));
                    assert_eq!(row.positions[place] as usize, place - at);
                    assert_eq!(row.document_ids[place] as usize, number);
                }
                at = range.end;
            }
            assert!(
                row.tokens[at..].iter().all(|token| *token == 0) && row.labels[at..].iter().all(|label| *label == -100)
            );
            assert!(
                row.document_ids[at..].iter().all(|id| *id == -1) && row.loss_mask[at..].iter().all(|one| *one == 0)
            );
            assert_eq!(row.positions[at..], (0..(SEQ_LEN - at) as i32).collect::<Vec<_>>());
            assert_eq!(row.flags, 0);
            of_epoch.push(row.tokens.clone());
        }
        assert!(left.is_empty(), "{} pieces are missing", left.len());
        of_epoch.sort();
        mates.push(of_epoch);
    }
    assert_ne!(mates[0], mates[1], "the same documents share sequences in both epochs");
    for world in [2, 3] {
        assert!(run_rows(&resources, &fixture.session(world)).await == alone, "a world of {world}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_are_documents_end_to_end_and_labels_cross_their_borders() {
    let (fixture, resources, evaluated) =
        packed(&format!("method = \"chunk\", eos = {EOS}"), "epoch_end = \"partial\"").await;
    let rows = run_rows(&resources, &fixture.session(1)).await;
    for epoch in 0..2 {
        let by_number: BTreeMap<u64, &Row> =
            rows.iter().filter(|(at, _)| at.epoch == epoch).map(|(_, row)| (row.id, row)).collect();
        let mut first = 0;
        for sequences in evaluated.table.pools().sequences() {
            let of_pool: Vec<&Row> = (first..first + u64::from(*sequences)).map(|id| by_number[&id]).collect();
            let line: Vec<i32> = of_pool.iter().flat_map(|row| row.tokens.clone()).collect();
            let labels: Vec<i64> = of_pool.iter().flat_map(|row| row.labels.clone()).collect();
            assert!(line[1..].iter().zip(&labels).all(|(next, label)| i64::from(*next) == *label));
            let documents: Vec<Vec<i32>> =
                (0..SAMPLES).map(|id| ids(id).into_iter().map(i32::from).collect()).collect();
            let mut texts = line.split(|token| *token == EOS).peekable();
            while let Some(text) = texts.next() {
                let is_whole = texts.peek().is_some();
                let mut text = text.to_vec();
                text.iter_mut().filter(|token| **token == 1000).for_each(|token| *token = i32::from(ids(BAD)[2]));
                assert!(documents.iter().any(|document| if is_whole {
                    *document == text
                } else {
                    document.starts_with(&text)
                }));
            }
            first += u64::from(*sequences);
        }
        assert!(by_number.values().all(|row| row.lengths == [SEQ_LEN as i32]));
        assert!(by_number.values().all(|row| row.positions == (0..SEQ_LEN as i32).collect::<Vec<_>>()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_is_not_in_the_vocabulary_masks_its_document_and_nothing_else() {
    let (mut fixture, resources, _) = packed("align = 16", "epoch_end = \"partial\"").await;
    let right = run_rows(&resources, &fixture.session(1)).await;
    let spdl_job::ColumnKind::Tokens(tokens) = &mut fixture.job.columns[0].kind else { panic!("{:?}", fixture.job) };
    tokens.vocab = Some(1000);
    let masked = run_rows(&resources, &fixture.session(1)).await;
    assert_eq!(right.len(), masked.len());
    let mut differing = 0;
    for (right, masked) in right.values().zip(masked.values()) {
        assert_eq!((&right.lengths, &right.positions, right.flags), (&masked.lengths, &masked.positions, masked.flags));
        if right != masked {
            differing += 1;
            let is_wrong = |place: &usize| right.tokens[*place] != masked.tokens[*place];
            let places: Vec<usize> = (0..SEQ_LEN).filter(is_wrong).collect();
            assert!(right.tokens[..=places[0] + 2].contains(&1000), "the document of the wrong id");
            assert!(places.iter().all(|place| masked.tokens[*place] == 0 && masked.labels[*place] == -100));
            assert_eq!(masked.document_ids, right.document_ids);
        }
    }
    assert_eq!(differing, 2, "once in each epoch");
    let reported = resources.decoding.bad.lock().unreported(100);
    let [bad] = &reported[..] else { panic!("{reported:?}") };
    assert_eq!(bad.sample.0, BAD, "the ledger has the document");
    assert!(bad.cause.contains("has id 1000 at place 2"), "{}", bad.cause);
}

/// Writes documents of these lengths as Megatron does, and indexes them.
async fn megatron(lengths: &[usize]) -> FeedFixture {
    let directory = tempfile::tempdir().unwrap();
    let (mut ids, mut sizes, mut places, mut ends) = (Vec::new(), Vec::new(), Vec::new(), vec![0_u64]);
    for (document, length) in lengths.iter().enumerate() {
        places.extend((ids.len() as u64).to_le_bytes());
        ids.extend((0..*length).flat_map(|at| ((document * 31 + at * 7) as u16 % 5000).to_le_bytes()));
        sizes.extend((*length as u32).to_le_bytes());
        ends.push(document as u64 + 1);
    }
    let mut idx = b"MMIDIDX\0\0".to_vec();
    idx.extend(1_u64.to_le_bytes());
    idx.push(8);
    idx.extend((lengths.len() as u64).to_le_bytes());
    idx.extend((ends.len() as u64).to_le_bytes());
    idx.extend([sizes, places, ends.into_iter().flat_map(u64::to_le_bytes).collect()].concat());
    std::fs::write(directory.path().join("text.bin"), ids).unwrap();
    std::fs::write(directory.path().join("text.idx"), idx).unwrap();
    let store = DatasetStore::open(directory.path().to_str().unwrap()).unwrap();
    index(&store, &store, &IndexOptions::default(), &|_| {}).await.unwrap();
    let facts = store.manifest().await.unwrap().facts();
    let column = "name = \"tokens\"\nfrom = \"tokens\"\ndecode = \"tokens\"";
    FeedFixture::of_column(directory, &facts, "global_batch = 6", column)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_piece_of_a_long_document_reads_its_own_tokens_alone() {
    // Little memory has no room for the block of the longest one.
    let lengths = [8_000_000, 3, 0, 512, 513, 90_000, 1023];
    for ends in ["", "bos = 1", "eos = 5000", "bos = 1, eos = 5000"] {
        let sequence = format!("align = 1, {ends}");
        let (fixture, _, evaluated) = packed_of(megatron(&lengths).await, &sequence, "epoch_end = \"partial\"").await;
        for offset in [0, 600, 15_000] {
            let first = async |memory_bytes| {
                let resources = knowing(&evaluated, memory_bytes);
                let mut feed = start(&resources, &fixture.session(1), 0, Position { epoch: 0, offset });
                let rows = next_rows(&mut feed).await.expect("a batch");
                (rows, resources.fetcher.store_stats().single_use_bytes)
            };
            let ((plenty, _), (little, read)) = (first(PLENTY).await, first(MIN_MEMORY_BYTES).await);
            assert!(plenty == little, "{ends}: {offset}");
            // Some batches may be filled by now. What lies between two pieces is read with them if it is short.
            assert!(0 < read && read < 4 << 20, "{ends}: {offset}: {read} bytes");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lengths_that_indexes_alone_have_make_the_same_sequences() {
    let lengths: Vec<usize> = (0..400).map(|number| number * number * 31 % 700).collect();
    let (fixture, known, evaluated) = packed_of(megatron(&lengths).await, "align = 8", "").await;
    let expected = run_rows(&known, &fixture.session(1)).await;
    assert!(!expected.is_empty());
    let whole = &evaluated.made;
    let file = whole.file.slice(..whole.file.len() - 4 * lengths.len());
    let made = MadeSequences { file, lengths: LengthsAt::Indexes, ..*whole };
    let unkept = knowing(&EvaluatedSequences { made: made.clone(), ..evaluated }, PLENTY);
    assert!(run_rows(&unkept, &fixture.session(1)).await == expected);
    save_sequences(&DatasetStore::open(&fixture.job.dataset).unwrap(), &made).await.unwrap();
    assert!(run_rows(&resources(PLENTY, None), &fixture.session(1)).await == expected);
}

/// Returns what each batch says of the learned labels of its global batch.
pub(super) async fn loss_tokens(resources: &Arc<Resources>, session: &Session) -> Vec<Option<u64>> {
    let mut feed = start(resources, session, 0, Position::START);
    let mut all = Vec::new();
    loop {
        let next = tokio::time::timeout(Duration::from_secs(60), feed.next()).await.expect("a batch within a minute");
        let FeedEvent::Filled { slot, used_bytes, .. } = next.unwrap() else { return all };
        let bytes = feed.slab().read(slot).unwrap();
        all.push(feed.layout().read(&bytes[..used_bytes as usize]).unwrap().header().global_loss_tokens());
        drop(bytes);
        feed.free(slot).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_differ_in_their_columns_alone_are_told_their_own_learned_labels() {
    let (fixture, resources, _) = packed("align = 16", "epoch_end = \"partial\"").await;
    let with_labels = fixture.session(1);
    let mut without = with_labels.clone();
    without.job.columns.retain(|column| !matches!(&*column.name, "labels" | "loss_mask"));
    assert!(loss_tokens(&resources, &without).await.iter().all(Option::is_none));
    let learned: u64 = loss_tokens(&resources, &with_labels).await.into_iter().map(|tokens| tokens.unwrap()).sum();
    let rows = run_rows(&resources, &with_labels).await;
    let masked = |row: &Row| row.labels.iter().filter(|label| **label != -100).count() as u64;
    assert_eq!(learned, rows.values().map(masked).sum::<u64>());
    assert!(loss_tokens(&resources, &without).await.iter().all(Option::is_none));
}
