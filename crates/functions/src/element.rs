//! The types of numbers in which arrays are read and written.

use bytemuck::Pod;
use spdl_types::DType;

/// A Rust type for the elements of an array. `bool` is a `u8` of 0 or 1; `f16` and `bf16` are a `u16`, their bits.
pub trait ValueElement: Pod + sealed::Sealed {
    /// The types in a job that have this Rust type.
    const DTYPES: &'static [DType];
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($Element:ident: $($DType:ident),*;)*) => {
        $(
            impl sealed::Sealed for $Element {}

            impl ValueElement for $Element {
                const DTYPES: &'static [DType] = &[$(DType::$DType),*];
            }
        )*
    };
}

elements! {
    u8: U8, Bool;
    u16: U16, F16, Bf16;
    u32: U32;
    u64: U64;
    i8: I8;
    i16: I16;
    i32: I32;
    i64: I64;
    f32: F32;
    f64: F64;
}
