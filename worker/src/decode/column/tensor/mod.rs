//! The kind `tensor`: writes the array that a field holds straight into its place, or makes the value of a ragged
//! column of it. It reads what NumPy reads: all versions of the header, both byte orders, both orders of the elements.
//! It refuses Python objects (pickle), and it allocates no memory for elements that a file only claims to have.

mod npy;
mod npz;
#[cfg(test)]
mod tests;

use std::io::{self, Read};

use bytes::Bytes;
use spdl_job::{TensorColumn, TensorEncoding};
use spdl_shard::format::{Array, Content};
use spdl_types::DType;

use super::{ColumnDecoder, ColumnSample, FieldTarget};
use crate::decode::cause::{BadSampleProblem, ValueResult, quoted, reason};
pub(super) use npy::MAGIC as NPY_MAGIC;
use npy::{NpyElement, NpyHeader};
use npz::NpyFile;

/// Arrays whose elements change their places are read in chunks of this many bytes, a multiple of every element's size.
const CHUNK_BYTES: usize = 8 << 10;

/// Writes arrays of one type and shape.
pub(super) struct TensorDecoder {
    column: TensorColumn,
    dtype: DType,
}

impl TensorDecoder {
    pub(super) fn new(column: &TensorColumn, dtype: DType) -> Self {
        Self { column: column.clone(), dtype }
    }
}

/// Reads an array of any type and shape from a `.npy` file, or the array `name` of a `.npz` file; without a name, its only
/// one. It has at most `max_bytes`.
///
/// # Errors
/// What is wrong with the file, as text.
pub fn read_numpy(file: &Bytes, name: Option<&str>, max_bytes: usize) -> Result<Array, String> {
    read_numpy_if(file, name, max_bytes, |_, _| Ok(()))
}

/// Reads an array as [`read_numpy`] does, if `check` accepts its type and shape. Where the file holds the elements as they
/// are needed, they are not copied.
pub(in crate::decode) fn read_numpy_if(
    file: &Bytes,
    name: Option<&str>,
    max_bytes: usize,
    check: impl FnOnce(DType, &[u64]) -> Result<(), String>,
) -> Result<Array, String> {
    let array = name.map(str::to_owned);
    let column = TensorColumn { shape: Vec::new(), max_rows: None, encoding: TensorEncoding::Numpy, array };
    let mut decoder = TensorDecoder { column, dtype: DType::U8 };
    let mut source = decoder.open(file)?;
    let NpyHeader { element, shape, is_fortran } = npy::read_header(&mut source)?;
    let (dtype, is_big_endian) = match element {
        NpyElement::Number { dtype, is_big_endian } => (dtype, is_big_endian),
        NpyElement::Object => return Err("it holds Python objects (pickle), which are never read".to_owned()),
        NpyElement::TwoBytes => return Err("it holds elements of two bytes that no type of NumPy's has".to_owned()),
        NpyElement::Other(descr) => return Err(format!("it holds {descr}, which is no number")),
    };
    decoder.dtype = dtype;
    check(dtype, &shape)?;
    let bytes = shape.iter().try_fold(dtype.bytes() as u64, |bytes, side| bytes.checked_mul((*side).max(1)));
    if bytes.is_none_or(|bytes| bytes > max_bytes as u64) {
        return Err(format!("it claims {} {shape:?}, more than {max_bytes} bytes", dtype.name()));
    }
    let is_as_needed = !is_big_endian && (!is_fortran || shape.len() < 2) && dtype != DType::Bool;
    if let NpyFile::Stored(rest) = source
        && is_as_needed
        && let Some(elements) = rest.get(..shape.iter().product::<u64>() as usize * dtype.bytes())
    {
        return Ok(Array { dtype, shape, elements: file.slice_ref(elements) });
    }
    let sides: Vec<u32> = shape.iter().map(|side| u32::try_from(*side).unwrap_or(u32::MAX)).collect();
    // The array is read as rows, so that memory grows with the bytes in the file, whatever its header claims.
    let elements = match sides.split_first() {
        Some((rows, row)) => {
            (decoder.column.max_rows, decoder.column.shape) = (Some(*rows), row.to_vec());
            decoder.read_rows(file, *rows)?
        }
        None => {
            let mut number = vec![0; dtype.bytes()];
            decoder.read(file, &mut number)?;
            number.into()
        }
    };
    Ok(Array { dtype, shape, elements })
}

impl ColumnDecoder for TensorDecoder {
    fn takes_numbers(&self) -> bool {
        self.column.max_rows.is_none() && self.column.shape.is_empty() && self.column.array.is_none()
    }

    fn number(&self, dtype: DType, element: &[u8], target: &mut FieldTarget<'_>) -> bool {
        dtype == self.dtype && self.takes_numbers() && self.copy(element, target.fixed()).is_ok()
    }

    fn copies_numbers(&self, dtype: DType) -> bool {
        // Of `bool`, only 0 and 1 are written, so its bytes are not copied as they are.
        dtype == self.dtype && dtype != DType::Bool && self.takes_numbers()
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let read = match (sample.content, self.column.max_rows) {
            (Content::File(file), None) => self.read(&file, target.fixed()),
            (Content::File(file), Some(max_rows)) => {
                self.read_rows(&file, max_rows).map(|value| *target.ragged() = value)
            }
            (Content::Array(array), None) => {
                self.elements(array).and_then(|elements| self.copy(&elements, target.fixed()))
            }
            (Content::Array(array), Some(max_rows)) => self
                .elements(array)
                .and_then(|elements| self.rows(&elements, max_rows))
                .map(|value| *target.ragged() = value),
        };
        read.map_err(|problem| BadSampleProblem::Undecodable {
            field: sample.field.to_owned(),
            reason: reason(problem),
        })
    }
}

impl TensorDecoder {
    /// Reads an array of the column's shape.
    fn read(&self, bytes: &[u8], out: &mut [u8]) -> Result<(), String> {
        if self.column.encoding == TensorEncoding::Raw {
            return self.copy(bytes, out);
        }
        let mut file = self.open(bytes)?;
        let header = npy::read_header(&mut file)?;
        let is_big_endian = self.check(&header)?;
        let read = if header.is_fortran {
            read_transposed(&mut file, &header.shape, self.dtype.bytes(), out)
        } else {
            file.read_exact(out)
        };
        read.map_err(|error| self.unreadable(&error, out.len()))?;
        self.convert(is_big_endian, out);
        Ok(())
    }

    /// Returns the elements of an array whose type the format knows, if it is the column's, and its shape fits.
    fn elements(&self, Array { dtype, shape, elements }: Array) -> Result<Bytes, String> {
        if let Some(name) = &self.column.array {
            return Err(format!("it is no .npz file, so it has no array `{}`", quoted(name.as_bytes())));
        }
        let element = NpyElement::Number { dtype, is_big_endian: false };
        // An empty list does not show the shape of its rows.
        let shape = if elements.is_empty() && self.column.max_rows.is_some() && shape == [0] {
            [0].into_iter().chain(self.column.shape.iter().map(|side| u64::from(*side))).collect()
        } else {
            shape
        };
        self.check(&NpyHeader { element, is_fortran: false, shape })?;
        Ok(elements)
    }

    /// Copies elements that are an array of the column's shape.
    fn copy(&self, elements: &[u8], out: &mut [u8]) -> Result<(), String> {
        if elements.len() != out.len() {
            let (actual, wanted, column) = (elements.len(), out.len(), self.expected());
            return Err(format!("it is {actual} bytes, and the column expects {wanted}: {column}"));
        }
        out.copy_from_slice(elements);
        self.convert(false, out);
        Ok(())
    }

    /// Takes over elements that are an array of at most `max_rows` rows.
    fn rows(&self, elements: &Bytes, max_rows: u32) -> Result<Bytes, String> {
        let (actual, row_bytes) = (elements.len(), self.row_bytes());
        if !actual.is_multiple_of(row_bytes) || actual / row_bytes > max_rows as usize {
            let column = self.expected();
            return Err(format!("it is {actual} bytes, and the column expects {row_bytes} for each row: {column}"));
        }
        if self.dtype != DType::Bool {
            return Ok(elements.clone());
        }
        let mut value = elements.to_vec();
        self.convert(false, &mut value);
        Ok(value.into())
    }

    fn row_bytes(&self) -> usize {
        self.column.shape.iter().map(|side| *side as usize).product::<usize>() * self.dtype.bytes()
    }

    /// Reads an array of at most `max_rows` rows.
    fn read_rows(&self, bytes: &Bytes, max_rows: u32) -> Result<Bytes, String> {
        if self.column.encoding == TensorEncoding::Raw {
            return self.rows(bytes, max_rows);
        }
        let mut file = self.open(bytes)?;
        let header = npy::read_header(&mut file)?;
        let is_big_endian = self.check(&header)?;
        let rows = usize::try_from(header.shape[0]).expect("at most the column's rows, as checked");
        let wanted = rows * self.row_bytes();
        // The value grows with the bytes in the file, whatever the header claims.
        let mut value = Vec::new();
        let read = file.by_ref().take(wanted as u64).read_to_end(&mut value);
        if read.map_err(|error| self.unreadable(&error, wanted))? < wanted {
            return Err(self.unreadable(&io::ErrorKind::UnexpectedEof.into(), wanted));
        }
        if header.is_fortran {
            let mut turned = vec![0; wanted];
            read_transposed(&mut value.as_slice(), &header.shape, self.dtype.bytes(), &mut turned)
                .map_err(|error| self.unreadable(&error, wanted))?;
            value = turned;
        }
        self.convert(is_big_endian, &mut value);
        Ok(value.into())
    }

    /// Finds the `.npy` file in a field, which may be a `.npz` file. As in NumPy, other bytes may follow the array.
    fn open<'a>(&self, bytes: &'a [u8]) -> Result<NpyFile<'a>, String> {
        let array = self.column.array.as_deref();
        if bytes.starts_with(npz::MAGIC) {
            return npz::find(bytes, array);
        }
        match array {
            Some(array) => Err(format!("it is no .npz file, so it has no array `{}`", quoted(array.as_bytes()))),
            None => Ok(NpyFile::Stored(bytes)),
        }
    }

    /// Describes why `wanted` bytes of an array cannot be read.
    fn unreadable(&self, error: &io::Error, wanted: usize) -> String {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => format!("it is cut off: {} takes {wanted} bytes", self.expected()),
            _ => error.to_string(),
        }
    }

    /// Checks that the array has the column's type and shape. Returns whether its elements are big-endian.
    fn check(&self, NpyHeader { element, shape, .. }: &NpyHeader) -> Result<bool, String> {
        let (name, is_big_endian) = match element {
            NpyElement::Number { dtype, is_big_endian } => (dtype.name(), *is_big_endian),
            NpyElement::TwoBytes if self.dtype == DType::Bf16 => (DType::Bf16.name(), false),
            NpyElement::TwoBytes => ("elements of two bytes", false),
            NpyElement::Object => {
                let wanted = self.dtype.name();
                return Err(format!(
                    "it holds Python objects (pickle), which are never read; save an array of {wanted}"
                ));
            }
            NpyElement::Other(descr) => (descr.as_str(), false),
        };
        let row = match (self.column.max_rows, shape.split_first()) {
            (None, _) => Some(shape.as_slice()),
            (Some(max_rows), Some((rows, row))) if *rows <= max_rows.into() => Some(row),
            (Some(_), _) => None,
        };
        let sides = || self.column.shape.iter().map(|side| u64::from(*side));
        // A list of numbers, as TFRecord has them, has no shape of its own: it fits every shape with the same number of
        // elements.
        let is_list =
            self.column.max_rows.is_none() && matches!(shape[..], [count] if count == sides().product::<u64>());
        let is_shape = is_list || row.is_some_and(|row| row.iter().copied().eq(sides()));
        if name == self.dtype.name() && is_shape {
            return Ok(is_big_endian);
        }
        Err(format!("it holds {name} {shape:?}, and the column expects {}", self.expected()))
    }

    /// Describes the arrays of the column.
    fn expected(&self) -> String {
        let rows = self.column.max_rows.map(|rows| format!("up to {rows}"));
        let sides = rows.into_iter().chain(self.column.shape.iter().map(u32::to_string));
        format!("{} [{}]", self.dtype.name(), sides.collect::<Vec<_>>().join(", "))
    }

    /// Converts elements to those of a column: little-endian, and of `bool` nothing but 0 and 1.
    fn convert(&self, is_big_endian: bool, out: &mut [u8]) {
        if is_big_endian {
            out.chunks_exact_mut(self.dtype.bytes()).for_each(<[u8]>::reverse);
        }
        if self.dtype == DType::Bool {
            out.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
    }
}

/// Reads an array whose first index changes fastest, and writes each element to its place in row-major order. `width` is the
/// number of bytes of an element.
fn read_transposed(source: &mut impl Read, shape: &[u64], width: usize, out: &mut [u8]) -> io::Result<()> {
    let shape: Vec<usize> = shape.iter().map(|side| usize::try_from(*side).expect("a checked shape")).collect();
    let mut strides = vec![width; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    let (mut index, mut place) = (vec![0; shape.len()], 0);
    let mut chunk = [0; CHUNK_BYTES];
    let mut left = out.len();
    while left > 0 {
        let chunk = &mut chunk[..left.min(CHUNK_BYTES)];
        source.read_exact(chunk)?;
        left -= chunk.len();
        for element in chunk.chunks_exact(width) {
            out[place..place + width].copy_from_slice(element);
            for axis in 0..shape.len() {
                index[axis] += 1;
                place += strides[axis];
                if index[axis] < shape[axis] {
                    break;
                }
                place -= index[axis] * strides[axis];
                index[axis] = 0;
            }
        }
    }
    Ok(())
}
