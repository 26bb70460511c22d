//! The operation `smart_resize`.

use serde::{Deserialize, Serialize};

use super::{
    Interpolation, Operation, OperationProblem, PicturePlanner,
    sampling::{antialias, is_default, is_default_antialias},
};
use crate::{KeyProblem, check::MAX_SIDE};

/// How many times as long as it is wide a picture may be.
const MAX_RATIO: u32 = 200;
/// The largest `max_pixels`: of more, a picture in RGB would be larger than a sample may be.
const MAX_PIXELS: u32 = 1 << 28;

/// Resizes so that both sides are multiples of `factor`, the picture has from `min_pixels` to `max_pixels` pixels, and its aspect ratio
/// changes little: the sizes are those of `smart_resize` in the preprocessors of Qwen-VL. Pictures then differ in size, and the column is
/// ragged, unless a later operation gives one size. A picture more than 200 times as long as it is wide is a bad sample, and one that is
/// nearly that can have more than `max_pixels`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SmartResize {
    /// What both sides are multiples of: the pixels of a patch times the patches that are merged in a row.
    #[serde(default = "factor")]
    #[schemars(range(min = 1, max = 16384))]
    pub factor: u32,
    /// The fewest pixels of a result.
    #[serde(default = "min_pixels")]
    #[schemars(range(min = 1, max = 268435456))]
    pub min_pixels: u32,
    /// The most pixels of a result, 268435456 at most.
    #[serde(default = "max_pixels")]
    #[schemars(range(min = 1, max = 268435456))]
    pub max_pixels: u32,
    /// How pixels are weighted, as in Pillow and torchvision. All but `bilinear` work on the decoded picture or crop,
    /// which takes longer: a JPEG is then decoded in full size. Default: `bilinear`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub interpolation: Interpolation,
    /// Whether the weights of a picture that becomes smaller take in all of its pixels. `false`, with `bilinear`,
    /// weights only the four pixels around, as OpenCV does. Default: `true`.
    #[serde(default = "antialias", skip_serializing_if = "is_default_antialias")]
    pub antialias: bool,
    /// Whether a JPEG is decoded in full size before it is resized, for torchvision's pixels. Decoding then takes
    /// longer: several times where pictures are much larger than the result. Default: `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full_decode: bool,
}

const fn factor() -> u32 {
    28
}

const fn min_pixels() -> u32 {
    56 * 56
}

const fn max_pixels() -> u32 {
    14 * 14 * 4 * 1280
}

impl Operation for SmartResize {
    const NAME: &'static str = "smart_resize";
    const KEYS: &'static [&'static str] =
        &["factor", "min_pixels", "max_pixels", "interpolation", "antialias", "full_decode"];
    const EXAMPLE: &'static str = "{ factor = 28, min_pixels = 3136, max_pixels = 1003520 }";
    const ONLY_MOVES: bool = true;

    fn output_size(&self, _: Option<[u32; 2]>) -> Option<[u32; 2]> {
        None
    }

    /// Returns the bound of all three cases: of what is in the limits, of what is enlarged, whose sides are rounded up, and of what is
    /// made smaller and keeps a side of `factor`.
    fn max_pixels(&self) -> Option<u32> {
        let [factor, least, most, ratio] = [self.factor, self.min_pixels, self.max_pixels, MAX_RATIO].map(f64::from);
        let enlarged = least + factor * least.sqrt() * (ratio.sqrt() + 1.0) + factor * factor;
        let narrow = factor * (most * ratio).sqrt();
        Some(most.max(enlarged).max(narrow).ceil() as u32)
    }

    fn check(&self) -> Result<(), KeyProblem> {
        let Self { factor, min_pixels, max_pixels, .. } = *self;
        if !(1..=MAX_SIDE).contains(&factor) {
            return Err(("factor", format!("is {factor}, not in 1..={MAX_SIDE}")));
        }
        let least = factor * factor;
        if max_pixels < least || max_pixels > MAX_PIXELS {
            let problem = format!("is {max_pixels}, not in {least}..={MAX_PIXELS}; {least} are those of one `factor`");
            return Err(("max_pixels", problem));
        }
        if !(1..=max_pixels).contains(&min_pixels) {
            return Err(("min_pixels", format!("is {min_pixels}, not in 1..={max_pixels}, which is `max_pixels`")));
        }
        self.interpolation.check(self.antialias)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        let size = self.size(planner.size())?;
        planner.resize(size, self.interpolation, self.antialias, self.full_decode);
        Ok(())
    }
}

impl SmartResize {
    /// Computes the height and width for a picture of this width and height as Qwen2-VL's `smart_resize` of Hugging Face's transformers
    /// does, whose floats these are.
    fn size(&self, [width, height]: [u32; 2]) -> Result<[u32; 2], OperationProblem> {
        if width.max(height) > MAX_RATIO.saturating_mul(width.min(height)) {
            return Err(OperationProblem::TooNarrow { width, height, ratio: MAX_RATIO });
        }
        let [factor, least, most] = [self.factor, self.min_pixels, self.max_pixels].map(f64::from);
        let sides = [height, width].map(f64::from);
        let pixels = sides[0] * sides[1];
        let nearest = sides.map(|side| (side / factor).round_ties_even() * factor);
        let size = if nearest[0] * nearest[1] > most {
            let beta = (pixels / most).sqrt();
            sides.map(|side| ((side / beta / factor).floor() * factor).max(factor))
        } else if nearest[0] * nearest[1] < least {
            let beta = (least / pixels).sqrt();
            sides.map(|side| (side * beta / factor).ceil() * factor)
        } else {
            nearest
        };
        Ok(size.map(|side| side as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(factor: u32, [min_pixels, max_pixels]: [u32; 2]) -> SmartResize {
        let interpolation = Interpolation::default();
        SmartResize { factor, min_pixels, max_pixels, interpolation, antialias: true, full_decode: false }
    }

    #[test]
    fn sizes_are_those_of_qwen2_vls_preprocessor() {
        let of = |limits, sizes: &[([u32; 2], [u32; 2])]| {
            for ([height, width], expected) in sizes {
                assert_eq!(with(28, limits).size([*width, *height]), Ok(*expected), "{height}x{width}");
            }
        };
        // Computed by transformers' function.
        of(
            [min_pixels(), max_pixels()],
            &[
                ([375, 500], [364, 504]),
                ([480, 640], [476, 644]),
                ([42, 98], [56, 112]),
                ([70, 126], [56, 112]),
                ([1080, 1920], [728, 1316]),
                ([4000, 3000], [1148, 840]),
                ([10, 2000], [28, 812]),
                ([30, 31], [56, 84]),
                ([1, 1], [56, 56]),
                ([16384, 100], [12796, 56]),
            ],
        );
        of(
            [200_704, 401_408],
            &[
                ([375, 500], [392, 532]),
                ([480, 640], [476, 644]),
                ([42, 98], [308, 700]),
                ([1080, 1920], [448, 840]),
                ([10, 2000], [56, 6356]),
                ([30, 31], [448, 476]),
                ([16384, 100], [8092, 28]),
            ],
        );
    }

    #[test]
    fn narrow_pictures_are_refused() {
        let default = with(factor(), [min_pixels(), max_pixels()]);
        assert!(default.size([2800, 14]).is_ok() && default.size([14, 2800]).is_ok());
        for size in [[2801, 14], [14, 2801], [1, 201]] {
            let error = default.size(size).unwrap_err().to_string();
            assert!(error.contains("is more than 200 times as long as it is wide"), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn sides_are_multiples_and_no_picture_is_larger_than_the_bound(
            factor in 1..64_u32, limits in [1..200_000_u32, 1..200_000_u32], width in 1..20_000_u32, height in 1..20_000_u32,
        ) {
            let [one, other] = limits.map(|limit| limit.max(factor * factor));
            let op = with(factor, [one.min(other), one.max(other)]);
            proptest::prop_assert_eq!(op.check(), Ok(()));
            let Ok([rows, columns]) = op.size([width, height]) else { return Ok(()) };
            let pixels = u64::from(rows) * u64::from(columns);
            proptest::prop_assert!(rows >= factor && rows % factor == 0 && columns >= factor && columns % factor == 0);
            proptest::prop_assert!(pixels <= op.max_pixels().unwrap().into(), "{pixels} of {op:?}");
        }
    }

    #[test]
    fn limits_that_make_no_sense_are_refused_with_their_key() {
        for (factor, limits, expected) in [
            (0, [1, 9], ("factor", "is 0, not in 1..=16384")),
            (28, [1, 783], ("max_pixels", "is 783, not in 784..=268435456; 784 are those of one `factor`")),
            (28, [1, u32::MAX], ("max_pixels", "is 4294967295, not in 784..=268435456; 784 are those of one `factor`")),
            (28, [0, 784], ("min_pixels", "is 0, not in 1..=784, which is `max_pixels`")),
            (28, [785, 784], ("min_pixels", "is 785, not in 1..=784, which is `max_pixels`")),
        ] {
            let (key, problem) = with(factor, limits).check().unwrap_err();
            assert_eq!((key, problem.as_str()), expected);
        }
    }
}
