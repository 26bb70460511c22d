//! Numbers that a format has at hand decode to the same values as arrays do.

use spdl_shard::format::{Array, FieldValue};
use spdl_types::DType;

use super::*;

/// A record whose only field is a number.
struct Number {
    array: Array,
    is_at_hand: bool,
}

impl FieldLookup for Number {
    fn value(&self, _name: &str) -> Option<FieldValue> {
        Some(self.array.clone().into())
    }

    fn number(&self, _column: usize) -> Option<(DType, &[u8])> {
        self.is_at_hand.then_some((self.array.dtype, &self.array.elements[..]))
    }
}

fn decoded(column: &str, array: &Array, is_at_hand: bool) -> Result<Vec<u8>, BadSampleCause> {
    let decoder = Decoder::new(&job(&[column]), CLASSES).unwrap();
    let mut out = vec![0xaa; decoder.inner.columns[0].as_ref().unwrap().column.dtype.bytes()];
    let record = Number { array: array.clone(), is_at_hand };
    decoder.decode_record(key(0), &record, &mut [FieldTarget::Fixed(&mut out)]).map(|()| out)
}

#[test]
fn a_number_at_hand_decodes_as_its_array_does() {
    let mut columns: Vec<String> =
        ["i64", "i32"].map(|dtype| format!("decode = \"int\"\ndtype = \"{dtype}\"")).to_vec();
    columns.extend(["f32", "f16"].map(|dtype| format!("decode = \"float\"\ndtype = \"{dtype}\"")));
    columns.push("decode = \"bool\"".to_owned());
    for shape in ["[]", "[1]"] {
        let column = |dtype: &DType| format!("decode = \"tensor\"\nshape = {shape}\ndtype = \"{}\"", dtype.name());
        columns.extend(DType::ALL.iter().map(column));
    }
    let mut decoding = 0;
    for column in columns.iter().map(|column| format!("name = \"n\"\nfrom = \"n\"\n{column}")) {
        for (dtype, byte) in DType::ALL.iter().flat_map(|dtype| [0, 1, 0x7f, 0x80, 0xff].map(|byte| (*dtype, byte))) {
            let mut elements = vec![0; dtype.bytes()];
            elements[dtype.bytes() - 1] = byte;
            elements[0] |= byte & 7;
            let array = Array { dtype, shape: Vec::new(), elements: elements.into() };
            let expected = decoded(&column, &array, false);
            assert_eq!(decoded(&column, &array, true), expected, "{array:?} as\n{column}");
            decoding += usize::from(expected.is_ok());
        }
    }
    assert!(decoding > 100, "{decoding}");
}

#[test]
fn only_columns_of_numbers_without_a_function_are_asked_for_them() {
    let of = |column: &str| {
        let decoder = Decoder::new(&job(&[&format!("name = \"n\"\n{column}")]), CLASSES).unwrap();
        decoder.number_fields().next().unwrap().map(str::to_owned)
    };
    assert_eq!(of("from = \"a\"\ndecode = \"int\"").as_deref(), Some("a"));
    assert_eq!(of("from = \"a\"\ndecode = \"tensor\"\nshape = []").as_deref(), Some("a"));
    assert_eq!(of("from = \"a\"\ndecode = \"bool\"").as_deref(), Some("a"));
    assert_eq!(of("from = \"a|b\"\ndecode = \"int\""), None);
    assert_eq!(of("from = \"a\"\ndecode = \"tensor\"\nshape = [1]"), None);
    assert_eq!(of("from = \"a\"\ndecode = \"tensor\"\nshape = []\nmax_rows = 3"), None);
    assert_eq!(of("from = \"a\"\ndecode = \"bytes\"\nmax_bytes = 8"), None);
}

#[test]
fn a_flag_is_a_word_or_a_number_and_anything_else_is_quoted() {
    let column = "name = \"flag\"\nfrom = \"flag\"\ndecode = \"bool\"";
    let of = |bytes: &[u8]| decode(&job(&[column]), key(0), &[("flag", bytes)]).map(|mut columns| columns.remove(0));
    assert_eq!(job(&[column]).columns[0].dtype, DType::Bool);
    assert_eq!(of(b"True\n").unwrap(), [1]);
    assert_eq!(of(b"0").unwrap(), [0]);
    let seven = include_bytes!("../../../tests/data/tensor/scalar.npy");
    for (bytes, shown) in [(&b"perhaps"[..], "perhaps"), (b"", ""), (seven, "7")] {
        let error = of(bytes).unwrap_err().to_string();
        let expected = format!("field `flag` is \"{shown}\", neither `true` or `1` nor `false` or `0`");
        assert!(error.contains(&expected), "{error}");
    }
}
