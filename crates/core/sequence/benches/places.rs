//! Measures the loops that write tokens, labels and positions into sequences, beside a bare copy of 16 bits to 32, in a cache and in memory.
//!
//! `cargo bench --package spdl-sequence --bench places`

use std::{hint::black_box, time::Duration};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use spdl_sequence::{TokenRange, copy_places, count_places};
use spdl_types::{DType, Draw};

const VOCAB: u32 = 50_257;
/// Tokens of a piece of a document.
const PIECE: usize = 4096;

fn places(criterion: &mut Criterion) {
    let mut draw = Draw::new(17, 0, 0);
    for (name, pieces) in [("in a cache", 2), ("in memory", 8000)] {
        let ids: Vec<u8> = (0..pieces * PIECE).flat_map(|_| (draw.below(VOCAB) as u16).to_le_bytes()).collect();
        let [mut tokens, mut labels, mut positions] = [4, 8, 4].map(|width| vec![1_u8; width * pieces * PIECE]);
        let range = TokenRange::new(DType::I32, Some(VOCAB));
        let mut group = criterion.benchmark_group(name);
        group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2)).sample_size(10);
        group.throughput(Throughput::Elements((pieces * PIECE) as u64));
        group.bench_function("bare copy", |bencher| {
            bencher.iter(|| {
                for (place, id) in tokens.as_chunks_mut::<4>().0.iter_mut().zip(ids.as_chunks::<2>().0) {
                    *place = i32::from(u16::from_le_bytes(*id)).to_le_bytes();
                }
                black_box(&mut tokens);
            });
        });
        group.bench_function("with the vocabulary checked", |bencher| {
            bencher.iter(|| {
                for (ids, tokens) in ids.chunks(2 * PIECE).zip(tokens.chunks_mut(4 * PIECE)) {
                    range.copy(DType::U16, ids, tokens).expect("ids of the vocabulary");
                }
                black_box(&mut tokens);
            });
        });
        group.bench_function("with labels and positions", |bencher| {
            bencher.iter(|| {
                let rows = tokens.chunks_mut(4 * PIECE).zip(labels.chunks_mut(8 * PIECE));
                for ((ids, (tokens, labels)), positions) in
                    ids.chunks(2 * PIECE).zip(rows).zip(positions.chunks_mut(4 * PIECE))
                {
                    range.copy(DType::U16, ids, tokens).expect("ids of the vocabulary");
                    copy_places(4, &tokens[4..], 8, &mut labels[..8 * (PIECE - 1)]);
                    count_places(4, positions);
                }
                black_box((&mut tokens, &mut labels, &mut positions));
            });
        });
        group.finish();
    }
}

criterion_group!(benches, places);
criterion_main!(benches);
