//! Measures the loops that write tokens, labels and positions into sequences, beside a bare copy of 16 bits to 32, in a cache and in memory.
//!
//! `cargo bench --package spdl-sequence --bench places`

use std::{hint::black_box, time::Instant};

use spdl_sequence::{TokenRange, copy_places, count_places};
use spdl_types::{DType, Draw};

const VOCAB: u32 = 50_257;
/// Tokens of a piece of a document.
const PIECE: usize = 4096;
const ROUNDS: usize = 5;

/// Times passes over all pieces; returns the nanoseconds of the fastest for a token.
fn fastest(tokens: usize, mut pass: impl FnMut()) -> f64 {
    let time = || {
        let began = Instant::now();
        pass();
        began.elapsed().as_secs_f64() * 1e9 / tokens as f64
    };
    std::iter::repeat_with(time).take(ROUNDS).fold(f64::INFINITY, f64::min)
}

fn main() {
    // Other harnesses start every target too.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let mut draw = Draw::new(17, 0, 0);
    for (name, pieces, passes) in [("in a cache", 2, 4000), ("in memory", 8000, 1)] {
        let ids: Vec<u8> = (0..pieces * PIECE).flat_map(|_| (draw.below(VOCAB) as u16).to_le_bytes()).collect();
        let mut tokens = vec![1_u8; 4 * pieces * PIECE];
        let [mut labels, mut positions] = [8, 4].map(|width| vec![1_u8; width * pieces * PIECE]);
        let range = TokenRange::new(DType::I32, Some(VOCAB));
        let all = passes * pieces * PIECE;
        let bare = fastest(all, || {
            for _ in 0..passes {
                for (place, id) in tokens.as_chunks_mut::<4>().0.iter_mut().zip(ids.as_chunks::<2>().0) {
                    *place = i32::from(u16::from_le_bytes(*id)).to_le_bytes();
                }
                black_box(&mut tokens);
            }
        });
        let checked = fastest(all, || {
            for _ in 0..passes {
                for (ids, tokens) in ids.chunks(2 * PIECE).zip(tokens.chunks_mut(4 * PIECE)) {
                    range.copy(DType::U16, ids, tokens).expect("ids of the vocabulary");
                }
                black_box(&mut tokens);
            }
        });
        let followed = fastest(all, || {
            for _ in 0..passes {
                let rows = tokens.chunks_mut(4 * PIECE).zip(labels.chunks_mut(8 * PIECE));
                for ((ids, (tokens, labels)), positions) in
                    ids.chunks(2 * PIECE).zip(rows).zip(positions.chunks_mut(4 * PIECE))
                {
                    range.copy(DType::U16, ids, tokens).expect("ids of the vocabulary");
                    copy_places(4, &tokens[4..], 8, &mut labels[..8 * (PIECE - 1)]);
                    count_places(4, positions);
                }
                black_box((&mut tokens, &mut labels, &mut positions));
            }
        });
        let rate = |ns: f64| format!("{:5.0} M tokens/s, {:.2} of a bare copy", 1e3 / ns, bare / ns);
        println!("{name}: bare copy {:5.0} M tokens/s", 1e3 / bare);
        println!("{name}: with the vocabulary checked {}", rate(checked));
        println!("{name}: with labels and positions   {}", rate(followed));
    }
}
