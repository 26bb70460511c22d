//! Ranks that read a blend of two datasets.

use std::fs;

use spdl_job::{JobFile, SourceDatasetFacts};
use spdl_shard::manifest::Manifest;
use spdl_types::SampleId;

use super::*;

/// Returns a job that blends two datasets, 70 to 30, of which the second has other texts, and bad samples.
fn blended(bad: &[u64], more: &str) -> (FeedFixture, FeedFixture) {
    let mut first = FeedFixture::new(&[], TWO_EPOCHS);
    let second = FeedFixture::of_other_texts(bad, TWO_EPOCHS, other_text);
    let [a, b] = [&first, &second].map(|fixture| fixture.directory.path());
    let manifest = fs::read(a.join("manifest.spdl")).unwrap();
    let given = Manifest::open(manifest).unwrap().facts();
    let manifest = fs::read(b.join("manifest.spdl")).unwrap();
    let facts = [given, Manifest::open(manifest).unwrap().facts()]
        .map(|given| SourceDatasetFacts { given, ids: given.samples });
    let file = format!(
        "name = \"train\"\nseed = 5\n{more}\n\
         [[source]]\nname = \"a\"\ndataset = \"{}\"\nweight = 0.7\n\
         [[source]]\nname = \"b\"\ndataset = \"{}\"\nweight = 0.3\n\
         [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n\
         [[column]]\nname = \"text\"\nfrom = \"txt\"\ndecode = \"bytes\"\nmax_bytes = 4096",
        a.display(),
        b.display()
    );
    first.job = JobFile::parse(&file, "job.toml").unwrap().freeze_all(&facts).unwrap();
    (first, second)
}

fn other_text(id: u64) -> Vec<u8> {
    format!("of the second {id}").into_bytes()
}

/// Asserts that a sample has the bytes of its own source.
fn assert_own(sample: &Seen) {
    let (id, expected) = match sample.id.checked_sub(SAMPLES) {
        None => (sample.id, text(sample.id)),
        Some(id) => (id, other_text(id)),
    };
    assert_eq!((sample.label, &sample.text), (id as i64 * 3, &expected), "sample {}", sample.id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_world_gets_the_same_blend_and_each_sample_has_the_bytes_of_its_source() {
    let (fixture, _second) = blended(&[], "epochs = 2\nglobal_batch = 12\ntotal_samples = 600");
    let resources = resources(PLENTY, None);
    let (alone, steps) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
    assert_eq!((alone.len(), steps), (1200, 100));
    let mut given = [0_u64; 2];
    for (number, sample) in (1_u64..).zip(alone.values()) {
        assert_own(sample);
        given[usize::from(sample.id >= SAMPLES)] += 1;
        assert!((given[1] * 10).abs_diff(number * 3) < 10, "{given:?} of {number}");
    }
    assert_every_world_gets(&alone, &resources, &fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_sample_is_replaced_by_one_of_its_own_source() {
    let bad = [3, 50, 51, 119];
    let (fixture, _second) = blended(&bad, "global_batch = 12\ntotal_samples = 396\nmax_bad_fraction = 1.0");
    let (clean, _clean_second) = blended(&[], "global_batch = 12\ntotal_samples = 396\nmax_bad_fraction = 1.0");
    let resources = resources(PLENTY, None);
    let (seen, _) = run(&resources, &fixture.session(2), Position::START).await.unwrap();
    let (planned, _) = run(&resources, &clean.session(1), Position::START).await.unwrap();
    let planned: Vec<u64> = planned.values().map(|sample| sample.id).collect();
    let mut replaced = 0;
    for (((_, flags), sample), planned) in seen.iter().zip(planned) {
        assert_own(sample);
        if *flags == entry_flags::SUBSTITUTED {
            replaced += 1;
            assert!(bad.contains(&(planned - SAMPLES)) && sample.id >= SAMPLES, "{} for {planned}", sample.id);
            assert!(!bad.contains(&(sample.id - SAMPLES)));
        } else {
            assert_eq!(sample.id, planned);
        }
    }
    assert!(replaced >= 3, "{replaced}");
    let reported = resources.decoding.bad.lock().unreported(100);
    assert!(reported.iter().all(|bad| fixture.job.source_of(bad.sample).is_some_and(|source| source.name == "b")));
    assert_eq!(fixture.job.source_of(SampleId(SAMPLES - 1)).unwrap().name, "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dataset_that_is_two_sources_gives_its_samples_to_each() {
    let (mut fixture, _second) = blended(&[], "global_batch = 12\ntotal_samples = 360");
    let [first, second] = &mut fixture.job.sources[..] else { panic!("two sources") };
    (second.dataset, second.dataset_fingerprint) = (first.dataset.clone(), first.dataset_fingerprint);
    let resources = resources(PLENTY, None);
    let (alone, _) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
    for sample in alone.values() {
        let id = sample.id % SAMPLES;
        assert_eq!((sample.label, &sample.text), (id as i64 * 3, &text(id)));
    }
    assert!((107..=109).contains(&alone.values().filter(|sample| sample.id >= SAMPLES).count()));
    let (shared, _) = run(&resources, &fixture.session(3), Position::START).await.unwrap();
    assert!(shared == alone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_world_gets_the_same_blend_with_stages_and_resumes_on_either_side_of_one() {
    let stages = "stage = [{ from = 250, weights = { a = 1, b = 9 } }, { from = 900, weights = { a = 1, b = 0 } }]";
    let keys = "epochs = 2\nglobal_batch = 12\ntotal_samples = 600";
    let (fixture, _second) = blended(&[], &format!("{keys}\n{stages}"));
    let (plain, _plain_second) = blended(&[], keys);
    let resources = resources(PLENTY, None);
    let (alone, _) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
    let (before, _) = run(&resources, &plain.session(1), Position::START).await.unwrap();
    assert!(alone.values().take(250).map(|sample| sample.id).eq(before.values().take(250).map(|sample| sample.id)));
    let mut given = [[0_u64; 2]; 3];
    for (number, sample) in alone.values().enumerate() {
        assert_own(sample);
        given[[250, 900].iter().filter(|from| number >= **from).count()][usize::from(sample.id >= SAMPLES)] += 1;
    }
    assert_eq!(given, [[175, 75], [65, 585], [300, 0]]);
    assert_every_world_gets(&alone, &resources, &fixture).await;
}
