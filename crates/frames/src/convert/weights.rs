//! What numbers of planes are multiplied by: fixed-point weights of each matrix, range and number of bits.
//!
//! A number is moved up until it has 16 bits, so that all depths have the same weights. The high half of its product with a weight
//! of 13 fractional bits then has 5 fractional bits of a level, and the sum of three of them fits 16 bits. All this is in integers,
//! so that each processor gives the same result.

use super::ConvertProblem;
use crate::{PlaneFormat, PlaneKind};

/// Fractional bits of a weight.
const WEIGHT_BITS: u32 = 13;
/// Fractional bits of the levels that are added.
pub(super) const LEVEL_BITS: u32 = 5;

/// The weights of a frame's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlaneWeights {
    /// What moves numbers up, so that they have 16 bits.
    pub(super) scale: u16,
    /// Of luma, or of red, green and blue.
    pub(super) luma: u16,
    /// What is added to the product of luma: what black has, and the half that rounds.
    pub(super) offset: i16,
    /// Of the difference Cr for red, of Cb and Cr for green, and of Cb for blue.
    pub(super) red: i16,
    pub(super) green: [i16; 2],
    pub(super) blue: i16,
}

impl PlaneWeights {
    /// Returns the weights of luma without differences.
    pub(super) fn of_luma(bits: u8, is_full_range: bool) -> Self {
        Self::new(bits, is_full_range, [0.0; 2])
    }

    /// Returns the weights of luma and differences.
    pub(super) fn of_matrix(format: PlaneFormat, matrix: u16, is_full_range: bool) -> Result<Self, ConvertProblem> {
        match shares(matrix) {
            Some(shares) => Ok(Self::new(format.bits, is_full_range, shares)),
            None if matches!(matrix, 2 | 3) => Err(ConvertProblem::OpenMatrix),
            None => Err(ConvertProblem::UnknownMatrix { matrix }),
        }
    }

    /// Returns the weights for these shares of red and blue in luma.
    fn new(bits: u8, is_full_range: bool, [red, blue]: [f64; 2]) -> Self {
        // In the full range too, more bits are a finer scale of the same levels, as swscale has it: of 10 bits, 1020 is white.
        let [black, luma, difference] =
            if is_full_range { [0.0, 1.0, 1.0] } else { [16.0, 255.0 / 219.0, 255.0 / 224.0] };
        let weight = |weight: f64| (weight * f64::from(1_u32 << WEIGHT_BITS)).round();
        let unit = f64::from(1_u32 << LEVEL_BITS);
        let green = 1.0 - red - blue;
        let of_difference = |share: f64| 2.0 * (1.0 - share) * difference;
        Self {
            scale: 1 << (16 - bits),
            luma: weight(luma) as u16,
            // Each product is rounded down, by half a unit on average, and there are two for a channel.
            offset: (unit / 2.0 + 1.0 - black * luma * unit).round() as i16,
            red: weight(of_difference(red)) as i16,
            green: [(blue, blue / green), (red, red / green)]
                .map(|(share, part)| weight(-part * of_difference(share)) as i16),
            blue: weight(of_difference(blue)) as i16,
        }
    }
}

/// Returns the shares of red and blue in luma, by the number that ISO/IEC 23091-2 gives a matrix; `None` of those that are no
/// such sum, or for which nothing is said.
const fn shares(matrix: u16) -> Option<[f64; 2]> {
    Some(match matrix {
        1 => [0.2126, 0.0722],
        4 => [0.3, 0.11],
        5 | 6 => [0.299, 0.114],
        7 => [0.212, 0.087],
        // That of constant luminance (10) is no sum; everyone takes it for the other.
        9 | 10 => [0.2627, 0.0593],
        _ => return None,
    })
}

/// Checks that planes of this format can be converted.
pub(super) const fn check_format(format: PlaneFormat) -> Result<(), ConvertProblem> {
    let is_known = match format.kind {
        PlaneKind::Grey | PlaneKind::Rgb => true,
        PlaneKind::Yuv { shift: [x, y] } => x <= 1 && y <= 1,
    };
    if is_known && format.bits >= 8 && format.bits <= 16 { Ok(()) } else { Err(ConvertProblem::Format { format }) }
}
