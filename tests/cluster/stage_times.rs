//! Where the time of a worker goes, as its statistics show it: the times of each stage's units add up to the wall time, and
//! what takes most of it is what was made slow.

use serde_json::Value;
use spdl_testkit::processes::{Cluster, ServerProcess, TestDataset};
use spdl_types::{Stage, StageStats};

/// How much of a worker's time is observed.
const OBSERVED_MS: u64 = 3_000;
/// By how much the four times of a stage may differ from the wall time of its units.
const TOLERANCE: f64 = 0.02;

/// What a unit does for most of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mostly {
    Busy,
    Input,
    Output,
    Throttled,
}

fn uptime_ms(status: &Value) -> u64 {
    status["workers"][0]["uptime_ms"].as_u64().unwrap_or(0)
}

fn stages(status: &Value) -> Vec<StageStats> {
    serde_json::from_value(status["workers"][0]["stages"].clone()).expect("the stages of a worker")
}

/// Starts a worker, with one core unless `worker_args` set others, and a trainer on `node`. Returns what the units of each
/// stage mostly did once `is_steady` held for the status.
fn observe(
    worker_args: &[&str],
    node: &str,
    trainer_args: &[&str],
    is_steady: impl Fn(&Value) -> bool,
) -> Vec<(Stage, Mostly)> {
    let dataset = TestDataset::of_pictures(64, 16);
    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", worker_args);
    cluster.submit(&dataset.training_job("a-job", 1_000_000));
    let _trainer = ServerProcess::spawn(&mut cluster.pull("a-job", 0, 1, node, trainer_args));
    let before = cluster.wait_for("a steady state", is_steady);
    let after = cluster.wait_for("a later heartbeat", |status| uptime_ms(status) >= uptime_ms(&before) + OBSERVED_MS);
    let wall_ns = (uptime_ms(&after) - uptime_ms(&before)) as f64 * 1e6;
    let mostly = |(before, after): (StageStats, StageStats)| {
        assert_eq!((&before.stage, before.units), (&after.stage, after.units), "no unit came or went");
        let ns = |stats: &StageStats| {
            [stats.busy_ns, stats.input_wait_ns, stats.output_wait_ns, stats.throttled_ns].map(|ns| ns as f64)
        };
        let (before_ns, after_ns) = (ns(&before), ns(&after));
        let states = [Mostly::Busy, Mostly::Input, Mostly::Output, Mostly::Throttled];
        let times: Vec<f64> = after_ns.iter().zip(before_ns).map(|(after, before)| after - before).collect();
        let (units, sum) = (after.units as f64, times.iter().sum::<f64>());
        let shares: Vec<f64> = times.iter().map(|time| time / wall_ns / units.max(1.0)).collect();
        assert!((sum - units * wall_ns).abs() <= TOLERANCE * units * wall_ns, "`{}`: {shares:?}", after.stage);
        println!("{}: {} units, {shares:?}", after.stage, after.units);
        let most = states.into_iter().zip(shares).max_by(|a, b| a.1.total_cmp(&b.1)).expect("four states");
        (after.stage, most.0)
    };
    stages(&before).into_iter().zip(stages(&after)).filter(|(_, after)| after.units > 0).map(mostly).collect()
}

fn assert_mostly(observed: &[(Stage, Mostly)], expected: &[(Stage, Mostly)]) {
    assert_eq!(observed.len(), expected.len(), "{observed:?}");
    assert!(expected.iter().all(|one| observed.contains(one)), "{observed:?} is not {expected:?}");
}

/// Returns whether batches are delivered.
fn delivers(status: &Value) -> bool {
    status["workers"][0]["ranks"][0]["batches"].as_u64() > Some(0)
}

/// Returns whether each slot holds a batch.
fn is_full(status: &Value) -> bool {
    let rank = &status["workers"][0]["ranks"][0];
    rank["ready"].is_u64() && rank["ready"] == rank["slots"]
}

#[test]
fn where_decoding_is_slow_its_threads_work_and_the_slots_wait_for_them() {
    let observed = observe(&["--cores", "2"], "node-0", &[], delivers);
    let (fetch, decode) = ((Stage::Fetch, Mostly::Output), (Stage::Decode, Mostly::Busy));
    assert_mostly(&observed, &[fetch, decode, (Stage::HandOver, Mostly::Input)]);
}

#[test]
fn where_the_budget_is_small_the_decoding_threads_are_throttled() {
    let observed = observe(&["--cores", "0.2"], "node-0", &[], delivers);
    let (fetch, decode) = ((Stage::Fetch, Mostly::Output), (Stage::Decode, Mostly::Throttled));
    assert_mostly(&observed, &[fetch, decode, (Stage::HandOver, Mostly::Input)]);
}

#[test]
fn where_the_trainer_is_slow_every_stage_waits_for_output_over_either_transport() {
    let (fetch, decode) = ((Stage::Fetch, Mostly::Output), (Stage::Decode, Mostly::Output));
    let hand_over = (Stage::HandOver, Mostly::Output);
    // A batch in 16 seconds.
    let slow = ["--rate", "4"];
    let observed = observe(&[], "node-0", &slow, is_full);
    assert_mostly(&observed, &[fetch.clone(), decode.clone(), hand_over.clone()]);
    // Over the network nothing is sent for most of the time.
    let observed = observe(&[], "elsewhere", &slow, is_full);
    assert_mostly(&observed, &[fetch, decode, hand_over, (Stage::Send, Mostly::Input)]);
}
