//! What can go wrong with a device, in words that say what to install, change or free.

/// An error of a device. [`DeviceError::hint`] says what to do where that is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A text that names no device.
    #[error("device `{name}` is none; there are `cpu`, `cuda` and `cuda:N`")]
    Name {
        /// The text.
        name: String,
    },
    /// No CUDA driver can be loaded.
    #[error("device `{device}` needs the NVIDIA driver, and `libcuda.so.1` cannot be loaded")]
    DriverMissing {
        /// The device that was asked for.
        device: String,
    },
    /// The driver lacks a function that is needed.
    #[error("the NVIDIA driver has no function `{symbol}`; it is older than 470 (CUDA 11.4)")]
    DriverOld {
        /// The function.
        symbol: &'static str,
    },
    /// There is a driver, and not that device.
    #[error("device `cuda:{ordinal}` does not exist: the driver shows {devices} devices to this process")]
    Index {
        /// Its number.
        ordinal: u32,
        /// How many there are.
        devices: u32,
    },
    /// The device's memory does not suffice.
    #[error(
        "device `{device}` has no {asked_bytes} bytes for {purpose}: {free_bytes} of its {total_bytes} bytes are free"
    )]
    OutOfMemory {
        /// The device.
        device: String,
        /// What the bytes are for.
        purpose: &'static str,
        /// Bytes that were asked for.
        asked_bytes: u64,
        /// Bytes that were free just then.
        free_bytes: u64,
        /// Bytes that it has.
        total_bytes: u64,
    },
    /// The device, or what runs on it, is broken: nothing works on it in this process any more.
    #[error("device `{device}` is lost: `{call}` says {code} ({meaning})")]
    Lost {
        /// The device.
        device: String,
        /// The driver's function.
        call: &'static str,
        /// Its result, by name.
        code: String,
        /// The driver's words.
        meaning: String,
    },
    /// The driver would not.
    #[error("device `{device}`: `{call}` says {code} ({meaning})")]
    Call {
        /// The device.
        device: String,
        /// The driver's function.
        call: &'static str,
        /// Its result, by name.
        code: String,
        /// The driver's words.
        meaning: String,
    },
    /// An option that does not fit the job.
    #[error("option `{option}` {problem}")]
    Option {
        /// The option.
        option: &'static str,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// A column that the batch does not have, or not in that form.
    #[error(transparent)]
    Column(#[from] crate::ColumnError),
}

impl DeviceError {
    /// What to do about it, where that is known: a line for people.
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
            Self::Lost { .. } => {
                Some("the process has to be started again; the fault can be in any kernel that ran before")
            }
            _ => None,
        }
    }
}
