//! Decodes progressive pictures: reads their scans into coefficients, and transforms these as those of a baseline
//! picture. A block of a progressive scan is found only by reading all blocks before it, so work is saved in other
//! ways:
//!
//! - Scans of coefficients that the crop's scale does not use are not read.
//! - No scan is read beyond the crop's last row.
//! - Coefficients are kept only within the crop, and only those that the scale uses. Elsewhere a bit for each
//!   coefficient is kept, which the refinement scans need: whether it is zero.

mod all_blocks;
mod blocks;
mod coefficients;
mod read;
mod render;
mod scans;
pub(crate) mod sequential;

pub(crate) use all_blocks::ProgressiveBlocks;
pub(crate) use coefficients::{Coefficients, Kept};
pub(crate) use scans::{Progression, ProgressiveScan};
