//! The operation `grayscale`.

use serde::{Deserialize, Serialize};

use super::Operation;

/// Makes the picture grey; it still has three channels, which are equal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grayscale {}

impl Operation for Grayscale {
    const NAME: &'static str = "grayscale";
    const KEYS: &'static [&'static str] = &[];
    const EXAMPLE: &'static str = "{}";
}
