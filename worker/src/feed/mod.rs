//! Feeds a rank: fills the slots of its slab with its batches, in order, from a start position on.
//!
//! A [`RankFeed`] walks the plan, fetches the blocks of the coming steps ahead, decodes the samples of a batch in
//! parallel straight into a slot, and publishes the slots in order. The consumer sets the speed: while no slot is free,
//! the feed does nothing.

mod at_work;
mod batch;
mod blocks;
mod dataset;
mod decoding;
mod driver;
mod error;
mod journal;
mod memory;
mod open;
mod progress;
mod rank;
mod resources;
mod room;
mod scheduler;
mod sharing;
mod stages;
mod stall;
mod throttle;
mod view;

pub use batch::HeldSamples;
pub use dataset::{StoreAccess, WrapStore};
pub(crate) use decoding::SampleDecoding;
pub use driver::FeedEvent;
pub use error::FeedError;
pub(crate) use memory::RankMemory;
pub use memory::{DEFAULT_SLOTS, MAX_SLOTS};
pub use open::{FeedRequest, SlabKind};
pub use rank::{RankFeed, SlotFreer};
pub use resources::{Access, Resources};
pub use sharing::{SampleSharing, SharingStats};
pub use view::FeedView;

pub use crate::fetch::DiskCacheState;

#[cfg(test)]
pub(crate) mod tests;
