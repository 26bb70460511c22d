//! Fetches the bytes of blocks: from memory, from the disk cache, or from the store.
//!
//! A block is fetched whole if there is room for it beside the blocks in use, and it stays for as long as the plan uses it.
//! After that, what came first of a dataset is kept. If there is no room, only the records that a batch needs are fetched,
//! for one use. So every memory budget makes progress, and a large one fetches nothing twice. Dropping a future stops its
//! work.

mod admission;
mod client;
mod counted;
mod disk;
mod error;
mod fetcher;
#[cfg(test)]
pub mod flaky;
mod hedged;
mod hold;
mod joined;
mod kept;
mod limited;
mod object;
mod outage;
mod peers;
mod pieces;
mod place;
mod request;
mod retried;
mod retrying;
mod reused;
mod serve;
mod settings;
mod slowest;
mod timed;
mod units;
mod window;

pub use spdl_feed::cache::BlockKey;

pub(crate) use client::StoreClient;
pub(crate) use disk::DiskCache;
pub use error::FetchError;
pub use fetcher::Fetcher;
pub use hold::{BlockBytes, BlockHold};
pub(crate) use hold::{BlockContent, Transit, Wanted};
pub(crate) use kept::KeptRanges;
pub(crate) use object::{ObjectRead, read_all};
pub use object::{ShardObject, ShardsBase};
pub(crate) use peers::{PeerLinks, Peers};
pub(crate) use pieces::{MERGE_GAP_BYTES, Pieces};
pub use place::BlockPlace;
pub(crate) use place::{BlockPeers, BlockSource, FetchedBlock, PlannedBlocks, ShardSource};
pub(crate) use retrying::RetryingStore;
pub(crate) use serve::answer_block;
pub use settings::{DiskCacheState, RetrySettings};
pub(crate) use units::{UsageTimes, for_batch, for_batch_now};
pub(crate) use window::WorkingWindow;

#[cfg(test)]
mod tests;
