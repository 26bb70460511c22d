//! The small types that most crates share, below all of them: data and functions without I/O, clock, thread or environment.
//!
//! - Identifiers: of a sample and its [`Position`], of a session, a worker and a node, of a batch.
//! - The types of elements, the shapes of samples, and what the values of pictures are.
//! - The [`Stage`]s of a pipeline, and what they count.
//! - The [`Fingerprint`] of content, and how 128-bit digests are written ([`hex128`]).
//! - Arithmetic with one result on every machine: the hash mixer ([`mix`]), [`elementary`] functions, the pauses of a
//!   [`backoff`], the random numbers of a sample ([`Draw`]).
//! - Sizes as people write them ([`size`]).
//!
//! CI checks that no dependency of this crate is a runtime, opens sockets
//! or files, or reads a clock.

pub mod backoff;
mod bad_sample;
mod batch_id;
mod channels;
mod draw;
mod dtype;
pub mod elementary;
mod fingerprint;
pub mod hex128;
pub mod histogram;
mod ids;
mod image;
pub mod mix;
#[doc(hidden)]
pub mod mutations;
mod position;
mod rust_function;
mod shape;
pub mod size;
mod stage;
mod stage_stats;

pub use bad_sample::BadSample;
pub use batch_id::BatchId;
pub use channels::{ImageColor, ImageDepth};
pub use draw::Draw;
pub use dtype::DType;
pub use fingerprint::Fingerprint;
pub use ids::{NodeId, SessionId, WorkerId};
pub use image::{ImageLayout, Normalise};
pub use position::{ParsePositionError, Position, SampleId};
pub use rust_function::{RustFunction, is_identifier};
pub use shape::SampleShape;
pub use stage::Stage;
pub use stage_stats::StageStats;
