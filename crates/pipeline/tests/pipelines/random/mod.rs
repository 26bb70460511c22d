//! Random pipelines against a sequential model: any composition, order, failure, retry, bound, stop, drain and drop. Nothing is
//! lost, nothing comes twice, nothing hangs, the queues stay bounded, and nothing is left behind.
//!
//! Each run draws new seeds; `SPDL_PIPELINE_SEED` repeats those from one on, and `SPDL_PIPELINE_COUNT` sets their number.

mod model;
mod ops;
mod stages;

use std::{
    collections::HashMap,
    env,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use model::Model;
use spdl_pipeline::PipelineError;
use spdl_types::mix::{GAMMA, splitmix64};
use stages::{Case, End};

/// Limit for one pipeline, far longer than any takes.
const LONG: Duration = Duration::from_secs(120);
const COUNT: u64 = 1000;

/// A source of random numbers: SplitMix64.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        let number = splitmix64(self.0) % limit;
        self.0 = self.0.wrapping_add(GAMMA);
        number
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// An item that can be counted while it lives.
#[derive(Clone)]
pub(crate) struct Item {
    pub(crate) value: u64,
    pub(crate) live: Arc<()>,
}

/// Runs a case and compares it with the model.
fn check(case: &Case) {
    let (live, taken) = (Arc::new(()), Arc::<[AtomicUsize; 2]>::default());
    let all_taken = || taken.iter().map(|count| count.load(SeqCst)).sum::<usize>();
    let pipeline = case.build(&live, &taken);
    let mut dice = Dice(!case.seed);
    let (mut results, mut error) = (Vec::new(), None);
    let limit = match case.end {
        End::TakeAll => usize::MAX,
        End::Drop(count) | End::Stop(count) | End::Drain(count) => count,
    };
    let mut items = pipeline.iter(LONG);
    let mut has_drained = false;
    let ops = case.ops();
    loop {
        if results.len() >= limit && !has_drained {
            if !matches!(case.end, End::Drain(_)) {
                break;
            }
            pipeline.drain();
            has_drained = true;
        }
        // The source may take one more before the item that is taken next is counted.
        let in_pipeline = all_taken().saturating_sub(results.len());
        let skips = ops.iter().any(|(_, op)| op.leaves_out());
        if let Some(bound) = case.bound().filter(|_| !skips) {
            assert!(in_pipeline <= bound, "{in_pipeline} items in a pipeline for {bound}");
        }
        match items.next() {
            Some(Ok(item)) => results.push(item.value),
            Some(Err(failed)) => {
                assert!(!failed.is_retryable(), "hangs: {failed}");
                error = Some(failed);
                assert!(items.next().is_none(), "nothing comes after an error");
                break;
            }
            None => break,
        }
        if dice.one_in(4) {
            thread::yield_now();
        }
        if case.changes_concurrency && !ops.is_empty() && dice.one_in(10) {
            let (stage, _) = &ops[dice.below(ops.len() as u64) as usize];
            pipeline.set_concurrency(stage, 1 + dice.below(8) as usize).unwrap();
        }
    }
    let from_source = if has_drained { [0, 1].map(|source| taken[source].load(SeqCst)) } else { [usize::MAX; 2] };
    compare(case, &results, error, from_source, case.end == End::TakeAll || has_drained);
    let waits = if matches!(case.end, End::Drop(_)) {
        drop(pipeline);
        false
    } else {
        pipeline.stop();
        ops.iter().all(|(_, op)| op.threads != ops::Threads::Elsewhere)
    };
    // Threads and tasks that are not waited for let go of the items by themselves; if they do not, this runs into the limit.
    while !waits && Arc::strong_count(&live) > 1 {
        thread::yield_now();
    }
    assert_eq!(Arc::strong_count(&live), 1, "an item is left behind");
}

fn compare(case: &Case, results: &[u64], error: Option<PipelineError>, from_source: [usize; 2], is_complete: bool) {
    let (expected, failed) = Model::run(case, from_source);
    // A source that is drained in front of its panic does not panic.
    if case.is_ordered {
        assert!(expected.starts_with(results), "the results are not the first of {}", expected.len());
    } else {
        let mut left = HashMap::<u64, usize>::new();
        expected.iter().for_each(|value| *left.entry(*value).or_default() += 1);
        for value in results {
            let count = left.get_mut(value).filter(|count| **count > 0).expect("a result comes twice or from nowhere");
            *count -= 1;
        }
    }
    match error {
        Some(error) => {
            let stage = match &error {
                PipelineError::Failed { stage, .. }
                | PipelineError::Panicked { stage, .. }
                | PipelineError::TooManyFailures { stage, .. } => stage.clone(),
                other => panic!("{other}"),
            };
            // A drained source may have panicked before it was asked to stop.
            let next = |source: usize| case.numbers(source, usize::MAX).get(from_source[source]).copied();
            let panicked = |source| case.panics_at.is_some() && next(source) == case.panics_at;
            let source_panicked = stage.starts_with("source") && (0..case.sources).any(panicked);
            if case.is_ordered && !source_panicked {
                assert_eq!(Some(stage), failed);
                assert_eq!(results.len(), expected.len(), "the error comes behind all that came before it");
            } else {
                assert!(failed.is_some() || source_panicked, "`{error}` for no reason");
            }
        }
        None if is_complete => {
            assert_eq!(failed, None, "a failure is lost");
            assert_eq!(results.len(), expected.len(), "results are lost");
        }
        None => {}
    }
}

#[test]
fn random_pipelines_do_what_the_model_does() {
    let number = |name| env::var(name).ok().map(|value: String| value.parse().expect("a number"));
    let first: u64 = number("SPDL_PIPELINE_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    let count = number("SPDL_PIPELINE_COUNT").unwrap_or(COUNT);
    println!("again: SPDL_PIPELINE_SEED={first}");
    for seed in (0..count).map(|number| first.wrapping_add(number)) {
        let case = Case::draw(seed);
        let (done, is_done) = mpsc::channel();
        let run = {
            let case = case.clone();
            thread::spawn(move || {
                let result = std::panic::catch_unwind(|| check(&case));
                let _ = done.send(());
                result
            })
        };
        let again = format!("SPDL_PIPELINE_SEED={seed} SPDL_PIPELINE_COUNT=1 shows it again: {case:?}");
        assert!(is_done.recv_timeout(2 * LONG).is_ok(), "hangs; {again}");
        assert!(run.join().unwrap().is_ok(), "{again}");
    }
}
