//! Packs a dataset in parts, which any processes on any machines can pack, and merges them.
//!
//! Every part lists the whole source and [plans](plan) the same shards from the sizes of files alone. It writes a run
//! of these shards, and [files](files) that describe what it wrote. So a part that was killed goes on after its last
//! whole shard, and [`merge`] writes the manifest without reading a shard. The manifest is the one of a pack in a
//! single part.

mod files;
mod merge;
pub(super) mod names;
mod part;
mod plan;

pub use merge::merge;
pub use names::PackPart;
pub use part::{PartReport, pack_part, pack_part_until};
