//! Guarantees for random lengths of documents, methods and epochs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::prelude::*;
use spdl_order::{OrderParams, Plan};
use spdl_sequence::{
    LongDocument, PackMethod, Piece, PoolCutter, PoolEpoch, PoolLayout, Pools, SequenceFill, SequenceParams,
};
use spdl_types::Draw;

fn longs() -> impl Strategy<Value = LongDocument> {
    prop::sample::select(vec![LongDocument::Split, LongDocument::Truncate, LongDocument::Drop])
}

fn params() -> impl Strategy<Value = SequenceParams> {
    let seq_len = prop_oneof![Just(1_u32), Just(64), Just(2048), 2_u32..100, 100_u32..5_000];
    (seq_len, 0_u32..3).prop_flat_map(|(seq_len, added_tokens)| {
        let align = prop_oneof![Just(1), Just(16.min(seq_len)), 1..=seq_len];
        let most = prop_oneof![2 => Just(None), 1 => (1_u32..6).prop_map(Some)];
        let best_fit = (align, most, longs()).prop_map(|(align, max_documents, long)| PackMethod::BestFit {
            align,
            max_documents,
            long,
        });
        let method = prop_oneof![3 => best_fit, 1 => Just(PackMethod::Chunk)];
        method.prop_map(move |method| SequenceParams { version: 1, seq_len, added_tokens, method })
    })
}

/// Lengths about those that decide something, and a heavy tail.
fn lengths(seq_len: u32, most: usize) -> impl Strategy<Value = Vec<u32>> {
    let tail = (0.0_f64..1.0).prop_map(move |u| (f64::from(seq_len) * 0.05 / (1.0 - u * 0.999)) as u32);
    let length = prop_oneof![
        1 => Just(0_u32),
        1 => Just(1),
        1 => Just(seq_len - 1),
        1 => Just(seq_len),
        1 => Just(seq_len.saturating_add(1)),
        1 => 0..=3 * seq_len,
        4 => 1..=seq_len,
        6 => tail,
    ];
    let one_huge = prop_oneof![9 => Just(None), 1 => Just(Some(1_000_000_u32))];
    (prop::collection::vec(length, 0..most), one_huge).prop_map(move |(mut lengths, huge)| {
        // Millions of pieces take too long to look at one by one.
        lengths.extend(huge.filter(|_| seq_len > 500));
        lengths
    })
}

fn pool() -> impl Strategy<Value = (SequenceParams, Vec<u32>)> {
    params().prop_flat_map(|params| (Just(params), lengths(params.seq_len, 120)))
}

fn sequences(layout: &Arc<PoolLayout>, seed: u64, epoch: u64) -> Vec<Vec<Piece>> {
    let epoch = PoolEpoch::new(layout.clone(), seed, epoch, 3);
    let mut pieces = Vec::new();
    (0..layout.sequences())
        .map(|number| {
            epoch.pieces(number, &mut pieces);
            pieces.clone()
        })
        .collect()
}

/// Returns the pieces of each document that has some, in the order of its tokens.
fn by_document(sequences: &[Vec<Piece>]) -> BTreeMap<u32, Vec<Piece>> {
    let mut documents: BTreeMap<u32, Vec<Piece>> = BTreeMap::new();
    for piece in sequences.iter().flatten() {
        documents.entry(piece.document).or_default().push(*piece);
    }
    for pieces in documents.values_mut() {
        pieces.sort_unstable_by_key(|piece| piece.first);
    }
    documents
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_has_more_than_it_holds_and_no_two_pieces_share_a_place(
        (params, lengths) in pool(), seed in any::<u64>(), epoch in any::<u64>(),
    ) {
        let layout = Arc::new(PoolLayout::new(&params, lengths).unwrap());
        for pieces in sequences(&layout, seed, epoch) {
            prop_assert!(!pieces.is_empty());
            let mut free = 0;
            for piece in &pieces {
                prop_assert!(piece.tokens > 0 && piece.at >= free, "{:?}", pieces);
                free = piece.at + piece.tokens;
            }
            prop_assert!(free <= params.seq_len, "{:?}", pieces);
            match params.method {
                PackMethod::BestFit { align, max_documents, .. } => {
                    prop_assert!(pieces.len() <= max_documents.unwrap_or(u32::MAX) as usize);
                    prop_assert!(pieces.iter().all(|piece| piece.at.is_multiple_of(align)), "{:?}", pieces);
                    let documents: BTreeSet<_> = pieces.iter().map(|piece| piece.document).collect();
                    prop_assert_eq!(documents.len(), pieces.len());
                }
                PackMethod::Chunk => {
                    prop_assert_eq!(free, params.seq_len);
                    prop_assert_eq!(pieces.iter().map(|piece| piece.tokens).sum::<u32>(), params.seq_len);
                }
            }
        }
    }

    #[test]
    fn every_token_that_best_fit_keeps_comes_exactly_once_an_epoch_in_order_within_its_document(
        (params, lengths) in pool(), seed in any::<u64>(), epoch in any::<u64>(),
    ) {
        prop_assume!(params.method != PackMethod::Chunk);
        let layout = Arc::new(PoolLayout::new(&params, lengths.clone()).unwrap());
        let documents = by_document(&sequences(&layout, seed, epoch));
        for (document, &length) in (0..).zip(&lengths) {
            let (mut next, all) = (0, params.all_tokens(length));
            for piece in documents.get(&document).into_iter().flatten() {
                prop_assert_eq!(piece.first, next);
                prop_assert!(piece.first.is_multiple_of(u64::from(params.seq_len)));
                next += u64::from(piece.tokens);
                prop_assert_eq!(piece.ends_document, next == all);
            }
            prop_assert_eq!(next, params.kept_tokens(length), "document {} of {} tokens", document, all);
            if matches!(params.method, PackMethod::BestFit { long: LongDocument::Split, .. }) {
                prop_assert_eq!(next, all);
            }
        }
    }

    #[test]
    fn chunks_follow_each_other_on_one_line_without_a_gap(
        (params, lengths) in pool(), seed in any::<u64>(), epoch in any::<u64>(),
    ) {
        let params = SequenceParams { method: PackMethod::Chunk, ..params };
        let layout = Arc::new(PoolLayout::new(&params, lengths.clone()).unwrap());
        let epoch = PoolEpoch::new(layout.clone(), seed, epoch, 0);
        let all = |document: u32| params.all_tokens(lengths[document as usize]);
        let (mut pieces, mut before, mut seen) = (Vec::new(), None::<Piece>, BTreeSet::new());
        for number in 0..layout.sequences() {
            let next = epoch.pieces(number, &mut pieces).unwrap();
            prop_assert_eq!((next.tokens, next.at), (1, params.seq_len));
            for piece in pieces.iter().chain([&next]) {
                let end = piece.first + u64::from(piece.tokens);
                prop_assert_eq!(piece.ends_document, end == all(piece.document));
                match before {
                    // What followed the sequence before is the first token of this one.
                    Some(before) if before.at == params.seq_len => {
                        prop_assert_eq!((before.document, before.first, 0), (piece.document, piece.first, piece.at));
                    }
                    Some(before) if !before.ends_document => {
                        let goes_on = before.first + u64::from(before.tokens);
                        prop_assert_eq!((before.document, goes_on), (piece.document, piece.first));
                    }
                    // A document begins once.
                    _ => prop_assert!(piece.first == 0 && seen.insert(piece.document), "{:?}", piece),
                }
                before = Some(*piece);
            }
        }
    }

    #[test]
    fn the_counts_are_those_of_what_is_looked_up_and_add_up(
        (params, lengths) in pool(), seed in any::<u64>(), epochs in (any::<u64>(), any::<u64>()),
    ) {
        let layout = Arc::new(PoolLayout::new(&params, lengths.clone()).unwrap());
        let fill = layout.fill();
        prop_assert_eq!(PoolLayout::count(&params, &lengths), Ok(fill));
        let all: u64 = lengths.iter().map(|length| params.all_tokens(*length)).sum();
        prop_assert_eq!(fill.tokens + fill.lost_tokens, all);
        prop_assert_eq!(fill.places, fill.sequences * u64::from(params.seq_len));
        prop_assert_eq!(fill.tokens + fill.padding(), fill.places);
        prop_assert_eq!(fill.documents, lengths.len() as u64);
        prop_assert_eq!(fill.empty_documents, lengths.iter().filter(|length| **length == 0).count() as u64);
        for epoch in [epochs.0, epochs.1] {
            let sequences = sequences(&layout, seed, epoch);
            prop_assert_eq!(sequences.len() as u64, fill.sequences);
            prop_assert_eq!(sequences.iter().flatten().map(|piece| u64::from(piece.tokens)).sum::<u64>(), fill.tokens);
            if params.method != PackMethod::Chunk {
                let (kept, whole) = by_document(&sequences).into_iter().fold((0, 0), |(kept, whole), (_, pieces)| {
                    (kept + 1, whole + u64::from(pieces[pieces.len() - 1].ends_document))
                });
                prop_assert_eq!(fill.cut_documents, kept - whole);
                prop_assert_eq!(fill.lost_documents, fill.documents - fill.empty_documents - kept);
            }
        }
    }

    #[test]
    fn a_sequence_has_the_rooms_of_the_layout_in_every_epoch(
        (params, lengths) in pool(), seeds in (any::<u64>(), any::<u64>()),
    ) {
        let PackMethod::BestFit { align, .. } = params.method else { return Ok(()) };
        let layout = Arc::new(PoolLayout::new(&params, lengths).unwrap());
        let room = |piece: &Piece| piece.tokens.next_multiple_of(align).min(params.seq_len);
        let rooms = |seed, epoch| -> Vec<Vec<u32>> {
            sequences(&layout, seed, epoch).iter().map(|pieces| pieces.iter().map(room).collect()).collect()
        };
        prop_assert_eq!(rooms(seeds.0, 0), rooms(seeds.1, 1));
    }

    #[test]
    fn pools_are_consecutive_blocks_and_closed_as_soon_as_they_have_enough(
        params in params(), blocks in prop::collection::vec(lengths(700, 12), 0..30), pool_tokens in 1_u64..20_000,
    ) {
        let pools = Pools::of_blocks(&params, pool_tokens, &blocks).unwrap();
        let counted = |block: &Vec<u32>| block.iter().map(|length| params.kept_tokens(*length).max(1)).sum::<u64>();
        let (mut end, mut fill) = (0, SequenceFill::default());
        for (pool, &sequences) in (0..).zip(pools.sequences()) {
            let range = pools.blocks(pool).unwrap();
            prop_assert!(range.start == end && !range.is_empty());
            end = range.end;
            for block in range.clone() {
                prop_assert_eq!(pools.of_block(block), Some(pool));
            }
            let blocks = &blocks[range.start as usize..range.end as usize];
            let (last, before) = blocks.split_last().unwrap();
            let before = before.iter().map(counted).sum::<u64>();
            prop_assert!(before < pool_tokens);
            prop_assert!(before + counted(last) >= pool_tokens || pool as usize + 1 == pools.sequences().len());
            let layout = PoolLayout::new(&params, blocks.concat()).unwrap();
            prop_assert_eq!(layout.sequences(), sequences);
            fill = fill.checked_add(layout.fill()).unwrap();
        }
        prop_assert_eq!(end as usize, blocks.len());
        prop_assert_eq!(pools.of_block(end), None);
        prop_assert_eq!(pools.blocks(pools.sequences().len() as u32), None);
        prop_assert_eq!(pools.fill(), fill);
    }

    #[test]
    fn an_epoch_of_the_order_of_sequences_has_every_kept_token_once(
        params in params(), blocks in prop::collection::vec(lengths(300, 12), 1..20), pool_tokens in 1_u64..5_000,
        seed in any::<u64>(), epoch in any::<u64>(), window in 1_u64..50,
    ) {
        // A document of a million tokens in sequences of one would be as many.
        let params = SequenceParams { seq_len: params.seq_len.max(100), ..params };
        prop_assume!(params.method != PackMethod::Chunk);
        let pools = Pools::of_blocks(&params, pool_tokens, &blocks).unwrap();
        let order = OrderParams { version: 1, lanes: 1, window, shuffle: true };
        let Ok(plan) = Plan::new(pools.sequences(), seed, order) else {
            prop_assert_eq!(pools.fill().sequences, 0);
            return Ok(());
        };
        prop_assert_eq!(plan.samples(), pools.fill().sequences);
        let in_pool = |pool: u32| {
            let range = pools.blocks(pool).unwrap();
            let lengths = blocks[range.start as usize..range.end as usize].concat();
            PoolEpoch::new(Arc::new(PoolLayout::new(&params, lengths).unwrap()), seed, epoch, pool)
        };
        let epochs: Vec<_> = (0..pools.sequences().len() as u32).map(in_pool).collect();
        let (mut seen, mut pieces) = (BTreeMap::new(), Vec::new());
        for offset in 0..plan.samples() {
            let sequence = plan.at(epoch, offset);
            epochs[sequence.block as usize].pieces(sequence.index, &mut pieces);
            for piece in &pieces {
                let key = (sequence.block, piece.document, piece.first);
                prop_assert_eq!(seen.insert(key, piece.tokens), None, "{:?} comes twice", piece);
            }
        }
        prop_assert_eq!(seen.values().map(|tokens| u64::from(*tokens)).sum::<u64>(), pools.fill().tokens);
    }

    #[test]
    fn pools_that_are_counted_apart_are_those_counted_in_a_row(
        params in params(), blocks in prop::collection::vec(lengths(700, 12), 0..30), pool_tokens in 1_u64..20_000,
    ) {
        let mut cutter = PoolCutter::new(params, pool_tokens).unwrap();
        let mut pools: Vec<_> = blocks.iter().filter_map(|block| cutter.push(block).unwrap()).collect();
        pools.extend(cutter.finish());
        let mut counted: Vec<_> = pools.iter().rev().map(|pool| (pool.blocks.end, pool.count(&params).unwrap())).collect();
        counted.reverse();
        prop_assert_eq!(Pools::new(counted), Pools::of_blocks(&params, pool_tokens, &blocks));
    }
}

/// Returns the pairs of documents that are together in a sequence.
fn mates(layout: &Arc<PoolLayout>, epoch: u64) -> BTreeSet<(u32, u32)> {
    let mut pairs = BTreeSet::new();
    for pieces in sequences(layout, 17, epoch) {
        for (i, a) in pieces.iter().enumerate() {
            pairs.extend(pieces[i + 1..].iter().map(|b| (a.document.min(b.document), a.document.max(b.document))));
        }
    }
    pairs
}

#[test]
fn who_is_packed_with_whom_changes_from_epoch_to_epoch() {
    // 3,000 documents of 1 to 400 tokens in sequences of 512, so that each length has several documents.
    let lengths: Vec<u32> = (0..3_000_u64).map(|i| 1 + (spdl_types::mix::splitmix64(i) % 400) as u32).collect();
    let kept = |method| {
        let params = SequenceParams { version: 1, seq_len: 512, added_tokens: 0, method };
        let layout = Arc::new(PoolLayout::new(&params, lengths.clone()).unwrap());
        let (first, second) = (mates(&layout, 0), mates(&layout, 1));
        assert_ne!(second, mates(&layout, 2));
        first.intersection(&second).count() as f64 / first.len() as f64
    };
    let best_fit = |align| PackMethod::BestFit { align, max_documents: None, long: LongDocument::Split };
    let (exact, aligned, chunk) = (kept(best_fit(1)), kept(best_fit(16)), kept(PackMethod::Chunk));
    assert!(exact < 0.4, "{exact}");
    assert!(aligned < 0.03, "{aligned}");
    assert!(chunk < 0.01, "{chunk}");
}

#[test]
fn sequences_are_full() {
    // Lognormal lengths, median 700, sigma 1.
    let mut draw = Draw::new(17, 0, 0);
    let mut normal = || (-2.0 * (1.0 - draw.unit()).ln()).sqrt() * (std::f64::consts::TAU * draw.unit()).cos();
    let lengths: Vec<u32> = (0..30_000).map(|_| (700.0 * normal().exp()) as u32).collect();
    for seq_len in [2_048, 8_192, 32_768] {
        for (align, least) in [(1, 0.995), (16, 0.99)] {
            let method = PackMethod::BestFit { align, max_documents: None, long: LongDocument::Split };
            let params = SequenceParams { version: 1, seq_len, added_tokens: 1, method };
            let fill = Pools::of_blocks(&params, params.default_pool_tokens(), lengths.chunks(100)).unwrap().fill();
            assert!(fill.ratio() > least, "{seq_len} by {align}: {}", fill.ratio());
        }
    }
}

#[test]
fn pools_seeds_and_epochs_have_orders_of_their_own() {
    let method = PackMethod::BestFit { align: 100, max_documents: None, long: LongDocument::Split };
    for method in [method, PackMethod::Chunk] {
        let params = SequenceParams { version: 1, seq_len: 100, added_tokens: 0, method };
        let layout = Arc::new(PoolLayout::new(&params, vec![99; 1_000]).unwrap());
        let order = |seed, epoch, pool| {
            let (epoch, mut pieces) = (PoolEpoch::new(layout.clone(), seed, epoch, pool), Vec::new());
            let first = |number| {
                epoch.pieces(number, &mut pieces);
                pieces[0].document
            };
            (0..layout.sequences()).map(first).collect::<Vec<_>>()
        };
        let base = order(1, 1, 1);
        assert_eq!(order(1, 1, 1), base);
        for other in [order(2, 1, 1), order(1, 2, 1), order(1, 1, 2)] {
            let equal = base.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(equal < 15, "{equal} of {} are at the same place", base.len());
        }
    }
}
