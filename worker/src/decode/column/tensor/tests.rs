//! Tests with files that numpy wrote: `worker/tests/data/tensor/make.py`.

use std::{fs, path::Path};

use super::*;

fn file(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tensor").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn decoder(dtype: DType, shape: &[u32], array: Option<&str>) -> TensorDecoder {
    let (shape, array) = (shape.to_vec(), array.map(str::to_owned));
    TensorDecoder::new(&TensorColumn { shape, max_rows: None, encoding: TensorEncoding::Numpy, array }, dtype)
}

fn decode(decoder: &TensorDecoder, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let elements: u32 = decoder.column.shape.iter().product();
    let mut out = vec![0xaa; elements as usize * decoder.dtype.bytes()];
    decoder.read(bytes, &mut out).map(|()| out)
}

fn f32s(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// The array of most files: 0 to 5 as `[2, 3]`.
fn grid() -> Vec<u8> {
    f32s([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
}

#[test]
fn every_type_of_numpy_is_read_as_it_is() {
    let numbers = 0..6_u8;
    let wide = |bytes: usize| -> Vec<u8> {
        numbers.clone().flat_map(|number| std::iter::once(number).chain(std::iter::repeat_n(0, bytes - 1))).collect()
    };
    for (name, dtype, expected) in [
        ("u1", DType::U8, wide(1)),
        ("i1", DType::I8, wide(1)),
        ("u2", DType::U16, wide(2)),
        ("i2", DType::I16, wide(2)),
        ("u4", DType::U32, wide(4)),
        ("i4", DType::I32, wide(4)),
        ("u8", DType::U64, wide(8)),
        ("i8", DType::I64, wide(8)),
        ("f2", DType::F16, numbers.clone().flat_map(|n| half::f16::from_f32(n.into()).to_le_bytes()).collect()),
        ("bf16", DType::Bf16, numbers.clone().flat_map(|n| half::bf16::from_f32(n.into()).to_le_bytes()).collect()),
        ("f4", DType::F32, grid()),
        ("f8", DType::F64, numbers.clone().flat_map(|n| f64::from(n).to_le_bytes()).collect()),
        ("bool", DType::Bool, vec![0, 1, 0, 1, 0, 1]),
    ] {
        let read = decode(&decoder(dtype, &[2, 3], None), &file(&format!("{name}.npy")));
        assert_eq!(read.unwrap_or_else(|error| panic!("{name}: {error}")), expected, "{name}");
    }
}

#[test]
fn an_array_of_any_type_and_shape_is_read_within_a_bound() {
    for name in ["f4", "big_endian", "fortran", "version3"] {
        let array = read_numpy(&file(&format!("{name}.npy")).into(), None, 24).unwrap();
        assert_eq!((array.dtype, array.shape, array.elements.to_vec()), (DType::F32, vec![2, 3], grid()), "{name}");
    }
    let whole = file("f4.npy");
    for (bytes, limit, problem) in [
        (whole.clone(), 23, "it claims f32 [2, 3], more than 23 bytes"),
        (whole[..whole.len() - 1].to_vec(), 24, "it is cut off"),
        (b"nothing".to_vec(), 24, "cut off in its header"),
    ] {
        let read = read_numpy(&bytes.into(), None, limit).unwrap_err();
        assert!(read.contains(problem), "{read}");
    }
}

#[test]
fn both_orders_of_bytes_and_elements_and_all_versions_of_the_header_give_the_same() {
    for name in ["big_endian", "fortran", "version1", "version2", "version3"] {
        let read = decode(&decoder(DType::F32, &[2, 3], None), &file(&format!("{name}.npy")));
        assert_eq!(read.unwrap(), grid(), "{name}");
    }
    assert_eq!(decode(&decoder(DType::F32, &[], None), &file("scalar.npy")).unwrap(), f32s([7.0]));
}

#[test]
fn a_transposed_array_of_three_dimensions_and_many_chunks_is_row_major() {
    let [a, b, c] = [7_u32, 50, 31];
    let text = format!("{{'descr': '<u2', 'fortran_order': True, 'shape': ({a}, {b}, {c})}}");
    let mut bytes = [npy::MAGIC, &[1, 0], &u16::try_from(text.len()).unwrap().to_le_bytes(), text.as_bytes()].concat();
    let value = |i: u32, j: u32, k: u32| u16::try_from((i * b + j) * c + k).unwrap().to_le_bytes();
    for k in 0..c {
        for j in 0..b {
            (0..a).for_each(|i| bytes.extend(value(i, j, k)));
        }
    }
    let expected: Vec<u8> = (0..(a * b * c) as u16).flat_map(u16::to_le_bytes).collect();
    assert!(decode(&decoder(DType::U16, &[a, b, c], None), &bytes).unwrap() == expected);
}

#[test]
fn arrays_of_an_npz_are_read_by_name() {
    for name in ["stored.npz", "deflated.npz"] {
        for array in ["second", "second.npy"] {
            assert_eq!(decode(&decoder(DType::F32, &[2, 3], Some(array)), &file(name)).unwrap(), grid(), "{name}");
        }
        let error = |array| decode(&decoder(DType::F32, &[2, 3], array), &file(name)).unwrap_err();
        assert_eq!(error(None), "it has 2 arrays: `first`, `second`; name one with `array`");
        assert_eq!(error(Some("third")), "it has no array `third`; it has `first`, `second`");
        assert_eq!(error(Some("first")), "it holds i64 [2, 3], and the column expects f32 [2, 3]");
    }
    assert_eq!(decode(&decoder(DType::F32, &[2, 3], None), &file("single.npz")).unwrap(), grid());
    let error = decode(&decoder(DType::F32, &[2, 3], Some("x")), &file("f4.npy")).unwrap_err();
    assert_eq!(error, "it is no .npz file, so it has no array `x`");
}

#[test]
fn another_type_or_shape_is_refused_with_what_was_found_and_what_was_wanted() {
    for (name, dtype, shape, expected) in [
        ("f8", DType::F32, [2, 3].as_slice(), "it holds f64 [2, 3], and the column expects f32 [2, 3]"),
        ("f4", DType::F32, &[3, 2], "it holds f32 [2, 3], and the column expects f32 [3, 2]"),
        ("f4", DType::F32, &[6], "it holds f32 [2, 3], and the column expects f32 [6]"),
        ("f4", DType::F32, &[], "it holds f32 [2, 3], and the column expects f32 []"),
        ("complex", DType::F32, &[2, 3], "it holds `<c8` [2, 3], and the column expects f32 [2, 3]"),
        ("records", DType::F32, &[2], "it holds records of several fields [2], and the column expects f32 [2]"),
        ("bf16", DType::F16, &[2, 3], "it holds elements of two bytes [2, 3], and the column expects f16 [2, 3]"),
        ("objects", DType::F32, &[2], "it holds Python objects (pickle), which are never read; save an array of f32"),
    ] {
        let error = decode(&decoder(dtype, shape, None), &file(&format!("{name}.npy"))).unwrap_err();
        assert_eq!(error, expected, "{name}");
    }
}

#[test]
fn an_array_whose_type_the_format_knows_reads_like_its_file() {
    for name in ["f4", "f8", "bool", "u2"] {
        let bytes: Bytes = file(&format!("{name}.npy")).into();
        let array = read_numpy(&bytes, None, 1 << 10).unwrap();
        for (dtype, shape) in [(DType::F32, vec![2, 3]), (array.dtype, vec![2, 3]), (array.dtype, vec![6])] {
            let decoder = decoder(dtype, &shape, None);
            let mut out = vec![0xaa; 6 * dtype.bytes()];
            let read = decoder.elements(array.clone()).and_then(|elements| decoder.copy(&elements, &mut out));
            assert_eq!(read.map(|()| out), decode(&decoder, &bytes), "{name} as {} {shape:?}", dtype.name());
        }
        let mut rows = decoder(array.dtype, &[3], None);
        for max_rows in 1..=2 {
            rows.column.max_rows = Some(max_rows);
            let read = rows.elements(array.clone()).and_then(|elements| rows.rows(&elements, max_rows));
            assert_eq!(read, rows.read_rows(&bytes, max_rows), "{name}, {max_rows} rows");
        }
        let named = decoder(array.dtype, &[2, 3], Some("x"));
        assert_eq!(named.elements(array), Err("it is no .npz file, so it has no array `x`".to_owned()));
    }
}

#[test]
fn raw_elements_have_exactly_the_columns_length() {
    let column = TensorColumn { shape: vec![2, 3], max_rows: None, encoding: TensorEncoding::Raw, array: None };
    let raw = TensorDecoder::new(&column, DType::F32);
    assert_eq!(decode(&raw, &grid()).unwrap(), grid());
    let error = decode(&raw, &grid()[1..]).unwrap_err();
    assert_eq!(error, "it is 23 bytes, and the column expects 24: f32 [2, 3]");
    assert_eq!(decode(&TensorDecoder::new(&column, DType::Bool), &[0, 1, 2, 255, 0, 7]).unwrap(), [0, 1, 1, 1, 0, 1]);
}

#[test]
fn a_file_that_is_cut_off_anywhere_or_damaged_is_refused_or_read_as_it_is() {
    for (name, array) in
        [("f4.npy", None), ("fortran.npy", None), ("stored.npz", Some("second")), ("deflated.npz", Some("second"))]
    {
        let (bytes, decoder) = (file(name), decoder(DType::F32, &[2, 3], array));
        for end in 0..bytes.len() {
            assert!(decode(&decoder, &bytes[..end]).is_err(), "{name} cut after {end} of {} bytes", bytes.len());
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            // Some bytes, such as a date, do not matter. What matters is that nothing panics.
            let _ = decode(&decoder, &damaged);
        }
    }
}

#[test]
fn an_archive_that_unpacks_to_more_than_the_column_is_read_no_further_than_its_header() {
    let bytes = file("bomb.npz");
    assert!(bytes.len() < 20_000, "16 MiB in {} bytes", bytes.len());
    let error = decode(&decoder(DType::F32, &[2, 3], None), &bytes).unwrap_err();
    assert_eq!(error, "it holds f32 [4194304], and the column expects f32 [2, 3]");
}

/// Decodes an array of at most four rows of three.
fn rows_of(dtype: DType, encoding: TensorEncoding, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let column = TensorColumn { shape: vec![3], max_rows: Some(4), encoding, array: None };
    TensorDecoder::new(&column, dtype).read_rows(&Bytes::copy_from_slice(bytes), 4).map(Vec::from)
}

#[test]
fn samples_of_a_ragged_column_have_any_number_of_rows_up_to_the_columns() {
    let numpy = |dtype, bytes: &[u8]| rows_of(dtype, TensorEncoding::Numpy, bytes);
    for name in ["f4.npy", "big_endian.npy", "fortran.npy", "single.npz"] {
        assert_eq!(numpy(DType::F32, &file(name)).unwrap(), grid(), "{name}");
    }
    assert_eq!(numpy(DType::Bool, &file("bool.npy")).unwrap(), [0, 1, 0, 1, 0, 1]);
    let array = |rows: u64, elements: usize| {
        let text = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({rows}, 3)}}");
        let length = u16::try_from(text.len()).unwrap().to_le_bytes();
        [npy::MAGIC, &[1, 0], &length, text.as_bytes(), &vec![7; elements]].concat()
    };
    for rows in [0, 1, 4] {
        assert_eq!(numpy(DType::U8, &array(rows, 12)).unwrap(), vec![7; rows as usize * 3], "{rows} rows");
    }
    for (bytes, expected) in [
        (array(5, 15), "it holds u8 [5, 3], and the column expects u8 [up to 4, 3]"),
        (array(u64::MAX, 3), "it holds u8 [18446744073709551615, 3], and the column expects u8 [up to 4, 3]"),
        (array(4, 11), "it is cut off: u8 [up to 4, 3] takes 12 bytes"),
    ] {
        assert_eq!(numpy(DType::U8, &bytes).unwrap_err(), expected);
    }
    let error = numpy(DType::F32, &file("scalar.npy")).unwrap_err();
    assert_eq!(error, "it holds f32 [], and the column expects f32 [up to 4, 3]");
}

#[test]
fn raw_rows_of_a_ragged_column_are_whole() {
    let raw = |dtype, bytes: &[u8]| rows_of(dtype, TensorEncoding::Raw, bytes);
    for rows in 0..=4 {
        assert_eq!(raw(DType::F32, &vec![1; rows * 12]).unwrap(), vec![1; rows * 12]);
    }
    assert_eq!(raw(DType::Bool, &[0, 1, 2, 255, 0, 7]).unwrap(), [0, 1, 1, 1, 0, 1]);
    for bytes in [11, 13, 60] {
        let error = raw(DType::F32, &vec![1; bytes]).unwrap_err();
        assert_eq!(error, format!("it is {bytes} bytes, and the column expects 12 for each row: f32 [up to 4, 3]"));
    }
}

#[test]
fn a_header_that_claims_a_gigabyte_allocates_what_the_file_has() {
    let column = TensorColumn { shape: vec![], max_rows: Some(1 << 30), encoding: TensorEncoding::Numpy, array: None };
    let text = "{'descr': '|u1', 'fortran_order': True, 'shape': (1073741824,)}";
    let length = u16::try_from(text.len()).unwrap().to_le_bytes();
    let bytes = [npy::MAGIC, &[1, 0], &length, text.as_bytes(), b"abc"].concat();
    let error = TensorDecoder::new(&column, DType::U8).read_rows(&bytes.into(), 1 << 30).unwrap_err();
    assert_eq!(error, "it is cut off: u8 [up to 1073741824] takes 1073741824 bytes");
}
