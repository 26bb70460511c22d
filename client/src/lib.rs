//! Batches for a trainer: `Client::connect(rank, world)`.

mod batch;
mod column;
pub mod core;
mod digest;
mod error;
mod state;

pub use batch::{Batch, FreeSlot};
pub use column::{Column, ColumnError, Element};
pub use digest::ContentDigest;
pub use error::ClientError;
pub use state::{State, StateError};
