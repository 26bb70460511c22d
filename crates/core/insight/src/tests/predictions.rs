//! Tests of the predictions for changes.

use spdl_types::Stage;

use super::{PLANTED, diagnosis, draw, planted};
use crate::{CacheStats, Diagnosis, Limit, ResourceChange, diagnose, rates::StageRate, simulation::Simulation};

/// Checks predictions: their median error is at most 10 %, and the worst 25 %.
fn check_predictions(cases: impl Iterator<Item = (Simulation, Simulation, ResourceChange)>) {
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

fn everywhere(change: impl Fn(&Simulation, u64) -> (Simulation, ResourceChange)) {
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
    everywhere(|before, _| (*before, ResourceChange::default()));
}

#[test]
fn more_and_fewer_cores_are_predicted() {
    everywhere(|before, seed| {
        let cores = draw(seed, before.cores / 2.0, before.cores * 2.0);
        (Simulation { cores, ..*before }, ResourceChange { cores: cores - before.cores, ..ResourceChange::default() })
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
            let predicted =
                shared_home(&before, 4, seed).what_if(&ResourceChange { workers: 2.0, ..ResourceChange::default() });
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
        found.what_if(&ResourceChange { workers, ..ResourceChange::default() })
            / found.what_if(&ResourceChange::default())
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
        (Simulation { step_s: before.step_s * step, ..*before }, ResourceChange { step, ..ResourceChange::default() })
    });
}

#[test]
fn another_latency_of_the_store_is_predicted() {
    everywhere(|before, seed| {
        let latency = draw(seed, 0.5, 2.0);
        (
            Simulation { latency_s: before.latency_s * latency, ..*before },
            ResourceChange { latency, ..ResourceChange::default() },
        )
    });
}

#[test]
fn another_bandwidth_of_the_store_is_predicted() {
    everywhere(|before, seed| {
        let bandwidth = draw(seed, 0.5, 2.0);
        (
            Simulation { bandwidth: before.bandwidth * bandwidth, ..*before },
            ResourceChange { bandwidth, ..ResourceChange::default() },
        )
    });
}

#[test]
fn more_of_the_bytes_from_the_cache_is_predicted() {
    everywhere(|before, seed| {
        let requests = draw(seed, before.requests as f64 / 4.0, before.requests as f64).max(1.0) as usize;
        let fetched = requests as f64 / before.requests as f64;
        (Simulation { requests, ..*before }, ResourceChange { fetched, ..ResourceChange::default() })
    });
}

#[test]
fn more_requests_in_flight_are_predicted() {
    everywhere(|before, seed| {
        let requests_in_flight = draw(seed, 16.0, 64.0) as usize;
        let requests = requests_in_flight as f64 / before.requests_in_flight as f64;
        (Simulation { requests_in_flight, ..*before }, ResourceChange { requests, ..ResourceChange::default() })
    });
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
    let rate = found.what_if(&ResourceChange::default());
    assert_eq!(
        found.what_if(&ResourceChange { requests: 2.0, ..ResourceChange::default() }),
        rate,
        "there is no memory for more"
    );
    let more = found.what_if(&ResourceChange { memory_bytes: 12_800_000.0, ..ResourceChange::default() });
    assert!((more / rate - 2.0).abs() < 0.05, "{more} {rate}");
}

#[test]
fn blocks_that_are_kept_take_no_room_of_those_that_are_used_once() {
    let (rank, mut worker) = Simulation::default().run(1);
    worker.cache = CacheStats { limit_bytes: 12_800_000, transit_bytes: 1_200_000, ..CacheStats::default() };
    let slower = ResourceChange { latency: 20.0, ..ResourceChange::default() };
    let predicted = |single_use: f64| {
        let mut worker = worker.clone();
        worker.store.single_use_bytes = (worker.store.requests as f64 * 100e3 * single_use) as u64;
        diagnose(rank.clone(), Some(worker)).what_if(&slower)
    };
    assert!(predicted(0.5) > 1.5 * predicted(1.0), "{} {}", predicted(0.5), predicted(1.0));
}

#[test]
fn a_faster_function_is_predicted() {
    everywhere(|before, seed| {
        let call = draw(seed, 0.5, 2.0);
        (Simulation { call_s: before.call_s * call, ..*before }, ResourceChange { call, ..ResourceChange::default() })
    });
}

#[test]
fn more_requests_give_nothing_where_reading_ahead_asks_for_no_more() {
    let (rank, mut worker) = Simulation { latency_s: 0.2, ..Simulation::default() }.run(1);
    let found = diagnose(rank.clone(), Some(worker.clone()));
    let gain =
        |found: &Diagnosis, change: ResourceChange| found.what_if(&change) / found.what_if(&ResourceChange::default());
    let (requests, ahead) = (
        ResourceChange { requests: 1.5, ..ResourceChange::default() },
        ResourceChange { ahead: 1.5, ..ResourceChange::default() },
    );
    assert!(gain(&found, requests) > 1.4 && gain(&found, ahead) < 1.01, "{found:?}");
    let fetch = worker.stages.iter_mut().find(|stage| stage.stage == Stage::Fetch).unwrap();
    let idle = fetch.busy * 0.75;
    (fetch.busy, fetch.input_wait) = (fetch.busy - idle, fetch.input_wait + idle);
    let found = diagnose(rank, Some(worker));
    assert!(gain(&found, requests) < 1.01 && gain(&found, ahead) > 1.4, "{found:?}");
    assert!(found.verdict().contains("; reading further ahead or a larger cache would "), "{}", found.verdict());
}

#[test]
fn a_prediction_has_the_wait_that_is_left() {
    let found = diagnosis(&Simulation { cores: 0.5, ..Simulation::default() }, 1);
    let waiting = |change: ResourceChange| found.predict(&change).waiting;
    assert!((waiting(ResourceChange::default()) - found.rank.waiting()).abs() < 0.02);
    assert!(waiting(ResourceChange { cores: 0.2, ..ResourceChange::default() }) < found.rank.waiting());
    assert!(waiting(ResourceChange { cores: 4.0, ..ResourceChange::default() }) < 0.01);
    assert!(waiting(ResourceChange { step: 10.0, ..ResourceChange::default() }) < 0.01);
}
