//! The diagnosis against simulated pipelines, whose limit and whose rate under a change are known.

use super::{simulation::Simulation, *};
use crate::{Stage, messages::Stall, mix::splitmix64};

fn diagnosis(simulation: &Simulation, seed: u64) -> Diagnosis {
    let (rank, worker) = simulation.run(seed);
    diagnose(rank, Some(worker))
}

/// A number between two bounds, drawn evenly on a logarithmic scale.
fn draw(seed: u64, low: f64, high: f64) -> f64 {
    low * (high / low).powf(splitmix64(seed) as f64 / u64::MAX as f64)
}

/// Pipelines with one planted limit, which is smaller than all other terms by at least a fifth.
fn planted(limit: Limit, seed: u64) -> Simulation {
    let harshness = draw(seed, 1.25, 8.0);
    let base = Simulation {
        batch: draw(seed + 1, 8.0, 256.0) as usize,
        requests: draw(seed + 2, 8.0, 64.0) as usize,
        ..Simulation::default()
    };
    let step_s = base.step_s;
    // At rest, the others could do one and a half times the trainer's rate.
    let rest = Simulation {
        cpu_s: step_s * base.cores / base.batch as f64 / 1.5,
        latency_s: step_s * base.requests_in_flight as f64 / base.requests as f64 / 1.8,
        ..base
    };
    match limit {
        Limit::Trainer => rest,
        Limit::Cpu => Simulation { cores: draw(seed + 3, 0.3, 2.0), cpu_s: rest.cpu_s * 1.5 * harshness, ..rest },
        Limit::Function => {
            Simulation { call_s: step_s * 2.0 / rest.batch as f64 * harshness, cpu_s: rest.cpu_s * 0.2, ..rest }
        }
        Limit::StoreLatency => Simulation { latency_s: rest.latency_s * 1.8 * harshness, ..rest },
        Limit::StoreBandwidth => Simulation {
            latency_s: 0.002,
            bandwidth: rest.requests as f64 * rest.request_bytes / step_s / harshness,
            ..rest
        },
        Limit::StoreErrors | Limit::HandOver | Limit::NoWorker => unreachable!("not simulated"),
    }
}

const PLANTED: [Limit; 5] = [Limit::Trainer, Limit::Cpu, Limit::Function, Limit::StoreLatency, Limit::StoreBandwidth];

#[test]
fn the_limit_of_a_simulated_pipeline_is_named() {
    let mut wrong = Vec::new();
    for limit in PLANTED {
        for seed in (0..40).map(|seed| seed * 1000) {
            let simulation = planted(limit, seed);
            let diagnosis = diagnosis(&simulation, seed);
            if diagnosis.limit() != Some(limit) {
                wrong.push(format!("{limit} {seed}: {:?} {:?}", diagnosis.terms, simulation));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of 200: {}", wrong.len(), wrong.join("\n"));
}

/// Checks predictions: their median error is at most 10 %, and the worst 25 %.
fn check_predictions(cases: impl Iterator<Item = (Simulation, Simulation, Change)>) {
    let mut errors: Vec<(f64, String)> = cases
        .enumerate()
        .map(|(seed, (before, after, change))| {
            let found = diagnosis(&before, seed as u64);
            let predicted = found.what_if(&change);
            let measured = diagnosis(&after, seed as u64).samples_per_s();
            let error = (predicted / measured - 1.0).abs();
            (error, format!("{error:.2}: {predicted:.0} for {measured:.0}, {change:?}, {:?} {before:?}", found.terms))
        })
        .collect();
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (worst, text) = errors.last().unwrap();
    assert!(*worst <= 0.25, "{text}");
    assert!(errors[errors.len() / 2].0 <= 0.1, "{}", errors[errors.len() / 2].1);
}

fn everywhere(change: impl Fn(&Simulation, u64) -> (Simulation, Change)) {
    check_predictions(PLANTED.into_iter().flat_map(|limit| {
        let change = &change;
        (0..20).map(move |seed| {
            let before = planted(limit, seed * 1000);
            let (after, change) = change(&before, seed);
            (before, after, change)
        })
    }));
}

#[test]
fn nothing_changes_without_a_change() {
    everywhere(|before, _| (*before, Change::default()));
}

#[test]
fn more_and_fewer_cores_are_predicted() {
    everywhere(|before, seed| {
        let cores = draw(seed, before.cores / 2.0, before.cores * 2.0);
        (Simulation { cores, ..*before }, Change { cores: cores - before.cores, ..Change::default() })
    });
}

#[test]
fn a_faster_and_a_slower_trainer_is_predicted() {
    everywhere(|before, seed| {
        let step = draw(seed, 0.5, 2.0);
        (Simulation { step_s: before.step_s * step, ..*before }, Change { step, ..Change::default() })
    });
}

#[test]
fn another_latency_of_the_store_is_predicted() {
    everywhere(|before, seed| {
        let latency = draw(seed, 0.5, 2.0);
        (Simulation { latency_s: before.latency_s * latency, ..*before }, Change { latency, ..Change::default() })
    });
}

#[test]
fn another_bandwidth_of_the_store_is_predicted() {
    everywhere(|before, seed| {
        let bandwidth = draw(seed, 0.5, 2.0);
        (Simulation { bandwidth: before.bandwidth * bandwidth, ..*before }, Change { bandwidth, ..Change::default() })
    });
}

#[test]
fn more_of_the_bytes_from_the_cache_is_predicted() {
    everywhere(|before, seed| {
        let requests = draw(seed, before.requests as f64 / 4.0, before.requests as f64).max(1.0) as usize;
        let fetched = requests as f64 / before.requests as f64;
        (Simulation { requests, ..*before }, Change { fetched, ..Change::default() })
    });
}

#[test]
fn more_requests_in_flight_are_predicted() {
    everywhere(|before, seed| {
        let requests_in_flight = draw(seed, 16.0, 64.0) as usize;
        let requests = requests_in_flight as f64 / before.requests_in_flight as f64;
        (Simulation { requests_in_flight, ..*before }, Change { requests, ..Change::default() })
    });
}

fn verdict(simulation: Simulation) -> String {
    diagnosis(&simulation, 1).verdict()
}

#[test]
fn a_verdict_has_a_subject_numbers_and_a_remedy() {
    let base = Simulation::default();
    assert_eq!(
        verdict(base),
        "nothing to gain: the trainer sets the pace, as rank 0 waits 0.0 % of its time; 0.5 cores fewer would do"
    );
    assert_eq!(
        verdict(Simulation { cores: 0.5, ..base }),
        "rank 0 waits 61 % of its time: worker `node-0` is short of CPU (0.50 of its 0.50 cores are busy); 0.8 more cores \
         would give up to 2.6 times the rate, then the trainer sets the pace; a larger cache would give nothing"
    );
    assert_eq!(
        verdict(Simulation { call_s: 0.003, ..base }),
        "rank 0 waits 55 % of its time: the functions of the job are slow on worker `node-0` (a call takes 3.0 ms); \
         faster functions or more cores would give up to 2.2 times the rate, then the trainer sets the pace"
    );
    assert_eq!(
        verdict(Simulation { latency_s: 0.05, ..base }),
        "rank 0 waits 40 % of its time: the store answers worker `node-0` late (a request takes 50 ms, 50 ms of it until \
         the first byte, and 32.0 are in flight); more requests in flight or a larger cache would give up to 67 %, then \
         the trainer sets the pace; more cores would give nothing"
    );
    assert_eq!(
        verdict(Simulation { bandwidth: 50e6, ..base }),
        "rank 0 waits 53 % of its time: the store gives worker `node-0` 50.0 MB/s and no more; a faster store or a larger \
         cache would give up to 2.1 times the rate, then the trainer sets the pace; more cores would give nothing"
    );
}

#[test]
fn a_store_that_fails_requests_is_told_from_a_slow_one() {
    let (rank, mut worker) = Simulation { latency_s: 0.05, ..Simulation::default() }.run(1);
    worker.store.retries = worker.store.requests / 10;
    let found = diagnose(rank, Some(worker));
    assert_eq!(found.limit(), Some(Limit::StoreErrors));
    let text = found.verdict();
    assert!(text.contains("the store fails requests of worker `node-0` (384 of 3840 in "), "{text}");
}

#[test]
fn batches_that_are_done_in_time_and_come_late_are_the_fault_of_their_way() {
    let (mut rank, worker) = Simulation::default().run(1);
    rank.waited_s = rank.seconds / 3.0;
    let found = diagnose(rank, Some(worker));
    assert_eq!(found.limit(), Some(Limit::HandOver));
    assert!(found.verdict().contains("done in time and reach the trainer late"), "{}", found.verdict());
}

#[test]
fn a_rank_that_gets_nothing_is_told_why_and_never_that_it_sets_the_pace() {
    let (rank, worker) = Simulation::default().run(1);
    let rank = RankWindow { samples: 0, waited_s: rank.seconds, ..rank };
    let stall =
        Stall { worker: "node-0".into(), stage: Stage::Fetch, waiting_for: "shard `a.tar`".into(), waited_ms: 7 };
    let verdict = |rank| diagnose(rank, Some(worker.clone())).verdict();
    assert_eq!(diagnose(rank.clone(), Some(worker.clone())).limit(), None);
    assert_eq!(
        verdict(RankWindow { stall: Some(stall), ..rank.clone() }),
        "rank 0 has got no sample in 4 s: stage `fetch` of worker `node-0` has waited 7 ms for shard `a.tar`"
    );
    assert_eq!(verdict(rank.clone()), "rank 0 has got no sample in 4 s, and worker `node-0` does not know why");
    assert_eq!(verdict(RankWindow { waited_s: 0.0, ..rank.clone() }), "rank 0 has asked for no batch in the last 4 s");
    let (_, slow) = Simulation { bandwidth: 1e6, ..Simulation::default() }.run(1);
    let starved = diagnose(rank.clone(), Some(slow));
    assert_eq!(starved.limit(), Some(Limit::StoreBandwidth));
    assert_eq!(
        starved.verdict(),
        "rank 0 has got no sample in 4 s: the store gives worker `node-0` 1.0 MB/s and no more"
    );
    let homeless = diagnose(rank, None);
    assert_eq!((homeless.limit(), homeless.what_if(&Change::default())), (Some(Limit::NoWorker), 0.0));
    assert_eq!(homeless.verdict(), "rank 0 has no home: no worker serves it");
}

fn of_session(ranks: &[(&str, f64)]) -> String {
    let diagnoses: Vec<Diagnosis> = (0..)
        .zip(ranks)
        .map(|(number, (worker, waiting))| {
            let (mut rank, mut window) = Simulation { cores: 0.5, ..Simulation::default() }.run(1);
            rank.rank = number;
            rank.waited_s = waiting * rank.seconds;
            (*worker).clone_into(&mut window.name);
            diagnose(rank, Some(window))
        })
        .collect();
    session_verdict(&diagnoses).unwrap()
}

#[test]
fn a_session_s_verdict_is_that_of_the_rank_that_waits_most_and_says_who_else_waits() {
    let one = of_session(&[("a", 0.3)]);
    assert!(one.starts_with("rank 0 waits 30 % of its time") && one.ends_with("would give nothing"), "{one}");
    let node = of_session(&[("a", 0.001), ("b", 0.3), ("a", 0.0), ("b", 0.5)]);
    assert!(node.starts_with("rank 3 waits 50 % of its time: worker `b`"), "{node}");
    assert!(node.ends_with("; 2 of 4 ranks wait, all of them for worker `b`"), "{node}");
    let scattered = of_session(&[("a", 0.2), ("b", 0.3), ("a", 0.0), ("b", 0.0)]);
    assert!(scattered.ends_with("; 2 of 4 ranks wait"), "{scattered}");
    assert!(of_session(&[("a", 0.2), ("b", 0.3)]).ends_with("; all 2 ranks wait"));
    assert!(
        of_session(&[("a", 0.0), ("b", 0.01)]).starts_with("nothing to gain: the trainer sets the pace, as rank 1")
    );
    assert_eq!(session_verdict([]), None);
}

#[test]
fn a_faster_function_is_predicted() {
    everywhere(|before, seed| {
        let call = draw(seed, 0.5, 2.0);
        (Simulation { call_s: before.call_s * call, ..*before }, Change { call, ..Change::default() })
    });
}
