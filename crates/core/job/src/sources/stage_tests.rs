//! What a job file with stages becomes, and what is refused.

use super::{
    tests::{TWO, error, frozen},
    *,
};
use spdl_types::Position;

/// Returns the tables of stages that begin at these samples, with the weights of `web` and `code`.
fn staged(stages: &[(u64, &str, &str)]) -> String {
    let table = |(from, web, code): &(u64, &str, &str)| {
        format!("[[stage]]\nfrom = {from}\nweights = {{ web = {web}, code = {code} }}\n")
    };
    format!("{TWO}{}", stages.iter().map(table).collect::<String>())
}

fn job(stages: &[(u64, &str, &str)]) -> Job {
    frozen("total_samples = 1_000\nepochs = 20", &staged(stages)).unwrap()
}

#[test]
fn stages_have_weights_of_all_sources_and_a_job_travels_with_them() {
    let job = job(&[(1500, "0.4", "0.6"), (2000, "1", "0")]);
    let weights = |number: usize| job.stages[number].weights.clone();
    assert_eq!([weights(0), weights(1)], [vec![26_214, 39_322], vec![65_536, 0]]);
    let text = serde_json::to_string(&job).unwrap();
    assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
    assert!(!serde_json::to_string(&frozen("", TWO).unwrap()).unwrap().contains("stages"));
    // 0.7 of 1500 samples, 0.4 of 500, and all of 500.
    assert!((job.times_read(0, 2500) * 70_000.0 - (1050.0 + 200.0 + 500.0)).abs() < 1.0);
    assert!((job.first_share(1) - 0.3).abs() < 1e-4);
    let shown = |sample: u64| job.dataset_text_at(Position::new(sample / 1000, sample % 1000));
    assert_eq!([1499, 1500].map(shown), ["web 70.0 % + code 30.0 %", "web 40.0 % + code 60.0 %"]);
    assert_eq!((shown(2000).as_str(), shown(0)), ("web 100.0 % + code 0.0 %", job.dataset_text()));
}

#[test]
fn a_source_can_begin_with_a_stage() {
    let late = staged(&[(1500, "1", "1")]).replace("weight = 3", "weight = 0");
    let job = frozen("total_samples = 1_000\nepochs = 20", &late).unwrap();
    assert_eq!((job.sources[0].weight, job.sources[1].weight), (65_536, 0));
    assert!((job.first_share(1) - 0.5).abs() < 1e-4);
    assert_eq!(job.sources[1].window, frozen("", &TWO.replace("weight = 3", "weight = 7")).unwrap().sources[1].window);
    let never = staged(&[(1500, "1", "0")]).replace("weight = 3", "weight = 0");
    let error = error("total_samples = 1_000", &never);
    assert!(error.contains("source `code`: `weight` is 0; it must be a number above 0, or 0 for a source that begins"));
}

#[test]
fn a_checkpoint_is_of_every_job_that_differs_only_in_stages_from_there_on() {
    let at = |sample: u64| Position::new(sample / 1000, sample % 1000);
    let jobs = [
        job(&[]),
        job(&[(1500, "4", "6")]),
        job(&[(1500, "4", "6"), (3000, "1", "9")]),
        job(&[(1500, "4", "6"), (3000, "2", "8")]),
    ];
    for (number, one) in jobs.iter().enumerate() {
        for (other_number, other) in jobs.iter().enumerate() {
            // The least sample from which on the two differ.
            let differ = match (number.min(other_number), number.max(other_number)) {
                (less, more) if less == more => u64::MAX,
                (0, _) => 1500,
                _ => 3000,
            };
            for sample in [0, 1, 1499, 1500, 1501, 2999, 3000, 3001, 19_000] {
                let state = one.fingerprint_up_to(at(sample));
                assert_eq!(other.continues(state, at(sample)), sample <= differ, "{number} {other_number} {sample}");
            }
        }
    }
    assert_eq!(jobs[2].fingerprint_up_to(at(1500)), jobs[0].fingerprint());
    assert_eq!(jobs[2].fingerprint_up_to(at(3001)), jobs[2].fingerprint());
    let other = Job { seed: 9, ..jobs[1].clone() };
    assert!(!other.continues(jobs[1].fingerprint_up_to(at(3)), at(3)));
}

#[test]
fn a_stage_more_leaves_the_order_before_it_as_it_was() {
    let [before, after] = [job(&[(1500, "4", "6")]), job(&[(1500, "4", "6"), (3000, "1", "99")])];
    assert_eq!((before.sources, before.samples, before.order), (after.sources, after.samples, after.order));
}

#[test]
fn all_stages_count_for_how_often_a_source_comes() {
    let often = |from: u64| {
        let sources = format!("{TWO}max_epochs = 1\n[[stage]]\nfrom = {from}\nweights = {{ web = 1, code = 9 }}\n");
        frozen("total_samples = 1_000\nepochs = 10", &sources).map_err(|error| error.to_string())
    };
    assert!(often(5000).is_ok(), "0.3 of 5000 and 0.9 of 5000 are 6000");
    let error = often(4000).unwrap_err();
    assert!(error.contains("source `code` is read 1.1 times; `max_epochs` is 1"), "{error}");
}

#[test]
fn stages_that_make_no_sense_are_refused() {
    let total = "total_samples = 1_000";
    for (keys, sources, expected) in [
        ("", staged(&[(5, "1", "1")]), "`total_samples` is missing; a job with `stage` needs the length of an epoch"),
        (total, staged(&[(0, "1", "1")]), "stage from 0: `from` must be above 0"),
        (total, staged(&[(9, "1", "1"), (9, "1", "2")]), "stage from 9: `from` must be above 9"),
        (total, staged(&[(9, "0", "0")]), "stage from 9: `weights` has only weights of 0"),
        (total, staged(&[(9, "-1", "1")]), "stage from 9: `weights` has -1 for `web`; it must be 0 or more"),
        (total, staged(&[(9, "nan", "1")]), "stage from 9: `weights` has NaN for `web`"),
        (
            total,
            staged(&[(9, "1", "1, books = 1")]),
            "stage from 9: `weights` has `books`, and no source has this name",
        ),
        (total, staged(&[(9, "1", "1")]).replace("web = 1, ", ""), "`weights` lacks source `web`; write 0 if"),
        (total, format!("{TWO}[stage]\nfrom = 9\nweights = {{}}\n"), "write [[stage]] with two brackets"),
        (total, format!("{TWO}[[stage]]\nfrom = 9\n"), "`weights` is missing"),
        ("dataset = \"/d\"", "[[stage]]\nfrom = 9\nweights = {}\n".to_owned(), "`stage` is for jobs with `source`"),
    ] {
        let error = error(keys, &sources);
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let many: Vec<_> = (1..=65).map(|from| (from, "1", "1")).collect();
    assert!(error(total, &staged(&many)).contains("`stage` is there 65 times; a job has at most 64 of them"));
    type JobEdit = fn(&mut Job);
    let changes: [(JobEdit, &str); 3] = [
        (|job| job.stages[0].weights.truncate(1), "must be those of all sources, 65536 in all"),
        (|job| job.stages[0].weights[0] += 1, "must be those of all sources, 65536 in all"),
        (|job| job.stages[0].from = u64::MAX, "at most 2^62"),
    ];
    for (change, expected) in changes {
        let mut other = job(&[(1500, "4", "6")]);
        change(&mut other);
        let error = other.check().unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}
