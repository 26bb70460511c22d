//! Measures how even the steps of ranks are when sequences are dealt by cost, beside the order alone, which deals at random.
//!
//! `cargo bench --package spdl-sequence --bench balance`. Lengths are drawn: lognormal as those of source code (median 1,439, sigma 1.49)
//! and of chats (median 700, sigma 1), and samples of text and pictures, which are not packed. Lines of stdin, one length each, take the
//! place of the drawn code.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    clippy::disallowed_types,
    reason = "a benchmark reads, prints and measures"
)]

use std::{hint::black_box, io::IsTerminal, sync::Arc, time::Instant};

use spdl_order::{BalancedBatch, BatchParams, EpochEnd, OrderParams, Plan, deal_by_cost};
use spdl_sequence::{LongDocument, PackMethod, PoolCutter, PoolEpoch, PoolLayout, SequenceParams};
use spdl_types::{Draw, Position};

const RANKS: u32 = 64;
const DOCUMENTS: usize = 400_000;
const DOCUMENTS_PER_BLOCK: usize = 100;
/// Steps that are looked at, at most.
const STEPS: usize = 200;

/// The tokens of the documents of each sequence, by pool.
type Packed = Vec<Vec<Vec<u32>>>;
/// What a sequence of such documents costs.
type Cost = fn(&[u32]) -> u64;

const COSTS: [(&str, Cost); 3] = [
    ("tokens", |documents| documents.iter().map(|tokens| u64::from(*tokens)).sum()),
    ("tokens^2", |documents| documents.iter().map(|tokens| u64::from(*tokens).pow(2)).sum()),
    ("49152, 1", |documents| documents.iter().map(|tokens| u64::from(*tokens) * (49_152 + u64::from(*tokens))).sum()),
];

fn lognormal(median: f64, sigma: f64, number: u64) -> Vec<u32> {
    let mut draw = Draw::new(17, 0, number);
    let mut normal = || (-2.0 * (1.0 - draw.unit()).ln()).sqrt() * (std::f64::consts::TAU * draw.unit()).cos();
    (0..DOCUMENTS).map(|_| ((median * (sigma * normal()).exp()) as u32).max(1)).collect()
}

/// Draws samples of a text and up to eight pictures of 64 to 4,096 tokens.
fn pictures_and_text() -> Packed {
    let mut draw = Draw::new(17, 0, 3);
    let mut sample = |text: u32| {
        let pictures = [0, 1, 1, 1, 1, 1, 1, 2, 4, 8][(draw.unit() * 10.0) as usize];
        text + (0..pictures).map(|_| (64.0 * 64.0_f64.powf(draw.unit())) as u32).sum::<u32>()
    };
    let samples: Vec<_> = lognormal(200.0, 1.0, 2).into_iter().map(|text| vec![sample(text)]).collect();
    samples.chunks(1000).map(<[_]>::to_vec).collect()
}

fn packed(lengths: &[u32], seq_len: u32) -> Packed {
    let method = PackMethod::BestFit { align: 16, max_documents: None, long: LongDocument::Split };
    let params = SequenceParams { version: 1, seq_len, added_tokens: 0, method };
    let mut cutter = PoolCutter::new(params, params.default_pool_tokens()).unwrap();
    let mut pools: Vec<_> =
        lengths.chunks(DOCUMENTS_PER_BLOCK).filter_map(|block| cutter.push(block).unwrap()).collect();
    pools.extend(cutter.finish());
    let sequences = |(number, lengths): (u32, Box<[u32]>)| {
        let epoch = PoolEpoch::new(Arc::new(PoolLayout::new(&params, lengths).unwrap()), 17, 0, number);
        let mut pieces = Vec::new();
        let mut tokens = |sequence| {
            epoch.pieces(sequence, &mut pieces);
            pieces.iter().map(|piece| piece.tokens).collect()
        };
        (0..epoch.layout().sequences()).map(&mut tokens).collect()
    };
    (0..).zip(pools).map(|(number, pool)| sequences((number, pool.lengths.into()))).collect()
}

fn measure(name: &str, packed: &Packed) {
    let counts: Vec<u32> = packed.iter().map(|pool| pool.len() as u32).collect();
    for per_rank in [1, 4, 16] {
        let global_batch = RANKS * per_rank;
        let order = OrderParams { version: 1, lanes: 8.min(counts.len() as u32), window: 4096, shuffle: true };
        let plan = Plan::new(&counts, 17, order).unwrap();
        let batches = BatchParams { global_batch, epochs: 1, epoch_end: EpochEnd::Drop, end: None };
        for (cost_name, cost) in COSTS {
            let (mut sums, mut steps) = ([0.0; 4], 0);
            for step in plan.steps(Position::START, &batches).take(STEPS) {
                let items = plan.step_items(&step);
                let of =
                    |item: &spdl_order::Item| cost(&packed[item.located.block as usize][item.located.index as usize]);
                let costs: Vec<u64> = items.iter().map(of).collect();
                let batch = BalancedBatch::new(items.clone(), &costs, RANKS, None);
                let spread = batch.spread(&costs, RANKS);
                let within = std::num::NonZeroU32::new(8);
                let of_nodes = BalancedBatch::new(items, &costs, RANKS, within).spread(&costs, RANKS);
                for (sum, of_step) in
                    sums.iter_mut().zip([spread.before, of_nodes.balanced, spread.balanced, spread.least])
                {
                    *sum += of_step;
                }
                steps += 1;
            }
            if steps == 0 {
                continue;
            }
            let [before, of_nodes, balanced, least] = sums.map(|sum| sum / f64::from(steps));
            println!("{name:22} {per_rank:4} {cost_name:10} {before:9.3} {of_nodes:9.3} {balanced:9.3} {least:7.3}");
        }
    }
}

fn time() {
    println!("\nranks x samples   dealt in");
    for (ranks, per_rank) in [(8, 4), (64, 4), (64, 16), (1024, 16), (64, 1024)] {
        let mut draw = Draw::new(17, 0, 9);
        let costs: Vec<u64> = (0..ranks * per_rank).map(|_| (1e8 * draw.unit()) as u64).collect();
        let (sizes, started) = (vec![per_rank; ranks], Instant::now());
        let rounds = 1 + 200_000 / costs.len();
        for _ in 0..rounds {
            black_box(deal_by_cost(black_box(&costs), &sizes));
        }
        println!("{ranks:5} x {per_rank:4} {:12.1} us", started.elapsed().as_secs_f64() * 1e6 / rounds as f64);
    }
}

fn main() {
    let stdin = std::io::stdin();
    let mut code: Vec<u32> = Vec::new();
    if !stdin.is_terminal() {
        code = stdin.lines().map(|line| line.unwrap().trim().parse().unwrap()).collect();
    }
    if code.is_empty() {
        code = lognormal(1_439.0, 1.49, 0);
    }
    let chats = lognormal(700.0, 1.0, 1);
    println!("largest / mean cost of {RANKS} ranks, the mean of up to {STEPS} steps");
    println!("{:22} {:>4} {:10} {:>9} {:>9} {:>9} {:>7}", "", "each", "cost", "without", "within 8", "with", "least");
    for seq_len in [8_192, 32_768] {
        measure(&format!("code, {seq_len}"), &packed(&code, seq_len));
        measure(&format!("chat, {seq_len}"), &packed(&chats, seq_len));
    }
    let unpacked = |lengths: Vec<u32>| -> Packed {
        let one: Vec<_> = lengths.into_iter().map(|tokens| vec![tokens]).collect();
        one.chunks(1000).map(<[_]>::to_vec).collect()
    };
    measure("chat, not packed", &unpacked(chats));
    measure("pictures, not packed", &pictures_and_text());
    time();
}
