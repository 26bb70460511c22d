//! The errors of devices, in words that name what to install, change or free.

use spdl_client::{ClientError, ColumnError};

/// An error of a device, or of the loader whose batches are put there. [`DeviceError::hint`] gives a remedy where one is known.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The text is not the name of a device.
    #[error("device `{name}` is none; there are `cpu`, `cuda` and `cuda:N`")]
    Name {
        /// The text.
        name: String,
    },
    /// The CUDA driver cannot be loaded.
    #[error("device `{device}` needs the NVIDIA driver, and `libcuda.so.1` cannot be loaded")]
    DriverMissing {
        /// The requested device.
        device: String,
    },
    /// The driver lacks a required function.
    #[error("the NVIDIA driver has no function `{symbol}`; it is older than 470 (CUDA 11.4)")]
    DriverOld {
        /// The function.
        symbol: &'static str,
    },
    /// The driver has no device with this number.
    #[error("device `cuda:{ordinal}` does not exist: the driver shows {devices} devices to this process")]
    Index {
        /// The requested number.
        ordinal: u32,
        /// The number of devices.
        devices: u32,
    },
    /// The device has too little free memory.
    #[error(
        "device `{device}` has no {asked_bytes} bytes for {purpose}: {free_bytes} of its {total_bytes} bytes are free"
    )]
    OutOfMemory {
        /// The device.
        device: String,
        /// What the bytes are for.
        purpose: &'static str,
        /// The requested number of bytes.
        asked_bytes: u64,
        /// The number of free bytes just after the failure.
        free_bytes: u64,
        /// The total number of bytes.
        total_bytes: u64,
    },
    /// The device, or a kernel on it, has failed fatally: nothing works on it in this process any more.
    #[error("device `{device}` is lost: `{call}` returned {code} ({meaning})")]
    Lost {
        /// The device.
        device: String,
        /// The driver's function.
        call: &'static str,
        /// The name of its result code.
        code: String,
        /// The driver's description of the code.
        meaning: String,
    },
    /// A call of the driver failed.
    #[error("device `{device}`: `{call}` returned {code} ({meaning})")]
    Call {
        /// The device.
        device: String,
        /// The driver's function.
        call: &'static str,
        /// The name of its result code.
        code: String,
        /// The driver's description of the code.
        meaning: String,
    },
    /// An option does not fit the job.
    #[error("option `{option}` {problem}")]
    Option {
        /// The option.
        option: &'static str,
        /// What is wrong with it, and what would be valid.
        problem: String,
    },
    /// The batch has no such column, or has it in another form.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// The loader whose batches are put on the device failed.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl DeviceError {
    /// Returns whether the same call on the same loader may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Client(error) if error.is_retryable())
    }

    /// Returns whether a call failed because the memory of the device, or memory for it on the host, was exhausted.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::OutOfMemory { .. } => true,
            Self::Call { code, .. } => code == "CUDA_ERROR_OUT_OF_MEMORY",
            _ => false,
        }
    }

    /// Returns a hint for the user on what to do, if there is one.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::DriverMissing { .. } => Some(
                "install the NVIDIA driver (nothing else of CUDA is needed), in a container start it with the NVIDIA \
                 runtime (`--gpus all`), or use device `cpu`",
            ),
            Self::DriverOld { .. } => Some("install a newer NVIDIA driver, or use device `cpu`"),
            Self::Index { .. } => Some(
                "devices are counted from 0, and CUDA_VISIBLE_DEVICES hides and renumbers them; under torchrun the \
                 device of a process is its LOCAL_RANK",
            ),
            Self::OutOfMemory { .. } => {
                Some("lower the number of device buffers or the batch, or leave the loader more of the device's memory")
            }
            Self::Lost { .. } => Some("start the process again; any kernel that ran before can have caused the fault"),
            Self::Client(error) => error.hint(),
            _ => None,
        }
    }
}
