//! What a job file with sources and sequences becomes, and what is refused.

use super::{tests::TWO, *};
use spdl_order::DatasetFacts;

const TOKENS: &str = "[[column]]\nname = \"tokens\"\nfrom = \"tokens\"\ndecode = \"tokens\"\nvocab = 1000\n\
                      [[column]]\nname = \"labels\"\ndecode = \"labels\"\nfollows = \"tokens\"\n";

fn file(keys: &str, sources: &str) -> Result<JobFile, JobError> {
    JobFile::parse(&format!("name = \"mixed\"\nglobal_batch = 100\n{keys}\n{sources}{TOKENS}"), "job.toml")
}

/// Returns the facts of a dataset of so many documents, which fill so many sequences of 8 tokens.
fn facts(number: u128, documents: u64, sequences: u64) -> SourceDatasetFacts {
    let given = DatasetFacts::new(Fingerprint(number), sequences, sequences.div_ceil(100));
    SourceDatasetFacts { given: DatasetFacts { documents, tokens: sequences * 7, ..given }, ids: documents }
}

/// Freezes a job whose sources were packed.
fn frozen(keys: &str, sources: &str) -> Result<Job, JobError> {
    let mut file = file(&format!("sequence = {{ seq_len = 8 }}\n{keys}"), sources)?;
    for (number, source) in (21..).zip(&mut file.source) {
        source.pools = Some(Fingerprint(number));
    }
    file.check()?;
    file.freeze_all(&[facts(1, 9000, 70_000), facts(2, 60_000, 6000)])
}

fn error(keys: &str, sources: &str) -> String {
    frozen(keys, sources).unwrap_err().to_string()
}

#[test]
fn each_source_has_pools_of_its_own_and_ids_of_sequences_and_of_documents() {
    let job = frozen("", TWO).unwrap();
    assert_eq!(job.samples, 20_001, "sequences, until the next one would be the first of `code` again");
    let pools: Vec<_> = job.datasets().iter().map(|dataset| dataset.pools).collect();
    assert_eq!(pools, [Some(Fingerprint(21)), Some(Fingerprint(22))]);
    let ids = |(source, ids): (&JobSource, Range<u64>)| (source.name.clone(), ids);
    assert_eq!(
        job.sample_ids().map(ids).collect::<Vec<_>>(),
        [("web".to_owned(), 0..70_000), ("code".to_owned(), 70_000..76_000)]
    );
    assert_eq!(
        job.source_ids().map(ids).collect::<Vec<_>>(),
        [("web".to_owned(), 0..9000), ("code".to_owned(), 9000..69_000)]
    );
    assert_eq!(job.id_bound(), Some(69_000), "of documents, which can be bad");
    let sequence = job.sequence.as_deref().unwrap();
    assert_eq!((sequence.documents, sequence.tokens), (69_000, 76_000 * 7));
    assert_eq!(job.epoch_tokens(), 20_001 * 7, "of an epoch, in which not all come");
    // A fifth of the sequences of `web` come, and all of `code`.
    assert_eq!(job.countable_samples(), 1801 + 60_000);
    assert_ne!(job.dataset_seed(0), job.dataset_seed(1));
    assert_eq!(job.all_lanes(), job.sources.iter().map(|source| source.lanes).sum::<u32>());
    let text = serde_json::to_string(&job).unwrap();
    assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
}

#[test]
fn total_tokens_is_the_length_of_an_epoch() {
    let job = frozen("total_tokens = 80_007\nepochs = 2", TWO).unwrap();
    assert_eq!((job.samples, job.epochs, job.total_samples), (10_000, 2, None));
    assert!(error("total_tokens = 7", TWO).contains("`total_tokens` must be at least `seq_len`"));
    let once = format!("{TWO}max_epochs = 1\nwhen_done = \"stop\"\n");
    assert!(error("", &once).contains("`total_samples` is missing; a job with `when_done`"));
    let ended = frozen("total_tokens = 800_000", &once).unwrap().end_of_sources().unwrap();
    assert!((19_998..=20_002).contains(&ended), "0.3 of them are the 6,000 sequences of `code`: {ended}");
}

#[test]
fn the_fingerprint_has_the_pools_of_each_source_and_how_they_were_made() {
    let of = |sequence: &str, pools: [u128; 2]| {
        let mut file = file(&format!("sequence = {{ seq_len = 8{sequence} }}\ntotal_samples = 1000"), TWO).unwrap();
        file.source.iter_mut().zip(pools).for_each(|(source, pools)| source.pools = Some(Fingerprint(pools)));
        file.freeze_all(&[facts(1, 9000, 70_000), facts(2, 60_000, 6000)]).unwrap().fingerprint()
    };
    let job = frozen("total_samples = 1000", TWO).unwrap();
    assert_eq!(of("", [21, 22]), job.fingerprint());
    let others = [of(", eos = 1", [21, 22]), of(", method = \"chunk\"", [21, 22]), of("", [21, 21]), of("", [22, 21])];
    assert!(others.iter().all(|other| *other != job.fingerprint()), "{others:?}");
    // A stage from a sample on changes nothing before it.
    let stage = "[[stage]]\nfrom = 500\nweights = { web = 1, code = 9 }\n";
    let staged = frozen("total_samples = 1000", &format!("{TWO}{stage}")).unwrap();
    assert_ne!(staged.fingerprint(), job.fingerprint());
    assert!(staged.continues(job.fingerprint(), Position::new(0, 500)));
}

#[test]
fn what_contradicts_packing_each_source_by_itself_is_refused() {
    let more = |line: &str| format!("{TWO}{line}\n");
    let sampling = more("view = { sampling = { by = \"lang\" } }");
    assert!(error("", &sampling).contains("source `code`: `view.sampling` is for jobs without `sequence`"));
    let of = |keys: &str, sources: &str| {
        let file = file(keys, sources).unwrap();
        let checked = file.check().map(|_| ());
        let all = checked.and_then(|()| file.freeze_all(&[facts(1, 9, 900), facts(2, 9, 900)]).map(|_| ()));
        all.unwrap_err().to_string()
    };
    let pools = Fingerprint(7);
    for (keys, sources, expected) in [
        (
            format!("sequence = {{ seq_len = 8, pools = \"{pools}\" }}"),
            TWO.to_owned(),
            "`sequence.pools` is for jobs of one",
        ),
        ("sequence = { seq_len = 8 }".to_owned(), TWO.to_owned(), "source `web`: `pools` is not evaluated"),
        (String::new(), more(&format!("pools = \"{pools}\"")), "source `code`: `pools` is for jobs with `sequence`"),
        (
            "sequence = { seq_len = 8 }\nmix = { mixup = 0.2 }".to_owned(),
            TWO.to_owned(),
            "`mix` is for jobs of one `dataset`",
        ),
    ] {
        let error = of(&keys, &sources);
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert!(frozen("cost = \"tokens\"", TWO).is_ok(), "sequences of all sources cost what their documents do");
    assert!(error("cost = \"pixels\"", TWO).contains("samples are sequences of tokens"));
}

#[test]
fn packed_sources_that_no_job_file_describes_are_refused() {
    type JobEdit = fn(&mut Job);
    let changes: [(JobEdit, &str); 6] = [
        (|job| job.sources[1].packed = None, "source `code`: `packed` must be there in each source"),
        (|job| job.sequence = None, "source `web`: `packed` must be there in each source"),
        (|job| job.sources[1].packed.as_mut().unwrap().pools = Fingerprint(9), "`sequence.pools` are not those of"),
        (|job| job.sources[1].packed.as_mut().unwrap().tokens = u64::MAX, "`sequence.pools` are not those of"),
        (|job| job.sources[1].samples = u64::MAX, "source `code`: `dataset` has 18446744073709551615 samples"),
        (
            |job| job.sources.iter_mut().for_each(|source| source.samples = 1 << 62),
            "`source` has more than 2^62 samples in all",
        ),
    ];
    for (change, expected) in changes {
        let mut job = frozen("", TWO).unwrap();
        change(&mut job);
        let error = job.check().unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}
