//! What balance gives on packed documents whose lengths are spread as those of code and of chats are, and on samples of text and pictures.

use std::sync::Arc;

use spdl_order::{BalancedBatch, BatchParams, CostSpread, EpochEnd, Item, OrderParams, Plan};
use spdl_sequence::{LongDocument, PackMethod, PoolEpoch, PoolLayout, SequenceParams};
use spdl_types::{Draw, Position};

const RANKS: u32 = 64;
const SEQ_LEN: u32 = 8192;

/// Returns the tokens of the documents of each sequence of a pool, whose lengths are lognormal.
fn packed(median: f64, sigma: f64) -> Vec<Vec<u32>> {
    let method = PackMethod::BestFit { align: 16, max_documents: None, long: LongDocument::Split };
    let params = SequenceParams { version: 1, seq_len: SEQ_LEN, added_tokens: 0, method };
    let mut draw = Draw::new(17, 0, 0);
    let mut normal = || (-2.0 * (1.0 - draw.unit()).ln()).sqrt() * (std::f64::consts::TAU * draw.unit()).cos();
    let (mut lengths, mut tokens) = (Vec::new(), 0);
    while tokens < 6 * u64::from(RANKS * 16 * SEQ_LEN) {
        let length = (median * (sigma * normal()).exp()) as u32;
        tokens += u64::from(length);
        lengths.push(length);
    }
    let epoch = PoolEpoch::new(Arc::new(PoolLayout::new(&params, lengths).unwrap()), 17, 0, 0);
    let mut pieces = Vec::new();
    let mut documents = |sequence| {
        epoch.pieces(sequence, &mut pieces);
        pieces.iter().map(|piece| piece.tokens).collect()
    };
    (0..epoch.layout().sequences()).map(&mut documents).collect()
}

/// Returns samples of a text and up to eight pictures of 64 to 4,096 tokens, which are not packed.
fn pictures_and_text() -> Vec<Vec<u32>> {
    let mut draw = Draw::new(17, 0, 3);
    let mut sample = |_| {
        let normal = (-2.0 * (1.0 - draw.unit()).ln()).sqrt() * (std::f64::consts::TAU * draw.unit()).cos();
        let pictures = [0, 1, 1, 1, 1, 1, 1, 2, 4, 8][(draw.unit() * 10.0) as usize];
        let text = (200.0 * normal.exp()) as u32;
        vec![text + (0..pictures).map(|_| (64.0 * 64.0_f64.powf(draw.unit())) as u32).sum::<u32>()]
    };
    (0..6 * RANKS * 16).map(&mut sample).collect()
}

/// Returns how even the steps of 64 ranks with so many sequences each are, on average.
fn spread(packed: &[Vec<u32>], per_rank: u32, cost: impl Fn(u64) -> u64) -> CostSpread {
    let order = OrderParams { version: 1, lanes: 1, window: 4096, shuffle: true };
    let plan = Plan::new(&[packed.len() as u32], 17, order).unwrap();
    let batches = BatchParams { global_batch: RANKS * per_rank, epochs: 1, epoch_end: EpochEnd::Drop, end: None };
    let of = |item: &Item| packed[item.located.index as usize].iter().map(|tokens| cost(u64::from(*tokens))).sum();
    let spreads = plan.steps(Position::START, &batches).map(|step| {
        let items = plan.step_items(&step);
        let costs: Vec<u64> = items.iter().map(of).collect();
        BalancedBatch::new(items, &costs, RANKS, None).spread(&costs, RANKS)
    });
    let all: Vec<CostSpread> = spreads.collect();
    assert!(all.len() > 4, "{} steps", all.len());
    let mean = |part: fn(&CostSpread) -> f64| all.iter().map(part).sum::<f64>() / all.len() as f64;
    CostSpread {
        before: mean(|step| step.before),
        balanced: mean(|step| step.balanced),
        least: mean(|step| step.least),
    }
}

#[test]
fn steps_of_pictures_and_text_are_as_even_as_the_page_says() {
    let samples = pictures_and_text();
    for ((linear, quadratic), per_rank) in
        [(1, 0), (0, 1), (49_152, 1)].into_iter().flat_map(|factors| [4, 16].map(|per_rank| (factors, per_rank)))
    {
        let found = spread(&samples, per_rank, |tokens| tokens * (linear + quadratic * tokens));
        let what = format!("{linear} and {quadratic}, {per_rank} each: {found:?}");
        assert!(found.balanced <= 1.02 * found.least && found.before > 1.1 * found.least, "{what}");
    }
}

/// Of code, somewhat more than two sequences of a rank's four are one document: some ranks have three, and no deal is even in squares.
#[test]
fn steps_of_code_and_chats_are_as_even_as_the_page_says() {
    for (name, packed, squares) in [("code", packed(1_439.0, 1.49), 1.045), ("chats", packed(700.0, 1.0), 1.02)] {
        for (per_rank, squares) in [(4, squares), (16, 1.005)] {
            let found = spread(&packed, per_rank, |tokens| tokens * tokens);
            assert!(found.balanced <= squares * found.least, "{name}, {per_rank} each, squares: {found:?}");
            assert!(found.before > 1.1 * found.least, "{name}, {per_rank} each, squares: {found:?}");
            let found = spread(&packed, per_rank, |tokens| tokens * (49_152 + tokens));
            assert!(found.balanced <= 1.005 * found.least, "{name}, {per_rank} each, both: {found:?}");
        }
    }
}
