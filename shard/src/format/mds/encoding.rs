//! The encodings of MDS columns: what the bytes of a value mean, and the form in which a field hands them over.

use bytes::Bytes;
use spdl_types::DType;

use super::picture::{other_size, picture};
use crate::format::{Array, Content, FieldValue, MAX_LIST_FILES};

/// Most dimensions of an array: they are numbered in 6 bits.
const MAX_SIDES: usize = 63;

/// The types of elements: the number that MDS has for each, and its name, which is NumPy's.
const ELEMENTS: [(DType, u8, &str); 11] = [
    (DType::U8, 8, "uint8"),
    (DType::I8, 9, "int8"),
    (DType::U16, 16, "uint16"),
    (DType::I16, 17, "int16"),
    (DType::F16, 18, "float16"),
    (DType::U32, 32, "uint32"),
    (DType::I32, 33, "int32"),
    (DType::F32, 34, "float32"),
    (DType::U64, 64, "uint64"),
    (DType::I64, 65, "int64"),
    (DType::F64, 66, "float64"),
];

/// How the values of a column are encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MdsEncoding {
    /// The value's bytes are its content: bytes, text, pictures, JSON.
    Plain,
    /// A little-endian number.
    Number(DType),
    /// An array, whose type and shape precede it where they are not fixed.
    Array {
        /// The type of its elements, if it is fixed.
        element: Option<DType>,
        /// Its shape, if it is fixed.
        shape: Option<Vec<u64>>,
    },
    /// The pixels of a PIL picture.
    Pil,
    /// Pictures: their number, the size of each, and then their values.
    List(ListElement),
    /// A pickled Python object, which is never read: reading it would run the code in it.
    Pickle,
}

/// The values in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListElement {
    /// Files, in a list without a head.
    BareFile,
    /// Files.
    File,
    /// The pixels of PIL pictures.
    Pil,
}

impl MdsEncoding {
    /// Returns the encoding that MDS calls `name`; `None` if MDS has none of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let (kind, settings) = name.split_once(':').map_or((name, None), |(kind, settings)| (kind, Some(settings)));
        match (kind, settings) {
            ("ndarray", settings) => Self::array(settings.unwrap_or_default()),
            ("jpeg", _) => Some(Self::Plain),
            (_, Some(_)) => None,
            ("bytes" | "str" | "str_int" | "str_float" | "str_decimal" | "png" | "json", None) => Some(Self::Plain),
            ("jpeg_array" | "jpegarray", None) => Some(Self::List(ListElement::BareFile)),
            ("list[jpeg]" | "list[png]", None) => Some(Self::List(ListElement::File)),
            ("list[pil]", None) => Some(Self::List(ListElement::Pil)),
            ("int", None) => Some(Self::Number(DType::I64)),
            ("pil", None) => Some(Self::Pil),
            ("pkl", None) => Some(Self::Pickle),
            (number, None) => element_named(number).map(Self::Number),
        }
    }

    fn array(settings: &str) -> Option<Self> {
        if settings.is_empty() {
            return Some(Self::Array { element: None, shape: None });
        }
        let (element, shape) = settings.split_once(':').map_or((settings, None), |(kind, shape)| (kind, Some(shape)));
        let element = Some(element_named(element)?);
        let side = |side: &str| side.trim().parse().ok().filter(|side| *side > 0);
        let shape = match shape {
            Some(shape) => Some(shape.split(',').map(side).collect::<Option<Vec<u64>>>()?),
            None => None,
        };
        let is_known = shape.as_ref().is_none_or(|shape| shape.len() <= MAX_SIDES);
        is_known.then_some(Self::Array { element, shape })
    }

    /// Returns what a field whose value is `value` holds: plain bytes as they are, numbers and arrays with their
    /// types, PIL pictures as a file that decoders of pictures read.
    pub(super) fn value(&self, value: Bytes) -> Result<FieldValue, String> {
        match self {
            Self::Plain => Ok(value.into()),
            Self::Number(element) if value.len() == element.bytes() => {
                Ok(Array { dtype: *element, shape: Vec::new(), elements: value }.into())
            }
            Self::Number(element) => Err(other_size(&value, element.bytes(), name_of(*element))),
            Self::Array { element, shape } => array(*element, shape.as_deref(), &value).map(FieldValue::from),
            Self::Pil => picture(&value).map(FieldValue::from),
            Self::List(element) => element.list(&value).map(FieldValue::List),
            Self::Pickle => Err("is a pickled Python object, which is never read, because reading it runs code; write the column again as \
                 `json`, `str`, `bytes` or `ndarray`"
                    .to_owned()),
        }
    }
}

impl ListElement {
    /// Returns the files of a list.
    fn list(self, value: &Bytes) -> Result<Vec<Option<Bytes>>, String> {
        let cut_off = || format!("is a list of pictures that is cut off after {} bytes", value.len());
        // The head of a list is four bytes that the library does not use yet.
        let head_bytes = if self == Self::BareFile { 0 } else { 4 };
        let rest = value.get(head_bytes..).ok_or_else(cut_off)?;
        let (count, rest) = rest.split_first_chunk::<4>().ok_or_else(cut_off)?;
        let count = u32::from_le_bytes(*count) as usize;
        if count > MAX_LIST_FILES {
            return Err(format!("is a list of {count} pictures; at most {MAX_LIST_FILES} are read: divide the record"));
        }
        let (sizes, mut rest) = rest.split_at_checked(4 * count).ok_or_else(cut_off)?;
        let mut files = Vec::with_capacity(count);
        for (number, size) in sizes.as_chunks::<4>().0.iter().enumerate() {
            let (file, after) = rest.split_at_checked(u32::from_le_bytes(*size) as usize).ok_or_else(cut_off)?;
            let file = value.slice_ref(file);
            files.push(Some(match self {
                Self::BareFile | Self::File => file,
                Self::Pil => {
                    let of_list = |problem| format!("has number {number} from 0, which {problem}");
                    picture(&file).map_err(of_list)?.into_file()
                }
            }));
            rest = after;
        }
        match rest.len() {
            0 => Ok(files),
            more => Err(format!("is a list of {count} pictures and {more} bytes more")),
        }
    }
}

/// Returns the type of elements that NumPy calls `name`, such as `float32`.
fn element_named(name: &str) -> Option<DType> {
    ELEMENTS.iter().find(|element| element.2 == name).map(|element| element.0)
}

/// Returns the type of elements with this number in MDS.
fn element_numbered(number: u8) -> Option<DType> {
    ELEMENTS.iter().find(|element| element.1 == number).map(|element| element.0)
}

fn name_of(dtype: DType) -> &'static str {
    ELEMENTS.iter().find(|element| element.0 == dtype).map_or("", |element| element.2)
}

fn array(element: Option<DType>, shape: Option<&[u64]>, value: &Bytes) -> Result<Content, String> {
    let cut_off = || format!("is an array whose type and shape are cut off after {} bytes", value.len());
    let mut rest = &value[..];
    let element = match element {
        Some(element) => element,
        None => {
            let (number, after) = rest.split_first().ok_or_else(cut_off)?;
            rest = after;
            element_numbered(*number).ok_or_else(|| format!("is an array of an unknown type, number {number}"))?
        }
    };
    let read;
    let shape = match shape {
        Some(shape) => shape,
        None => {
            let (head, after) = rest.split_first().ok_or_else(cut_off)?;
            let (sides, width) = (usize::from(head >> 2), 1 << (head & 3));
            let (sides, after) = after.split_at_checked(sides * width).ok_or_else(cut_off)?;
            rest = after;
            let side = |bytes: &[u8]| bytes.iter().rev().fold(0, |side, byte| side << 8 | u64::from(*byte));
            read = sides.chunks_exact(width).map(side).collect::<Vec<u64>>();
            &read
        }
    };
    let bytes = shape.iter().try_fold(element.bytes() as u64, |bytes, side| bytes.checked_mul(*side));
    if bytes != Some(rest.len() as u64) {
        let name = name_of(element);
        return Err(format!("is {} bytes, which are no array of {name} {shape:?}", rest.len()));
    }
    Ok(Array { dtype: element, shape: shape.to_vec(), elements: value.slice_ref(rest) }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(encoding: &str, value: &[u8]) -> Result<FieldValue, String> {
        let encoding = MdsEncoding::named(encoding).expect("a known encoding");
        let value = encoding.value(Bytes::copy_from_slice(value));
        value.map_err(|problem| problem.to_string())
    }

    fn array_of(dtype: DType, shape: &[u64], elements: &[u8]) -> FieldValue {
        Array { dtype, shape: shape.to_vec(), elements: Bytes::copy_from_slice(elements) }.into()
    }

    #[test]
    fn every_encoding_of_the_library_is_known_and_no_other() {
        for name in [
            "bytes",
            "str",
            "int",
            "ndarray",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
            "int8",
            "int16",
            "int32",
            "int64",
            "float16",
            "float32",
            "float64",
            "str_int",
            "str_float",
            "str_decimal",
            "pil",
            "jpeg",
            "jpeg_array",
            "jpegarray",
            "png",
            "list[pil]",
            "list[jpeg]",
            "list[png]",
            "pkl",
            "json",
            "jpeg:90",
            "ndarray:int16",
            "ndarray:float32:3,4",
        ] {
            assert!(MdsEncoding::named(name).is_some(), "{name}");
        }
        for name in
            ["", "int128", "png:9", "ndarray:int128", "ndarray:int8:0", "ndarray:int8:-1", "ndarray:int8:2,", "PKL"]
        {
            assert_eq!(MdsEncoding::named(name), None, "{name}");
        }
    }

    #[test]
    fn numbers_and_arrays_have_their_types_and_shapes() {
        assert_eq!(value("int", &7_i64.to_le_bytes()).unwrap(), array_of(DType::I64, &[], &7_i64.to_le_bytes()));
        let two = [1, 0, 2, 0];
        let expected = array_of(DType::U16, &[2, 1], &two);
        assert_eq!(value("ndarray:uint16:2,1", &two).unwrap(), expected);
        assert_eq!(value("ndarray:uint16", &[[2 << 2, 2, 1].as_slice(), &two].concat()).unwrap(), expected);
        assert_eq!(value("ndarray", &[[16, 2 << 2 | 1, 2, 0, 1, 0].as_slice(), &two].concat()).unwrap(), expected);
    }

    #[test]
    fn lists_of_pictures_have_their_files_with_a_head_or_without() {
        let files = [b"abc", b"".as_slice(), b"d"];
        let bare = [3_u32, 3, 0, 1].map(u32::to_le_bytes);
        let bare = [bare.as_flattened(), &files.concat()].concat();
        let expected = FieldValue::List(files.map(|file| Some(Bytes::copy_from_slice(file))).to_vec());
        for name in ["jpegarray", "jpeg_array"] {
            assert_eq!(value(name, &bare).unwrap(), expected);
            assert_eq!(value(name, &[0; 4]).unwrap(), FieldValue::List(vec![]));
        }
        for name in ["list[jpeg]", "list[png]"] {
            assert_eq!(value(name, &[&[0; 4], &bare[..]].concat()).unwrap(), expected);
            assert_eq!(value(name, &[0; 8]).unwrap(), FieldValue::List(vec![]));
        }
        let pil = [&[1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0], &b"Lab"[..]].concat();
        let list = [&[0, 0, 0, 0, 1, 0, 0, 0, 15, 0, 0, 0], &pil[..]].concat();
        let expected = FieldValue::List(vec![Some(Bytes::from_static(b"P5\n1 2\n255\nab"))]);
        assert_eq!(value("list[pil]", &list).unwrap(), expected);
    }

    #[test]
    fn values_that_are_not_what_they_claim_are_described() {
        for (encoding, value, expected) in [
            ("int", &[1_u8; 7][..], "is 7 bytes, and int64 takes 8"),
            ("ndarray", &[], "cut off after 0 bytes"),
            ("ndarray", &[7, 0], "unknown type, number 7"),
            ("ndarray", &[8, 255, 1, 2], "cut off after 4 bytes"),
            ("ndarray", &[8, 1 << 2, 3, 1, 2], "is 2 bytes, which are no array of uint8 [3]"),
            ("ndarray:uint8:2", &[1], "is 1 bytes, which are no array of uint8 [2]"),
            ("jpegarray", &[1, 0, 0], "is a list of pictures that is cut off after 3 bytes"),
            (
                "list[jpeg]",
                &[0, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 7],
                "is a list of pictures that is cut off after 13 bytes",
            ),
            ("list[png]", &[0, 0, 0, 0, 255, 255, 0, 0], "is a list of pictures that is cut off after 8 bytes"),
            ("jpeg_array", &[1, 0, 1, 0], "is a list of 65537 pictures; at most 65536 are read: divide the record"),
            ("jpeg_array", &[0, 0, 0, 0, 9], "is a list of 0 pictures and 1 bytes more"),
            (
                "list[pil]",
                &[0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 7, 7],
                "has number 0 from 0, which is a picture that is cut off after 2 bytes",
            ),
            ("pkl", &[], "is a pickled Python object, which is never read"),
        ] {
            let problem = self::value(encoding, value).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
        let sides = [&[8, 63 << 2 | 3], [255; 8 * 63].as_slice()].concat();
        assert!(value("ndarray", &sides).unwrap_err().contains("which are no array"));
    }
}
