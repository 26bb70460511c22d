//! Version 1 of sequences is frozen: the golden vectors of `tests/order/sequence-golden-v1.json` must come out forever, and
//! the second implementation, in Python beside them, must agree on them and on random configurations.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "a test reads files and starts a process"
)]

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use spdl_sequence::{LongDocument, PackMethod, Piece, PoolEpoch, PoolLayout, Pools, SequenceParams};

use crate::twin::{FOLDER, agrees};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct PackedCase {
    seed: u64,
    #[serde(flatten)]
    params: SequenceParams,
    pool_tokens: u64,
    epochs: Vec<u64>,
    /// The tokens of the documents of each block.
    blocks: Vec<Vec<u32>>,
}

#[derive(Deserialize)]
struct GoldenSequences {
    config: PackedCase,
    pools: Value,
}

pub(crate) fn piece(piece: &Piece) -> Value {
    json!([piece.document, piece.first, piece.tokens, piece.at, piece.ends_document])
}

fn packed(case: &PackedCase) -> Value {
    let pools = Pools::of_blocks(&case.params, case.pool_tokens, &case.blocks).unwrap();
    let mut pieces = Vec::new();
    let pools = (0..).zip(pools.sequences()).map(|(pool, &count)| {
        let blocks = pools.blocks(pool).unwrap();
        let lengths = case.blocks[blocks.start as usize..blocks.end as usize].concat();
        let layout = Arc::new(PoolLayout::new(&case.params, lengths).unwrap());
        assert_eq!(layout.sequences(), count);
        let epochs = case.epochs.iter().map(|&epoch| {
            let epoch = PoolEpoch::new(layout.clone(), case.seed, epoch, pool);
            let sequence = |number| {
                let next = epoch.pieces(number, &mut pieces);
                json!([pieces.iter().map(piece).collect::<Vec<_>>(), next.as_ref().map(piece)])
            };
            (0..count).map(sequence).collect::<Vec<_>>()
        });
        json!({"blocks": [blocks.start, blocks.end], "fill": layout.fill().counts(), "sequences": epochs.collect::<Vec<_>>()})
    });
    json!(pools.collect::<Vec<_>>())
}

fn golden() -> Vec<GoldenSequences> {
    serde_json::from_str(&std::fs::read_to_string(format!("{FOLDER}/sequence-golden-v1.json")).unwrap()).unwrap()
}

/// Returns what draws numbers below others from a fixed sequence (a linear congruential generator, Knuth's MMIX constants).
pub(crate) fn dice(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |n| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    }
}

/// Returns configurations from a fixed sequence.
fn random_cases(count: usize) -> Vec<PackedCase> {
    let mut below = dice(1);
    let longs = [LongDocument::Split, LongDocument::Truncate, LongDocument::Drop];
    (0..count)
        .map(|i| {
            let seq_len = 1 + below(if i % 3 == 0 { 12 } else { 200 }) as u32;
            let method = match below(4) {
                0 => PackMethod::Chunk,
                _ => PackMethod::BestFit {
                    align: 1 + below(u64::from(seq_len).min(20)) as u32,
                    max_documents: Some(1 + below(8) as u32).filter(|most| *most < 6),
                    long: longs[below(3) as usize],
                },
            };
            let length = |below: &mut dyn FnMut(u64) -> u64| match below(8) {
                0 => below(3) as u32,
                1 => seq_len - 1 + below(3) as u32,
                2 => below(5 * u64::from(seq_len)) as u32,
                3 | 4 => below(1 + u64::from(seq_len) / 8) as u32,
                _ => below(u64::from(seq_len) + 1) as u32,
            };
            let params = SequenceParams { version: 1, seq_len, added_tokens: below(3) as u32, method };
            let blocks =
                (0..=below(6)).map(|_| (0..below(30)).map(|_| length(&mut below)).collect::<Vec<_>>()).collect();
            let (seed, pool_tokens) = (below(u64::MAX) << 33 | below(u64::MAX), 1 + below(4_000));
            PackedCase { seed, params, pool_tokens, epochs: vec![0, below(1_000), u64::MAX], blocks }
        })
        .collect()
}

#[test]
fn the_golden_vectors_come_out() {
    let cases = golden();
    assert!(cases.len() > 8);
    for long in [LongDocument::Split, LongDocument::Truncate, LongDocument::Drop] {
        let of = |case: &GoldenSequences| matches!(case.config.params.method, PackMethod::BestFit { long: l, .. } if l == long);
        assert!(cases.iter().any(of), "{long:?} is not covered");
    }
    assert!(cases.iter().any(|case| case.config.params.method == PackMethod::Chunk));
    // A permutation of fewer than 256 elements has more rounds, so both sides of this limit are covered, by documents.
    for n in [255, 256, 257] {
        assert!(cases.iter().any(|case| case.config.blocks.concat().len() == n), "{n} documents");
    }
    for case in cases {
        assert_eq!(packed(&case.config), case.pools, "{:?}", case.config);
    }
}

#[test]
fn the_python_twin_agrees_on_the_golden_vectors_and_on_random_configurations() {
    let mut cases: Vec<_> = golden().into_iter().map(|case| case.config).collect();
    cases.extend(random_cases(120));
    let of = |pool: &Value| pool["fill"][0].as_u64().unwrap();
    let sequences: u64 =
        agrees("sequence.py", &cases, packed).iter().flat_map(|pools| pools.as_array().unwrap()).map(of).sum();
    assert!(sequences > 2_000, "only {sequences} sequences were compared");
}
