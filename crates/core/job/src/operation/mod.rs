//! The operations from a decoded picture to the pixels of the batch: their keys, checks, draws and plans. Each has a file
//! here, and the table below lists them.
//!
//! An operation makes its draws and adds its steps to the plan before the picture is decoded, so every column that follows the
//! same draws, whatever it holds, is changed alike. Steps that only move pixels become one resampling, which decoding does;
//! what changes values comes after it, on the decoded picture.

mod affine;
mod augment;
mod dirichlet;
mod fill;
mod kind;
mod number_or_range;
mod padding;
mod planner;
mod sampling;
pub(super) mod step;

use serde::{Deserialize, Serialize};

pub use fill::Fill;
pub use kind::Operation;
pub(crate) use kind::check_probability;
pub use number_or_range::NumberOrRange;
pub use padding::{Padding, PaddingMode};
pub use planner::{OperationProblem, PicturePlan, PicturePlanner};
pub use sampling::{Interpolation, WarpInterpolation};

use super::KeyProblem;
use step::step_ops;

macro_rules! operations {
    ($($module:ident::$Op:ident,)*) => {
        $(mod $module;)*
        $(pub use self::$module::$Op;)*

        step_ops! {
            /// One step from a decoded picture to the pixels of the batch. Random ones draw from a generator keyed by
            /// (seed, epoch, sample id).
            ImageOp { $($Op,)* }

            const SCHEMA: [&'static str; 2] = ["ImageOp", "Operation"];
            const ABOUT: &'static str = "One step from a decoded picture to the pixels of the batch. Random ones draw from a generator keyed by (seed, epoch, sample id).";
            const FORMS: &'static str = "A step: in full as { resize = { size = 256 } }, or short as { resize = 256 } or \"random_flip\".";
            const SUCH_AS: &'static str = "{ resize = { size = 256 } } or \"random_flip\"";
        }

        impl ImageOp {
            /// Returns the number of pictures that the step makes of one.
            #[must_use]
            pub const fn pictures(&self) -> u32 {
                match self { $(Self::$Op(_) => $Op::PICTURES,)* }
            }

            /// Returns the height and width after this step, given those before it (`None` if they differ from picture
            /// to picture).
            #[must_use]
            pub fn output_size(&self, before: Option<[u32; 2]>) -> Option<[u32; 2]> {
                match self { $(Self::$Op(op) => op.output_size(before),)* }
            }

            /// Returns the most pixels of a picture after this step, if it gives pictures sizes of their own, up to that.
            #[must_use]
            pub fn max_pixels(&self) -> Option<u32> {
                match self { $(Self::$Op(op) => op.max_pixels(),)* }
            }

            /// Returns whether the step only moves pixels, at most blending them, and adds pixels at the border.
            #[must_use]
            pub fn only_moves(&self) -> bool {
                match self { $(Self::$Op(op) => op.only_moves(),)* }
            }

            /// Returns the field of the record that the step reads besides the picture's, if there is one.
            #[must_use]
            pub fn field(&self) -> Option<&str> {
                match self { $(Self::$Op(op) => op.field(),)* }
            }

            /// Returns the key that is wrong, and what is wrong with it.
            pub(super) fn check(&self) -> Result<(), KeyProblem> {
                match self { $(Self::$Op(op) => op.check(),)* }
            }

            /// Adds the steps of the operation to the plan.
            fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
                match self { $(Self::$Op(op) => op.plan(planner),)* }
            }
        }
    };
}

operations! {
    crop_box::CropBox,
    random_resized_crop::RandomResizedCrop,
    resize::Resize,
    center_crop::CenterCrop,
    random_flip::RandomFlip,
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
    smart_resize::SmartResize,
    ten_crop::TenCrop,
    trivial_augment_wide::TrivialAugmentWide,
}

impl ImageOp {
    /// Returns whether pictures of any size keep it.
    pub(super) fn keeps_size(&self) -> bool {
        // What gives one size keeps at most that one.
        [[1, 2], [3, 4]].iter().all(|size| self.output_size(Some(*size)) == Some(*size))
    }

    /// Returns the example of each operation.
    #[must_use]
    pub fn examples() -> Vec<Self> {
        let read = |(name, _, example): &(&str, &[&str], &str)| {
            let table = format!("ops = [{{ {name} = {example} }}]");
            let table: toml::Table = toml::from_str(&table).expect("an example is TOML");
            Self::read_list(table["ops"].clone(), name).expect("an example is an operation")
        };
        Self::CATALOG.iter().flat_map(read).collect()
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

#[cfg(test)]
mod tests;
