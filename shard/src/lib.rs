//! What a dataset is: its [`manifest`], the [`index`] of its records, and the formats that records are stored in.
//!
//! With the feature `store` it also opens, packs and indexes datasets on object stores. It knows nothing of processes,
//! sockets or batches: those live in the crates above it.

#[cfg(feature = "store")]
mod blocking;
#[cfg(feature = "store")]
pub mod dataset;
mod envelope;
pub mod format;
pub mod index;
mod index_file;
mod job_file;
pub mod manifest;
#[cfg(feature = "store")]
pub mod store;
mod temporary;
#[cfg(feature = "store")]
pub mod view;
pub mod voc;

#[cfg(feature = "store")]
pub use blocking::blocking;
pub use envelope::FormatError;
pub use format::tar;
pub use job_file::{read_job_file, resolve_dataset};
pub use temporary::TemporaryError;
