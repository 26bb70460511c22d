//! What becomes of a job whose sources are used up.

use super::{
    tests::{TWO, error, frozen},
    *,
};
use crate::ENDLESS_EPOCHS;
use spdl_order::BlendStage;

/// Returns a job of `web`, of 70,000 samples, and `code`, of 6,000, with these keys of `code` and more tables; 10 epochs of 10,000.
fn job(of_code: &str, tables: &str) -> Job {
    frozen("total_samples = 10_000\nepochs = 10", &format!("{TWO}{of_code}\n{tables}")).unwrap()
}

#[test]
fn a_source_that_is_used_up_leaves_its_share_to_the_others() {
    let job = job("max_epochs = 2\nwhen_done = \"reweight\"", "");
    let [BlendStage { from, weights }] = &job.stages[..] else { panic!("{:?}", job.stages) };
    assert!((39_996..=40_004).contains(from), "0.3 of 40,000 are all samples twice: {from}");
    assert_eq!((weights, job.used_up_at(0), job.used_up_at(1)), (&vec![65_536, 0], vec!["code"], vec![]));
    assert!((job.times_read(1, 100_000) - 2.0).abs() < 1e-3, "{}", job.times_read(1, 100_000));
    assert_eq!(job.batches(100).end, None);
    assert_eq!(job.clone().with_limits().unwrap().stages, job.stages, "the stages follow from themselves");
}

#[test]
fn a_source_that_is_used_up_can_end_the_stream() {
    let job = job("max_epochs = 2\nwhen_done = \"stop\"", "");
    let end = job.end_of_sources().unwrap();
    assert!((39_996..=40_004).contains(&end), "{end}");
    let batches = job.batches(100);
    assert_eq!((batches.end, batches.steps_left(job.samples, Position::START)), (Some(end), end / 100));
    assert_eq!(job.used_up_at(0), ["code"]);
    assert_eq!(job.dataset_text_at(job.position_of(end)), "web 70.0 % + code 30.0 %");
    let text = serde_json::to_string(&job).unwrap();
    assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
    // A trainer without an end of its own stops there, too.
    let endless = Job { epochs: ENDLESS_EPOCHS, ..job.clone() };
    assert!(endless.check().is_ok() && endless.batches(100).steps_left(job.samples, Position::START) == end / 100);
    assert_eq!(
        job.start_problem(100, Position::new(4, 5000)).unwrap(),
        format!("no batch of 100 is left there: the stream ends after {end} samples")
    );
}

#[test]
fn a_source_that_repeats_and_one_that_lasts_change_nothing() {
    let plain = job("", "");
    for of_code in ["max_epochs = 2\nwhen_done = \"repeat\"", "max_epochs = 9\nwhen_done = \"stop\""] {
        let job = frozen("total_samples = 10_000\nepochs = 3", &format!("{TWO}{of_code}\n")).unwrap();
        assert_eq!(job.batches(100).steps_left(job.samples, Position::START), 300);
        if job.stages.is_empty() {
            assert_eq!(job.fingerprint(), plain.fingerprint());
        } else {
            let at = Position::new(2, 9999);
            assert_eq!(job.fingerprint_up_to(at), plain.fingerprint(), "the end is after all epochs");
        }
    }
}

#[test]
fn the_limits_of_sources_hold_over_all_stages_and_for_weights_that_change_in_a_run() {
    let used_up = "max_epochs = 1\nwhen_done = \"reweight\"";
    let written = job(used_up, "[[stage]]\nfrom = 30_000\nweights = { web = 1, code = 1 }\n");
    let froms: Vec<u64> = written.stages.iter().map(|stage| stage.from).collect();
    assert!(froms.len() == 2 && (19_996..=20_004).contains(&froms[0]) && froms[1] == 30_000, "{froms:?}");
    assert_eq!(written.stages[1].weights, [65_536, 0], "it is used up before");
    // The same change in a run makes the same job.
    let plain = job(used_up, "");
    let half = [32_768, 32_768];
    let rest = [65_536, 0];
    let changed = plain.with_weights(30_000, &rest).unwrap();
    assert_eq!((&changed.stages, changed.weights_since(&rest)), (&written.stages, Some(30_000)));
    let used_up = plain.with_weights(30_000, &half).unwrap_err().to_string();
    assert!(
        used_up.contains("stage from 30000: `weights` give some to source `code`, which is used up before"),
        "{used_up}"
    );
    let used_up = plain.with_weights(30_000, &[0, 65_536]).unwrap_err().to_string();
    assert!(used_up.contains("stage from 30000: `weights` are all of sources that are used up before"), "{used_up}");
    // With another share before it is used up, that is elsewhere.
    let earlier = plain.with_weights(10_000, &half).unwrap();
    let [first, second] = &earlier.stages[..] else { panic!("{:?}", earlier.stages) };
    assert_eq!((first.from, &first.weights[..]), (10_000, &half[..]));
    assert!((15_994..=16_006).contains(&second.from), "3,000 of it came by 10,000: {}", second.from);
    assert_eq!(earlier.weights_since(&half), Some(10_000));
    // What follows from limits was not set.
    assert_eq!((earlier.weights_since(&[65_536, 0]), plain.weights_since(&half)), (None, None));
    assert!(earlier.continues(plain.fingerprint_up_to(Position::new(1, 0)), Position::new(1, 0)));
}

#[test]
fn what_a_stream_cannot_have_after_its_end_is_refused() {
    let stop = format!(
        "{TWO}max_epochs = 1\nwhen_done = \"stop\"\n[[stage]]\nfrom = 30_000\nweights = {{ web = 1, code = 1 }}\n"
    );
    let late = error("total_samples = 10_000", &stop);
    assert!(late.contains("stage from 30000: `from` is past the end of the stream: after "), "{late}");
    let stopped = job("max_epochs = 1\nwhen_done = \"stop\"", "");
    let late = stopped.with_weights(30_000, &[65_536, 0]).unwrap_err().to_string();
    assert!(late.contains("stage from 30000: `from` is past the end"), "{late}");
    let mut other = stopped.clone();
    other.stages.push(BlendStage { from: 50_000, weights: vec![65_536, 0] });
    assert!(other.check().unwrap_err().to_string().contains("must be those of all sources"));
}
