//! What a dataset is to those who read it: its [`manifest`], the [`index`] of its records, the formats that records are stored
//! in, the [`view`]s of it, and the [folder](store::DatasetStore) that these lie in.
//!
//! `spdl-dataset` makes and checks datasets, `spdl-store` has the stores that they lie in. This crate knows nothing of
//! processes, sockets or batches either: those live in the crates above it.

mod envelope;
pub mod format;
pub mod index;
mod job_file;
pub mod json;
pub mod manifest;
pub mod ranges;
pub mod samples;
pub mod sequences;
pub mod sizes;
pub mod store;
pub mod view;
pub mod voc;

pub use envelope::FormatError;
pub use job_file::{read_job_file, resolve_dataset};
