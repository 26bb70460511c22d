//! Over many seeds, epochs and pools, each document of a length is equally often at each place, with each other one. The
//! seeds are fixed, so a test that passes once always passes; the threshold is that of p = 1e-6.

use std::sync::Arc;

use spdl_sequence::{LongDocument, PackMethod, PoolEpoch, PoolLayout, SequenceParams};

/// Draws per statistic.
const DRAWS: u64 = 40_000;

/// Standard deviations of a normal variable that one in a million exceeds.
const LIMIT: f64 = 4.75;

/// What is counted up in a statistic.
#[derive(Clone, Copy, Debug)]
enum Varied {
    Seed,
    Epoch,
    Pool,
}

/// Returns how far chi squared of `counts` against equal probabilities is from its mean, in standard deviations of the
/// normal variable that it is transformed to (Wilson and Hilferty, 1931).
fn deviation(counts: &[u64]) -> f64 {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    assert!(expected >= 10.0, "{expected} expected per cell is too little for chi squared");
    let chi: f64 = counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum();
    let freedom = counts.len() as f64 - 1.0;
    let spread = 2.0 / (9.0 * freedom);
    ((chi / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

fn layout(method: PackMethod, lengths: Vec<u32>) -> Arc<PoolLayout> {
    let params = SequenceParams { version: 1, seq_len: 100, added_tokens: 0, method };
    Arc::new(PoolLayout::new(&params, lengths).unwrap())
}

fn best_fit() -> PackMethod {
    PackMethod::BestFit { align: 10, max_documents: None, long: LongDocument::Split }
}

/// Tests a number below `cells` that is drawn from the documents of some sequences, one after another.
fn drawn(
    layout: &Arc<PoolLayout>,
    varied: Varied,
    sequences: &[u32],
    cells: usize,
    cell: impl Fn(&[u32]) -> usize,
) -> f64 {
    let (mut counts, mut pieces, mut documents) = (vec![0; cells], Vec::new(), Vec::new());
    for n in 0..DRAWS {
        let epoch = match varied {
            Varied::Seed => PoolEpoch::new(layout.clone(), n, 1, 2),
            Varied::Epoch => PoolEpoch::new(layout.clone(), 17, n, 2),
            Varied::Pool => PoolEpoch::new(layout.clone(), 17, 1, n as u32),
        };
        documents.clear();
        for &sequence in sequences {
            epoch.pieces(sequence, &mut pieces);
            documents.extend(pieces.iter().map(|piece| piece.document));
        }
        counts[cell(&documents)] += 1;
    }
    deviation(&counts)
}

#[test]
fn each_document_is_equally_often_at_each_place() {
    for count in [2, 3, 4, 5, 8, 17, 64, 100, 255, 256, 257, 1_000] {
        // The first documents are of another length, which exchanges places among itself.
        let lengths = [vec![70; 5], vec![45; count]].concat();
        let layout = layout(best_fit(), lengths);
        let last = layout.sequences() - 1;
        for varied in [Varied::Seed, Varied::Epoch, Varied::Pool] {
            for sequence in [5, last] {
                let of_place = drawn(&layout, varied, &[sequence], count, |documents| documents[0] as usize - 5);
                assert!(of_place < LIMIT, "{count}, {varied:?}, sequence {sequence}: {of_place}");
            }
        }
        if count <= 17 {
            let all: Vec<_> = (5..=last).collect();
            let place_of =
                |document| move |documents: &[u32]| documents.iter().position(|other| *other == document).unwrap();
            for document in [5, 5 + count as u32 - 1] {
                let of_document = drawn(&layout, Varied::Epoch, &all, count, place_of(document));
                assert!(of_document < LIMIT, "{count}, document {document}: {of_document}");
            }
        }
    }
}

#[test]
fn each_document_is_equally_often_with_each_other_one() {
    for count in [4, 8, 16, 100] {
        let layout = layout(best_fit(), vec![45; count]);
        let pairs = count * (count - 1);
        for varied in [Varied::Seed, Varied::Epoch] {
            let pair = |documents: &[u32]| {
                let (a, b) = (documents[0] as usize, documents[1] as usize);
                a * (count - 1) + b - usize::from(b > a)
            };
            if pairs < DRAWS as usize / 10 {
                let deviation = drawn(&layout, varied, &[1], pairs, pair);
                assert!(deviation < LIMIT, "{count}, {varied:?}: {deviation}");
            }
            let distance = |documents: &[u32]| (count + documents[1] as usize - documents[0] as usize) % count - 1;
            let deviation = drawn(&layout, varied, &[1], count - 1, distance);
            assert!(deviation < LIMIT, "distance of {count}, {varied:?}: {deviation}");
        }
    }
}

#[test]
fn lengths_exchange_their_places_independently() {
    // 10 documents of 60 tokens, each with one of 10 of 40.
    let layout = layout(best_fit(), [vec![60; 10], vec![40; 10]].concat());
    for varied in [Varied::Seed, Varied::Epoch, Varied::Pool] {
        let pair = |documents: &[u32]| documents[0] as usize * 10 + documents[1] as usize - 10;
        let deviation = drawn(&layout, varied, &[3], 100, pair);
        assert!(deviation < LIMIT, "{varied:?}: {deviation}");
    }
}

#[test]
fn parts_of_long_documents_and_whole_documents_exchange_places() {
    // A part of a whole sequence is like any other document of that room, whichever document it is of.
    let layout = layout(best_fit(), vec![100, 330, 91, 200, 95, 3]);
    let number = |documents: &[u32]| documents[0] as usize;
    let (mut counts, mut pieces) = ([0_u64; 5], Vec::new());
    for seed in 0..DRAWS {
        PoolEpoch::new(layout.clone(), seed, 1, 2).pieces(2, &mut pieces);
        counts[number(&[pieces[0].document])] += 1;
    }
    let expected = [1, 3, 1, 2, 1].map(|parts| DRAWS as f64 * f64::from(parts) / 8.0);
    let chi: f64 = counts.iter().zip(expected).map(|(&count, of)| (count as f64 - of).powi(2) / of).sum();
    assert!(chi < 33.4, "chi squared of 4 degrees of freedom is {chi}");
}

#[test]
fn each_document_follows_each_other_one_equally_often_by_chunk() {
    for count in [3, 5, 8, 24] {
        let layout = layout(PackMethod::Chunk, vec![60; count]);
        for varied in [Varied::Seed, Varied::Epoch, Varied::Pool] {
            let first = drawn(&layout, varied, &[0], count, |documents| documents[0] as usize);
            assert!(first < LIMIT, "first of {count}, {varied:?}: {first}");
            let distance = |documents: &[u32]| (count + documents[1] as usize - documents[0] as usize) % count - 1;
            let deviation = drawn(&layout, varied, &[0], count - 1, distance);
            assert!(deviation < LIMIT, "distance of {count}, {varied:?}: {deviation}");
        }
    }
}

#[test]
fn the_statistic_catches_documents_that_stay_or_only_turn() {
    assert!(deviation(&[DRAWS, 0, 0, 0]) > LIMIT);
    // A rotation of the documents has them equally often at each place, and each always behind the same one.
    let turned: Vec<u64> = (0..7).map(|distance| if distance == 0 { DRAWS } else { 0 }).collect();
    assert!(deviation(&turned) > LIMIT);
}
