//! Sequences of several sources: each source is packed by itself, and its sequences are samples of a blend. The golden vectors of
//! `tests/order/golden-packed-blend-v1.json` must come out forever, and the second implementation in Python must agree.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test reads files")]

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use spdl_order::{BlendSource, BlendStage, OrderParams, Plan, blend_weights, source_seed};
use spdl_sequence::{LongDocument, PackMethod, PoolEpoch, PoolLayout, Pools, SequenceParams};
use spdl_types::Position;

use crate::{
    golden::{dice, piece},
    twin::{FOLDER, agrees},
};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct PackedSourceCase {
    weight: u32,
    lanes: u32,
    window: u64,
    shuffle: bool,
    /// The tokens of the documents of each block.
    documents: Vec<Vec<u32>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct PackedBlendCase {
    seed: u64,
    #[serde(flatten)]
    params: SequenceParams,
    pool_tokens: u64,
    sources: Vec<PackedSourceCase>,
    stages: Vec<BlendStage>,
    samples: u64,
    at: Vec<(u64, u64)>,
}

#[derive(Deserialize)]
struct GoldenPackedBlend {
    config: PackedBlendCase,
    sequences: Value,
}

/// The stream of a case, with the pools of its sources.
struct PackedBlend {
    plan: Plan,
    seed: u64,
    /// The pools of each source, laid out.
    pools: Vec<Vec<Arc<PoolLayout>>>,
}

fn pools(case: &PackedBlendCase, source: &PackedSourceCase) -> Pools {
    Pools::of_blocks(&case.params, case.pool_tokens, &source.documents).unwrap()
}

impl PackedBlend {
    fn new(case: &PackedBlendCase) -> Self {
        let pools: Vec<Pools> = case.sources.iter().map(|source| pools(case, source)).collect();
        let sources = case.sources.iter().zip(&pools).map(|(source, pools)| BlendSource {
            block_samples: pools.sequences(),
            view: None,
            weight: source.weight,
            order: order(source),
        });
        let plan = Plan::of_sources(&sources.collect::<Vec<_>>(), &case.stages, case.samples, case.seed).unwrap();
        let laid_out = |(source, pools): (&PackedSourceCase, &Pools)| {
            let of_pool = |pool| {
                let blocks = pools.blocks(pool).unwrap();
                let lengths = source.documents[blocks.start as usize..blocks.end as usize].concat();
                Arc::new(PoolLayout::new(&case.params, lengths).unwrap())
            };
            (0..pools.sequences().len() as u32).map(of_pool).collect()
        };
        Self { plan, seed: case.seed, pools: case.sources.iter().zip(&pools).map(laid_out).collect() }
    }

    /// Returns the source and the pool of the sequence at a position, and its pieces.
    fn at(&self, epoch: u64, offset: u64) -> Value {
        let located = self.plan.at(epoch, offset);
        let (mut source, mut pool) = (0, located.block as usize);
        while pool >= self.pools[source].len() {
            (source, pool) = (source + 1, pool - self.pools[source].len());
        }
        let of_source = self.plan.source_epoch(Position::new(epoch, offset));
        self.pieces((source, pool), of_source, located.index)
    }

    fn pieces(&self, (source, pool): (usize, usize), epoch: u64, sequence: u32) -> Value {
        let (layout, seed) = (self.pools[source][pool].clone(), source_seed(self.seed, source));
        let mut pieces = Vec::new();
        let next = PoolEpoch::new(layout, seed, epoch, pool as u32).pieces(sequence, &mut pieces);
        json!([source, pool, [pieces.iter().map(piece).collect::<Vec<_>>(), next.as_ref().map(piece)]])
    }
}

fn order(source: &PackedSourceCase) -> OrderParams {
    OrderParams { version: 1, lanes: source.lanes, window: source.window, shuffle: source.shuffle }
}

fn found(case: &PackedBlendCase) -> Value {
    let blend = PackedBlend::new(case);
    case.at.iter().map(|(epoch, offset)| blend.at(*epoch, *offset)).collect()
}

fn golden() -> Vec<GoldenPackedBlend> {
    let text = std::fs::read_to_string(format!("{FOLDER}/golden-packed-blend-v1.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Returns configurations from a fixed sequence.
fn random_cases(count: usize) -> Vec<PackedBlendCase> {
    let mut below = dice(5);
    let shares = [[7.0, 3.0, 0.0], [1.0, 1.0, 0.0], [5.0, 2.0, 1.0]];
    (0..count)
        .map(|i| {
            let seq_len = 8 + below(120) as u32;
            let long = [LongDocument::Split, LongDocument::Truncate, LongDocument::Drop][i % 3];
            let method = match i % 4 {
                3 => PackMethod::Chunk,
                _ => PackMethod::BestFit { align: 1 + below(8) as u32, max_documents: None, long },
            };
            let params = SequenceParams { version: 1, seq_len, added_tokens: below(3) as u32, method };
            let pool_tokens = 1 + below(6 * u64::from(seq_len));
            let weights = blend_weights(&shares[i % 3]).into_iter().filter(|weight| *weight > 0);
            let mut case = PackedBlendCase {
                seed: below(u64::MAX) << 33 | below(u64::MAX),
                params,
                pool_tokens,
                sources: Vec::new(),
                stages: Vec::new(),
                samples: 1 + below(400),
                at: Vec::new(),
            };
            for weight in weights {
                let most = 2 * u64::from(seq_len);
                let mut documents: Vec<Vec<u32>> =
                    (0..=below(6)).map(|_| (0..below(20)).map(|_| below(most) as u32).collect()).collect();
                // At least one sequence, by each method.
                documents.push(vec![seq_len - params.added_tokens, seq_len / 2, seq_len / 2 + 1]);
                let (window, shuffle) = (1 + below(40), i % 5 != 4);
                let mut source = PackedSourceCase { weight, lanes: 1, window, shuffle, documents };
                let sequences = pools(&case, &source).fill().sequences;
                source.lanes = 1 + below(sequences.min(6)) as u32;
                case.sources.push(source);
            }
            if i % 2 == 1 {
                let turned = case.sources.iter().rev().map(|source| source.weight).collect();
                case.stages.push(BlendStage { from: 1 + below(300), weights: turned });
            }
            case.at = (0..60).map(|_| (below(4), below(case.samples))).collect();
            case
        })
        .collect()
}

#[test]
fn the_golden_vectors_of_packed_sources_come_out() {
    let cases = golden();
    assert!(cases.len() >= 3);
    assert!(cases.iter().any(|case| case.config.params.method == PackMethod::Chunk));
    assert!(cases.iter().any(|case| !case.config.stages.is_empty()));
    for case in cases {
        assert_eq!(found(&case.config), case.sequences, "{:?}", case.config);
    }
}

#[test]
fn the_python_twin_agrees_on_the_sequences_of_sources() {
    let mut cases: Vec<_> = golden().into_iter().map(|case| case.config).collect();
    cases.extend(random_cases(24));
    let sequences: usize =
        agrees("packed_blend.py", &cases, found).iter().map(|found| found.as_array().unwrap().len()).sum();
    assert!(sequences > 1_400, "only {sequences} sequences were compared");
}

#[test]
fn each_source_gives_the_sequences_that_it_gives_alone_in_their_order() {
    for case in random_cases(24) {
        let blend = PackedBlend::new(&case);
        let of_source = |number: usize| {
            let pools = pools(&case, &case.sources[number]);
            Plan::new(pools.sequences(), source_seed(case.seed, number), order(&case.sources[number])).unwrap()
        };
        let alone: Vec<Plan> = (0..case.sources.len()).map(of_source).collect();
        let mut given = vec![0; alone.len()];
        for (epoch, offset) in (0..3).flat_map(|epoch| (0..case.samples).map(move |offset| (epoch, offset))) {
            let sequence = blend.at(epoch, offset);
            let source = sequence[0].as_u64().unwrap() as usize;
            let (own, place) = (given[source] / alone[source].samples(), given[source] % alone[source].samples());
            let located = alone[source].at(own, place);
            assert_eq!(sequence, blend.pieces((source, located.block as usize), own, located.index), "{case:?}");
            given[source] += 1;
        }
        assert!(given.iter().all(|given| *given > 0) || case.samples < 10, "{given:?}");
    }
}
