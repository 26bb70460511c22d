//! Measures the cost of the order per sample, on a small plan and on one of 10^10 samples in 10^6 blocks.
//!
//! `cargo bench --bench order`. Times are per call of `at`, and per batch for `rank_items`, with the throughput in
//! samples; `epoch` is the cost of the first access to a lane in a new epoch, per block.

use std::{hint::black_box, sync::Arc, time::Duration};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use spdl_order::{
    BatchParams, BlendSource, DatasetFacts, EpochEnd, MAX_SOURCES, OrderParams, Plan, blend_weights,
    view::{ClassSampling, SampleSetBuilder, ViewSamples},
};
use spdl_types::{Fingerprint, Position, SampleId, mix::splitmix64};

const WORLD: u32 = 8;

struct BenchDataset {
    name: &'static str,
    blocks: u32,
    samples_per_block: u32,
    global_batch: u32,
}

const DATASETS: [BenchDataset; 2] = [
    BenchDataset { name: "10^6 samples in 10^4 blocks", blocks: 10_000, samples_per_block: 100, global_batch: 256 },
    BenchDataset {
        name: "10^10 samples in 10^6 blocks",
        blocks: 1_000_000,
        samples_per_block: 10_000,
        global_batch: 4096,
    },
];

impl BenchDataset {
    fn plan(&self) -> Plan {
        let samples = u64::from(self.blocks) * u64::from(self.samples_per_block);
        let facts = DatasetFacts {
            fingerprint: Fingerprint(0),
            samples,
            documents: samples,
            tokens: 0,
            blocks: u64::from(self.blocks),
            block_bytes: 1 << 20,
            has_classes: true,
        };
        let order = OrderParams::default_for(&facts, self.global_batch, true);
        Plan::new(&vec![self.samples_per_block; self.blocks as usize], 17, order).unwrap()
    }
}

fn order(criterion: &mut Criterion) {
    for dataset in DATASETS {
        let plan = dataset.plan();
        let mut group = criterion.benchmark_group(dataset.name);
        group.warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3)).sample_size(30);

        group.throughput(Throughput::Elements(1));
        let (mut offset, stride) = (0, plan.samples() / 3 * 2 + 1);
        group.bench_function("at, anywhere", |bencher| {
            bencher.iter(|| {
                offset = (offset + stride) % plan.samples();
                black_box(plan.at(1, offset))
            });
        });

        let batch = BatchParams {
            global_batch: dataset.global_batch,
            epochs: u64::MAX,
            epoch_end: EpochEnd::Continuous,
            end: None,
        };
        group.throughput(Throughput::Elements(u64::from(dataset.global_batch / WORLD)));
        let (mut from, mut items) = (Position::new(1, plan.samples() / 2), Vec::new());
        group.bench_function("rank_items, one rank of eight", |bencher| {
            bencher.iter(|| {
                let step = plan.step(from, &batch).unwrap();
                plan.rank_items(&step, 3, WORLD, &mut items);
                from = step.next;
                black_box(items.len())
            });
        });

        group.throughput(Throughput::Elements(u64::from(dataset.blocks / plan.lanes())));
        let mut epoch = 2;
        group.bench_function("epoch, one lane's first sample", |bencher| {
            bencher.iter(|| {
                epoch += 1;
                black_box(plan.at(epoch, 0))
            });
        });

        group.sample_size(10).throughput(Throughput::Elements(u64::from(dataset.blocks)));
        group.bench_function("new plan", |bencher| bencher.iter(|| black_box(dataset.plan())));
    }
}

/// The cost of finding a sample of a view in its dataset, and of a position of its stream: 1 of 10 of 10^7 samples.
fn view(criterion: &mut Criterion) {
    const SAMPLES: u64 = 10_000_000;
    let mut set = SampleSetBuilder::default();
    for id in (0..SAMPLES).filter(|id| splitmix64(*id).is_multiple_of(10)) {
        set.keep(SampleId(id)).unwrap();
    }
    let set = Arc::new(set.finish(SAMPLES).unwrap());
    let facts = DatasetFacts::new(Fingerprint(0), set.len(), 1_000);
    let order = OrderParams::default_for(&facts, 256, true);
    let plan = Plan::of_view(&[10_000; 1_000], &ViewSamples::Set(set.clone()), 17, order).unwrap();
    let mut group = criterion.benchmark_group("1 of 10 of 10^7 samples");
    group.throughput(Throughput::Elements(1));
    let (mut number, stride) = (0, set.len() / 3 * 2 + 1);
    let mut next = || {
        number = (number + stride) % set.len();
        number
    };
    group.bench_function("select, anywhere", |bencher| bencher.iter(|| black_box(set.select(next()))));
    group.bench_function("at, anywhere", |bencher| bencher.iter(|| black_box(plan.at(1, next()))));
    group.bench_function("new plan", |bencher| {
        bencher.iter(|| black_box(Plan::of_view(&[10_000; 1_000], &ViewSamples::Set(set.clone()), 17, order).unwrap()));
    });
}

/// The cost of finding the source of a position, and its epoch there: of 64 sources with weights that all differ.
fn sources(criterion: &mut Criterion) {
    let shares: Vec<f64> = (1..=MAX_SOURCES as u32).map(|number| f64::from(number).powf(1.5)).collect();
    let order = OrderParams { version: 1, lanes: 8, window: 1_000, shuffle: true };
    let source = |weight| BlendSource { block_samples: &[1_000; 100], view: None, weight, order };
    let sources: Vec<_> = blend_weights(&shares).into_iter().map(source).collect();
    let plan = Plan::of_sources(&sources, &[], 6_400_000, 17).unwrap();
    let mut group = criterion.benchmark_group("64 sources of 10^5 samples");
    group.throughput(Throughput::Elements(1));
    // Far from each other, and all of them in turn.
    let (mut offset, stride) = (0, 3_955_417);
    let mut next = || {
        offset = (offset + stride) % plan.samples();
        Position::new(1, offset)
    };
    group.bench_function("source, anywhere", |bencher| bencher.iter(|| black_box(plan.source_epoch(next()))));
    group.bench_function("new plan", |bencher| {
        bencher.iter(|| black_box(Plan::of_sources(&sources, &[], 6_400_000, 17).unwrap()));
    });
}

/// The cost of an epoch of a sampling: 10^6 samples of 1,000 classes of very different sizes.
fn sampling(criterion: &mut Criterion) {
    const SAMPLES: u64 = 1_000_000;
    let mut set = SampleSetBuilder::default();
    (0..SAMPLES).for_each(|id| set.keep(SampleId(id)).unwrap());
    let kept = Arc::new(set.finish(SAMPLES).unwrap());
    // Each class has a sample, and the first ones have most.
    let class = |id: u64| match splitmix64(id) % 1_000 {
        _ if id < 1_000 => id as u16,
        drawn => (drawn * (splitmix64(id ^ 1) % 1_000) / 1_000) as u16,
    };
    let numbers: Vec<u16> = (0..SAMPLES).map(class).collect();
    let classes = (0..1_000).map(|class| (class.to_string(), 1_000));
    let sampling = ClassSampling::new("cls".to_owned(), kept, classes, numbers).unwrap();
    let view = ViewSamples::Sampling(Arc::new(sampling));
    let order = OrderParams { version: 1, lanes: 32, window: 10_000, shuffle: true };
    let plan = Plan::of_view(&[100; 10_000], &view, 17, order).unwrap();
    let mut group = criterion.benchmark_group("10^6 samples of 1,000 classes");
    let (mut offset, stride) = (0, 618_033);
    group.bench_function("at, anywhere", |bencher| {
        bencher.iter(|| {
            offset = (offset + stride) % plan.samples();
            black_box(plan.at(1, offset))
        });
    });
    let mut epoch = 1;
    group.sample_size(10);
    group.bench_function("the first sample of a new epoch", |bencher| {
        bencher.iter(|| {
            epoch += 1;
            black_box(plan.at(epoch, 0))
        });
    });
}

criterion_group!(benches, order, view, sources, sampling);
criterion_main!(benches);
