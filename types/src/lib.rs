//! The small types that most crates share, below all of them: data and functions without I/O, clock, thread or environment.
//!
//! - Identifiers: of a sample and its [`Position`], of a session, a worker and a node, of a batch.
//! - The types of elements, the shapes of samples, and what the values of pictures are.
//! - The [`Stage`]s of a pipeline, and what they count.
//! - Arithmetic with one result on every machine: the hash mixer ([`mix`]) and [`elementary`] functions.
//!
//! `spdl-core` re-exports what the crates above it use. CI checks that no dependency of this crate is a runtime, opens sockets
//! or files, or reads a clock.

mod batch_id;
mod channels;
mod dtype;
pub mod elementary;
pub mod histogram;
mod ids;
mod image;
pub mod mix;
mod position;
mod rust_function;
mod shape;
mod stage;
mod stage_stats;
pub mod variant;

pub use batch_id::BatchId;
pub use channels::{ImageColor, ImageDepth};
pub use dtype::DType;
pub use ids::{NodeId, SessionId, WorkerId};
pub use image::{ImageLayout, Normalise};
pub use position::{ParsePositionError, Position, SampleId};
pub use rust_function::{RustFunction, is_identifier};
pub use shape::SampleShape;
pub use stage::Stage;
pub use stage_stats::StageStats;
