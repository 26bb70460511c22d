//! Tests of ids of tokens, in every form in which formats and files give them.

use spdl_shard::format::{Array, FieldValue};

use super::*;

const COLUMN: &str = "name = \"ids\"\nfrom = \"tokens\"\ndecode = \"tokens\"\nvocab = 50257\nmax_rows = 1000";

/// Decodes a field with a column of tokens.
fn decoded(column: &str, value: impl Into<FieldValue>) -> Result<Bytes, String> {
    let decoder = Decoder::new(&job(&[column]), CLASSES).unwrap();
    let (value, mut ids) = (value.into(), Bytes::new());
    let field = |name: &str| (name == "tokens").then(|| value.clone());
    let done = decoder.decode_sample(key(0), &field, &mut [FieldTarget::Ragged(&mut ids)]);
    done.map(|()| ids).map_err(|cause| cause.problem.to_string())
}

fn i32s(ids: &[i32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

fn u16s(ids: &[u16]) -> Bytes {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

fn array(dtype: DType, shape: &[u64], elements: impl Into<Bytes>) -> Array {
    Array { dtype, shape: shape.to_vec(), elements: elements.into() }
}

/// Returns a `.npy` file.
fn npy(descr: &str, shape: &str, elements: &[u8]) -> Bytes {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), elements].concat().into()
}

#[test]
fn ids_of_any_integer_type_become_those_of_the_column() {
    let expected = i32s(&[7, 0, 99]);
    for (dtype, bytes) in [
        (DType::U8, [7_u8, 0, 99].to_vec()),
        (DType::I8, [7_u8, 0, 99].to_vec()),
        (DType::U16, u16s(&[7, 0, 99]).to_vec()),
        (DType::I16, u16s(&[7, 0, 99]).to_vec()),
        (DType::U32, i32s(&[7, 0, 99])),
        (DType::I32, i32s(&[7, 0, 99])),
        (DType::U64, [7_u64, 0, 99].iter().flat_map(|id| id.to_le_bytes()).collect()),
        (DType::I64, [7_u64, 0, 99].iter().flat_map(|id| id.to_le_bytes()).collect()),
    ] {
        assert_eq!(decoded(COLUMN, array(dtype, &[3], bytes)).unwrap(), expected, "{dtype:?}");
    }
    let wide = decoded(&format!("{COLUMN}\ndtype = \"i64\""), array(DType::U16, &[2], u16s(&[50_256, 1]))).unwrap();
    assert_eq!(wide, [50_256_i64, 1].iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>());
}

#[test]
fn files_of_both_byte_orders_and_archives_are_read() {
    let expected = i32s(&[513, 2]);
    assert_eq!(decoded(COLUMN, npy("<u2", "(2,)", &[1, 2, 2, 0])).unwrap(), expected);
    assert_eq!(decoded(COLUMN, npy(">u2", "(2,)", &[2, 1, 0, 2])).unwrap(), expected);
    let longer = [&npy("<i4", "(2,)", &expected)[..], b"more"].concat();
    assert_eq!(decoded(COLUMN, Bytes::from(longer)).unwrap(), expected, "as NumPy reads it");
}

#[test]
fn ids_that_have_the_columns_type_are_not_copied() {
    let elements = Bytes::from(i32s(&[5, 6]));
    let ids = decoded(COLUMN, array(DType::I32, &[2], elements.clone())).unwrap();
    assert_eq!(ids.as_ptr(), elements.as_ptr());
    let file = npy("<i4", "(2,)", &elements);
    let ids = decoded(COLUMN, file.clone()).unwrap();
    assert_eq!(ids.as_ptr(), file[file.len() - 8..].as_ptr());
}

#[test]
fn a_text_without_tokens_is_a_row_without_ids() {
    for value in [
        FieldValue::from(array(DType::U16, &[0], Bytes::new())),
        FieldValue::List(Vec::new()),
        npy("<i8", "(0,)", &[]).into(),
    ] {
        assert_eq!(decoded(COLUMN, value).unwrap(), "");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let of = |value: FieldValue| decoded(COLUMN, value).unwrap_err();
    let prefix = "field `tokens` does not decode: it";
    let expects = "and whole numbers in one dimension are expected";
    for (value, expected) in [
        (
            array(DType::U16, &[3], u16s(&[1, 50_257, 65_535])).into(),
            "field `tokens` has id 50257 at place 1, from 0; `vocab` is 50257, so ids are from 0 to 50256".to_owned(),
        ),
        (
            npy("<i4", "(2,)", &i32s(&[5, -100])).into(),
            "field `tokens` has id -100 at place 1, from 0; `vocab` is 50257, so ids are from 0 to 50256".to_owned(),
        ),
        (array(DType::F32, &[1], vec![0; 4]).into(), format!("{prefix} holds f32 [1], {expects}")),
        (array(DType::Bool, &[1], vec![0]).into(), format!("{prefix} holds bool [1], {expects}")),
        (array(DType::I64, &[], vec![0; 8]).into(), format!("{prefix} holds i64 [], {expects}")),
        (array(DType::U8, &[2, 1], vec![0; 2]).into(), format!("{prefix} holds u8 [2, 1], {expects}")),
        (npy("<f4", "(1,)", &[0; 4]).into(), format!("{prefix} holds f32 [1], {expects}")),
        (array(DType::U8, &[1001], vec![0; 1001]).into(), format!("{prefix} holds 1001 ids; `max_rows` is 1000")),
        // Nothing is reserved for what a file only claims to have.
        (npy("<i8", "(99999999999,)", &[0; 8]).into(), format!("{prefix} holds 99999999999 ids; `max_rows` is 1000")),
        (npy("<u2", "(900,)", &[0; 8]).into(), format!("{prefix} is cut off: u16 [up to 900] takes 1800 bytes")),
        (Bytes::from_static(b"1 2 3 4 5").into(), format!("{prefix} begins with \"1 2 3 \", not with NumPy's")),
        (Bytes::new().into(), format!("{prefix} is empty")),
        (
            FieldValue::List(vec![Some(Bytes::new()), None]),
            format!("{prefix} is a list of 2 files or texts, and whole numbers are expected"),
        ),
    ] {
        let error = of(value);
        assert!(error.starts_with(&expected), "{expected}: {error}");
    }
}

#[test]
fn without_a_vocabulary_an_id_that_the_type_cannot_hold_is_wrong() {
    let any = "name = \"ids\"\nfrom = \"tokens\"\ndecode = \"tokens\"";
    let ids = |ids: &[i64]| {
        array(DType::I64, &[ids.len() as u64], ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>())
    };
    assert_eq!(decoded(any, ids(&[-1, i32::MAX.into()])).unwrap(), i32s(&[-1, i32::MAX]));
    let error = decoded(any, ids(&[0, 1 << 40])).unwrap_err();
    assert_eq!(error, "field `tokens` has id 1099511627776 at place 1, from 0, outside the range of i32");
    assert_eq!(
        decoded(&format!("{any}\ndtype = \"i64\""), ids(&[1 << 40])).unwrap(),
        (1_i64 << 40).to_le_bytes().to_vec()
    );
}

#[test]
fn a_vocabulary_that_no_sample_has_is_a_question() {
    let decoder = Decoder::new(&job(&[COLUMN]), CLASSES).unwrap();
    let field = |_: &str| Some(array(DType::I32, &[1], i32s(&[60_000])).into());
    let cause = decoder.decode_sample(key(0), &field, &mut [FieldTarget::Ragged(&mut Bytes::new())]).unwrap_err();
    let [first, later] = [false, true].map(|has_good| format!("{:?}", cause.kind(has_good)));
    assert!(first.contains("check `vocab` and `dtype`; it has id 60000 at place 0"), "{first}");
    assert!(!later.contains("check") && later.contains("has an id that the column does not take"), "{later}");
}
