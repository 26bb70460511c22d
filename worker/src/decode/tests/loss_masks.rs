//! Tests of masks of the loss: which labels are left of a document, and how many of each piece are counted.

use spdl_sequence::Piece;
use spdl_shard::format::{Array, FieldValue};

use super::*;

const SEQ_LEN: u64 = 4;
const BOS: i64 = 900;
const EOS: i64 = 901;

/// A job with these keys of `sequence` and of its labels, and its writer.
fn packing(sequence: &str, labels: &str) -> (Job, SequenceWriter) {
    let text = format!(
        r#"
            name = "masked"
            dataset = "none"
            global_batch = 1
            sequence = {{ seq_len = {SEQ_LEN}, {sequence} }}
            column = [
                {{ name = "tokens", from = "ids", decode = "tokens", vocab = 1000 }},
                {{ name = "labels", decode = "labels", follows = "tokens", loss_from = "loss", {labels} }},
                {{ name = "mask", decode = "loss_mask", follows = "tokens", loss_from = "loss", dtype = "u8" }},
            ]
        "#
    );
    let mut file = JobFile::parse(&text, "job.toml").unwrap();
    file.sequence.as_mut().unwrap().pools = Some(Fingerprint(3));
    let job = file.freeze(&DatasetFacts::new(Fingerprint(7), 100, 10)).unwrap();
    let writer = SequenceWriter::new(&job).unwrap();
    (job, writer)
}

fn array(dtype: DType, numbers: &[i64]) -> FieldValue {
    let elements: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()[..dtype.bytes()].to_vec()).collect();
    Array { dtype, shape: vec![numbers.len() as u64], elements: elements.into() }.into()
}

/// A document with a mask.
#[derive(Clone, Debug)]
struct Masked {
    ids: Vec<i64>,
    mask: Vec<bool>,
    /// The type that stores the mask.
    dtype: DType,
}

impl Masked {
    fn field(&self, name: &str) -> Option<FieldValue> {
        let mask: Vec<i64> = self.mask.iter().map(|learned| i64::from(*learned)).collect();
        match name {
            "ids" => Some(array(DType::U16, &self.ids)),
            "loss" => Some(array(self.dtype, &mask)),
            _ => None,
        }
    }
}

/// The columns of a row: tokens, labels and mask.
type Row = (Vec<i32>, Vec<i64>, Vec<u8>);

/// Writes a row of these pieces of documents, and by chunk the token that follows it.
fn row(writer: &SequenceWriter, pieces: &[(Piece, Masked)], next: Option<(Piece, Masked)>) -> Row {
    let places = SEQ_LEN as usize;
    let (mut tokens, mut labels, mut mask) = (vec![1; places * 4], vec![1; places * 8], vec![7; places]);
    let (of_row, documents): (Vec<Piece>, Vec<Masked>) = pieces.iter().cloned().unzip();
    let columns = [&mut tokens[..], &mut labels[..], &mut mask[..]];
    let mut targets = writer.places(columns.into_iter(), &of_row);
    let begins: Vec<bool> = of_row
        .iter()
        .zip(&documents)
        .zip(&mut targets)
        .map(|((piece, document), target)| writer.write(piece, &|name: &str| document.field(name), target).unwrap())
        .collect();
    drop(targets);
    let mut beyond = [0; 4];
    let next = next.filter(|(piece, document)| {
        let field = |name: &str| document.field(name);
        writer.write(piece, &field, &mut writer.place_beyond(&mut beyond)).unwrap()
    });
    let next = next.map(|_| &beyond[..]);
    let written = WrittenRow { pieces: &of_row, is_good: &|_| true, begins_learned: &|piece| begins[piece], next };
    writer.complete(&written, &mut [&mut tokens, &mut labels, &mut mask]);
    (
        tokens.as_chunks::<4>().0.iter().map(|token| i32::from_le_bytes(*token)).collect(),
        labels.as_chunks::<8>().0.iter().map(|label| i64::from_le_bytes(*label)).collect(),
        mask,
    )
}

#[test]
fn a_label_is_left_where_its_own_token_is_learned_and_each_piece_is_counted() {
    let mut cut = 0;
    for (keys, has_bos, has_eos, learns_eos) in [
        ("", false, false, false),
        ("bos = 900", true, false, false),
        ("eos = 901", false, true, true),
        ("bos = 900, eos = 901", true, true, true),
        ("bos = 900, eos = 901, eos_in_loss = false", true, true, false),
    ] {
        for shifted in [true, false] {
            let (job, writer) = packing(&format!("align = 1, {keys}"), &format!("shifted = {shifted}"));
            let sequence = job.sequence.as_deref().unwrap();
            for (length, bits) in (1..=9_u32).flat_map(|length| (0..1_u32 << length).map(move |bits| (length, bits))) {
                let mask: Vec<bool> = (0..length).map(|token| bits >> token & 1 == 1).collect();
                let ids: Vec<i64> = (0..i64::from(length)).map(|token| 10 + token).collect();
                let dtype = [DType::U8, DType::Bool, DType::I32, DType::I64][bits as usize % 4];
                let document = Masked { ids: ids.clone(), mask: mask.clone(), dtype };
                let first = has_bos.then_some((BOS, mask[0]));
                let last = has_eos.then_some((EOS, mask[mask.len() - 1] && learns_eos));
                let all: Vec<(i64, bool)> = first.into_iter().chain(ids.into_iter().zip(mask)).chain(last).collect();
                let counted = count_learned(sequence, shifted, &document.field("loss").unwrap(), length).unwrap();
                let starts = (0..all.len()).step_by(SEQ_LEN as usize);
                assert_eq!(counted.len(), starts.len());
                for (start, counted) in starts.zip(counted) {
                    let end = all.len().min(start + SEQ_LEN as usize);
                    let piece = Piece {
                        document: 0,
                        first: start as u64,
                        tokens: (end - start) as u32,
                        at: 0,
                        ends_document: end == all.len(),
                    };
                    cut += usize::from(!piece.ends_document);
                    let (tokens, labels, mask) = row(&writer, &[(piece, document.clone())], None);
                    let label = |token: Option<&(i64, bool)>| match token {
                        Some((id, true)) => *id,
                        _ => -100,
                    };
                    for place in 0..SEQ_LEN as usize {
                        let token = all.get(start + place).filter(|_| start + place < end);
                        assert_eq!(i64::from(tokens[place]), token.map_or(0, |(id, _)| *id));
                        let next = label(token.and(all.get(start + place + 1)));
                        let own = label(token.filter(|_| place > 0));
                        let expected = if shifted { next } else { own };
                        assert_eq!(labels[place], expected, "{keys}, {shifted}, {document:?}, {piece:?}, {place}");
                        assert_eq!(mask[place], u8::from(next != -100));
                    }
                    let left = labels.iter().filter(|label| **label != -100).count();
                    assert_eq!(counted as usize, left, "{keys}, {shifted}, {document:?}, {piece:?}");
                }
            }
        }
    }
    assert!(cut > 1000);
}

#[test]
fn across_documents_the_first_token_s_own_mask_counts() {
    let piece = |first, tokens, at, ends_document| Piece { document: 0, first, tokens, at, ends_document };
    let document = |ids: &[i64], mask: &[bool]| Masked { ids: ids.to_vec(), mask: mask.to_vec(), dtype: DType::U8 };
    for shifted in [true, false] {
        let (_, writer) = packing("method = \"chunk\"", &format!("shifted = {shifted}"));
        for bits in 0..8_u8 {
            let [a, b, c] = [0, 1, 2].map(|bit| bits >> bit & 1 == 1);
            let pieces = [
                (piece(0, 2, 0, true), document(&[10, 11], &[true, a])),
                (piece(0, 2, 2, true), document(&[20, 21], &[b, true])),
            ];
            let next = (piece(0, 1, 4, false), document(&[30, 31], &[c, true]));
            let (tokens, labels, mask) = row(&writer, &pieces, Some(next));
            assert_eq!(tokens, [10, 11, 20, 21]);
            let label = |is_learned: bool, id: i64| if is_learned { id } else { -100 };
            let next = [label(a, 11), label(b, 20), 21, label(c, 30)];
            let own = [-100, label(a, 11), label(b, 20), 21];
            assert_eq!(labels, if shifted { next } else { own });
            assert_eq!(mask, next.map(|label| u8::from(label != -100)));
        }
    }
}

#[test]
fn what_is_wrong_with_a_mask_is_named() {
    let (job, writer) = packing("", "");
    let piece = Piece { document: 0, first: 0, tokens: 3, at: 0, ends_document: true };
    let sequence = job.sequence.as_deref().unwrap();
    for (mask, expected) in [
        (None, "it is missing, and `loss_from` names it"),
        (Some(array(DType::U8, &[1, 1])), "it has 2 values, and its document 3 tokens: a mask has one for each"),
        (Some(FieldValue::List(Vec::new())), "it has 0 values, and its document 3 tokens: a mask has one for each"),
        (Some(array(DType::F32, &[1, 1, 1])), "it holds f32 [3], and whole numbers in one dimension are expected"),
        (Some(Bytes::new().into()), "it is empty"),
    ] {
        let field = |name: &str| match name {
            "ids" => Some(array(DType::U16, &[5, 6, 7])),
            _ => mask.clone().filter(|_| name == "loss"),
        };
        let (mut tokens, mut labels, mut places) = (vec![1; 16], vec![1; 32], vec![7; 4]);
        let columns = [&mut tokens[..], &mut labels[..], &mut places[..]];
        let mut targets = writer.places(columns.into_iter(), &[piece]);
        let cause = writer.write(&piece, &field, &mut targets[0]).unwrap_err();
        assert_eq!(cause.to_string(), format!("column `tokens`: field `loss` does not decode: {expected}"));
        drop(targets);
        assert!(tokens.iter().chain(&places).all(|byte| *byte == 0) && labels == (-100_i64).to_le_bytes().repeat(4));
        if let Some(mask) = mask {
            assert_eq!(count_learned(sequence, true, &mask, 3).unwrap_err(), expected);
        }
    }
    let fields: Vec<&String> = writer.fields().collect();
    assert_eq!(fields, ["ids", "loss"]);
}
