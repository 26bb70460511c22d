//! What a dataset is, and the order in which its samples are delivered.
//!
//! This crate holds the pure half of the system: the [`manifest`], the record [`index`], the [`job`] and the [`order`].
//! With the feature `store` it also opens, packs and indexes datasets on object stores. It knows nothing of processes,
//! sockets or batches: those live in the crates above it.

#[cfg(feature = "store")]
pub mod dataset;
mod envelope;
mod fingerprint;
pub mod hex128;
pub mod index;
pub mod job;
pub mod manifest;
pub mod order;
mod position;
mod receipt;
mod redact;
#[cfg(feature = "store")]
pub mod store;
mod stores;
pub mod tar;
pub mod voc;

pub use envelope::FormatError;
pub use fingerprint::Fingerprint;
pub use position::{ParsePositionError, Position, SampleId};
pub use receipt::Receipt;
pub use redact::{redact, secret_in};
pub use stores::Stores;
