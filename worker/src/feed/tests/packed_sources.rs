//! Tests of feeds whose samples are sequences of several sources, each of which is packed by itself.

use std::collections::{BTreeMap, BTreeSet};

use spdl_dataset::EvaluatedSequences;
use spdl_job::{ColumnKind, Job, JobFile, Sequence};
use spdl_order::EpochEnd;
use spdl_types::BadSample;

use super::{
    fixture::resources_with,
    sequence::{COLUMNS, Row, SEQ_LEN, loss_tokens, pack, rows_of, run_rows},
    tokens::{BAD, file, npy},
    *,
};

/// A job of two sources, the datasets that it reads, and how they were packed.
struct PackedFixture {
    first: FeedFixture,
    _second: FeedFixture,
    packed: Vec<EvaluatedSequences>,
}

/// Returns the file of a sample of the second source, in which no id is one of the first source's.
fn other_file(sample: u64) -> Vec<u8> {
    let ids = (0..(sample * 389) % 700).map(|place| 2000 + ((sample * 17 + place * 3) % 900) as u16);
    npy(&ids.collect::<Vec<_>>())
}

impl PackedFixture {
    /// Packs two datasets for a job that blends them 70 to 30.
    async fn new(sequence: &str, keys: &str) -> Self {
        let column = "name = \"tokens\"\nfrom = \"txt\"\ndecode = \"tokens\"";
        let mut first = FeedFixture::of_values(file, "global_batch = 6", column);
        let second = FeedFixture::of_values(other_file, "global_batch = 6", column);
        let text = format!(
            r#"
                name = "blend"
                seed = 5
                global_batch = 6
                {keys}
                sequence = {{ seq_len = {SEQ_LEN}, pool_tokens = 12000, {sequence} }}
                column = {COLUMNS}
                [[source]]
                name = "a"
                dataset = "{}"
                weight = 0.7
                [[source]]
                name = "b"
                dataset = "{}"
                weight = 0.3
            "#,
            first.job.dataset, second.job.dataset
        );
        let mut job = JobFile::parse(&text, "job.toml").unwrap();
        let (mut packed, mut facts) = (Vec::new(), Vec::new());
        for number in 0..job.source.len() {
            let (evaluated, of_source) = pack(&job, &job.source[number].dataset).await;
            job.source[number].pools = Some(evaluated.made.fingerprint);
            assert!(evaluated.table.pools().sequences().len() > 1, "several pools");
            packed.push(evaluated);
            facts.push(of_source);
        }
        first.job = job.freeze_all(&facts).unwrap();
        Self { first, _second: second, packed }
    }

    /// Returns new resources that know what was packed.
    fn resources(&self) -> Arc<Resources> {
        let sequences = self.packed.iter().map(|evaluated| evaluated.made.clone()).collect();
        resources_with(
            PLENTY,
            Access { stores: StoreAccess { sequences, ..StoreAccess::default() }, ..Access::default() },
        )
    }

    /// Returns the job of one of the sources alone, whose stream is that of the source.
    fn alone(&self, number: usize) -> Job {
        let job = &self.first.job;
        let (source, packed) = (&job.sources[number], job.sources[number].packed.unwrap());
        let (pools, documents, tokens) = (packed.pools, packed.documents, packed.tokens);
        Job {
            dataset: source.dataset.clone(),
            dataset_fingerprint: source.dataset_fingerprint,
            samples: source.samples,
            seed: job.dataset_seed(number),
            epochs: 6,
            epoch_end: EpochEnd::Continuous,
            order: source.order(job.order),
            sequence: Some(Box::new(Sequence { pools, documents, tokens, ..**job.sequence.as_ref().unwrap() })),
            sources: Vec::new(),
            ..job.clone()
        }
    }
}

/// Returns the rows of a source in their order, with the ids that they have in its dataset.
fn of_source(job: &Job, rows: &BTreeMap<Position, Row>, number: usize) -> Vec<Row> {
    let (_, ids) = job.sample_ids().nth(number).unwrap();
    let own = rows.values().filter(|row| ids.contains(&row.id));
    let alone = |row: &Row| {
        let mut row = row.clone();
        row.id -= ids.start;
        row
    };
    own.map(alone).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_source_gives_the_sequences_that_it_gives_alone_at_every_world() {
    for sequence in ["align = 16, eos = 5000", "method = \"chunk\", eos = 5000"] {
        let fixture = PackedFixture::new(sequence, "epochs = 3\ntotal_samples = 402").await;
        let (job, resources) = (&fixture.first.job, fixture.resources());
        let all = run_rows(&resources, &fixture.first.session(1)).await;
        assert_eq!(all.len(), 1206);
        for number in 0..2 {
            let given = of_source(job, &all, number);
            let samples = job.sources[number].samples as usize;
            assert!(given.len() > samples && given.len() < 6 * samples, "{} of {samples}", given.len());
            let session = Session { job: fixture.alone(number), ..fixture.first.session(1) };
            let alone: Vec<Row> = run_rows(&resources, &session).await.into_values().collect();
            assert!(given == alone[..given.len()], "source {number}: {sequence}");
            let is_own = |token: &i32| [0, 5000].contains(token) || (*token >= 2000) == (number == 1);
            assert!(given.iter().all(|row| row.tokens.iter().all(is_own)), "no sequence has documents of two sources");
        }
        for world in [2, 3] {
            assert!(run_rows(&resources, &fixture.first.session(world)).await == all, "a world of {world}");
        }
        // From a position in the middle, at another number of ranks.
        let from = Position::new(1, 204);
        for rank in 0..2 {
            let rows = rows_of(&fixture.resources(), &fixture.first.session(2), rank, from).await;
            assert!(!rows.is_empty() && rows.iter().all(|(at, row)| *at >= from && all[at] == *row), "rank {rank}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_document_is_masked_and_reported_as_that_of_its_source() {
    let mut fixture = PackedFixture::new("align = 16", "epochs = 2\ntotal_samples = 600\nmax_bad_fraction = 1.0").await;
    let right = run_rows(&fixture.resources(), &fixture.first.session(1)).await;
    let first_only = |job: &mut Job| match &mut job.columns[0].kind {
        // No id of the second source, nor that of one document of the first.
        ColumnKind::Tokens(tokens) => tokens.vocab = Some(1000),
        other => panic!("{other:?}"),
    };
    first_only(&mut fixture.first.job);
    let (job, resources) = (&fixture.first.job, fixture.resources());
    let masked = run_rows(&resources, &fixture.first.session(2)).await;
    let [of_first, of_second] = [0, 1].map(|number| {
        let pairs = of_source(job, &right, number).into_iter().zip(of_source(job, &masked, number));
        pairs.filter(|(right, masked)| right != masked).map(|(_, masked)| masked).collect::<Vec<_>>()
    });
    assert!(matches!(of_first.len(), 1..=3), "{} have the document", of_first.len());
    assert!(!of_second.is_empty() && of_second.iter().all(|row| row.labels.iter().all(|label| *label == -100)));
    let reported = resources.decoding.bad.lock().unreported(1000);
    let is_of = |bad: &BadSample, name: &str| job.source_of(bad.sample).unwrap().name == name;
    let [of_a, of_b] = ["a", "b"].map(|name| reported.iter().filter(|bad| is_of(bad, name)).collect::<Vec<_>>());
    assert_eq!(of_a.iter().map(|bad| bad.sample.0).collect::<Vec<_>>(), [BAD]);
    assert!(of_b.len() > 100 && of_b.iter().all(|bad| (SAMPLES..2 * SAMPLES).contains(&bad.sample.0)));
    let keys: BTreeSet<&str> = of_b.iter().map(|bad| bad.key.as_str()).collect();
    assert_eq!(keys.len(), of_b.len(), "each document by its key");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranks_are_told_the_learned_labels_of_the_sequences_of_all_sources() {
    let fixture = PackedFixture::new("align = 16", "total_samples = 300").await;
    let (session, resources) = (fixture.first.session(3), fixture.resources());
    let rows = run_rows(&resources, &session).await;
    let learned = |row: &Row| row.labels.iter().filter(|label| **label != -100).count() as u64;
    let rows: Vec<u64> = rows.values().map(learned).collect();
    let steps: Vec<Option<u64>> = rows.chunks(6).map(|step| Some(step.iter().sum())).collect();
    assert_eq!(loss_tokens(&resources, &session).await, steps);
}
