//! The types that the elements of a column can have.

use serde::{Deserialize, Serialize};

macro_rules! dtypes {
    ($($Type:ident: $name:literal, $bytes:literal;)*) => {
        /// Type of a column's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "lowercase")]
        #[allow(missing_docs)]
        pub enum DType { $($Type),* }

        impl DType {
            /// All types.
            pub const ALL: &[Self] = &[$(Self::$Type),*];

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
