//! What a dataset is: its [`manifest`], the [`index`] of its records, the formats that records are stored in, and the stores
//! that it is opened from, packed into and indexed on.
//!
//! It knows nothing of processes, sockets or batches: those live in the crates above it.

mod blocking;
pub mod dataset;
mod envelope;
pub mod format;
pub mod index;
mod index_file;
mod job_file;
pub mod json;
pub mod manifest;
pub mod store;
mod temporary;
pub mod view;
pub mod voc;

pub use blocking::blocking;
pub use envelope::FormatError;
pub use format::tar;
pub use job_file::{read_job_file, resolve_dataset};
pub use temporary::TemporaryError;
