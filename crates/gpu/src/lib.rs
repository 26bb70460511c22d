//! Copies the batches of a loader to the device that trains.
//!
//! ```no_run
//! # async fn train() -> Result<(), Box<dyn std::error::Error>> {
//! use spdl_client::Client;
//! use spdl_gpu::{Device, DeviceOptions, LoaderExt};
//!
//! let device = Device::open("cuda:0")?;
//! let mut client = Client::connect(0, 8).await?.on_device(&device, DeviceOptions::default())?;
//! while let Some(batch) = client.next().await? {
//!     let images = batch.column("image")?.values();
//!     println!("{:?} at {:#x}", images.shape(), images.address());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`LoaderExt::on_device`] turns any loader into one whose batches are [`DeviceBatch`]es. On the host they stay in
//! their slots, without a copy. A CUDA device copies them to its memory by itself, ahead of the trainer, from
//! page-locked slots and on streams of the loader's own. Before the trainer uses a batch, it makes its stream wait for
//! the copy: [`DeviceBatch::wait_on`].
//!
//! The CUDA driver is loaded when a device is opened, so the same build runs with and without it. No other part of CUDA
//! is needed.

mod batch;
mod cuda;
mod device;
mod error;
mod host;
mod local_device;
mod on_device;
mod options;
mod outstanding;
mod sequences;
mod storage;
mod stream;
mod tensor;

pub use batch::{DeviceBatch, DeviceColumn};
pub use device::Device;
pub use error::DeviceError;
pub use on_device::{LoaderExt, OnDevice};
pub use options::{DeviceOptions, Flip, MAX_BUFFERS, MIN_BUFFERS, NormaliseColumn};
pub use sequences::{SequenceColumns, Sequences};
pub use storage::BatchPlacement;
pub use stream::StreamHandle;
pub use tensor::{Tensor, dlpack_type};
