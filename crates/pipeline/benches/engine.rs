//! Measures the cost of the pipeline engine per item: the operations do nothing, so only the engine is left.
//!
//! `cargo bench --bench engine`

use std::{convert::Infallible, hint::black_box, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use spdl_pipeline::{Op, OutputOrder, Pipeline};

const ITEMS: u64 = 10_000;

/// Starts a pipeline of pipes with these operations, takes all items, and stops it.
fn run(ops: impl IntoIterator<Item = Op<u64, u64>>, concurrency: usize) {
    let mut stages = Pipeline::builder().source(0..ITEMS);
    for (number, op) in ops.into_iter().enumerate() {
        stages = stages.pipe(&format!("nothing-{number}"), op, concurrency);
    }
    let pipeline = stages.sink(16).build(2).expect("the pipeline starts");
    for item in pipeline.iter(Duration::from_secs(60)) {
        black_box(item.expect("nothing fails"));
    }
    pipeline.stop();
}

fn engine(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine");
    group.throughput(Throughput::Elements(ITEMS)).sample_size(10);
    for concurrency in [1, 4] {
        for order in [OutputOrder::Input, OutputOrder::Completion] {
            let asynchronous = || Op::asynchronous(async |item| Ok::<_, Infallible>(item)).order(order);
            let id = BenchmarkId::new(format!("asynchronous/{order:?}"), concurrency);
            group.bench_function(id, |bencher| bencher.iter(|| run([asynchronous()], concurrency)));
            let cpu = || Op::cpu(Ok::<_, Infallible>).order(order);
            let id = BenchmarkId::new(format!("cpu/{order:?}"), concurrency);
            group.bench_function(id, |bencher| bencher.iter(|| run([cpu()], concurrency)));
        }
        let blocking = || Op::blocking(Ok::<_, Infallible>);
        let id = BenchmarkId::new("blocking/Input", concurrency);
        group.bench_function(id, |bencher| bencher.iter(|| run([blocking()], concurrency)));
        let chain = || (0..8).map(|_| Op::cpu(Ok::<_, Infallible>));
        let id = BenchmarkId::new("chain of 8 cpu/Input", concurrency);
        group.bench_function(id, |bencher| bencher.iter(|| run(chain(), concurrency)));
    }
    group.finish();
}

criterion_group!(benches, engine);
criterion_main!(benches);
