//! What a job file with sources becomes, and what is refused.

use super::*;
use crate::ENDLESS_EPOCHS;
use spdl_types::SampleId;

pub(super) const TWO: &str = "[[source]]\nname = \"web\"\ndataset = \"/web\"\nweight = 7\n\
                   [[source]]\nname = \"code\"\ndataset = \"/code\"\nweight = 3\n";

fn file(keys: &str, sources: &str) -> Result<JobFile, JobError> {
    let column = "[[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n";
    JobFile::parse(&format!("name = \"mixed\"\nglobal_batch = 100\n{keys}\n{sources}{column}"), "job.toml")
}

fn facts(number: u128, samples: u64, blocks: u64) -> SourceDatasetFacts {
    SourceDatasetFacts { given: DatasetFacts::new(Fingerprint(number), samples, blocks), ids: samples }
}

pub(super) fn frozen(keys: &str, sources: &str) -> Result<Job, JobError> {
    let file = file(keys, sources)?;
    file.check()?;
    file.freeze_all(&[facts(1, 70_000, 7000), facts(2, 6000, 3)])
}

pub(super) fn error(keys: &str, sources: &str) -> String {
    frozen(keys, sources).unwrap_err().to_string()
}

#[test]
fn an_epoch_ends_when_the_first_source_has_given_all_of_its_samples() {
    let job = frozen("", TWO).unwrap();
    let [web, code] = &job.sources[..] else { panic!("{:?}", job.sources) };
    assert_eq!((web.weight, code.weight), (45_875, 19_661));
    assert_eq!(job.samples, 20_001, "the next one would be the first of `code` again");
    assert_eq!(frozen("total_samples = 5_000", TWO).unwrap().samples, 5000);
    assert_eq!(job.dataset_text(), "web 70.0 % + code 30.0 %");
    assert_eq!(job.id_bound(), Some(76_000));
    let source_of = |id| job.source_of(SampleId(id)).map(|source| source.name.as_str());
    assert_eq!([0, 69_999, 70_000, 75_999].map(source_of), ["web", "web", "code", "code"].map(Some));
    assert_eq!(source_of(76_000), None);
    assert_eq!(job.countable_samples(), 14_001 + 6000);
}

#[test]
fn each_source_has_an_order_of_its_own() {
    let job = frozen("", TWO).unwrap();
    let [web, code] = &job.sources[..] else { panic!("{:?}", job.sources) };
    // 7000 blocks are enough for 100 lanes of 64; of 10 samples each, one is in use in each lane.
    assert_eq!((web.lanes, web.window), (100, 10));
    // 100 blocks of 2000 would be all samples, of which this is the share.
    assert_eq!((code.lanes, code.window), (1, 2000));
    let sources = format!("{TWO}order = {{ window = 5 }}\n");
    let job = frozen("order = { lanes = 50, window = 9 }", &sources).unwrap();
    let orders: Vec<_> = job.sources.iter().map(|source| (source.lanes, source.window)).collect();
    assert_eq!(orders, [(50, 9), (50, 5)]);
    let few = file("order = { lanes = 50 }", TWO).unwrap().freeze_all(&[facts(1, 70_000, 7000), facts(2, 6, 1)]);
    assert_eq!(
        few.unwrap_err().to_string(),
        "job `mixed`: `global_batch` is 100, and the 21 samples of an epoch (1 in all) never fill it: there would be no batch; lower it, or set epoch_end to \"pad\" or \"partial\""
    );
    let few = file("order = { lanes = 50 }\ntotal_samples = 1000", TWO).unwrap();
    assert_eq!(few.freeze_all(&[facts(1, 70_000, 7000), facts(2, 6, 1)]).unwrap().sources[1].lanes, 6);
}

#[test]
fn a_source_that_would_come_too_often_is_refused() {
    let sources = format!("{TWO}max_epochs = 2\n");
    assert!(frozen("", &sources).is_ok() && frozen("epochs = 2", &sources).is_ok());
    assert_eq!(
        error("total_samples = 64_000", &sources),
        "job `mixed`: source `code` is read 3.2 times; `max_epochs` is 2: lower its weight, `total_samples` or `epochs`"
    );
    assert!(frozen("total_samples = 40_002", &sources).is_ok(), "one sample more is within a source's share");
    let over = error("total_samples = 40_003", &sources);
    assert!(over.contains("is read 2.0002 times; `max_epochs` is 2"), "{over}");
    assert!(error("epochs = 3", &sources).contains("is read 3.0 times"));
    let endless = Job { epochs: ENDLESS_EPOCHS, ..frozen("", &sources).unwrap() };
    assert!(endless.check().is_ok() && endless.check_max_epochs().is_ok(), "it ends where its trainer ends");
}

#[test]
fn keys_that_contradict_sources_are_refused() {
    let more = |line: &str| format!("{TWO}{line}\n");
    for (keys, sources, expected) in [
        ("dataset = \"/web\"", TWO.to_owned(), "`dataset` and `source` are both there"),
        ("", String::new(), "`dataset` is missing; give the folder or URL"),
        ("total_tokens = 9", TWO.to_owned(), "`total_tokens` is for jobs with `sequence`"),
        ("total_samples = 0", TWO.to_owned(), "`total_samples` must be at least 1"),
        ("view = { first = 9 }", TWO.to_owned(), "`view` is for jobs of one `dataset`; write `view` in each `source`"),
        (
            "mix = { mixup = 0.2 }",
            TWO.to_owned(),
            "`mix` is for jobs of one `dataset`, and this one has `source`: leave it out",
        ),
        ("sequence = { seq_len = 8 }", TWO.to_owned(), "column `label`: `decode` is `int`, and a sample of a job with"),
        ("", TWO.replace("weight = 3", "weight = 0"), "source `code`: `weight` is 0; it must be a number above 0"),
        ("", TWO.replace("weight = 3", "weight = nan"), "source `code`: `weight` is NaN"),
        ("", TWO.replace("\"code\"", "\"web\""), "source `web` appears twice"),
        ("", TWO.replace("\"code\"", "\"a b\""), "source `a b`: `name` must be 1 to 128 of"),
        ("", TWO.replace("\"/code\"", "\"\""), "source `code`: `dataset` is empty"),
        ("", TWO.replace("/code", "s3://me:word@b/c"), "source `code`: `dataset` "),
        ("", more("max_epochs = 0"), "source `code`: `max_epochs` must be at least 1"),
        ("", more("when_done = \"repeat\""), "source `code`: `when_done` needs `max_epochs`"),
        ("", more("max_epochs = 2\nwhen_done = \"stop\""), "`total_samples` is missing; a job with `when_done` needs"),
        ("", more("max_epochs = 2\nwhen_done = \"end\""), "when_done cannot be `end`"),
        ("", more("order = { window = 0 }"), "source `code`: `order.window` must be at least 1"),
        ("", more("view = { first = 0 }"), "source `code`: `view.first` must be at least 1"),
        ("", more("view = { first = 9 }"), "source `code`: `view` is not evaluated"),
        ("", more("when = 9"), "there is no key `when`"),
        ("", "[source]\nname = \"web\"\n".to_owned(), "write [[source]] with two brackets"),
        ("", TWO.repeat(33), "`source` is there 66 times; a job has at most 64 of them"),
    ] {
        let error = error(keys, &sources);
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(!error.contains("word@"), "{error}");
    }
}

#[test]
fn a_job_of_sources_travels_and_has_a_fingerprint_of_all_that_decides_its_stream() {
    let job = frozen("", TWO).unwrap();
    let text = serde_json::to_string(&job).unwrap();
    assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
    let mut elsewhere = job.clone();
    elsewhere.sources[1].dataset = "/copy".to_owned();
    elsewhere.sources[1].max_epochs = Some(9);
    assert_eq!(elsewhere.fingerprint(), job.fingerprint());
    type SourceEdit = fn(&mut JobSource);
    let changes: [SourceEdit; 6] = [
        |source| source.weight += 1,
        |source| source.lanes += 1,
        |source| source.window += 1,
        |source| source.ids += 1,
        |source| source.view = Some(Fingerprint(3)),
        |source| source.dataset_fingerprint = Fingerprint(3),
    ];
    for change in changes {
        let mut other = job.clone();
        change(&mut other.sources[1]);
        assert_ne!(other.fingerprint(), job.fingerprint());
    }
}

#[test]
fn sources_that_no_job_file_describes_are_refused() {
    type JobEdit = fn(&mut Job);
    let changes: [(JobEdit, &str); 6] = [
        (|job| job.sources[1].weight -= 1, "with weights of 65536 in all"),
        (
            |job| (job.sources[0].weight, job.sources[1].weight) = (65_536, 0),
            "source `code`: `weight` is 0, and no `stage`",
        ),
        (|job| job.sources[1].samples = 0, "has no samples"),
        (|job| job.sources[1].lanes = 6001, "`order.lanes` is 6001, more than the 6000 samples"),
        (|job| job.sources[1].ids = u64::MAX, "source `code`: `dataset` has 6000 samples of"),
        (|job| job.dataset = "/d".to_owned(), "`dataset` is for jobs of one `dataset`"),
    ];
    for (change, expected) in changes {
        let mut job = frozen("", TWO).unwrap();
        change(&mut job);
        let error = job.check().unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}
