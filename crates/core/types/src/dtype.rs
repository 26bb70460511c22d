//! The types that the elements of a column can have.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{EnumAccess, Error, VariantAccess, Visitor},
};

use crate::variant::{self, VariantId};

macro_rules! dtypes {
    ($($Type:ident: $name:literal, $bytes:literal;)*) => {
        /// Type of a column's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[derive(schemars::JsonSchema)]
#[schemars(rename_all = "lowercase")]
        #[allow(missing_docs)]
        pub enum DType { $($Type),* }

        impl DType {
            /// All types. The position of a type in this list is its number in messages, if it has one.
            pub const ALL: &[Self] = &[$(Self::$Type),*];
            const NAMES: &[&str] = &[$($name),*];

            /// Returns the name of the type in a job file.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Type => $name),* }
            }

            /// Returns the size of one element in bytes, which is also its alignment.
            #[must_use]
            pub const fn bytes(self) -> usize {
                match self { $(Self::$Type => $bytes),* }
            }
        }
    };
}

dtypes! {
    U8: "u8", 1;
    I32: "i32", 4;
    I64: "i64", 8;
    F16: "f16", 2;
    Bf16: "bf16", 2;
    F32: "f32", 4;
    F64: "f64", 8;
    I8: "i8", 1;
    U16: "u16", 2;
    I16: "i16", 2;
    U32: "u32", 4;
    U64: "u64", 8;
    Bool: "bool", 1;
}

/// The number of types that have a number in messages, and the number of the variant in which all others travel, as their
/// name. It never changes.
const NUMBERED: u32 = 7;

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number = *self as u32;
        if number < NUMBERED || serializer.is_human_readable() {
            serializer.serialize_unit_variant("DType", number, self.name())
        } else {
            serializer.serialize_newtype_variant("DType", NUMBERED, "named", self.name())
        }
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_enum("DType", Self::NAMES, DTypeVisitor)
    }
}

struct DTypeVisitor;

impl<'de> Visitor<'de> for DTypeVisitor {
    type Value = DType;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a type of elements")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<DType, A::Error> {
        let of_name = |name: &str| DType::ALL.iter().find(|dtype| dtype.name() == name).copied();
        let (id, variant) = data.variant()?;
        match id {
            VariantId::Number(number) if number < NUMBERED => {
                variant.unit_variant()?;
                Ok(DType::ALL[number as usize])
            }
            VariantId::Number(NUMBERED) => {
                let name: String = variant.newtype_variant()?;
                of_name(&name).ok_or_else(|| {
                    A::Error::custom(format!(
                        "type `{}` of elements is unknown to spdl-cluster {}: install the release of the peer",
                        variant::shown(&name),
                        env!("CARGO_PKG_VERSION")
                    ))
                })
            }
            VariantId::Number(number) => Err(variant::no_such_number("type of elements", number)),
            VariantId::Name(name) => {
                let dtype = of_name(&name).ok_or_else(|| A::Error::unknown_variant(&name, DType::NAMES))?;
                variant.unit_variant()?;
                Ok(dtype)
            }
        }
    }
}
