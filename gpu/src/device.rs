//! The devices that batches can be on: the host, and CUDA devices by their numbers.

use std::{str::FromStr, sync::Arc};

use crate::{BatchPlacement, DeviceError, cuda};

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
