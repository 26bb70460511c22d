//! The operations from a decoded picture to the pixels of the batch: their keys, checks and sizes. Each has a file here,
//! and one of the same name in the worker, which plans it; the table below lists them.

mod fill;
mod kind;
mod number_or_range;
mod padding;
mod sampling;
pub(super) mod step;

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{EnumAccess, Error, VariantAccess, Visitor},
};

pub use fill::Fill;
use kind::NumberedOperation;
pub use kind::Operation;
pub use number_or_range::NumberOrRange;
pub use padding::{Padding, PaddingMode};
pub use sampling::{Interpolation, WarpInterpolation};

use spdl_types::variant::{self, VariantId};

use super::{KeyProblem, named::Named};

macro_rules! operations {
    (
        numbered { $($number:literal: $module:ident::$Op:ident,)* }
        named { $($new_module:ident::$NewOp:ident,)* }
    ) => {
        $(mod $module;)*
        $(mod $new_module;)*
        $(pub use self::$module::$Op;)*
        $(pub use self::$new_module::$NewOp;)*

        /// One step from a decoded picture to the pixels of the batch. Random ones draw from a generator keyed by
        /// (seed, epoch, sample id).
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)]
        pub enum ImageOp {
            $($Op($Op),)*
            $($NewOp($NewOp),)*
        }

        impl ImageOp {
            const NAMES: &[&str] = &[$($Op::NAME,)* $($NewOp::NAME,)*];
            /// The number of the variant in which operations without a number travel. It never changes.
            const NAMED: u32 = [$($number),*].len() as u32;

            /// The name and the keys of each operation in a job file.
            pub const CATALOG: &[(&str, &[&str])] = &[$(($Op::NAME, $Op::KEYS),)* $(($NewOp::NAME, $NewOp::KEYS),)*];

            /// Returns the operation's name in a job file.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$Op(_) => $Op::NAME,)* $(Self::$NewOp(_) => $NewOp::NAME,)* }
            }

            /// Returns the number of pictures that the step makes of one.
            #[must_use]
            pub const fn pictures(&self) -> u32 {
                match self { $(Self::$Op(_) => $Op::PICTURES,)* $(Self::$NewOp(_) => $NewOp::PICTURES,)* }
            }

            /// Returns the height and width after this step, given those before it (`None` if they differ from picture
            /// to picture).
            #[must_use]
            pub fn output_size(&self, before: Option<[u32; 2]>) -> Option<[u32; 2]> {
                match self { $(Self::$Op(op) => op.output_size(before),)* $(Self::$NewOp(op) => op.output_size(before),)* }
            }

            /// Returns whether the step only moves pixels, blending them at most, and adds others at the border.
            #[must_use]
            pub fn only_moves(&self) -> bool {
                match self { $(Self::$Op(op) => op.only_moves(),)* $(Self::$NewOp(op) => op.only_moves(),)* }
            }

            /// Returns the field of the record that the step reads, besides the picture's.
            #[must_use]
            pub fn field(&self) -> Option<&str> {
                match self { $(Self::$Op(op) => op.field(),)* $(Self::$NewOp(op) => op.field(),)* }
            }

            /// Returns the key that is wrong, and what is wrong with it.
            pub(super) fn check(&self) -> Result<(), KeyProblem> {
                match self { $(Self::$Op(op) => op.check(),)* $(Self::$NewOp(op) => op.check(),)* }
            }

            /// Returns an example of the value of the operation `name`.
            fn example(name: &str) -> Option<&'static str> {
                $(if name == $Op::NAME { return Some($Op::EXAMPLE); })*
                $(if name == $NewOp::NAME { return Some($NewOp::EXAMPLE); })*
                None
            }

            /// Returns the name, the keys and the schema of each operation.
            pub(super) fn schemas(
                generator: &mut schemars::SchemaGenerator,
            ) -> Vec<(&'static str, &'static [&'static str], schemars::Schema)> {
                use schemars::JsonSchema;
                vec![
                    $(($Op::NAME, $Op::KEYS, $Op::json_schema(generator)),)*
                    $(($NewOp::NAME, $NewOp::KEYS, $NewOp::json_schema(generator)),)*
                ]
            }
        }

        impl Serialize for ImageOp {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$Op(op) if serializer.is_human_readable() => {
                        serializer.serialize_newtype_variant("ImageOp", $number, $Op::NAME, op)
                    })*
                    $(Self::$Op(op) => match op.form() {
                        Some(form) => serializer.serialize_newtype_variant("ImageOp", $number, $Op::NAME, &form),
                        None => {
                            let named = Named::new($Op::NAME, $Op::SINCE, op);
                            serializer.serialize_newtype_variant("ImageOp", Self::NAMED, "named", &named)
                        }
                    },)*
                    $(Self::$NewOp(op) if serializer.is_human_readable() => {
                        serializer.serialize_newtype_variant("ImageOp", Self::NAMED, $NewOp::NAME, op)
                    })*
                    $(Self::$NewOp(op) => {
                        let named = Named::new($NewOp::NAME, $NewOp::SINCE, op);
                        serializer.serialize_newtype_variant("ImageOp", Self::NAMED, "named", &named)
                    })*
                }
            }
        }

        impl<'de> Visitor<'de> for OperationVisitor {
            type Value = ImageOp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an operation")
            }

            fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<ImageOp, A::Error> {
                let (id, variant) = data.variant()?;
                match id {
                    $(VariantId::Number($number) => {
                        let form: <$Op as NumberedOperation>::Form = variant.newtype_variant()?;
                        Ok(ImageOp::$Op(form.into()))
                    })*
                    VariantId::Number(ImageOp::NAMED) => {
                        let named: Named = variant.newtype_variant()?;
                        match named.name.as_str() {
                            $(name if name == $Op::NAME => named.fields("operation").map(ImageOp::$Op),)*
                            $(name if name == $NewOp::NAME => named.fields("operation").map(ImageOp::$NewOp),)*
                            _ => Err(named.unknown("operation")),
                        }
                    }
                    VariantId::Number(number) => Err(variant::no_such_number("operation", number)),
                    $(VariantId::Name(name) if name == $Op::NAME => variant.newtype_variant().map(ImageOp::$Op),)*
                    $(VariantId::Name(name) if name == $NewOp::NAME => variant.newtype_variant().map(ImageOp::$NewOp),)*
                    VariantId::Name(name) => Err(A::Error::unknown_variant(&name, ImageOp::NAMES)),
                }
            }
        }
    };
}

operations! {
    // These have a number in messages, which never changes; the list is closed.
    numbered {
        0: crop_box::CropBox,
        1: random_resized_crop::RandomResizedCrop,
        2: resize::Resize,
        3: center_crop::CenterCrop,
        4: random_flip::RandomFlip,
    }
    // A new operation is added here.
    named {
        aug_mix::AugMix,
        color_jitter::ColorJitter,
        five_crop::FiveCrop,
        gaussian_blur::GaussianBlur,
        grayscale::Grayscale,
        letterbox::Letterbox,
        pad::Pad,
        rand_augment::RandAugment,
        random_adjust_sharpness::RandomAdjustSharpness,
        random_affine::RandomAffine,
        random_apply::RandomApply,
        random_autocontrast::RandomAutocontrast,
        random_choice::RandomChoice,
        random_crop::RandomCrop,
        random_equalize::RandomEqualize,
        random_erasing::RandomErasing,
        random_grayscale::RandomGrayscale,
        random_invert::RandomInvert,
        random_perspective::RandomPerspective,
        random_posterize::RandomPosterize,
        random_rotation::RandomRotation,
        random_solarize::RandomSolarize,
        random_vertical_flip::RandomVerticalFlip,
        ten_crop::TenCrop,
        trivial_augment_wide::TrivialAugmentWide,
    }
}

/// Checks a list of operations.
///
/// # Errors
/// The number of the operation that is wrong, its key, and what is wrong with it.
pub(super) fn check_all(ops: &[ImageOp]) -> Result<(), (usize, KeyProblem)> {
    for (number, op) in ops.iter().enumerate() {
        op.check().map_err(|problem| (number, problem))?;
        if op.pictures() > 1 && number + 1 < ops.len() {
            let problem = format!("makes {} pictures of one, so it has to be the last operation", op.pictures());
            return Err((number, (op.name(), problem)));
        }
    }
    Ok(())
}

struct OperationVisitor;

impl<'de> Deserialize<'de> for ImageOp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_enum("ImageOp", Self::NAMES, OperationVisitor)
    }
}
