//! The form of a [`Column`] in JSON: a function that makes its values is written as one more variant of the column's kind,
//! which holds how its input is decoded.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{EnumAccess, Error, VariantAccess, Visitor, value::UnitDeserializer},
};

use super::{Column, ColumnKind, ColumnValue, DefaultValue, Kind};
use crate::{Arguments, Callable, Returns, SourceDigest, Transform};
use spdl_types::DType;

/// The name of the enum for serde, which JSON does not contain.
const ENUM: &str = "ColumnKind";
/// The name of the variant of a column with a function.
const TRANSFORMED: &str = "transformed";

/// Writes a kind under its name, or its name alone.
pub(super) fn write_kind<S: Serializer, K: Kind>(serializer: S, kind: &K) -> Result<S::Ok, S::Error> {
    if K::IS_UNIT {
        serializer.serialize_unit_variant(ENUM, 0, K::NAME)
    } else {
        serializer.serialize_newtype_variant(ENUM, 0, K::NAME, kind)
    }
}

/// Reads a kind whose name has been read.
pub(super) fn read_kind<'de, A: VariantAccess<'de>, K: Kind>(variant: A) -> Result<K, A::Error> {
    if K::IS_UNIT {
        variant.unit_variant()?;
        K::deserialize(UnitDeserializer::new())
    } else {
        variant.newtype_variant()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "Column")]
pub(super) struct ColumnForm {
    name: String,
    from: Vec<String>,
    kind: KindForm,
    dtype: DType,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    path: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default: Option<DefaultValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    classes: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    deltas: Vec<i32>,
}

/// A kind, or a function and the kind of its input.
enum KindForm {
    Decoded(ColumnKind),
    Transformed(TransformForm),
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "Transform")]
struct TransformForm {
    function: String,
    decoded: ColumnKind,
    takes: DType,
    returns: Returns,
    #[serde(default, skip_serializing_if = "Arguments::is_empty")]
    arguments: Arguments,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<SourceDigest>,
}

impl From<Column> for ColumnForm {
    fn from(Column { name, from, kind, dtype, value, transform }: Column) -> Self {
        let kind = match transform {
            None => KindForm::Decoded(kind),
            Some(Transform { function: Callable { name: function, arguments, source }, takes, returns }) => {
                KindForm::Transformed(TransformForm { function, decoded: kind, takes, returns, arguments, source })
            }
        };
        let ColumnValue { path, default, classes, deltas } = value;
        Self { name, from, kind, dtype, path, default, classes, deltas }
    }
}

impl From<ColumnForm> for Column {
    fn from(ColumnForm { name, from, kind, dtype, path, default, classes, deltas }: ColumnForm) -> Self {
        let (kind, transform) = match kind {
            KindForm::Decoded(kind) => (kind, None),
            KindForm::Transformed(TransformForm { function, decoded, takes, returns, arguments, source }) => {
                (decoded, Some(Transform { function: Callable { name: function, arguments, source }, takes, returns }))
            }
        };
        Self { name, from, kind, dtype, value: ColumnValue { path, default, classes, deltas }, transform }
    }
}

impl Serialize for KindForm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Decoded(kind) => kind.serialize(serializer),
            Self::Transformed(transform) => serializer.serialize_newtype_variant(ENUM, 0, TRANSFORMED, transform),
        }
    }
}

impl<'de> Deserialize<'de> for KindForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_enum(ENUM, ColumnKind::NAMES, KindVisitor)
    }
}

impl<'de> Deserialize<'de> for ColumnKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match KindForm::deserialize(deserializer)? {
            KindForm::Decoded(kind) => Ok(kind),
            KindForm::Transformed(_) => Err(D::Error::custom("the input of a function is not decoded")),
        }
    }
}

struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = KindForm;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a kind of column")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<KindForm, A::Error> {
        let (name, variant) = data.variant::<String>()?;
        if name == TRANSFORMED {
            return variant.newtype_variant().map(KindForm::Transformed);
        }
        ColumnKind::read_variant(&name, variant).map(KindForm::Decoded)
    }
}
