//! How much a picture is padded, and with what, as users write it.

use serde::{Deserialize, Deserializer, Serialize};

use super::Fill;
use crate::{
    KeyProblem,
    check::MAX_SIDE,
    numbers::{self, WrittenNumbers},
};

/// Pixels for all sides, `[left and right, top and bottom]`, or `[left, top, right, bottom]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum Padding {
    All(u32),
    Axes([u32; 2]),
    Sides([u32; 4]),
}

/// What lies beyond the border of a picture that is padded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PaddingMode {
    /// The colour `fill`.
    #[default]
    Constant,
    /// The pixel of the border.
    Edge,
    /// The reflection, without the pixels of the border.
    Reflect,
    /// The reflection, with the pixels of the border.
    Symmetric,
}

impl Default for Padding {
    fn default() -> Self {
        Self::All(0)
    }
}

impl Padding {
    /// Returns the pixels on the left, top, right and bottom.
    #[must_use]
    pub const fn sides(self) -> [u32; 4] {
        match self {
            Self::All(all) => [all; 4],
            Self::Axes([x, y]) => [x, y, x, y],
            Self::Sides(sides) => sides,
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.sides() == [0; 4]
    }

    /// Returns the height and width after padding a picture of this height and width.
    pub(super) fn around([height, width]: [u32; 2], [left, top, right, bottom]: [u32; 4]) -> [u32; 2] {
        [height.saturating_add(top).saturating_add(bottom), width.saturating_add(left).saturating_add(right)]
    }

    pub(super) fn check(self) -> Result<(), KeyProblem> {
        match self.sides().iter().find(|side| **side > MAX_SIDE) {
            Some(side) => Err(("padding", format!("is {side} pixels, not in 0..={MAX_SIDE}"))),
            None => Ok(()),
        }
    }
}

impl PaddingMode {
    pub(super) fn check(self, fill: Fill) -> Result<(), KeyProblem> {
        if self != Self::Constant && fill != Fill::default() {
            return Err(("fill", "needs padding_mode = \"constant\"".to_owned()));
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Padding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a number of pixels, [left and right, top and bottom] or [left, top, right, bottom]";
        numbers::read(deserializer, expected, |numbers| match numbers {
            WrittenNumbers::One(all) | WrittenNumbers::List(&[all]) => Some(Self::All(all)),
            WrittenNumbers::List(&[x, y]) => Some(Self::Axes([x, y])),
            WrittenNumbers::List(sides) => sides.try_into().ok().map(Self::Sides),
        })
    }
}
