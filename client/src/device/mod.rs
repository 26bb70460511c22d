//! The last copy: batches on the device that trains.
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
//! [`Loader::on_device`](crate::Loader::on_device) turns any loader into one whose batches are [`DeviceBatch`]es. On the
//! host those lie in their slots, with no copy. On a CUDA device they were copied there by the device itself, from
//! page-locked slots, on a stream of their own, ahead of the trainer. Where a batch is used, its stream is told to wait:
//! [`DeviceBatch::wait_on`].
//!
//! CUDA is looked for when a device is opened: the same build runs with and without. Of CUDA, only the driver is needed.

mod batch;
mod cuda;
mod error;
mod hands;
mod host;
mod options;
mod source;
mod stream;
mod tensor;

use std::{str::FromStr, sync::Arc};

pub use batch::{DeviceBatch, DeviceColumn};
pub use error::DeviceError;
pub use options::{DeviceOptions, Flip, MAX_BUFFERS, MIN_BUFFERS, NormaliseColumn};
pub use source::OnDevice;
pub use stream::StreamHandle;
pub use tensor::{Placement, Tensor, dlpack_type};

/// A device that batches can be put on. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Device {
    kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Host,
    Cuda(Arc<cuda::Context>),
}

impl Device {
    /// The host: batches stay where they are.
    #[must_use]
    pub const fn host() -> Self {
        Self { kind: Kind::Host }
    }

    /// The CUDA device of that number. It uses the device's primary context, as PyTorch does; any number of devices can
    /// be open in a process.
    ///
    /// # Errors
    /// [`DeviceError`]: no driver, or no such device.
    pub fn cuda(ordinal: u32) -> Result<Self, DeviceError> {
        Ok(Self { kind: Kind::Cuda(cuda::Context::open(ordinal)?) })
    }

    /// CUDA devices that the driver shows to this process.
    ///
    /// # Errors
    /// [`DeviceError`]: no driver that can be used.
    pub fn count_cuda() -> Result<u32, DeviceError> {
        cuda::Context::count()
    }

    /// The device of that name: `cpu`, `cuda:N`, or `cuda`, which is `cuda:0`.
    ///
    /// # Errors
    /// [`DeviceError`]: there is no such device, or it cannot be used.
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

    /// Where batches on it lie.
    #[must_use]
    pub fn placement(&self) -> Placement {
        match &self.kind {
            Kind::Host => Placement::Host,
            Kind::Cuda(context) => context.placement(),
        }
    }

    /// What the device is called; `None` for the host.
    ///
    /// # Errors
    /// [`DeviceError`] from the driver.
    pub fn model(&self) -> Result<Option<String>, DeviceError> {
        match &self.kind {
            Kind::Host => Ok(None),
            Kind::Cuda(context) => context.device_name().map(Some),
        }
    }

    /// Bytes of its memory that are free, and that there are; `None` for the host.
    ///
    /// # Errors
    /// [`DeviceError`] from the driver.
    pub fn memory(&self) -> Result<Option<(u64, u64)>, DeviceError> {
        match &self.kind {
            Kind::Host => Ok(None),
            Kind::Cuda(context) => context.memory().map(Some),
        }
    }

    pub(crate) const fn kind(&self) -> &Kind {
        &self.kind
    }
}

impl FromStr for Device {
    type Err = DeviceError;

    fn from_str(name: &str) -> Result<Self, DeviceError> {
        Self::open(name)
    }
}
