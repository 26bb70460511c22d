//! The client library of spdl-cluster: gives a trainer the batches of one rank, in order.
//!
//! ```no_run
//! # async fn train(checkpoint: Vec<u8>) -> Result<(), Box<dyn std::error::Error>> {
//! use spdl_client::{Client, Settings, State};
//!
//! // SPDL_COORD, SPDL_JOB and SPDL_CERTS name coordinator, job and certificates; the trainer sets rank and world.
//! let (rank, world) = (0, 8);
//! let client = Client::builder().settings(Settings::from_env()?).state(State::from_bytes(&checkpoint)?);
//! let mut client = client.connect(rank, world).await?;
//! while let Some(batch) = client.next().await? {
//!     let images: &[u8] = batch.column("image")?.as_slice()?;
//!     let labels: &[i64] = batch.column("label")?.as_slice()?;
//!     println!("{} labels, {} bytes of images, up to {}", labels.len(), images.len(), batch.next());
//!     // Dropping the batch frees its slot. The state goes into the checkpoint.
//!     let _checkpoint = client.state().to_bytes();
//! }
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Client`] is a [`Loader`] over a [`remote`] source; an in-process loader is the same [`Loader`] over a pipeline
//! in the trainer's process. The state machine in
//! [`spdl_control::client`] makes all decisions; [`remote`] does the I/O. Batches arrive
//! over shared memory or QUIC; only [`Serving`] shows which.

mod batch;
mod blocking;
mod column;
mod diagnoser;
mod digest;
mod error;
mod loader;
pub mod remote;
mod report;
mod settings;
mod source;
mod start;
mod state;
mod stats;
mod waits;

pub use batch::{Batch, FreeSlot};
pub use blocking::{Blocking, BlockingDiagnoser};
pub use column::{BatchColumn, ColumnError, Element};
pub use diagnoser::Diagnoser;
pub use digest::ContentDigest;
pub use error::ClientError;
pub use loader::Loader;
pub use remote::{Builder, Client};
pub use report::{REPORT_VERSION, ReportedBy, RunReport, report_content};
pub use settings::Settings;
pub use source::{Delivery, Serving, Source, SourceEvent};
pub use spdl_control::{
    client::Progress,
    messages::{Session, Started},
};
pub use start::StartFrom;
pub use state::{State, StateError};
pub use stats::{LoaderWindow, Stats};
pub use waits::WaitClock;
