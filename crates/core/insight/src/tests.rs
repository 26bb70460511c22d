//! The diagnosis against simulated pipelines, whose limit and whose rate under a change are known.

use super::{simulation::Simulation, *};
use crate::{CacheStats, SlowObject, Stall, Transport, rates::StageRate};
use spdl_types::{Stage, mix::splitmix64};

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
        other => unreachable!("{other} is not simulated"),
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

/// The home of `ranks` ranks, each with a part of it that is as large as `simulation`.
fn shared_home(simulation: &Simulation, ranks: usize, seed: u64) -> Diagnosis {
    let (rank, mut worker) = simulation.run(seed);
    worker.cores *= ranks as f64;
    worker.cores_used *= ranks as f64;
    let fetch = worker.stages[0].clone();
    let (busy, input_wait, output_wait) = (0.0, f64::from(rank.slots), 0.0);
    worker.stages.push(StageRate { stage: Stage::HandOver, busy, input_wait, output_wait, throttled: 0.0, ..fetch });
    for stage in &mut worker.stages {
        let sums = [&mut stage.items_per_s, &mut stage.bytes_per_s, &mut stage.busy, &mut stage.input_wait];
        sums.into_iter().for_each(|sum| *sum *= ranks as f64);
        [&mut stage.output_wait, &mut stage.throttled].into_iter().for_each(|sum| *sum *= ranks as f64);
    }
    worker.store.requests *= ranks as u64;
    worker.store.answers *= ranks as u64;
    worker.store.first_byte_ns *= ranks as u64;
    diagnose(rank, Some(worker))
}

#[test]
fn more_workers_help_ranks_that_share_one() {
    let mut errors = Vec::new();
    for limit in [Limit::Trainer, Limit::Cpu, Limit::StoreLatency] {
        for seed in 0..20 {
            let before = planted(limit, seed * 1000);
            let after =
                Simulation { cores: 2.0 * before.cores, requests_in_flight: 2 * before.requests_in_flight, ..before };
            let predicted = shared_home(&before, 4, seed).what_if(&Change { workers: 2.0, ..Change::default() });
            errors.push((predicted / diagnosis(&after, seed).samples_per_s() - 1.0).abs());
        }
    }
    errors.sort_by(f64::total_cmp);
    assert!(errors[errors.len() / 2] <= 0.1 && *errors.last().unwrap() <= 0.25, "{errors:?}");
}

#[test]
fn a_rank_has_one_home_however_many_workers_there_are() {
    let cpu = planted(Limit::Cpu, 0);
    let gain = |ranks, workers| {
        let found = shared_home(&cpu, ranks, 0);
        found.what_if(&Change { workers, ..Change::default() }) / found.what_if(&Change::default())
    };
    assert_eq!([gain(1, 2.0), gain(1, 8.0), gain(4, 1.0)], [1.0; 3]);
    assert_eq!(gain(4, 4.0), gain(4, 16.0), "more workers than ranks are of no use");
    assert!(gain(3, 2.0) < gain(4, 2.0), "two of three ranks still share a worker");
    assert!((0.4..0.6).contains(&gain(4, 0.5)) && gain(4, 0.0) == 0.0);
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
fn where_memory_bounds_the_requests_in_flight_more_memory_is_the_remedy() {
    let (rank, mut worker) = Simulation { requests_in_flight: 8, latency_s: 0.05, ..Simulation::default() }.run(1);
    // There may be four times as many requests in flight as there is memory for.
    worker.stages[0].throttled = 24.0;
    worker.cache = CacheStats { limit_bytes: 12_800_000, transit_bytes: 800_000, ..CacheStats::default() };
    worker.store.single_use_bytes = 1_000_000_000;
    let found = diagnose(rank, Some(worker));
    assert_eq!(found.limit(), Some(Limit::StoreLatency));
    let text = found.verdict();
    assert!(text.contains("8.0 are in flight); more memory would give"), "{text}");
    let rate = found.what_if(&Change::default());
    assert_eq!(found.what_if(&Change { requests: 2.0, ..Change::default() }), rate, "there is no memory for more");
    let more = found.what_if(&Change { memory_bytes: 12_800_000.0, ..Change::default() });
    assert!((more / rate - 2.0).abs() < 0.05, "{more} {rate}");
}

#[test]
fn blocks_that_are_kept_take_no_room_of_those_that_are_used_once() {
    let (rank, mut worker) = Simulation::default().run(1);
    worker.cache = CacheStats { limit_bytes: 12_800_000, transit_bytes: 1_200_000, ..CacheStats::default() };
    let slower = Change { latency: 20.0, ..Change::default() };
    let predicted = |single_use: f64| {
        let mut worker = worker.clone();
        worker.store.single_use_bytes = (worker.store.requests as f64 * 100e3 * single_use) as u64;
        diagnose(rank.clone(), Some(worker)).what_if(&slower)
    };
    assert!(predicted(0.5) > 1.5 * predicted(1.0), "{} {}", predicted(0.5), predicted(1.0));
}

#[test]
fn a_store_that_fails_requests_is_told_from_a_slow_one() {
    let (rank, mut worker) = Simulation { latency_s: 0.05, ..Simulation::default() }.run(1);
    worker.store.retries = worker.store.requests / 10;
    let found = diagnose(rank.clone(), Some(worker.clone()));
    assert_eq!(found.limit(), Some(Limit::StoreErrors));
    let text = found.verdict();
    assert!(text.contains("the store fails requests of worker `node-0` (384 of 3840 in "), "{text}");
    worker.store.drips = 380;
    let text = diagnose(rank, Some(worker)).verdict();
    assert!(text.contains(" s; 380 answers dripped, far slower than others, and were asked for again)"), "{text}");
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
    let homeless = diagnose(rank, None::<WorkerWindow>);
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

/// A pipeline whose trainer waits for bytes: it is the store that is slow.
fn waiting_for_the_store() -> (RankWindow, WorkerWindow) {
    Simulation { bandwidth: 50e6, ..Simulation::default() }.run(1)
}

fn limit(rank: RankWindow, worker: WorkerWindow) -> Option<Limit> {
    diagnose(rank, Some(worker)).limit()
}

#[test]
fn a_cache_that_is_filling_is_told_from_one_that_is_full_or_too_small() {
    let (rank, worker) = waiting_for_the_store();
    let fetched_bytes = (worker.fetched_bytes_per_s() * worker.store_s) as u64;
    let with = |used_bytes, limit_bytes, growth_bytes| WorkerWindow {
        cache: CacheStats { used_bytes, limit_bytes, dataset_bytes: 800_000_000, ..CacheStats::default() },
        cache_growth_bytes: growth_bytes,
        ..worker.clone()
    };
    let cold = with(400_000_000, 1 << 30, fetched_bytes);
    let found = diagnose(rank.clone(), Some(cold));
    assert_eq!(found.limit(), Some(Limit::ColdCache));
    let text = found.verdict();
    assert!(
        text.contains("is filling (400 of 800 MB, 8 s to go), and the store gives 50.0 MB/s; a full cache"),
        "{text}"
    );
    let half = found.what_if(&Change { fetched: 0.5, ..Change::default() });
    let factor = half / found.samples_per_s();
    assert!((1.5..=2.0).contains(&factor), "{factor}: the store is the resource, then the trainer");
    let others =
        [with(800_000_000, 1 << 30, 0), with(400_000_000, 500_000_000, fetched_bytes), with(400_000_000, 1 << 30, 0)];
    for worker in others {
        assert_eq!(limit(rank.clone(), worker), Some(Limit::StoreBandwidth));
    }
}

#[test]
fn one_object_that_takes_most_of_the_time_is_named() {
    let (rank, worker) = waiting_for_the_store();
    let slow = |requests, mean_ns| SlowObject {
        object: "a/7.tar".into(),
        requests,
        mean_ns,
        other_requests: 90,
        other_mean_ns: 10_000_000,
    };
    let with = |slow| WorkerWindow { slow_object: Some(slow), ..worker.clone() };
    let found = diagnose(rank.clone(), Some(with(slow(10, 300_000_000))));
    assert_eq!(found.limit(), Some(Limit::SlowObject));
    let text = found.verdict();
    assert!(
        text.contains("`a/7.tar` is slow (a request of worker `node-0` for it takes 300 ms, one for another"),
        "{text}"
    );
    assert_eq!(
        limit(rank, with(slow(10, 50_000_000))),
        Some(Limit::StoreBandwidth),
        "the others take more of the time"
    );
}

#[test]
fn bad_samples_are_the_cause_of_what_decodes_and_fetches_too_much() {
    let bad = |cores, failures| {
        let (rank, mut worker) = Simulation { cores, ..Simulation::default() }.run(1);
        let decode = worker.stages.iter_mut().find(|stage| stage.stage == Stage::Decode).unwrap();
        decode.failures_per_s = failures * decode.items_per_s;
        (rank, worker)
    };
    let (rank, worker) = bad(0.5, 1.0);
    let text = diagnose(rank.clone(), Some(worker.clone())).verdict();
    assert_eq!(limit(rank, worker), Some(Limit::BadSamples));
    assert!(text.contains(": 50 % of the samples that worker `node-0` decodes are bad; a dataset without"), "{text}");
    let few = bad(0.5, 0.05);
    assert_eq!(limit(few.0, few.1), Some(Limit::Cpu));
    let harmless = bad(2.0, 1.0);
    assert_eq!(limit(harmless.0, harmless.1), Some(Limit::Trainer));
}

#[test]
fn what_is_late_though_nothing_is_used_up_is_told_by_the_samples_the_slots_and_the_network() {
    let (mut rank, mut worker) = Simulation::default().run(1);
    rank.waited_s = rank.seconds / 3.0;
    let one_slot = RankWindow { slots: 1, ..rank.clone() };
    let text = diagnose(one_slot.clone(), Some(worker.clone())).verdict();
    assert!(
        text.contains("it has 1 slot, in which worker `node-0` can make no batch while the trainer holds one"),
        "{text}"
    );
    let remote = RankWindow { transport: Some(Transport::Quic), slots: 4, ready: 3, ..rank.clone() };
    assert_eq!(limit(remote.clone(), worker.clone()), Some(Limit::Network));
    let at_home = RankWindow { transport: Some(Transport::Local), ..remote };
    assert_eq!(limit(at_home, worker.clone()), Some(Limit::HandOver));
    worker.decode_ns = [1_200_000, 60_000_000];
    let text = diagnose(rank.clone(), Some(worker.clone())).verdict();
    assert_eq!(limit(rank.clone(), worker.clone()), Some(Limit::UnevenSamples));
    assert!(text.contains("(half take up to 1.2 ms, and one in a hundred more than 60 ms); more slots or"), "{text}");
    assert_eq!(limit(one_slot, worker.clone()), Some(Limit::HandOver), "one slot is reason enough");
    worker.decode_ns = [100_000, 1_000_000];
    assert_eq!(limit(rank, worker), Some(Limit::HandOver), "a millisecond delays no batch");
}

#[test]
fn a_network_that_is_busy_all_the_time_is_the_limit() {
    let (rank, mut worker) = Simulation::default().run(1);
    let send = StageRate {
        stage: Stage::Send,
        bytes_per_s: 2e6,
        output_wait: 0.97,
        input_wait: 0.03,
        ..worker.stages[0].clone()
    };
    worker.stages.push(StageRate { busy: 0.0, throttled: 0.0, ..send });
    let rank = RankWindow { waited_s: rank.seconds / 2.0, transport: Some(Transport::Quic), slots: 4, ..rank };
    let found = diagnose(rank, Some(worker));
    assert_eq!(found.limit(), Some(Limit::Network));
    let text = found.verdict();
    assert!(
        text.contains("the network takes 2.0 MB/s from worker `node-0` and no more; a faster network or"),
        "{text}"
    );
    let faster = found.what_if(&Change { network: 1.5, ..Change::default() });
    let factor = faster / found.samples_per_s();
    assert!((1.2..=1.5).contains(&factor), "{factor}");
}

#[test]
fn more_requests_give_nothing_where_reading_ahead_asks_for_no_more() {
    let (rank, mut worker) = Simulation { latency_s: 0.2, ..Simulation::default() }.run(1);
    let found = diagnose(rank.clone(), Some(worker.clone()));
    let gain = |found: &Diagnosis, change: Change| found.what_if(&change) / found.what_if(&Change::default());
    let (requests, ahead) = (Change { requests: 1.5, ..Change::default() }, Change { ahead: 1.5, ..Change::default() });
    assert!(gain(&found, requests) > 1.4 && gain(&found, ahead) < 1.01, "{found:?}");
    let fetch = worker.stages.iter_mut().find(|stage| stage.stage == Stage::Fetch).unwrap();
    let idle = fetch.busy * 0.75;
    (fetch.busy, fetch.input_wait) = (fetch.busy - idle, fetch.input_wait + idle);
    let found = diagnose(rank, Some(worker));
    assert!(gain(&found, requests) < 1.01 && gain(&found, ahead) > 1.4, "{found:?}");
    assert!(found.verdict().contains("; reading further ahead or a larger cache would "), "{}", found.verdict());
}

#[test]
fn a_rank_that_takes_no_part_comes_before_those_that_wait() {
    let ranks = [Presence::Alive, Presence::Silent { for_ms: 7_400 }].map(|presence| {
        let (rank, worker) = Simulation { cores: 0.5, ..Simulation::default() }.run(1);
        let number = u32::from(presence != Presence::Alive);
        diagnose(RankWindow { rank: number, presence, ..rank }, Some(worker))
    });
    assert_eq!((ranks[1].limit(), ranks[1].what_if(&Change::default())), (Some(Limit::Silent), 0.0));
    let silent = "nothing was heard of rank 1 for 7 s: its process is stopped, hangs or is cut off";
    assert_eq!(session_verdict(&ranks).unwrap(), format!("{silent}; 1 of 2 ranks are like that"));
    let by = "session 9 (process 7 on b)".to_owned();
    let superseded = RankWindow { presence: Presence::Superseded { by }, ..RankWindow::default() };
    let found = diagnose(superseded, None::<WorkerWindow>);
    assert_eq!(found.limit(), Some(Limit::Superseded));
    assert_eq!(found.verdict(), "rank 0 gets no more batches: session 9 (process 7 on b) has taken its place");
}

#[test]
fn a_prediction_has_the_wait_that_is_left() {
    let found = diagnosis(&Simulation { cores: 0.5, ..Simulation::default() }, 1);
    let waiting = |change: Change| found.predict(&change).waiting;
    assert!((waiting(Change::default()) - found.rank.waiting()).abs() < 0.02);
    assert!(waiting(Change { cores: 0.2, ..Change::default() }) < found.rank.waiting());
    assert!(waiting(Change { cores: 4.0, ..Change::default() }) < 0.01);
    assert!(waiting(Change { step: 10.0, ..Change::default() }) < 0.01);
}
