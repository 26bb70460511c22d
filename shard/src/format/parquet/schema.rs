//! Derives the fields of records from the schema of a file.

use parquet::{
    basic::{ConvertedType, LogicalType, Repetition, Type},
    schema::types::{ColumnDescriptor, SchemaDescriptor, Type as SchemaType},
};
use spdl_types::DType;

use super::columns::{
    MAX_DECIMAL_BYTES, MAX_DECIMAL_DIGITS, MAX_DEFINITION, MAX_FIXED_BYTES, MAX_LISTS, ParquetColumn, Physical,
};

/// Upper limit of the length of a field's name, in bytes.
const MAX_NAME_BYTES: usize = 1024;

/// The columns of a file that are fields, and those that are not, with the reason.
#[derive(Debug, Default)]
pub(super) struct Schema {
    /// Each with its number in the file.
    pub(super) columns: Vec<(usize, ParquetColumn)>,
    pub(super) left_out: Vec<(String, &'static str)>,
}

impl Schema {
    pub(super) fn of(schema: &SchemaDescriptor) -> Self {
        let mut found = Self::default();
        for (number, leaf) in schema.columns().iter().enumerate() {
            let name = field_name(schema.root_schema(), leaf.path().parts());
            let column =
                column(leaf, &name, list_levels(schema.root_schema(), leaf.path().parts())).and_then(|column| {
                    match found.columns.iter().any(|(_, c)| c.name == name) {
                        true => Err("another column has the same name"),
                        false => Ok(column),
                    }
                });
            match column {
                Ok(column) => found.columns.push((number, column)),
                Err(reason) => found.left_out.push((name.escape_debug().to_string(), reason)),
            }
        }
        found
    }
}

impl Schema {
    /// Leaves out the columns of the file for whose numbers `is_left_out` is true.
    pub(super) fn leave_out(&mut self, reason: &'static str, is_left_out: impl Fn(usize) -> bool) {
        for (_, column) in self.columns.extract_if(.., |(number, _)| is_left_out(*number)) {
            self.left_out.push((column.name.escape_debug().to_string(), reason));
        }
    }
}

/// Returns the path of a leaf without the parts that only lists and maps have: `a.list.element.x` is `a.x`, and `a.key_value.key`
/// is `a.key`.
fn field_name(root: &SchemaType, path: &[String]) -> String {
    let (mut names, mut node, mut parts) = (Vec::new(), root, path.iter());
    let child = |node: &'_ SchemaType, part: &String| -> Option<usize> {
        node.is_group().then(|| node.get_fields().iter().position(|field| field.name() == part)).flatten()
    };
    while let Some(part) = parts.next() {
        names.push(part.as_str());
        let Some(at) = child(node, part) else { continue };
        node = &node.get_fields()[at];
        if is_map(node)
            && let Some(at) = parts.clone().next().and_then(|part| child(node, part))
        {
            node = &node.get_fields()[at];
            parts.next();
            continue;
        }
        // In a list, skip the repeated group and its only member, which may be a list again.
        let mut wrappers = if is_list(node) { 2 } else { 0 };
        while wrappers > 0 {
            let inner = parts.clone().next().and_then(|part| child(node, part));
            let Some(at) = inner.filter(|_| node.get_fields().len() == 1) else { break };
            node = &node.get_fields()[at];
            parts.next();
            wrappers = if wrappers == 1 && is_list(node) { 2 } else { wrappers - 1 };
        }
    }
    names.join(".")
}

/// Returns the definition level of an element of each list on the way to a leaf.
fn list_levels(root: &SchemaType, path: &[String]) -> Vec<u16> {
    let (mut node, mut level, mut lists) = (root, 0, Vec::new());
    for part in path {
        let children = if node.is_group() { node.get_fields() } else { &[] };
        let Some(child) = children.iter().find(|child| child.name() == part) else { break };
        node = child;
        match node.get_basic_info().repetition() {
            Repetition::REQUIRED => {}
            Repetition::OPTIONAL => level += 1,
            Repetition::REPEATED => {
                level += 1;
                lists.push(level);
            }
        }
    }
    lists
}

fn is_list(node: &SchemaType) -> bool {
    let info = node.get_basic_info();
    node.is_group()
        && (info.converted_type() == ConvertedType::LIST || matches!(info.logical_type_ref(), Some(LogicalType::List)))
}

/// Returns whether a group has a repeated group of keys and values.
fn is_map(node: &SchemaType) -> bool {
    let info = node.get_basic_info();
    let is_stated = matches!(info.converted_type(), ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE)
        || matches!(info.logical_type_ref(), Some(LogicalType::Map));
    node.is_group() && is_stated && node.get_fields().len() == 1 && node.get_fields()[0].is_group()
}

/// Describes the column of a leaf, or returns why the leaf cannot be a field.
fn column(leaf: &ColumnDescriptor, name: &str, lists: Vec<u16>) -> Result<ParquetColumn, &'static str> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(char::is_control) {
        return Err("it cannot be the name of a field");
    }
    if leaf.max_rep_level() > MAX_LISTS as i16 {
        return Err("lists of lists of lists are not read");
    }
    let max_definition = u16::try_from(leaf.max_def_level()).ok().filter(|level| *level <= MAX_DEFINITION);
    let max_definition = max_definition.ok_or("it is nested too deeply")?;
    let is_fixed = leaf.physical_type() == Type::FIXED_LEN_BYTE_ARRAY;
    let length = if is_fixed { u32::try_from(leaf.type_length()).unwrap_or(0) } else { 0 };
    if is_fixed && !(1..=MAX_FIXED_BYTES).contains(&length) {
        return Err("its values have no bytes, or too many");
    }
    let (physical, elements, decimal_digits) = types(leaf)?;
    if lists.len() > 1 && elements.is_none() {
        return Err("lists of lists of text or bytes are not read");
    }
    let column =
        ParquetColumn { name: name.to_owned(), physical, length, elements, decimal_digits, max_definition, lists };
    if column.is_consistent() { Ok(column) } else { Err("its type contradicts itself") }
}

/// Returns how values are stored, the type of their elements, and for decimals the number of digits after the point.
fn types(leaf: &ColumnDescriptor) -> Result<(Physical, Option<DType>, Option<u8>), &'static str> {
    let info = leaf.self_type().get_basic_info();
    let is_decimal = info.converted_type() == ConvertedType::DECIMAL
        || matches!(info.logical_type_ref(), Some(LogicalType::Decimal(_)));
    if is_decimal {
        let digits = u8::try_from(leaf.type_scale()).ok().filter(|digits| *digits <= MAX_DECIMAL_DIGITS);
        let is_short =
            leaf.type_precision() <= MAX_DECIMAL_DIGITS.into() && leaf.type_length() <= MAX_DECIMAL_BYTES as i32;
        let digits = digits.filter(|_| is_short).ok_or("decimals of more than 38 digits are not read")?;
        let physical = match leaf.physical_type() {
            Type::INT32 => Physical::Int32,
            Type::INT64 => Physical::Int64,
            Type::BYTE_ARRAY => Physical::ByteArray,
            Type::FIXED_LEN_BYTE_ARRAY => Physical::FixedLenByteArray,
            _ => return Err("its type contradicts itself"),
        };
        let elements = if digits == 0 { DType::I64 } else { DType::F64 };
        return Ok((physical, Some(elements), Some(digits)));
    }
    let (physical, elements) = match leaf.physical_type() {
        Type::BOOLEAN => (Physical::Boolean, Some(DType::Bool)),
        Type::INT32 => (Physical::Int32, Some(int32(info.converted_type()))),
        Type::INT64 if info.converted_type() == ConvertedType::UINT_64 => (Physical::Int64, Some(DType::U64)),
        Type::INT64 => (Physical::Int64, Some(DType::I64)),
        Type::INT96 => (Physical::Int96, Some(DType::I64)),
        Type::FLOAT => (Physical::Float, Some(DType::F32)),
        Type::DOUBLE => (Physical::Double, Some(DType::F64)),
        Type::BYTE_ARRAY => (Physical::ByteArray, None),
        Type::FIXED_LEN_BYTE_ARRAY if matches!(info.logical_type_ref(), Some(LogicalType::Float16)) => {
            (Physical::FixedLenByteArray, Some(DType::F16))
        }
        Type::FIXED_LEN_BYTE_ARRAY => (Physical::FixedLenByteArray, None),
    };
    Ok((physical, elements, None))
}

const fn int32(converted: ConvertedType) -> DType {
    match converted {
        ConvertedType::INT_8 => DType::I8,
        ConvertedType::UINT_8 => DType::U8,
        ConvertedType::INT_16 => DType::I16,
        ConvertedType::UINT_16 => DType::U16,
        ConvertedType::UINT_32 => DType::U32,
        _ => DType::I32,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::schema::parser::parse_message_type;

    use super::*;

    #[test]
    fn leaves_are_called_by_their_path_without_what_lists_add() {
        let schema = "message rows {
            required int32 plain;
            optional group image { optional binary bytes; optional binary path (UTF8); }
            optional group scores (LIST) { repeated group list { optional float element; } }
            optional group points (LIST) { repeated group list { optional group element { required double x; required binary n; } } }
            optional group pages (LIST) { repeated group list { optional group element (LIST) { repeated group list { optional binary element; } } } }
            optional group nested (LIST) { repeated group list { optional group element (LIST) { repeated group list { optional int64 element; } } } }
            optional group objects (LIST) { repeated group list { optional group element { optional group bbox (LIST) { repeated group list { required float element; } } } } }
            optional group deep (LIST) { repeated group list { required group element (LIST) { repeated group list { required group element (LIST) { repeated group list { required float element; } } } } } }
            optional group odd (LIST) { repeated int32 a; repeated int32 b; }
            optional group old (LIST) { repeated int32 array; }
            repeated int32 bare;
            required int32 money (DECIMAL(9, 2));
            optional fixed_len_byte_array(16) whole (DECIMAL(38, 0));
            optional fixed_len_byte_array(32) long (DECIMAL(60, 2));
            optional group tags (MAP) { repeated group key_value { required binary key (UTF8); optional int64 value; } }
            optional group boxes (MAP) { repeated group key_value { required binary key (UTF8);
                optional group value (LIST) { repeated group list { optional float element; } } } }
        }";
        let schema = Schema::of(&SchemaDescriptor::new(Arc::new(parse_message_type(schema).unwrap())));
        let names: Vec<_> = schema.columns.iter().map(|(number, column)| (*number, column.name.as_str())).collect();
        let expected =
            ["plain", "image.bytes", "image.path", "scores", "points.x", "points.n", "nested", "objects.bbox"];
        assert_eq!(names[..8].iter().map(|(_, name)| *name).collect::<Vec<_>>(), expected);
        let rest =
            [(10, "odd.a"), (11, "odd.b"), (12, "old"), (13, "bare"), (14, "money"), (15, "whole"), (17, "tags.key")];
        assert_eq!(names[8..15], rest);
        assert_eq!(names[15..], [(18, "tags.value"), (19, "boxes.key"), (20, "boxes.value")]);
        let decimals: Vec<_> = schema.columns[12..14].iter().map(|(_, c)| (c.decimal_digits, c.elements)).collect();
        assert_eq!(decimals, [(Some(2), Some(DType::F64)), (Some(0), Some(DType::I64))]);
        let lists: Vec<_> = schema.columns.iter().map(|(_, column)| &column.lists[..]).collect();
        let expected: [&[u16]; 18] = [
            &[],
            &[],
            &[],
            &[2],
            &[2],
            &[2],
            &[2, 4],
            &[2, 5],
            &[2],
            &[2],
            &[2],
            &[1],
            &[],
            &[],
            &[2],
            &[2],
            &[2],
            &[2, 4],
        ];
        assert_eq!(lists, expected);
        let left_out: Vec<_> = schema.left_out.iter().map(|(name, reason)| (name.as_str(), *reason)).collect();
        let [pages, deep, long] = left_out[..] else { panic!("{left_out:?}") };
        assert_eq!(pages, ("pages", "lists of lists of text or bytes are not read"));
        assert_eq!(deep, ("deep", "lists of lists of lists are not read"));
        assert_eq!(long, ("long", "decimals of more than 38 digits are not read"));
    }
}
