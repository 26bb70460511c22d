//! The form of a [`Column`] in messages and in a coordinator's state: a function that makes its values is written as one
//! more variant of the column's kind, which holds how its input is decoded.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{EnumAccess, VariantAccess, Visitor},
};

use spdl_types::variant::VariantId;

use super::{Column, ColumnKind, ENUM, NAMED, TRANSFORMED, read_named, read_variant};
use crate::{
    Arguments, Callable, SourceDigest,
    named::Named,
    transform::{Returns, Transform},
};
use spdl_types::DType;

const TRANSFORMED_NAME: &str = "transformed";
/// The first release that knows functions with arguments.
const SINCE: &str = "0.1.0";

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

/// A function and the kind of its input. In messages, one without arguments and digest that returns no rows is a
/// [`PlainTransform`], and any other a [`Named`].
#[derive(Serialize, Deserialize)]
#[serde(rename = "Transform")]
struct TransformForm<'a> {
    function: Cow<'a, str>,
    decoded: Cow<'a, ColumnKind>,
    takes: DType,
    returns: Cow<'a, Returns>,
    #[serde(default, skip_serializing_if = "is_empty")]
    arguments: Cow<'a, Arguments>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<SourceDigest>,
}

/// The fields of [`TransformForm`] that had a number.
type PlainTransform<'a> = (Cow<'a, str>, Cow<'a, ColumnKind>, DType, Cow<'a, Returns>);

fn is_empty(arguments: &Arguments) -> bool {
    arguments.is_empty()
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let decoded = Cow::Borrowed(&self.kind);
        let kind = match &self.transform {
            None => KindForm::Decoded(decoded),
            Some(Transform { function: Callable { name, arguments, source }, takes, returns }) => {
                KindForm::Transformed(TransformForm {
                    function: Cow::Borrowed(name),
                    decoded,
                    takes: *takes,
                    returns: Cow::Borrowed(returns),
                    arguments: Cow::Borrowed(arguments),
                    source: *source,
                })
            }
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
            KindForm::Transformed(TransformForm { function, decoded, takes, returns, arguments, source }) => {
                let function = Callable { name: function.into_owned(), arguments: arguments.into_owned(), source };
                (decoded, Some(Transform { function, takes, returns: returns.into_owned() }))
            }
        };
        Ok(Self { name: name.into_owned(), from: from.into_owned(), kind: kind.into_owned(), dtype, transform })
    }
}

impl Serialize for KindForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Decoded(kind) => kind.serialize(serializer),
            Self::Transformed(transform) if serializer.is_human_readable() => {
                serializer.serialize_newtype_variant(ENUM, TRANSFORMED, TRANSFORMED_NAME, transform)
            }
            Self::Transformed(TransformForm { function, decoded, takes, returns, arguments, source: None })
                if arguments.is_empty() && !matches!(**returns, Returns::Rows { .. }) =>
            {
                let plain = (function, decoded, takes, returns);
                serializer.serialize_newtype_variant(ENUM, TRANSFORMED, TRANSFORMED_NAME, &plain)
            }
            Self::Transformed(transform) => {
                let named = Named::new(TRANSFORMED_NAME, SINCE, transform);
                serializer.serialize_newtype_variant(ENUM, NAMED, "named", &named)
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
            VariantId::Number(TRANSFORMED) => {
                let (function, decoded, takes, returns): PlainTransform<'static> = variant.newtype_variant()?;
                let (arguments, source) = (Cow::default(), None);
                Ok(KindForm::Transformed(TransformForm { function, decoded, takes, returns, arguments, source }))
            }
            VariantId::Number(NAMED) => {
                let named: Named = variant.newtype_variant()?;
                if named.name == TRANSFORMED_NAME {
                    return named.fields("column with a function").map(KindForm::Transformed);
                }
                read_named(&named).map(|kind| KindForm::Decoded(Cow::Owned(kind)))
            }
            VariantId::Name(name) if name == TRANSFORMED_NAME => variant.newtype_variant().map(KindForm::Transformed),
            id => read_variant(id, variant).map(|kind| KindForm::Decoded(Cow::Owned(kind))),
        }
    }
}
