//! Evaluates views of datasets, and keeps their results beside the manifest.
//!
//! [`evaluate`] finds the samples that a [`ViewFile`](spdl_job::ViewFile) keeps: it reads the fields that the view
//! names and no others. The result is kept with the manifest as `view-FINGERPRINT.spdl`, where workers read it as
//! they read the manifest and the indexes.

mod block;
mod class_names;
mod classes;
mod each;
mod evaluate;
mod field;
mod keys;

pub(crate) use block::{ValueReader, add_limit};
pub use evaluate::{EvaluatedView, Undecided, evaluate};
pub(crate) use field::ResolvedName;
pub use keys::MissingKeys;
