//! Reads whole rows of Parquet files, as JSON: what a line of JSON lines has.

use parquet::{
    file::{reader::FileReader as _, serialized_reader::SerializedFileReader},
    record::{Field, Row},
};
use serde::{Serialize, Serializer};
use spdl_dataset::DatasetError;

use super::{
    EachText,
    file::TextFile,
    windows::{ColumnWindows, caught, unusable},
};

/// Reads the rows of row group `number`, which begin at `first_row` in the file.
pub(super) fn group_rows(
    file: &TextFile,
    opened: &SerializedFileReader<ColumnWindows>,
    number: usize,
    (first_row, rows): (u64, u64),
    each: &mut EachText<'_>,
) -> Result<(), DatasetError> {
    let fail = |error| unusable(file, error);
    let group = caught(|| opened.get_row_group(number)).map_err(fail)?;
    let mut read = caught(|| group.get_row_iter(None)).map_err(fail)?;
    for row in first_row..first_row + rows {
        let place = |problem: String| file.wrong_in_row(row, problem);
        let record = caught(|| read.next().transpose()).map_err(fail)?;
        let record =
            record.ok_or_else(|| place("is missing: its row group has fewer rows than it states".to_owned()))?;
        let json = serde_json::to_string(&JsonRow(&record)).map_err(|error| place(error.to_string()))?;
        each(Ok(&json), &place)?;
    }
    Ok(())
}

/// A row as an object of JSON, its fields in their order.
struct JsonRow<'r>(&'r Row);

/// A value of a row as JSON. Bytes are texts if they are UTF-8, and else null; what JSON has no type for, such as a date, is a text.
struct JsonField<'r>(&'r Field);

/// The key of a map's entry.
struct JsonKey<'r>(&'r Field);

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.get_column_iter().map(|(name, field)| (name, JsonField(field))))
    }
}

impl Serialize for JsonField<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Field::Null => serializer.serialize_unit(),
            Field::Bool(value) => serializer.serialize_bool(*value),
            Field::Byte(value) => serializer.serialize_i8(*value),
            Field::Short(value) => serializer.serialize_i16(*value),
            Field::Int(value) => serializer.serialize_i32(*value),
            Field::Long(value) => serializer.serialize_i64(*value),
            Field::UByte(value) => serializer.serialize_u8(*value),
            Field::UShort(value) => serializer.serialize_u16(*value),
            Field::UInt(value) => serializer.serialize_u32(*value),
            Field::ULong(value) => serializer.serialize_u64(*value),
            Field::Float16(value) => serializer.serialize_f32(value.to_f32()),
            Field::Float(value) => serializer.serialize_f32(*value),
            Field::Double(value) => serializer.serialize_f64(*value),
            Field::Str(text) => serializer.serialize_str(text),
            Field::Bytes(bytes) => match str::from_utf8(bytes.data()) {
                Ok(text) => serializer.serialize_str(text),
                Err(_) => serializer.serialize_unit(),
            },
            Field::Group(row) => JsonRow(row).serialize(serializer),
            Field::ListInternal(list) => serializer.collect_seq(list.elements().iter().map(JsonField)),
            Field::MapInternal(map) => {
                serializer.collect_map(map.entries().iter().map(|(key, value)| (JsonKey(key), JsonField(value))))
            }
            Field::Decimal(_)
            | Field::Date(_)
            | Field::TimeMillis(_)
            | Field::TimeMicros(_)
            | Field::TimestampMillis(_)
            | Field::TimestampMicros(_) => serializer.collect_str(self.0),
        }
    }
}

impl Serialize for JsonKey<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Field::Str(text) => serializer.serialize_str(text),
            other => serializer.collect_str(other),
        }
    }
}
