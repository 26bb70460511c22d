//! Measures how full sequences are, and how many pairs of documents that share a sequence do so in the next epoch too.
//!
//! Reads the tokens of documents from stdin, one number a line, in the dataset's order:
//!
//!     find ~/.cargo/registry/src -name '*.rs' -printf '%p %s\n' | sort | awk '{ print int($2 / 3.4) }' |
//!         cargo bench --package spdl-sequence --bench fill
//!
//! Without a line it draws 100,000 lengths: lognormal, median 700, sigma 1, as in chats.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a benchmark reads and prints")]

use std::{collections::BTreeSet, sync::Arc};

use spdl_sequence::{LongDocument, PackMethod, PoolCutter, PoolEpoch, PoolLayout, SequenceFill, SequenceParams};
use spdl_types::Draw;

const DOCUMENTS_PER_BLOCK: usize = 100;

/// A piece of a document: the document's number, and its first token.
type PieceId = (u32, u64);

fn drawn() -> Vec<u32> {
    let mut draw = Draw::new(17, 0, 0);
    let mut normal = || (-2.0 * (1.0 - draw.unit()).ln()).sqrt() * (std::f64::consts::TAU * draw.unit()).cos();
    (0..100_000).map(|_| (700.0 * normal().exp()) as u32).collect()
}

/// Returns the pairs of pieces that share a sequence.
fn pairs(layout: &Arc<PoolLayout>, epoch: u64, pool: u32) -> BTreeSet<(PieceId, PieceId)> {
    let (epoch, mut pieces, mut pairs) = (PoolEpoch::new(layout.clone(), 17, epoch, pool), Vec::new(), BTreeSet::new());
    for number in 0..layout.sequences() {
        epoch.pieces(number, &mut pieces);
        let mut ids: Vec<_> = pieces.iter().map(|piece| (piece.document, piece.first)).collect();
        ids.sort_unstable();
        for (i, a) in ids.iter().enumerate() {
            pairs.extend(ids[i + 1..].iter().map(|b| (*a, *b)));
        }
    }
    pairs
}

/// Packs all documents, and returns what became of them, and the share of pairs of an epoch that the next one has too.
fn measured(params: &SequenceParams, lengths: &[u32]) -> (SequenceFill, f64) {
    let mut cutter = PoolCutter::new(*params, params.default_pool_tokens()).unwrap();
    let mut pools: Vec<_> =
        lengths.chunks(DOCUMENTS_PER_BLOCK).filter_map(|block| cutter.push(block).unwrap()).collect();
    pools.extend(cutter.finish());
    let (mut fill, mut all, mut again) = (SequenceFill::default(), 0, 0);
    for (number, pool) in (0..).zip(pools) {
        let layout = Arc::new(PoolLayout::new(params, pool.lengths).unwrap());
        fill = fill.checked_add(layout.fill()).unwrap();
        let (first, second) = (pairs(&layout, 0, number), pairs(&layout, 1, number));
        all += first.len();
        again += first.intersection(&second).count();
    }
    (fill, again as f64 / all as f64)
}

fn main() {
    let read = || std::io::stdin().lines().map(|line| line.unwrap().trim().parse().unwrap());
    let mut lengths: Vec<u32> = read().collect();
    if lengths.is_empty() {
        lengths = drawn();
    }
    let tokens: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
    println!("{} documents of {tokens} tokens", lengths.len());
    println!("seq_len method         sequences    fill  pairs again  lost tokens  lost or cut documents");
    for seq_len in [2_048, 8_192, 32_768] {
        for (name, align, long) in [
            ("by 1", 1, LongDocument::Split),
            ("by 16", 16, LongDocument::Split),
            ("by 1, truncate", 1, LongDocument::Truncate),
            ("by 1, drop", 1, LongDocument::Drop),
            ("chunk", 0, LongDocument::Split),
        ] {
            let best_fit = PackMethod::BestFit { align, max_documents: None, long };
            let method = if align == 0 { PackMethod::Chunk } else { best_fit };
            let (fill, again) = measured(&SequenceParams { version: 1, seq_len, added_tokens: 0, method }, &lengths);
            println!(
                "{seq_len:7} {name:14} {:9} {:6.2} % {:10.2} % {:10.2} % {:12}",
                fill.sequences,
                100.0 * fill.ratio(),
                100.0 * again,
                100.0 * fill.lost_tokens as f64 / tokens as f64,
                fill.lost_documents + fill.cut_documents,
            );
        }
    }
}
