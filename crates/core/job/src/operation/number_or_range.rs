//! A parameter that is drawn at random: its range, as users write it.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::numbers::{self, WrittenNumbers};

/// A number, whose meaning depends on the key, or `[low, high]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum NumberOrRange {
    Number(f32),
    Range([f32; 2]),
}

impl NumberOrRange {
    /// Returns the range: a number `n` is `center - n` to `center + n`, but not below `floor`.
    #[must_use]
    pub fn around(self, center: f32, floor: f32) -> [f32; 2] {
        match self {
            Self::Number(by) => [(center - by).max(floor), center + by],
            Self::Range(range) => range,
        }
    }

    /// Returns whether the range is within `[floor, ceiling]`; a number has to be 0 or more.
    pub(super) fn is_within(self, center: f32, [floor, ceiling]: [f32; 2]) -> bool {
        let [low, high] = self.around(center, floor);
        let is_valid = !matches!(self, Self::Number(by) if by.is_nan() || by < 0.0);
        is_valid && floor <= low && low <= high && high <= ceiling
    }
}

impl fmt::Display for NumberOrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Range(range) => write!(f, "{range:?}"),
        }
    }
}

impl<'de> Deserialize<'de> for NumberOrRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        numbers::read(deserializer, "a number or [low, high]", |numbers| match numbers {
            WrittenNumbers::One(number) => Some(Self::Number(number)),
            WrittenNumbers::List(ends) => ends.try_into().ok().map(Self::Range),
        })
    }
}
