//! Measures sequences of tokens: the layout of a pool, looking up sequences, and counting 10^7 documents.
//!
//! `cargo bench --package spdl-sequence --bench sequence`. Lengths are drawn: lognormal, median 700, sigma 1, as in chats.
//! A pool has as many tokens as is the default.

use std::{hint::black_box, sync::Arc, time::Duration};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use spdl_sequence::{LongDocument, PackMethod, PoolEpoch, PoolLayout, Pools, SequenceParams};
use spdl_types::Draw;

const DOCUMENTS: usize = 10_000_000;
const DOCUMENTS_PER_BLOCK: usize = 2_000;

fn lengths(count: usize) -> Vec<u32> {
    let mut draw = Draw::new(17, 0, 0);
    let mut normal = || (-2.0 * (1.0 - draw.unit()).ln()).sqrt() * (std::f64::consts::TAU * draw.unit()).cos();
    (0..count).map(|_| (700.0 * normal().exp()) as u32).collect()
}

fn params(seq_len: u32, method: PackMethod) -> SequenceParams {
    SequenceParams { version: 1, seq_len, added_tokens: 1, method }
}

const fn best_fit(align: u32) -> PackMethod {
    PackMethod::BestFit { align, max_documents: None, long: LongDocument::Split }
}

fn pool(criterion: &mut Criterion) {
    let drawn = lengths(200_000);
    for (seq_len, align) in [(2_048, 1), (8_192, 1), (8_192, 16), (32_768, 1), (131_072, 1), (131_072, 16)] {
        let params = params(seq_len, best_fit(align));
        let mut tokens = params.default_pool_tokens();
        let in_pool = |length: &&u32| {
            let open = tokens > 0;
            tokens = tokens.saturating_sub(params.all_tokens(**length));
            open
        };
        let lengths: Vec<u32> = drawn.iter().take_while(in_pool).copied().collect();
        let mut group = criterion.benchmark_group(format!("{} documents, {seq_len} by {align}", lengths.len()));
        group.warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3)).sample_size(20);
        group.throughput(Throughput::Elements(lengths.len() as u64));
        group.bench_function("count", |bencher| bencher.iter(|| black_box(PoolLayout::count(&params, &lengths))));
        group.bench_function("layout", |bencher| {
            bencher.iter(|| black_box(PoolLayout::new(&params, lengths.as_slice())));
        });
        let layout = Arc::new(PoolLayout::new(&params, lengths.as_slice()).unwrap());
        let pieces = lengths.len() as u64 / u64::from(layout.sequences());
        look_up(&mut group, "look-up, per piece", &PoolEpoch::new(layout, 17, 1, 0), pieces);
    }
}

fn look_up(
    group: &mut criterion::BenchmarkGroup<'_, criterion::measurement::WallTime>,
    name: &str,
    epoch: &PoolEpoch,
    pieces: u64,
) {
    let (sequences, mut out) = (epoch.layout().sequences(), Vec::new());
    let (mut number, stride) = (0, sequences / 3 * 2 + 1);
    group.throughput(Throughput::Elements(pieces.max(1)));
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            number = (number + stride) % sequences;
            black_box(epoch.pieces(number, &mut out));
            black_box(out.len())
        });
    });
}

fn chunk(criterion: &mut Criterion) {
    let params = params(8_192, PackMethod::Chunk);
    let lengths = lengths(4_000);
    let layout = Arc::new(PoolLayout::new(&params, lengths.as_slice()).unwrap());
    let mut group = criterion.benchmark_group("4000 documents, chunks of 8192");
    group.throughput(Throughput::Elements(lengths.len() as u64));
    let mut epoch = 0;
    group.bench_function("epoch", |bencher| {
        bencher.iter(|| {
            epoch += 1;
            black_box(PoolEpoch::new(layout.clone(), 17, epoch, 0))
        });
    });
    let pieces = lengths.len() as u64 / u64::from(layout.sequences());
    look_up(&mut group, "look-up, per piece", &PoolEpoch::new(layout, 17, 1, 0), pieces);
}

fn dataset(criterion: &mut Criterion) {
    let lengths = lengths(DOCUMENTS);
    let mut group = criterion.benchmark_group("10^7 documents");
    group.sample_size(10).throughput(Throughput::Elements(DOCUMENTS as u64));
    for (name, method) in
        [("8192 by 1", best_fit(1)), ("8192 by 16", best_fit(16)), ("chunks of 8192", PackMethod::Chunk)]
    {
        let params = params(8_192, method);
        let blocks = || lengths.chunks(DOCUMENTS_PER_BLOCK);
        group.bench_function(name, |bencher| {
            bencher.iter(|| black_box(Pools::of_blocks(&params, params.default_pool_tokens(), blocks())));
        });
    }
}

criterion_group!(benches, pool, chunk, dataset);
criterion_main!(benches);
