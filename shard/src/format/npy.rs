//! Writes `.npy` files: the form in which formats hand over numbers and arrays, because it has their type and shape.

use bytes::Bytes;

/// The types of elements, as MDS numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    U8,
    I8,
    U16,
    I16,
    F16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
}

impl Element {
    const ALL: [Self; 11] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::F16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// Returns the type that NumPy calls `name`, such as `float32`.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.name() == name)
    }

    /// Returns the type with this number in MDS.
    pub(super) fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.number() == number)
    }

    /// Returns the size of an element in bytes.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::U16 => "uint16",
            Self::I16 => "int16",
            Self::F16 => "float16",
            Self::U32 => "uint32",
            Self::I32 => "int32",
            Self::F32 => "float32",
            Self::U64 => "uint64",
            Self::I64 => "int64",
            Self::F64 => "float64",
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::U8 => 8,
            Self::I8 => 9,
            Self::U16 => 16,
            Self::I16 => 17,
            Self::F16 => 18,
            Self::U32 => 32,
            Self::I32 => 33,
            Self::F32 => 34,
            Self::U64 => 64,
            Self::I64 => 65,
            Self::F64 => 66,
        }
    }

    /// Returns what NumPy's header calls the type, little-endian.
    const fn descr(self) -> &'static str {
        match self {
            Self::U8 => "|u1",
            Self::I8 => "|i1",
            Self::U16 => "<u2",
            Self::I16 => "<i2",
            Self::F16 => "<f2",
            Self::U32 => "<u4",
            Self::I32 => "<i4",
            Self::F32 => "<f4",
            Self::U64 => "<u8",
            Self::I64 => "<i8",
            Self::F64 => "<f8",
        }
    }
}

/// Returns the `.npy` file of an array: its elements are little-endian and in row-major order.
pub(super) fn npy(element: Element, shape: &[u64], elements: &[u8]) -> Bytes {
    let sides: Vec<String> = shape.iter().map(u64::to_string).collect();
    let sides = if let [side] = &sides[..] { format!("{side},") } else { sides.join(", ") };
    let descr = element.descr();
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
        let file = npy(Element::F32, &[3], &[0; 12]);
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
        assert_eq!(file.len(), 128 + 12);
        assert_eq!(&file[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(std::str::from_utf8(&file[10..128]).unwrap(), format!("{text:117}\n"));
        assert!(npy(Element::I8, &[], &[0]).windows(9).any(|part| part == b"'shape': "));
        for sides in 0..=63 {
            assert_eq!(npy(Element::U8, &vec![u64::MAX; sides], &[]).len() % 64, 0);
        }
    }
}
