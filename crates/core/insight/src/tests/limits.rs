//! Tests of the limits that diagnoses name.

use spdl_types::Stage;

use super::{PLANTED, diagnosis, planted};
use crate::{
    CacheStats, Limit, LimitRemedy, RankWindow, ReceiveRates, ResourceChange, SlowObject, Stall, Transport,
    WorkerWindow, diagnose, rates::StageRate, session_gains, simulation::Simulation,
};

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

/// A pipeline whose trainer waits for bytes: it is the store that is slow.
fn waiting_for_the_store() -> (RankWindow, WorkerWindow) {
    Simulation { bandwidth: 50e6, ..Simulation::default() }.run(1)
}

fn limit(rank: RankWindow, worker: WorkerWindow) -> Option<Limit> {
    diagnose(rank, Some(worker)).limit()
}

#[test]
fn copies_and_page_faults_that_fill_the_cores_are_no_slow_store() {
    // Decoding waits for bytes while the threads that read them use the cores, as with long records in the page cache.
    let (rank, mut worker) = waiting_for_the_store();
    worker.cores_used = worker.cores;
    let found = diagnose(rank, Some(worker));
    assert_eq!(found.limit(), Some(Limit::Cpu));
    let text = found.verdict();
    assert!(text.contains("worker `node-0` is short of CPU (2.0 of its 2.0 cores are busy)"), "{text}");
    assert!(!text.contains("the store gives"), "{text}");
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
    let half = found.what_if(&ResourceChange { fetched: 0.5, ..ResourceChange::default() });
    let factor = half / found.samples_per_s();
    assert!((1.5..=2.0).contains(&factor), "{factor}: the store is the resource, then the trainer");
    let others =
        [with(800_000_000, 1 << 30, 0), with(400_000_000, 500_000_000, fetched_bytes), with(400_000_000, 1 << 30, 0)];
    for worker in others {
        assert_eq!(limit(rank.clone(), worker), Some(Limit::StoreBandwidth));
    }
}

#[test]
fn a_machine_that_others_use_is_named_and_more_cores_are_no_remedy() {
    let crowded = |simulation: Simulation| {
        let (rank, mut worker) = simulation.run(1);
        let decode = worker.stages.iter_mut().find(|stage| stage.stage == Stage::Decode).unwrap();
        decode.cpu = 0.4 * decode.busy;
        (rank, worker)
    };
    let (rank, worker) = crowded(Simulation { cores: 0.5, ..Simulation::default() });
    let found = diagnose(rank, Some(worker));
    assert_eq!(found.limit(), Some(Limit::Cpu));
    let text = found.verdict();
    let expected = "is short of CPU, as other processes of its machine take it, or a limit of its container (decoding threads had \
                    a core for 40 % of their work); a machine for itself would give up to ";
    assert!(text.contains(expected), "{text}");
    assert_eq!(session_gains(&[found])[&LimitRemedy::Cores], 1.0);
    // Its samples look uneven, as some wait for a core.
    let (mut rank, mut worker) = crowded(Simulation::default());
    rank.waited_s = rank.seconds / 3.0;
    worker.decode_ns = [1_000_000, 1_000_000_000];
    assert_eq!(limit(rank, worker), Some(Limit::Cpu));
}

#[test]
fn the_limit_that_was_named_stays_until_another_is_clearly_shorter() {
    let (rank, worker) = Simulation { cores: 0.5, ..Simulation::default() }.run(1);
    // All cores are busy, and the network is for a part of the time.
    let found = |named_before, network: f64| {
        let (mut worker, busy) = (worker.clone(), network);
        worker.cores_used = worker.cores;
        let send = StageRate {
            stage: Stage::Send,
            busy,
            input_wait: 1.0 - busy,
            output_wait: 0.0,
            ..worker.stages[0].clone()
        };
        worker.stages.push(StageRate { throttled: 0.0, ..send });
        let way = RankWindow { transport: Some(Transport::Quic), named_before, ..rank.clone() };
        let found = diagnose(way, Some(worker));
        assert_eq!(found.resource(), Some(found.terms[0].limit));
        found.resource()
    };
    assert_eq!(found(None, 0.85), Some(Limit::Cpu));
    assert_eq!(found(Some(Limit::Network), 0.85), Some(Limit::Network), "it is nearly as short");
    assert_eq!(found(Some(Limit::Network), 0.8), Some(Limit::Cpu), "it is clearly shorter");
    let waits = |named_before, part| {
        let rank = RankWindow { waited_s: part * rank.seconds, named_before, ..rank.clone() };
        diagnose(rank, Some(worker.clone())).resource().unwrap()
    };
    assert_eq!([waits(None, 0.019), waits(Some(Limit::Trainer), 0.023)], [Limit::Trainer; 2]);
    let after = [waits(None, 0.023), waits(Some(Limit::Trainer), 0.025)];
    assert!(!after.contains(&Limit::Trainer), "{after:?}");
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
    let waiting_for = "sample `000047` of shard `1.tar` for rank 0 of job `train` to be decoded".to_owned();
    let stall = Stall { worker: "node-0".to_owned(), stage: Stage::Decode, waiting_for, waited_ms: 70 };
    let text = diagnose(RankWindow { stall: Some(stall), ..rank.clone() }, Some(worker.clone())).verdict();
    assert!(text.contains("more than 60 ms; now it waits for sample `000047` of shard `1.tar`"), "{text}");
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
    let faster = found.what_if(&ResourceChange { network: 1.5, ..ResourceChange::default() });
    let factor = faster / found.samples_per_s();
    assert!((1.2..=1.5).contains(&factor), "{factor}");
}

/// The verdict on a rank that waits for `waiting` of its time for batches that come over connections with these figures, from a worker
/// whose busiest sending thread uses `sender` of a core for `sent_bytes_per_s`.
fn over_quic(waiting: f64, received: ReceiveRates, sender: f64, sent_bytes_per_s: f64) -> String {
    let (rank, mut worker) = Simulation::default().run(1);
    let send = StageRate {
        stage: Stage::Send,
        bytes_per_s: sent_bytes_per_s,
        busy: 0.0,
        input_wait: 0.03,
        output_wait: 0.97,
        throttled: 0.0,
        ..worker.stages[0].clone()
    };
    worker.stages = vec![send];
    let worker = WorkerWindow { sending_thread: sender, cores_used: 0.05 * worker.cores, ..worker };
    let waited_s = waiting * rank.seconds;
    diagnose(RankWindow { waited_s, transport: Some(Transport::Quic), slots: 4, received, ..rank }, Some(worker))
        .verdict()
}

#[test]
fn the_end_of_a_connection_whose_core_is_full_is_named_and_what_more_connections_would_give() {
    let received = |connections, thread| ReceiveRates { connections, bytes_per_s: 0.9e9, thread };
    assert_eq!(
        over_quic(0.5, received(1, 0.95), 0.5, 0.9e9),
        "rank 0 waits 50 % of its time: one core of the receiver is full (1 connection takes 900.0 MB/s from worker `node-0`); 2 \
         connections (`SPDL_QUIC=connections=2` for trainer and worker) would give about 1800.0 MB/s, then the trainer sets the pace"
    );
    // 900 MB for 0.95 s of CPU time, by as many threads as there are slots: the trainer could take more.
    assert_eq!(
        over_quic(0.8, received(1, 0.95), 0.5, 0.9e9),
        "rank 0 waits 80 % of its time: one core of the receiver is full (1 connection takes 900.0 MB/s from worker `node-0`); 4 \
         connections (`SPDL_QUIC=connections=4` for trainer and worker) would give about 3789.5 MB/s"
    );
    assert_eq!(
        over_quic(0.5, received(2, 0.93), 1.0, 0.9e9),
        "rank 0 waits 50 % of its time: one core of the sender is full (2 connections take 900.0 MB/s from worker `node-0`); 4 \
         connections (`SPDL_QUIC=connections=4` for trainer and worker) would give about 1800.0 MB/s, then the trainer sets the pace"
    );
}

#[test]
fn no_rate_is_promised_for_connections_that_share_threads_or_have_no_slots() {
    let received = |connections, thread| ReceiveRates { connections, bytes_per_s: 0.9e9, thread };
    let shared = over_quic(0.5, received(1, 0.5), 0.98, 2.7e9);
    assert!(shared.contains("one core of the sender is full (1 connection takes 900.0 MB/s from"), "{shared}");
    assert!(
        shared.ends_with("; 2 connections (`SPDL_QUIC=connections=2` for trainer and worker) would help"),
        "{shared}"
    );
    let slots = over_quic(0.5, received(4, 0.95), 0.5, 0.9e9);
    assert!(
        slots.ends_with("; more slots with as many connections, or a worker on the trainer's node, would help"),
        "{slots}"
    );
    let none = over_quic(0.5, received(1, 0.8), 0.8, 0.9e9);
    let network = "the network takes 900.0 MB/s from worker `node-0` and no more; a faster network or a worker on the trainer's node";
    assert!(none.contains(network) && none.ends_with("; more cores would give nothing"), "{none}");
}
