//! Reads the header of a `.npy` file: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.
//!
//! ```text
//! 0   "\x93NUMPY"
//! 6   u8 major, u8 minor version: 1.0, 2.0 or 3.0
//! 8   length of the text: u16 in version 1, u32 in the others, little-endian
//! ..  a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//! ```

use std::io::Read;

use spdl_types::DType;

use crate::decode::cause::quoted;

/// The first bytes of every file.
pub(in crate::decode::column) const MAGIC: &[u8] = b"\x93NUMPY";
/// Maximum length of the text. NumPy has the same limit for files that it does not trust.
const MAX_TEXT_BYTES: usize = 10_000;
/// Upper limit of the dimensions of an array; NumPy's is 64.
const MAX_DIMENSIONS: usize = 64;

/// The header of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NpyHeader {
    pub(super) element: NpyElement,
    /// Whether the first index changes fastest.
    pub(super) is_fortran: bool,
    pub(super) shape: Vec<u64>,
}

/// The elements of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NpyElement {
    /// Numbers of this type.
    Number { dtype: DType, is_big_endian: bool },
    /// Elements of two bytes that are no NumPy number: the package `ml_dtypes` writes bf16 in this way.
    TwoBytes,
    /// Python objects, as a pickle.
    Object,
    /// Elements that no column holds, described for an error.
    Other(String),
}

/// Reads the header; afterwards `source` is at the first element.
pub(super) fn read_header(source: &mut impl Read) -> Result<NpyHeader, String> {
    let cut = |_| "it is cut off in its header".to_owned();
    let mut start = [0; 8];
    source.read_exact(&mut start).map_err(cut)?;
    if !start.starts_with(MAGIC) {
        return Err(format!("it begins with \"{}\", not with NumPy's \"\\x93NUMPY\"", start[..6].escape_ascii()));
    }
    let [major, minor] = [start[6], start[7]];
    let length = match (major, minor) {
        (1, 0) => {
            let mut length = [0; 2];
            source.read_exact(&mut length).map_err(cut)?;
            usize::from(u16::from_le_bytes(length))
        }
        (2 | 3, 0) => {
            let mut length = [0; 4];
            source.read_exact(&mut length).map_err(cut)?;
            u32::from_le_bytes(length) as usize
        }
        _ => return Err(format!("it has version {major}.{minor} of NumPy's format; 1.0, 2.0 and 3.0 are read")),
    };
    if length > MAX_TEXT_BYTES {
        return Err(format!("its header claims {length} bytes, more than {MAX_TEXT_BYTES}"));
    }
    let mut text = vec![0; length];
    source.read_exact(&mut text).map_err(cut)?;
    NpyLiteral(&text).header().ok_or_else(|| {
        let text = quoted(&text).replace("\\'", "'");
        format!("its header is not NumPy's: {text}")
    })
}

impl NpyElement {
    /// Reads what NumPy calls `descr`.
    fn parse(descr: &str) -> Self {
        let (order, kind) = match descr.as_bytes() {
            [order @ (b'<' | b'>' | b'|' | b'='), ..] => (*order, &descr[1..]),
            _ => (b'=', descr),
        };
        let dtype = match kind {
            "b1" | "?" => DType::Bool,
            "u1" => DType::U8,
            "i1" => DType::I8,
            "u2" => DType::U16,
            "i2" => DType::I16,
            "u4" => DType::U32,
            "i4" => DType::I32,
            "u8" => DType::U64,
            "i8" => DType::I64,
            "f2" => DType::F16,
            "f4" => DType::F32,
            "f8" => DType::F64,
            "V2" => return Self::TwoBytes,
            "O" => return Self::Object,
            _ => return Self::Other(format!("`{}`", quoted(descr.as_bytes()))),
        };
        Self::Number { dtype, is_big_endian: order == b'>' }
    }
}

/// The Python literal of a header: only what NumPy writes there.
struct NpyLiteral<'a>(&'a [u8]);

impl<'a> NpyLiteral<'a> {
    fn header(mut self) -> Option<NpyHeader> {
        let (mut element, mut is_fortran, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while !self.take(b'}') {
            let key = self.string()?;
            self.expect(b':')?;
            match key {
                "descr" => element = Some(self.element()?),
                "fortran_order" => is_fortran = Some(self.boolean()?),
                "shape" => shape = Some(self.shape()?),
                _ => return None,
            }
            if !self.take(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        self.skip_space();
        let is_over = self.0.is_empty();
        Some(NpyHeader { element: element?, is_fortran: is_fortran?, shape: shape? }).filter(|_| is_over)
    }

    fn skip_space(&mut self) {
        self.0 = self.0.trim_ascii_start();
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        match self.0.strip_prefix(&[byte]) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.take(byte).then_some(())
    }

    fn string(&mut self) -> Option<&'a str> {
        let quote = if self.take(b'\'') { b'\'' } else { self.expect(b'"').map(|()| b'"')? };
        let end = self.0.iter().position(|byte| *byte == quote)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        std::str::from_utf8(text).ok()
    }

    fn boolean(&mut self) -> Option<bool> {
        self.skip_space();
        for (word, value) in [(b"True".as_slice(), true), (b"False", false)] {
            if let Some(rest) = self.0.strip_prefix(word) {
                self.0 = rest;
                return Some(value);
            }
        }
        None
    }

    /// Reads the type of the elements. A list is the type of a record; it is skipped.
    fn element(&mut self) -> Option<NpyElement> {
        self.skip_space();
        if self.0.first() != Some(&b'[') {
            return self.string().map(NpyElement::parse);
        }
        let (mut depth, mut quote, mut at) = (0, None, 0);
        for byte in self.0 {
            at += 1;
            match (quote, byte) {
                (Some(open), byte) if open == byte => quote = None,
                (Some(_), _) => {}
                (None, b'\'' | b'"') => quote = Some(byte),
                (None, b'[' | b'(') => depth += 1,
                (None, b']' | b')') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.0 = &self.0[at..];
                return Some(NpyElement::Other("records of several fields".to_owned()));
            }
        }
        None
    }

    fn shape(&mut self) -> Option<Vec<u64>> {
        self.expect(b'(')?;
        let mut shape = Vec::new();
        while !self.take(b')') {
            self.skip_space();
            let digits = self.0.iter().position(|byte| !byte.is_ascii_digit())?;
            let (number, rest) = self.0.split_at(digits);
            shape.push(std::str::from_utf8(number).ok()?.parse().ok()?);
            // Python 2 wrote long integers as `3L`.
            self.0 = rest.strip_prefix(b"L").unwrap_or(rest);
            if shape.len() > MAX_DIMENSIONS {
                return None;
            }
            if !self.take(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Some(shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, text: &str) -> Vec<u8> {
        let mut bytes = [MAGIC, &[version, 0]].concat();
        match version {
            1 => bytes.extend(u16::try_from(text.len()).unwrap().to_le_bytes()),
            _ => bytes.extend(u32::try_from(text.len()).unwrap().to_le_bytes()),
        }
        bytes.extend(text.as_bytes());
        bytes
    }

    fn header(text: &str) -> Result<NpyHeader, String> {
        read_header(&mut file(1, text).as_slice())
    }

    #[test]
    fn headers_of_all_versions_and_spellings_are_read() {
        let number = |dtype, is_big_endian| NpyElement::Number { dtype, is_big_endian };
        let expected = NpyHeader { element: number(DType::F32, false), is_fortran: false, shape: vec![3, 4] };
        for version in 1..=3 {
            let bytes = file(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }          \n");
            assert_eq!(read_header(&mut bytes.as_slice()).unwrap(), expected, "version {version}");
        }
        for (text, expected) in [
            ("{\"shape\":(3L,4L),\"descr\":\"<f4\",\"fortran_order\":False}", expected.clone()),
            (
                "{'descr': '>i2', 'fortran_order': True, 'shape': (7,), }",
                NpyHeader { element: number(DType::I16, true), is_fortran: true, shape: vec![7] },
            ),
            (
                "{'descr': '|b1', 'fortran_order': False, 'shape': ()}",
                NpyHeader { element: number(DType::Bool, false), is_fortran: false, shape: vec![] },
            ),
            (
                "{'descr': [('a', '<f4'), ('b]', '|S3', (2,))], 'fortran_order': False, 'shape': (1,)}",
                NpyHeader {
                    element: NpyElement::Other("records of several fields".to_owned()),
                    is_fortran: false,
                    shape: vec![1],
                },
            ),
            (
                "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
                NpyHeader { element: NpyElement::Object, is_fortran: false, shape: vec![1] },
            ),
        ] {
            assert_eq!(header(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_header_that_is_not_numpys_is_described() {
        for (bytes, expected) in [
            (b"PK\x03\x04....".to_vec(), "it begins with \"PK\\x03\\x04..\", not with NumPy's"),
            (file(9, "{}"), "it has version 9.0 of NumPy's format"),
            (file(1, ""), "its header is not NumPy's: "),
            (file(1, "{'descr': '<f4', 'shape': (1,)}"), "its header is not NumPy's: {'descr': '<f4', 'shape': (1,)}"),
            (file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}"), "its header is not NumPy's"),
            (file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"), "its header is not NumPy's"),
            (
                file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}"),
                "its header is not NumPy's",
            ),
            (file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} or 1"), "its header is not NumPy's"),
            (file(1, "{'descr': [[[[, 'fortran_order': False, 'shape': (1,)}"), "its header is not NumPy's"),
            (file(2, &" ".repeat(10_001)), "its header claims 10001 bytes, more than 10000"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(), "its header claims 4294967295 bytes"),
            (b"\x93NUMPY\x01\x00\x76\x00{".to_vec(), "it is cut off in its header"),
            (b"\x93NU".to_vec(), "it is cut off in its header"),
        ] {
            let error = read_header(&mut bytes.as_slice()).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
