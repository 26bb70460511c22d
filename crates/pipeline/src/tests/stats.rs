//! Tests of the statistics of stages.

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use super::{LONG, cpu, numbers};
use crate::{Op, Pipeline};

#[test]
fn the_end_is_reached_with_stats_that_add_up() {
    let op = cpu(|item: usize| item * 2).count_bytes(|item| *item as u64);
    let pipeline = Pipeline::builder().source(0..1000).pipe("double", op, 3).sink(4).build(2).unwrap();
    assert_eq!(numbers(&pipeline).len(), 1000);
    assert!(pipeline.iter(LONG).next().is_none(), "the end stays the end");
    let stats = pipeline.stats();
    assert!(stats.iter().all(|stage| stage.items == 1000), "{stats:?}");
    assert!(stats.iter().all(|stage| stage.queue_depth == 0), "{stats:?}");
    assert_eq!(stats[1].bytes, 999_000);
    assert!(stats[1].busy_ns > 0 && stats[1].p50_ns <= stats[1].p99_ns);
}

#[test]
fn the_four_times_of_each_stage_add_up_to_its_time() {
    let before_start = Instant::now();
    let pipeline = Pipeline::builder()
        .source(0..2000)
        .pipe("compute", cpu(|item: usize| item), 3)
        .pipe("wait", Op::asynchronous(async |item| Ok::<_, Infallible>(item)), 4)
        .pipe("block", Op::blocking(Ok::<_, Infallible>), 2)
        .pipe("many", Op::cpu_many(|item| Ok::<_, Infallible>(std::iter::once(Ok(item)))), 2)
        .aggregate(10)
        .disaggregate()
        .sink(4)
        .build(1)
        .unwrap();
    let after_start = Instant::now();
    assert!(pipeline.iter(LONG).take(1999).all(|item| item.is_ok()));
    let before_end = Instant::now();
    assert_eq!(numbers(&pipeline), [1999]);
    let after_end = Instant::now();
    let units = [1, 3, 4, 2, 2, 1, 1, 1];
    for (stats, units) in pipeline.stats().into_iter().zip(units) {
        assert_eq!(stats.units, u64::from(units), "{}", stats.stage);
        let sum = Duration::from_nanos(stats.unit_ns());
        let (least, most) = ((before_end - after_start) * units, (after_end - before_start) * units);
        assert!((least..=most).contains(&sum), "{sum:?} of `{}` is not in {least:?}..={most:?}", stats.stage);
    }
}
