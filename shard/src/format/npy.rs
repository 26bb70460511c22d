//! Writes `.npy` files: the form in which numbers and arrays leave the formats that know their types.

use bytes::Bytes;
use spdl_types::DType;

use super::Array;

/// Returns the name of the type in NumPy's header, little-endian; that of `bf16` is what the package
/// `ml_dtypes` uses.
const fn descr(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::U16 => "<u2",
        DType::I16 => "<i2",
        DType::F16 => "<f2",
        DType::Bf16 => "<V2",
        DType::U32 => "<u4",
        DType::I32 => "<i4",
        DType::F32 => "<f4",
        DType::U64 => "<u8",
        DType::I64 => "<i8",
        DType::F64 => "<f8",
    }
}

/// Returns the `.npy` file of an array.
pub(super) fn npy(Array { dtype, shape, elements }: &Array) -> Bytes {
    let sides: Vec<String> = shape.iter().map(u64::to_string).collect();
    let sides = if let [side] = &sides[..] { format!("{side},") } else { sides.join(", ") };
    let descr = descr(*dtype);
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sides}), }}");
    // Magic, version and length take 10 bytes; the header ends with a line feed on a multiple of 64.
    let padding = 63 - (10 + text.len()) % 64;
    text.extend(std::iter::repeat_n(' ', padding));
    text.push('\n');
    let mut file = Vec::with_capacity(10 + text.len() + elements.len());
    file.extend_from_slice(b"\x93NUMPY\x01\x00");
    // At most 64 sides of 20 digits.
    file.extend_from_slice(&(text.len() as u16).to_le_bytes());
    file.extend_from_slice(text.as_bytes());
    file.extend_from_slice(elements);
    file.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_the_one_that_numpy_writes() {
        let of = |dtype, shape: &[u64], elements: &'static [u8]| {
            npy(&Array { dtype, shape: shape.to_vec(), elements: Bytes::from_static(elements) })
        };
        let file = of(DType::F32, &[3], &[0; 12]);
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
        assert_eq!(file.len(), 128 + 12);
        assert_eq!(&file[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(std::str::from_utf8(&file[10..128]).unwrap(), format!("{text:117}\n"));
        assert!(of(DType::I8, &[], &[0]).windows(9).any(|part| part == b"'shape': "));
        for sides in 0..=63 {
            assert_eq!(of(DType::U8, &vec![u64::MAX; sides], &[]).len() % 64, 0);
        }
    }
}
