//! The form of a [`Column`] in messages and in a coordinator's state: a function that makes its values is written as one
//! more variant of the column's kind, which holds how its input is decoded.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{EnumAccess, VariantAccess, Visitor},
};

use super::{Column, ColumnKind, DType, ENUM, TRANSFORMED, read_variant};
use crate::job::{
    named::VariantId,
    transform::{Returns, Transform},
};

const TRANSFORMED_NAME: &str = "transformed";

#[derive(Serialize, Deserialize)]
#[serde(rename = "Column")]
struct ColumnForm<'a> {
    name: Cow<'a, str>,
    from: Cow<'a, [String]>,
    kind: KindForm<'a>,
    dtype: DType,
}

/// A kind, or a function and the kind of its input.
enum KindForm<'a> {
    Decoded(Cow<'a, ColumnKind>),
    Transformed(TransformForm<'a>),
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "Transform")]
struct TransformForm<'a> {
    function: Cow<'a, str>,
    decoded: Cow<'a, ColumnKind>,
    takes: DType,
    returns: Cow<'a, Returns>,
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let decoded = Cow::Borrowed(&self.kind);
        let kind = match &self.transform {
            None => KindForm::Decoded(decoded),
            Some(Transform { function, takes, returns }) => KindForm::Transformed(TransformForm {
                function: Cow::Borrowed(function),
                decoded,
                takes: *takes,
                returns: Cow::Borrowed(returns),
            }),
        };
        let (name, from) = (Cow::Borrowed(self.name.as_str()), Cow::Borrowed(self.from.as_slice()));
        ColumnForm { name, from, kind, dtype: self.dtype }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Column {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ColumnForm { name, from, kind, dtype } = ColumnForm::deserialize(deserializer)?;
        let (kind, transform) = match kind {
            KindForm::Decoded(kind) => (kind, None),
            KindForm::Transformed(TransformForm { function, decoded, takes, returns }) => {
                let transform = Transform { function: function.into_owned(), takes, returns: returns.into_owned() };
                (decoded, Some(transform))
            }
        };
        Ok(Self { name: name.into_owned(), from: from.into_owned(), kind: kind.into_owned(), dtype, transform })
    }
}

impl Serialize for KindForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Decoded(kind) => kind.serialize(serializer),
            Self::Transformed(transform) => {
                serializer.serialize_newtype_variant(ENUM, TRANSFORMED, TRANSFORMED_NAME, transform)
            }
        }
    }
}

impl<'de> Deserialize<'de> for KindForm<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_enum(ENUM, ColumnKind::NAMES, FormVisitor)
    }
}

struct FormVisitor;

impl<'de> Visitor<'de> for FormVisitor {
    type Value = KindForm<'static>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a kind of column")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<KindForm<'static>, A::Error> {
        let (id, variant) = data.variant()?;
        match id {
            VariantId::Number(TRANSFORMED) => variant.newtype_variant().map(KindForm::Transformed),
            VariantId::Name(name) if name == TRANSFORMED_NAME => variant.newtype_variant().map(KindForm::Transformed),
            id => read_variant(id, variant).map(|kind| KindForm::Decoded(Cow::Owned(kind))),
        }
    }
}
