//! The values of a record's fields, as expressions compare them.

use std::borrow::Cow;

use bytes::Bytes;
use spdl_order::view::Value;
use spdl_shard::{
    format::{Array, Content, FieldValue, KEY_NAME, Record, ShardIndex},
    json,
};
use spdl_types::DType;

/// A name in a view: a field of the records, a member of a JSON document, or the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResolvedName {
    /// The number of the field.
    Field(u32),
    /// The number of a field with a JSON document, and the names of the members that lead to the value.
    Member(u32, Vec<String>),
    /// The record's key.
    Key,
    /// The record has nothing of that name.
    Nothing,
}

/// The name by which views also call a record's key, if no field has it.
pub(super) const SHORT_KEY_NAME: &str = "key";

/// The value of a name, as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FoundValue {
    Nothing,
    Number(Value<'static>),
    Text(Bytes),
    Json(serde_json::Value),
    Key(String),
    /// A value that is no single value, or was not read. The text describes it.
    Opaque(&'static str),
}

impl ResolvedName {
    /// Finds a name in a record: the field of that name, else a member of the field whose name it begins with.
    pub(crate) fn of(name: &str, index: &dyn ShardIndex, record: &Record<'_>) -> Self {
        if let Some(field) = index.field_number(record, name) {
            return Self::Field(field);
        }
        for (dot, _) in name.rmatch_indices('.') {
            if let Some(field) = index.field_number(record, &name[..dot]) {
                return Self::Member(field, name[dot + 1..].split('.').map(str::to_owned).collect());
            }
        }
        if [KEY_NAME, SHORT_KEY_NAME].contains(&name) { Self::Key } else { Self::Nothing }
    }

    /// Returns the field that is read for it.
    pub(crate) const fn field(&self) -> Option<u32> {
        match self {
            Self::Field(field) | Self::Member(field, _) => Some(*field),
            Self::Key | Self::Nothing => None,
        }
    }
}

impl FoundValue {
    /// Returns the value of a field's content.
    ///
    /// # Errors
    /// If it is damaged, with the reason.
    pub(super) fn of(value: FieldValue) -> Result<Self, String> {
        let FieldValue::One(content) = value else { return Ok(Self::Opaque("a list, which has no single value")) };
        match content {
            Content::File(bytes) => Ok(Self::Text(bytes)),
            Content::Array(Array { dtype, shape, elements }) if shape.is_empty() => {
                let number = number(dtype, &elements);
                number.map(Self::Number).ok_or_else(|| "is not a number".to_owned())
            }
            Content::Array(_) => Ok(Self::Opaque("a list or an array, which has no single value")),
        }
    }

    /// Returns the value of a member of a JSON document.
    pub(super) fn of_member(document: &serde_json::Value, path: &[String]) -> Self {
        json::at(document, path)
            .filter(|value| !value.is_null())
            .map_or(Self::Nothing, |value| Self::Json(value.clone()))
    }

    /// Returns the value.
    pub(super) fn value(&self) -> Value<'_> {
        match self {
            Self::Nothing => Value::Null,
            Self::Number(value) => *value,
            Self::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Value::Untyped(text.trim_end_matches(['\r', '\n'])),
                Err(_) => Value::Opaque("no text"),
            },
            Self::Key(key) => Value::Text(key),
            Self::Opaque(what) => Value::Opaque(what),
            Self::Json(value) => match value {
                serde_json::Value::Null => Value::Null,
                serde_json::Value::Bool(truth) => Value::Bool(*truth),
                serde_json::Value::Number(number) => match (number.as_i128(), number.as_f64()) {
                    (Some(number), _) => Value::Int(number),
                    (None, Some(number)) => Value::F64(number),
                    (None, None) => Value::Opaque("not a number of 64 bits"),
                },
                serde_json::Value::String(text) => json::non_finite(text).map_or(Value::Text(text), Value::F64),
                serde_json::Value::Array(_) => Value::Opaque("a list"),
                serde_json::Value::Object(_) => Value::Opaque("an object, of which members can be named"),
            },
        }
    }

    /// Returns bytes that are equal if the values are, to recognise equal values. Returns `None` for null and for a
    /// value that is not single or was not read.
    pub(super) fn identity(&self) -> Option<Cow<'_, [u8]>> {
        Some(match self {
            Self::Nothing | Self::Opaque(_) => return None,
            Self::Text(bytes) => Cow::Borrowed(bytes),
            Self::Key(key) => Cow::Borrowed(key.as_bytes()),
            Self::Number(value) => Cow::Owned(format!("{value:?}").into_bytes()),
            Self::Json(value) => Cow::Owned(value.to_string().into_bytes()),
        })
    }
}

/// Reads a number of this type; `None` if the bytes are not one.
pub(super) fn number(dtype: DType, bytes: &[u8]) -> Option<Value<'static>> {
    macro_rules! read {
        ($number:ty) => {
            <$number>::from_le_bytes(bytes.try_into().ok()?)
        };
    }
    Some(match dtype {
        DType::Bool => Value::Bool(read!(u8) != 0),
        DType::U8 => Value::Int(read!(u8).into()),
        DType::I8 => Value::Int(read!(i8).into()),
        DType::U16 => Value::Int(read!(u16).into()),
        DType::I16 => Value::Int(read!(i16).into()),
        DType::U32 => Value::Int(read!(u32).into()),
        DType::I32 => Value::Int(read!(i32).into()),
        DType::U64 => Value::Int(read!(u64).into()),
        DType::I64 => Value::Int(read!(i64).into()),
        DType::F32 => Value::F32(read!(f32)),
        DType::F64 => Value::F64(read!(f64)),
        DType::Bf16 => Value::F32(f32::from_bits(u32::from(read!(u16)) << 16)),
        DType::F16 => Value::F32(half(read!(u16))),
    })
}

/// Converts a number of half precision.
fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2_f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2_f32.powi(exponent - 25),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_half_precision_are_exact() {
        for (bits, expected) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65_504.0),
            (0x0400, 6.103_515_6e-5),
            (0x0001, 5.960_464_5e-8),
            (0x3555, 0.333_251_95),
            (0x7c00, f32::INFINITY),
            (0, 0.0),
        ] {
            assert_eq!(half(bits), expected, "{bits:x}");
        }
        assert!(half(0x7e00).is_nan());
    }

    #[test]
    fn members_of_documents_are_found_by_their_path() {
        let document = serde_json::json!({ "a": { "b": [1, { "c": "x" }] }, "n": null, "f": 0.5 });
        let found = |path: &str| {
            let path: Vec<String> = path.split('.').map(str::to_owned).collect();
            FoundValue::of_member(&document, &path)
        };
        assert_eq!(found("a.b.0").value(), Value::Int(1));
        assert_eq!(found("a.b.1.c").value(), Value::Text("x"));
        assert_eq!(found("f").value(), Value::F64(0.5));
        for nothing in ["n", "a.x", "a.b.7", "f.g"] {
            assert_eq!(found(nothing), FoundValue::Nothing, "{nothing}");
        }
        assert!(matches!(found("a").value(), Value::Opaque(what) if what.contains("object")));
    }
}
