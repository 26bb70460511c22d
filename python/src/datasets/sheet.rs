//! Draws batches.

use pyo3::{prelude::*, types::PyBytes};
use spdl_cli::sheet::{self, SheetColumn, SheetValues};

use crate::errors::ErrorKind;

/// A column: its name, shape, offsets if it is ragged, type (`u8`, `i64`, `f32`) and bytes.
type NativeColumn = (String, Vec<usize>, Option<Vec<usize>>, String, Vec<u8>);

/// Returns a PNG of the first samples of a batch.
#[pyfunction]
pub(crate) fn sheet_png(
    py: Python<'_>,
    columns: Vec<NativeColumn>,
    most: usize,
    classes: Vec<String>,
) -> PyResult<Py<PyBytes>> {
    let columns = columns.into_iter().map(|(name, shape, offsets, dtype, bytes)| {
        let values = match dtype.as_str() {
            "i64" => SheetValues::I64(bytes.as_chunks().0.iter().map(|value| i64::from_le_bytes(*value)).collect()),
            "f32" => SheetValues::F32(bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect()),
            _ => SheetValues::U8(bytes),
        };
        SheetColumn { name, shape, offsets, values }
    });
    let columns: Vec<SheetColumn> = columns.collect();
    let drawn = py.detach(|| sheet::png(&columns, most, &classes));
    let png = drawn.map_err(|problem| ErrorKind::Setting.error(py, &problem, None))?;
    Ok(PyBytes::new(py, &png).unbind())
}
