//! The last copy: batches on the device that trains.
//!
//! ```no_run
//! # async fn train() -> Result<(), Box<dyn std::error::Error>> {
//! use spdl_client::{Client, device::{Device, DeviceOptions}};
//!
//! let device = Device::open("cpu")?;
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
//! host those lie in their slots, with no copy.

mod batch;
mod error;
mod hands;
mod host;
mod options;
mod source;
mod stream;
mod tensor;

use std::str::FromStr;

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
}

impl Device {
    /// The host: batches stay where they are.
    #[must_use]
    pub const fn host() -> Self {
        Self { kind: Kind::Host }
    }

    /// The device of that name: `cpu`.
    ///
    /// # Errors
    /// [`DeviceError`]: there is no such device, or it cannot be used.
    pub fn open(name: &str) -> Result<Self, DeviceError> {
        match name {
            "cpu" => Ok(Self::host()),
            _ => Err(DeviceError::Name { name: name.to_owned() }),
        }
    }

    /// Where batches on it lie.
    #[must_use]
    pub const fn placement(&self) -> Placement {
        match self.kind {
            Kind::Host => Placement::Host,
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
