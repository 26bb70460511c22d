//! The tuner against simulated stores.

use proptest::prelude::*;

use super::{
    SHOWN_CHANGES, Setting, Tunable, Tuner, TuningSettings,
    simulation::{Course, SimulatedStore, TuningSimulation},
};

fn simulation(seed: u64) -> TuningSimulation {
    TuningSimulation::new(Tuner::new(&TuningSettings::default()), seed)
}

/// Runs a store for 90 s, until the values are settled, and then for another 90 s. Returns the course of the latter.
fn settled(store: &SimulatedStore, seed: u64) -> (TuningSimulation, Course) {
    let mut simulation = simulation(seed);
    simulation.run(store, 90);
    let course = simulation.run(store, 90);
    (simulation, course)
}

fn slow() -> SimulatedStore {
    SimulatedStore { latency_s: 0.05, demand: 4_000.0, ..SimulatedStore::default() }
}

#[test]
fn where_the_trainer_sets_the_pace_nothing_is_tried() {
    let course = simulation(1).run(&SimulatedStore::default(), 600);
    assert_eq!(course.changes, []);
}

#[test]
fn a_store_with_latency_gets_as_many_requests_as_decoding_takes_answers_of() {
    let mut simulation = simulation(1);
    let start = simulation.run(&slow(), 15);
    let later = simulation.run(&slow(), 60);
    assert!(later.rate >= 0.95 * slow().best(), "{later:?}");
    let fixed = slow().rate(Tunable::Requests.initial(), Tunable::ReadAhead.initial());
    assert!(later.rate > 2.0 * fixed, "{} where {fixed} was fixed", later.rate);
    assert!(simulation.tuner.current(Tunable::Requests) >= 200, "{start:?}");
    let reason = &start.changes[0].reason;
    assert!(reason.contains("for 100 % of the time"), "{reason}");
}

#[test]
fn a_store_that_gives_no_more_keeps_what_it_has() {
    let store = SimulatedStore { capacity: 600.0, latency_s: 0.04, ..slow() };
    let (simulation, course) = settled(&store, 1);
    assert_eq!(simulation.tuner.current(Tunable::Requests), 32);
    assert!(course.changes.len() <= 4, "{course:?}");
    let reverted = course.changes.iter().find(|change| change.to == 32).expect("a trial that failed");
    assert!(reverted.reason.contains("bytes/s, not +"), "{reverted:?}");
}

#[test]
fn a_store_that_refuses_requests_is_asked_for_less_and_gives_as_much() {
    // At first more than enough reads repeat their requests.
    let store = SimulatedStore { refuses_above: 10.0, latency_s: 0.01, ..slow() };
    let (simulation, course) = settled(&store, 1);
    let requests = simulation.tuner.current(Tunable::Requests);
    assert!(requests < Tunable::Requests.initial(), "{requests}: {course:?}");
    assert!(course.rate >= 0.95 * 10.0, "{course:?}");
}

#[test]
fn a_store_that_refuses_requests_and_would_give_less_is_not_asked_for_less() {
    let store = SimulatedStore { refuses_above: 200.0, latency_s: 0.01, ..slow() };
    let (simulation, course) = settled(&store, 1);
    assert!(course.rate >= 0.95 * 200.0, "{:?}", simulation.tuner.status().changes);
    assert!(simulation.tuner.current(Tunable::Requests) >= 64, "{course:?}");
}

#[test]
fn a_store_that_gets_slower_with_more_requests_gets_fewer() {
    let store = SimulatedStore { thrashes_above: 8.0, capacity: 400.0, ..slow() };
    let (simulation, course) = settled(&store, 1);
    assert!(course.rate >= 0.95 * store.best(), "{} of {}: {course:?}", course.rate, store.best());
    assert!(simulation.tuner.current(Tunable::Requests) <= 24);
}

#[test]
fn where_too_little_is_read_ahead_to_request_more_both_grow_together() {
    // All that is read ahead is exactly as much as may be in flight: neither alone gains anything.
    let store = SimulatedStore { requests_per_step: 2.0, ..slow() };
    let (simulation, course) = settled(&store, 1);
    assert!(course.rate >= 0.95 * store.best(), "{} of {}", course.rate, store.best());
    assert!(simulation.tuner.current(Tunable::ReadAhead) >= 64);
}

#[test]
fn a_store_that_changes_is_followed() {
    let near = SimulatedStore { latency_s: 0.005, capacity: 800.0, ..slow() };
    let far = SimulatedStore { latency_s: 0.1, ..slow() };
    let mut simulation = simulation(1);
    simulation.run(&near, 300);
    simulation.run(&far, 60);
    let course = simulation.run(&far, 60);
    assert!(course.rate >= 0.95 * far.best(), "{} of {}", course.rate, far.best());
    simulation.run(&near, 60);
    let course = simulation.run(&near, 60);
    assert!(course.rate >= 0.95 * near.best(), "{} of {}", course.rate, near.best());
}

#[test]
fn an_outage_is_no_reason_for_a_change() {
    let store = SimulatedStore { capacity: 600.0, ..slow() };
    let (mut simulation, _) = settled(&store, 1);
    let before = Tunable::ALL.map(|value| simulation.tuner.current(value));
    let outage = super::Interval { seconds: 0.25, failures: 40, held_back: 1.0, starving: 1.0, ..Default::default() };
    for at in 0..400 {
        simulation.tuner.handle_interval(10_000_000 + at * 250, &outage);
    }
    assert_eq!(Tunable::ALL.map(|value| simulation.tuner.current(value)), before);
}

#[test]
fn what_is_pinned_stays_and_the_rest_is_tuned() {
    let pinned = TuningSettings { requests: Setting::Pinned(40), read_ahead: Setting::Auto };
    let mut simulation = TuningSimulation::new(Tuner::new(&pinned), 1);
    let course = simulation.run(&SimulatedStore { requests_per_step: 0.5, ..slow() }, 300);
    assert!(course.changes.iter().all(|change| change.value == Tunable::ReadAhead), "{course:?}");
    assert!(simulation.tuner.current(Tunable::ReadAhead) >= 64 && simulation.tuner.current(Tunable::Requests) == 40);
    let all = TuningSettings { requests: Setting::Pinned(1), read_ahead: Setting::Pinned(1) };
    assert_eq!(TuningSimulation::new(Tuner::new(&all), 1).run(&slow(), 300).changes, []);
}

#[test]
fn a_setting_is_auto_or_a_number_within_the_bounds() {
    assert_eq!("auto".parse(), Ok(Setting::Auto));
    assert_eq!("64".parse(), Ok(Setting::Pinned(64)));
    for wrong in ["", "Auto", "-1", "3.5", "many"] {
        assert!(wrong.parse::<Setting>().unwrap_err().contains("`auto`"), "{wrong}");
    }
    for (requests, is_valid) in [(0, false), (1, true), (512, true), (513, false)] {
        let settings = TuningSettings { requests: Setting::Pinned(requests), ..TuningSettings::default() };
        assert_eq!(settings.check().is_ok(), is_valid, "{requests}");
    }
}

#[test]
fn only_the_latest_changes_are_shown() {
    let mut simulation = simulation(1);
    let mut changes = Vec::new();
    for round in 0..30 {
        let latency_s = if round % 2 == 0 { 0.01 } else { 0.2 };
        changes.extend(simulation.run(&SimulatedStore { latency_s, ..slow() }, 60).changes);
    }
    let shown = simulation.tuner.status().changes;
    assert!(changes.len() > SHOWN_CHANGES);
    assert_eq!(shown, changes[changes.len() - SHOWN_CHANGES..]);
}

/// Stores of all kinds, most of them the limit.
fn stores(
    refuses_above: impl Strategy<Value = f64>,
    thrashes_above: impl Strategy<Value = f64>,
) -> impl Strategy<Value = SimulatedStore> {
    let limits = (50.0..5e3_f64, refuses_above);
    (0.002..0.3_f64, limits, thrashes_above, 0.5..64.0_f64, 100.0..8e3_f64, 0.0..0.06_f64).prop_map(
        |(latency_s, (capacity, refuses_above), thrashes_above, requests_per_step, demand, noise)| SimulatedStore {
            latency_s,
            capacity,
            refuses_above,
            thrashes_above,
            requests_per_step,
            demand,
            noise,
        },
    )
}

/// Checks that a store gives at least `least`, once the values are settled.
fn check_rate(store: &SimulatedStore, seed: u32, least: f64) -> Result<(), TestCaseError> {
    let mut simulation = simulation(seed.into());
    let mut changes = simulation.run(store, 300).changes;
    let course = simulation.run(store, 300);
    changes.extend(course.changes.clone());
    prop_assert!(course.rate >= least, "{} of {least}: {:?}", course.rate, simulation.tuner.status());
    for change in &changes {
        prop_assert!(change.value.bounds().contains(&change.to) && change.from != change.to, "{change:?}");
    }
    // Trials get rare. A gain by chance, which noise makes possible, begins a new round of them.
    prop_assert!(course.changes.len() <= 40, "{course:?}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_store_gives_almost_what_the_best_fixed_values_would(
        store in stores(Just(f64::INFINITY), Just(f64::INFINITY)),
        seed in any::<u32>(),
    ) {
        check_rate(&store, seed, 0.95 * store.best())?;
    }

    /// The peak is between two steps of the search.
    #[test]
    fn a_store_that_can_be_overloaded_gives_nearly_as_much(store in stores(Just(f64::INFINITY), 4.0..200.0_f64), seed in any::<u32>()) {
        check_rate(&store, seed, 0.85 * store.best())?;
    }

    /// The best is where no request is refused, and reached only by way of less.
    #[test]
    fn a_store_that_refuses_requests_gives_no_less_than_with_the_initial_values(
        store in stores(10.0..2e3_f64, Just(f64::INFINITY)),
        seed in any::<u32>(),
    ) {
        let [requests, read_ahead] = Tunable::ALL.map(Tunable::initial);
        check_rate(&store, seed, 0.95 * store.rate(requests, read_ahead))?;
    }
}
