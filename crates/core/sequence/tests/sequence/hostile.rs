//! Lengths and parameters that no sane dataset has: no panic, no overflow, and memory in proportion to the documents.

use std::sync::Arc;

use spdl_sequence::{
    LongDocument, PackMethod, PoolCutter, PoolEpoch, PoolLayout, Pools, SequenceError, SequenceFill, SequenceParams,
};

const LONGS: [LongDocument; 3] = [LongDocument::Split, LongDocument::Truncate, LongDocument::Drop];

fn best_fit(seq_len: u32, align: u32, long: LongDocument) -> SequenceParams {
    let method = PackMethod::BestFit { align, max_documents: None, long };
    SequenceParams { version: 1, seq_len, added_tokens: 0, method }
}

fn chunk(seq_len: u32) -> SequenceParams {
    SequenceParams { version: 1, seq_len, added_tokens: 0, method: PackMethod::Chunk }
}

#[test]
fn a_million_empty_documents_have_no_sequences() {
    let lengths = vec![0; 1_000_000];
    for params in LONGS.map(|long| best_fit(8192, 16, long)).into_iter().chain([chunk(8192)]) {
        let params = SequenceParams { added_tokens: 2, ..params };
        let layout = PoolLayout::new(&params, lengths.as_slice()).unwrap();
        assert_eq!(layout.sequences(), 0);
        let expected = SequenceFill { documents: 1_000_000, empty_documents: 1_000_000, ..SequenceFill::default() };
        assert_eq!(layout.fill(), expected);
        assert_eq!(expected.ratio(), 1.0);
        drop(PoolEpoch::new(Arc::new(layout), 1, 1, 1));
    }
    let pools = Pools::of_blocks(&chunk(8), 300_000, lengths.chunks(100_000)).unwrap();
    assert_eq!(pools.sequences(), [0; 4], "documents count where there are no tokens");
}

#[test]
fn no_documents_are_no_sequences() {
    for params in [best_fit(1, 1, LongDocument::Split), chunk(1)] {
        assert_eq!(PoolLayout::new(&params, []).unwrap().fill(), SequenceFill::default());
        assert_eq!(Pools::of_blocks(&params, 1, [[0_u32; 0]; 0]).unwrap().sequences(), [0_u32; 0]);
        assert_eq!(Pools::of_blocks(&params, 1, [[0_u32; 0]]).unwrap().blocks(0), Some(0..1));
    }
}

#[test]
fn the_longest_document_is_looked_up_without_a_list_of_its_pieces() {
    let lengths = [3, u32::MAX, 5];
    let params = SequenceParams { added_tokens: 2, ..best_fit(2, 1, LongDocument::Split) };
    let layout = Arc::new(PoolLayout::new(&params, lengths.as_slice()).unwrap());
    // 5 and 7 tokens have 2 + 3 whole pieces and 1 each, 2^32 + 1 have 2^31 whole ones and 1; the three of 1 fill two.
    assert_eq!(layout.sequences(), (1 << 31) + 5 + 2);
    let (epoch, mut pieces) = (PoolEpoch::new(layout.clone(), 1, 1, 1), Vec::new());
    for number in [0, 1, 1 << 30, layout.sequences() - 1] {
        epoch.pieces(number, &mut pieces);
        let end = pieces[0].first + u64::from(pieces[0].tokens);
        assert_eq!(pieces[0].ends_document, end == params.all_tokens(lengths[pieces[0].document as usize]));
    }
    let layout = Arc::new(PoolLayout::new(&chunk(1 << 20), vec![u32::MAX; 1_000]).unwrap());
    assert_eq!(u64::from(layout.sequences()), (1_000 * u64::from(u32::MAX) - 1) >> 20);
    PoolEpoch::new(layout.clone(), 1, 1, 1).pieces(layout.sequences() - 1, &mut pieces).unwrap();
}

#[test]
fn more_sequences_than_32_bits_count_are_refused_with_the_longest_document() {
    for params in [best_fit(1, 1, LongDocument::Split), chunk(1)] {
        let error = PoolLayout::new(&params, [7, u32::MAX, 9]).unwrap_err();
        let sequences = u64::from(u32::MAX) + 16 - u64::from(params.method == PackMethod::Chunk);
        assert_eq!(error, SequenceError::TooManySequences { sequences, longest: 1, tokens: u64::from(u32::MAX) });
        let text = error.to_string();
        assert!(text.contains("number 1 of the pool, with 4294967295 tokens: check its length"), "{text}");
        assert_eq!(PoolLayout::count(&params, &[7, u32::MAX, 9]), Err(error));
        let error = Pools::of_blocks(&params, 10, [&[9, 9][..], &[3], &[], &[u32::MAX, u32::MAX]]).unwrap_err();
        assert!(error.to_string().starts_with("blocks 1 to 3: a pool has "), "{error}");
    }
    for long in [LongDocument::Truncate, LongDocument::Drop] {
        assert!(PoolLayout::new(&best_fit(1, 1, long), [7, u32::MAX, 9]).is_ok(), "{long:?}");
    }
}

#[test]
fn sequences_may_be_as_long_as_32_bits_count() {
    for align in [1, 16, u32::MAX - 1, u32::MAX] {
        for long in LONGS {
            let params = SequenceParams { added_tokens: u32::MAX, ..best_fit(u32::MAX, align, long) };
            let layout = Arc::new(PoolLayout::new(&params, vec![1, 0, u32::MAX, 2]).unwrap());
            let (epoch, mut pieces) = (PoolEpoch::new(layout.clone(), 1, u64::MAX, u32::MAX), Vec::new());
            for number in 0..layout.sequences() {
                assert_eq!(epoch.pieces(number, &mut pieces), None);
                let last = pieces[pieces.len() - 1];
                assert!(last.at.checked_add(last.tokens).is_some(), "{last:?}");
            }
        }
    }
}

#[test]
fn sums_beyond_64_bits_are_refused() {
    let most = SequenceFill { tokens: u64::MAX, ..SequenceFill::default() };
    let one = SequenceFill { tokens: 1, ..SequenceFill::default() };
    assert_eq!(Pools::new([(1, one), (2, most)]), Err(SequenceError::SumTooLarge { pool: 1 }));
    assert!(Pools::new([(1, most)]).is_ok());
    let sequences = SequenceFill { sequences: 1 << 32, ..one };
    assert_eq!(Pools::new([(1, sequences)]), Err(SequenceError::SumTooLarge { pool: 0 }));
    // The sum that closes a pool does not wrap round.
    let mut cutter = PoolCutter::new(chunk(8), u64::MAX).unwrap();
    assert_eq!(cutter.push(&[u32::MAX; 1_000]), Ok(None));
    assert_eq!(cutter.finish().unwrap().lengths.len(), 1_000);
}

#[test]
fn pools_out_of_order_and_parameters_of_nothing_are_refused() {
    let none = SequenceFill::default();
    assert_eq!(Pools::new([(0, none)]), Err(SequenceError::PoolsOutOfOrder { pool: 0, end: 0 }));
    assert_eq!(Pools::new([(3, none), (3, none)]), Err(SequenceError::PoolsOutOfOrder { pool: 1, end: 3 }));
    assert_eq!(PoolCutter::new(chunk(8), 0).unwrap_err(), SequenceError::Zero { parameter: "pool_tokens" });
    assert_eq!(PoolCutter::new(chunk(0), 1).unwrap_err(), SequenceError::Zero { parameter: "seq_len" });
    assert_eq!(PoolLayout::new(&chunk(0), [1]).unwrap_err(), SequenceError::Zero { parameter: "seq_len" });
    assert_eq!(PoolLayout::count(&chunk(0), &[1]), Err(SequenceError::Zero { parameter: "seq_len" }));
}

#[test]
#[should_panic(expected = "sequence 1 of a pool of 1 sequences")]
fn a_sequence_that_is_not_there_is_a_fault_of_the_caller() {
    let layout = Arc::new(PoolLayout::new(&best_fit(8, 1, LongDocument::Split), [5]).unwrap());
    PoolEpoch::new(layout, 1, 1, 1).pieces(1, &mut Vec::new());
}
