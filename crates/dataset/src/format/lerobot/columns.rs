//! Reads some columns of a Parquet file, all rows of them.

use std::{ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};
use spdl_shard::{
    format::{Content, DecodedBlock, FieldValue, Format as _, MadeIndex, ShardIndex, parquet::Parquet},
    manifest::{MetadataPlace, Shard},
};
use spdl_store::blocking;
use spdl_types::{DType, Fingerprint};

use crate::{DatasetError, format::footer_files::FooterFile};

/// Some columns of a file.
pub(super) struct ReadColumns {
    index: Arc<dyn ShardIndex>,
    rows: Arc<dyn DecodedBlock>,
}

impl ReadColumns {
    /// Reads those of the columns `names` that the file has.
    pub(super) async fn read(file: &FooterFile, made: &MadeIndex, names: Vec<String>) -> Result<Self, DatasetError> {
        let index = Parquet.open_index(made.index.clone(), made.hash);
        let index = index.map_err(|source| DatasetError::Unwritable { url: file.path().to_owned(), source })?;
        let shard = Shard {
            format: &Parquet,
            url: file.path(),
            bytes: file.bytes(),
            etag: None,
            first_sample: 0,
            samples: made.records,
            records: made.records,
            index_bytes: 0,
            index_hash: Fingerprint(0),
            place: MetadataPlace::Hidden,
        };
        let ranges = index.project(0..index.shard_bytes(), &names);
        let mut read: Vec<(u64, Bytes)> = Vec::with_capacity(ranges.len());
        for range in &ranges {
            let mut bytes = BytesMut::new();
            for part in index.plan(&shard, std::slice::from_ref(range)) {
                bytes.extend_from_slice(&file.read(part.range).await?);
            }
            read.push((range.start, bytes.freeze()));
        }
        let decoding = Arc::clone(&index);
        let decode = move || {
            let fetched = |range: Range<u64>| {
                let at = read.partition_point(|(start, _)| *start <= range.start).checked_sub(1)?;
                let (start, bytes) = &read[at];
                let place = (range.start - start) as usize..(range.end - start) as usize;
                (place.end <= bytes.len()).then(|| bytes.slice(place))
            };
            decoding.decode(&ranges, &fetched).expect("Parquet is decoded")
        };
        Ok(Self { rows: blocking(decode).await, index })
    }

    /// Returns whether the file has a column of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.number(name).is_some()
    }

    fn number(&self, name: &str) -> Option<u32> {
        (self.index.record_count() > 0).then(|| self.index.field_number(&self.index.record(0), name)).flatten()
    }

    /// Returns the whole numbers of a column.
    ///
    /// # Errors
    /// If there is no such column, or a row has no whole number in it.
    pub(super) fn integers(&self, name: &str) -> Result<Vec<i64>, String> {
        self.numbers(name, |dtype, bytes| match dtype {
            DType::I64 | DType::U64 => Some(i64::from_le_bytes(*bytes.first_chunk()?)),
            DType::I32 => Some(i32::from_le_bytes(*bytes.first_chunk()?).into()),
            _ => None,
        })
    }

    /// Returns the floats of a column.
    ///
    /// # Errors
    /// As [`integers`](Self::integers).
    pub(super) fn floats(&self, name: &str) -> Result<Vec<f64>, String> {
        self.numbers(name, |dtype, bytes| match dtype {
            DType::F32 => Some(f32::from_le_bytes(*bytes.first_chunk()?).into()),
            DType::F64 => Some(f64::from_le_bytes(*bytes.first_chunk()?)),
            _ => None,
        })
    }

    fn numbers<N>(&self, name: &str, number: impl Fn(DType, &[u8]) -> Option<N>) -> Result<Vec<N>, String> {
        let Some(nth) = self.number(name) else {
            return if self.index.record_count() == 0 {
                Ok(Vec::new())
            } else {
                Err(format!("has no column `{name}`"))
            };
        };
        let value = |row: u32| {
            let found = self.rows.number(row, nth).and_then(|(dtype, bytes)| number(dtype, bytes));
            found.ok_or_else(|| match self.rows.open(row, nth) {
                Err(error) => format!("has a column `{name}` that cannot be read: {error:?}"),
                Ok(_) => format!("has no number of the type that LeRobot writes in column `{name}` of row {row}"),
            })
        };
        (0..self.index.record_count()).map(value).collect()
    }

    /// Returns the texts of a column.
    ///
    /// # Errors
    /// If there is no such column, or a row has no text in it.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        let Some(nth) = self.number(name) else {
            return if self.index.record_count() == 0 {
                Ok(Vec::new())
            } else {
                Err(format!("has no column `{name}`"))
            };
        };
        let value = |row: u32| match self.rows.open(row, nth) {
            Ok(Some(FieldValue::One(Content::File(text)))) => String::from_utf8(text.to_vec()).ok(),
            _ => None,
        };
        let text = |row| value(row).ok_or_else(|| format!("has no text in column `{name}` of row {row}"));
        (0..self.index.record_count()).map(text).collect()
    }
}
