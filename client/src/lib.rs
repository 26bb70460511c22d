//! Batches for a trainer.
//!
//! ```no_run
//! # async fn train(checkpoint: Vec<u8>) -> Result<(), Box<dyn std::error::Error>> {
//! use spdl_client::{Client, Settings, State};
//!
//! // SPDL_COORD, SPDL_JOB and SPDL_CERTS say where and what; rank and world come from the trainer.
//! let (rank, world) = (0, 8);
//! let client = Client::builder().settings(Settings::from_env()?).state(State::from_bytes(&checkpoint)?);
//! let mut client = client.connect(rank, world).await?;
//! while let Some(batch) = client.next().await? {
//!     let images: &[u8] = batch.column("image")?.as_slice()?;
//!     let labels: &[i64] = batch.column("label")?.as_slice()?;
//!     println!("{} labels, {} bytes of images, up to {}", labels.len(), images.len(), batch.next());
//!     // Dropping the batch gives its slot back; the state goes into the checkpoint.
//!     let _checkpoint = client.state().to_bytes();
//! }
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Client`] is a [`Loader`] over a [`remote`] source; the same loader runs over a pipeline in the trainer's
//! process. [`Loader::on_device`] puts its batches on a [`device`]. What a client decides, it decides in its [`core`]; the rest carries out and reports. Batches arrive over
//! shared memory or QUIC; nothing but [`Serving`] tells which.

mod batch;
mod blocking;
mod column;
pub mod core;
pub mod device;
mod digest;
mod error;
mod loader;
pub mod remote;
mod settings;
mod source;
mod start;
mod state;
mod stats;
mod steps;
mod waits;

pub use batch::{Batch, FreeSlot};
pub use blocking::Blocking;
pub use column::{Column, ColumnError, Element};
pub use digest::ContentDigest;
pub use error::ClientError;
pub use loader::Loader;
pub use remote::{Builder, Client};
pub use settings::Settings;
pub use source::{Delivery, Serving, Source, SourceEvent};
pub use start::{StartFrom, Started};
pub use state::{State, StateError};
pub use stats::Stats;
pub use waits::WaitClock;
