//! Copies batches to the device that trains.
//!
//! ```no_run
//! # async fn train() -> Result<(), Box<dyn std::error::Error>> {
//! use spdl_client::{Client, device::{Device, DeviceOptions}};
//!
//! let device = Device::open("cuda:0")?;
//! let client = Client::connect(0, 8).await?;
//! let mut client = client.on_device(&device, DeviceOptions::default())?;
//! while let Some(batch) = client.next().await? {
//!     let images = batch.column("image")?.values();
//!     println!("{:?} at {:#x}", images.shape(), images.address());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Loader::on_device`](crate::Loader::on_device) turns any loader into one whose batches are [`DeviceBatch`]es. On
//! the host they stay in their slots, without a copy. A CUDA device copies them to its memory by itself, ahead of the
//! trainer, from page-locked slots and on streams of the loader's own. Before the trainer uses a batch, it makes its
//! stream wait for the copy: [`DeviceBatch::wait_on`].
//!
//! The CUDA driver is loaded when a device is opened, so the same build runs with and without it. No other part of CUDA
//! is needed.

mod batch;
mod cuda;
mod error;
mod host;
mod options;
mod outstanding;
mod source;
mod stream;
mod tensor;

use std::{str::FromStr, sync::Arc};

pub use batch::{DeviceBatch, DeviceColumn};
pub use error::DeviceError;
pub use options::{DeviceOptions, Flip, MAX_BUFFERS, MIN_BUFFERS, NormaliseColumn};
pub use source::OnDevice;
pub use stream::StreamHandle;
pub use tensor::{BatchPlacement, Tensor, dlpack_type};

/// A device that can hold batches. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Device {
    kind: DeviceKind,
}

#[derive(Clone, Debug)]
pub(crate) enum DeviceKind {
    Host,
    Cuda(Arc<cuda::Context>),
}

impl Device {
    /// Returns the host, where batches stay in their slots.
    #[must_use]
    pub const fn host() -> Self {
        Self { kind: DeviceKind::Host }
    }

    /// Opens the CUDA device with this number. It uses the device's primary context, as PyTorch does. A process can
    /// open any number of devices.
    ///
    /// # Errors
    /// Returns [`DeviceError`] when there is no driver or no such device.
    pub fn cuda(ordinal: u32) -> Result<Self, DeviceError> {
        Ok(Self { kind: DeviceKind::Cuda(cuda::Context::open(ordinal)?) })
    }

    /// Returns the number of CUDA devices that the driver shows to this process.
    ///
    /// # Errors
    /// Returns [`DeviceError`] when there is no usable driver.
    pub fn count_cuda() -> Result<u32, DeviceError> {
        cuda::Context::count()
    }

    /// Opens the device named `cpu`, `cuda:N`, or `cuda`, which is `cuda:0`.
    ///
    /// # Errors
    /// Returns [`DeviceError`] when there is no such device or it cannot be used.
    pub fn open(name: &str) -> Result<Self, DeviceError> {
        match name {
            "cpu" => Ok(Self::host()),
            "cuda" => Self::cuda(0),
            _ => {
                let digits = name.strip_prefix("cuda:").filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                let ordinal = digits.and_then(|digits| digits.parse().ok());
                Self::cuda(ordinal.ok_or_else(|| DeviceError::Name { name: name.to_owned() })?)
            }
        }
    }

    /// Returns where batches on this device lie.
    #[must_use]
    pub fn placement(&self) -> BatchPlacement {
        match &self.kind {
            DeviceKind::Host => BatchPlacement::Host,
            DeviceKind::Cuda(context) => context.placement(),
        }
    }

    /// Returns the model name of the device, or `None` for the host.
    ///
    /// # Errors
    /// Returns [`DeviceError`] when the driver fails.
    pub fn model(&self) -> Result<Option<String>, DeviceError> {
        match &self.kind {
            DeviceKind::Host => Ok(None),
            DeviceKind::Cuda(context) => context.device_name().map(Some),
        }
    }

    /// Returns the free and the total bytes of the device's memory, or `None` for the host.
    ///
    /// # Errors
    /// Returns [`DeviceError`] when the driver fails.
    pub fn memory(&self) -> Result<Option<(u64, u64)>, DeviceError> {
        match &self.kind {
            DeviceKind::Host => Ok(None),
            DeviceKind::Cuda(context) => context.memory().map(Some),
        }
    }

    pub(crate) const fn kind(&self) -> &DeviceKind {
        &self.kind
    }
}

impl FromStr for Device {
    type Err = DeviceError;

    fn from_str(name: &str) -> Result<Self, DeviceError> {
        Self::open(name)
    }
}
