//! Measures what accounting costs: for an item of a stage, for a change of a unit's state, and for the latter while the
//! units are recorded.
//!
//! `cargo bench --bench accounting`

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use spdl_accounting::{StageCounters, UnitGroup, UnitState};
use spdl_types::{BatchId, Position, SessionId, Stage};

const BATCH: BatchId = BatchId { session: SessionId(1), rank: 0, from: Position { epoch: 0, offset: 64 } };

/// What a decoding thread reports of a sample: when it ended, how long it took, and its bytes.
fn item(stage: &StageCounters, since: &mut Instant) {
    let now = Instant::now();
    stage.item(now.saturating_duration_since(std::mem::replace(since, now)), black_box(1 << 17));
}

/// What it reports of the samples of a batch that it decodes one after the other: its batch, that it begins, that it ends.
fn stretch(unit: &UnitGroup) {
    let now = Instant::now();
    unit.set_batch(Some(black_box(BATCH)), now);
    unit.shift(1, UnitState::Idle, UnitState::Busy, now);
    unit.shift(1, UnitState::Busy, UnitState::Idle, Instant::now());
}

fn accounting(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("accounting");
    let stage = Arc::new(StageCounters::new(Stage::Decode));
    let mut since = Instant::now();
    group.bench_function("item", |bencher| bencher.iter(|| item(&stage, &mut since)));

    let (other, is_over) = (stage.clone(), Arc::new(AtomicBool::new(false)));
    let ends = is_over.clone();
    let beside = thread::spawn(move || {
        let mut since = Instant::now();
        while !ends.load(Relaxed) {
            item(&other, &mut since);
        }
    });
    group.bench_function("item/while another thread does the same", |bencher| {
        bencher.iter(|| item(&stage, &mut since));
    });
    is_over.store(true, Relaxed);
    beside.join().expect("it does not panic");

    let unit = stage.units().group(1, Instant::now());
    group.bench_function("batch of a thread", |bencher| bencher.iter(|| stretch(&unit)));
    stage.units().record(1 << 16, Instant::now());
    group.bench_function("batch of a thread/recorded", |bencher| bencher.iter(|| stretch(&unit)));
    drop(stage.units().take_recording(Instant::now()));

    let _threads: Vec<UnitGroup> = (0..64).map(|_| stage.units().group(1, Instant::now())).collect();
    group.bench_function("statistics of 64 threads", |bencher| bencher.iter(|| stage.stats(Instant::now())));
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = accounting
}
criterion_main!(benches);
