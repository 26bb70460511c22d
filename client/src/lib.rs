//! Batches for a trainer: `Client::connect(rank, world)`.

mod batch;
mod blocking;
mod column;
pub mod core;
mod digest;
mod error;
mod loader;
mod settings;
mod source;
mod state;
mod stats;
mod steps;

pub use batch::{Batch, FreeSlot};
pub use blocking::Blocking;
pub use column::{Column, ColumnError, Element};
pub use digest::ContentDigest;
pub use error::ClientError;
pub use loader::Loader;
pub use settings::Settings;
pub use source::{Serving, Source, SourceEvent};
pub use state::{State, StateError};
pub use stats::Stats;
