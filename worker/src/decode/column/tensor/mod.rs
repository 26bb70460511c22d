//! The kind `tensor`: writes the array that a field holds straight into its place. It reads what NumPy reads: all versions of
//! the header, both byte orders, both orders of the elements. It refuses Python objects (pickle), and it allocates nothing
//! for what a file claims.

mod npy;
mod npz;
#[cfg(test)]
mod tests;

use std::io::{self, Read};

use spdl_core::job::{DType, TensorColumn, TensorEncoding};

use super::{ColumnDecoder, ColumnSample, FieldTarget};
use crate::decode::cause::{BadSampleProblem, quoted, reason};
use npy::{Element, Header};
use npz::ArrayFile;

/// Number of bytes that are read at once of an array whose elements change their places; a multiple of every element's.
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

impl ColumnDecoder for TensorDecoder {
    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> Result<(), BadSampleProblem> {
        self.read(&sample.bytes, target.fixed()).map_err(|problem| BadSampleProblem::Undecodable {
            field: sample.field.to_owned(),
            reason: reason(problem),
        })
    }
}

impl TensorDecoder {
    fn read(&self, bytes: &[u8], out: &mut [u8]) -> Result<(), String> {
        match self.column.encoding {
            TensorEncoding::Raw => self.read_raw(bytes, out),
            TensorEncoding::Numpy => self.read_numpy(bytes, out),
        }
    }

    fn read_raw(&self, bytes: &[u8], out: &mut [u8]) -> Result<(), String> {
        if bytes.len() != out.len() {
            let (actual, wanted, column) = (bytes.len(), out.len(), self.wanted());
            return Err(format!("it is {actual} bytes, and the column wants {wanted}: {column}"));
        }
        out.copy_from_slice(bytes);
        self.convert(false, out);
        Ok(())
    }

    /// Reads a `.npy` or `.npz` file.
    fn read_numpy(&self, mut bytes: &[u8], out: &mut [u8]) -> Result<(), String> {
        let array = self.column.array.as_deref();
        if !bytes.starts_with(npz::MAGIC) {
            if let Some(array) = array {
                return Err(format!("it is no .npz file, so it has no array `{}`", quoted(array.as_bytes())));
            }
            return self.read_array(&mut bytes, out);
        }
        match npz::find(bytes, array)? {
            ArrayFile::Stored(mut bytes) => self.read_array(&mut bytes, out),
            ArrayFile::Deflated(mut source) => self.read_array(&mut *source, out),
        }
    }

    /// Reads a `.npy` file. As in NumPy, it may go on after the array.
    fn read_array(&self, source: &mut impl Read, out: &mut [u8]) -> Result<(), String> {
        let header = npy::read_header(source)?;
        let is_big_endian = self.check(&header)?;
        let read = if header.is_fortran { self.read_transposed(source, out) } else { source.read_exact(out) };
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => format!("it is cut off: {} takes {} bytes", self.wanted(), out.len()),
            _ => error.to_string(),
        })?;
        self.convert(is_big_endian, out);
        Ok(())
    }

    /// Checks that the array has the column's type and shape. Returns whether its elements are big-endian.
    fn check(&self, Header { element, shape, .. }: &Header) -> Result<bool, String> {
        let (name, is_big_endian) = match element {
            Element::Number { dtype, is_big_endian } => (dtype.name(), *is_big_endian),
            Element::TwoBytes if self.dtype == DType::Bf16 => (DType::Bf16.name(), false),
            Element::TwoBytes => ("elements of two bytes", false),
            Element::Object => {
                let wanted = self.dtype.name();
                return Err(format!(
                    "it holds Python objects (pickle), which are never read; save an array of {wanted}"
                ));
            }
            Element::Other(descr) => (descr.as_str(), false),
        };
        let is_shape = shape.iter().copied().eq(self.column.shape.iter().map(|side| u64::from(*side)));
        if name == self.dtype.name() && is_shape {
            return Ok(is_big_endian);
        }
        Err(format!("it holds {name} {shape:?}, and the column wants {}", self.wanted()))
    }

    /// Describes the arrays of the column.
    fn wanted(&self) -> String {
        format!("{} {:?}", self.dtype.name(), self.column.shape)
    }

    /// Reads an array whose first index changes fastest, and writes each element to its place in row-major order.
    fn read_transposed(&self, source: &mut impl Read, out: &mut [u8]) -> io::Result<()> {
        let width = self.dtype.bytes();
        let shape: Vec<usize> = self.column.shape.iter().map(|side| *side as usize).collect();
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
