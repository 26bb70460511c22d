//! The sheet of a dataset: a batch of the suggested job, with whole pictures.

use spdl_client::BatchColumn;
use spdl_job::JobFile;
use spdl_types::DType;

use super::super::CtlError;
use crate::{
    local,
    sheet::{self, SheetColumn, SheetValues},
    suggest::{JobPurpose, SIZE, SeenDataset, SuggestionOptions},
};

/// The most pictures.
const PICTURES: u32 = 16;

/// Returns a PNG with the first pictures.
pub(super) async fn png(seen: &SeenDataset) -> Result<Vec<u8>, CtlError> {
    let (name, dataset) = ("sheet".to_owned(), seen.url().to_owned());
    let options = SuggestionOptions { purpose: JobPurpose::Sheet, name, dataset, size: SIZE, batch: Some(PICTURES) };
    let job = JobFile::parse(&seen.job(&options, None).text, "the suggested job")?;
    let mut loader = local::builder(job).open().await?;
    let columns: Vec<SheetColumn> = match loader.next().await? {
        Some(batch) => batch.columns().filter_map(|column| of_column(&column)).collect(),
        None => Vec::new(),
    };
    let classes: Vec<String> = seen.manifest().classes().map(str::to_owned).collect();
    loader.close().await;
    sheet::png(&columns, PICTURES as usize, &classes).map_err(|problem| CtlError::Flag { flag: "--sheet", problem })
}

/// Returns a column whose values a sheet shows.
fn of_column(column: &BatchColumn<'_>) -> Option<SheetColumn> {
    let values = match column.dtype() {
        DType::U8 => SheetValues::U8(column.bytes().to_vec()),
        DType::I64 => SheetValues::I64(column.as_slice().ok()?.to_vec()),
        DType::F32 => SheetValues::F32(column.as_slice().ok()?.to_vec()),
        DType::F64 => SheetValues::F32(column.as_slice::<f64>().ok()?.iter().map(|value| *value as f32).collect()),
        _ => return None,
    };
    let offsets = column.offsets().map(|offsets| offsets.iter().map(|offset| *offset as usize).collect());
    Some(SheetColumn { name: column.name().to_owned(), shape: column.values_shape(), offsets, values })
}
