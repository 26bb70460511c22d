//! The devices that batches can be on: the host, and CUDA devices by their numbers.

use std::{str::FromStr, sync::Arc};

use crate::{BatchPlacement, DeviceError, cuda, local_device::LocalDevice};

/// A device that can hold batches. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Device {
    kind: DeviceKind,
    /// How the number was chosen, if the caller gave none.
    chosen: Option<LocalDevice>,
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
        Self { kind: DeviceKind::Host, chosen: None }
    }

    /// Opens the CUDA device with this number. It uses the device's primary context, as PyTorch does. A process can
    /// open any number of devices.
    ///
    /// # Errors
    /// Returns [`DeviceError`] when there is no driver or no such device.
    pub fn cuda(ordinal: u32) -> Result<Self, DeviceError> {
        Ok(Self { kind: DeviceKind::Cuda(cuda::Context::open(ordinal)?), chosen: None })
    }

    /// Returns the number of CUDA devices that the driver shows to this process.
    ///
    /// # Errors
    /// Returns [`DeviceError`] when there is no usable driver.
    pub fn count_cuda() -> Result<u32, DeviceError> {
        cuda::Context::count()
    }

    /// Opens the device named `cpu`, `cuda:N`, or `cuda`, which is the device of this rank: the only one that the
    /// driver shows to this process; else the one whose number is the rank's on its node, as the launcher's variables
    /// give it (`LOCAL_RANK` of torchrun, those of mpirun, `SLURM_LOCALID`); else the first, if this is the only rank.
    ///
    /// # Errors
    /// Returns [`DeviceError`] when there is no such device or it cannot be used, and [`DeviceError::Ambiguous`] when
    /// several ranks would use the device that `cuda` means.
    pub fn open(name: &str) -> Result<Self, DeviceError> {
        match name {
            "cpu" => Ok(Self::host()),
            "cuda" => {
                let chosen = LocalDevice::choose(Self::count_cuda()?, |name| std::env::var(name).ok())?;
                Ok(Self { chosen: Some(chosen.clone()), ..Self::cuda(chosen.ordinal)? })
            }
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

    /// Returns an error when the device was opened as `cuda`, without a number, and other ranks of this world have
    /// opened the same device in this way.
    pub(crate) fn check_world(&self, ranks: u32) -> Result<(), DeviceError> {
        self.chosen.as_ref().map_or(Ok(()), |chosen| chosen.check_world(ranks))
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
