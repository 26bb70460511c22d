//! The errors of devices. Their texts and hints name what to install, change or free.

use spdl_client::{ClientError, ColumnError};

/// An error of a device, or of the loader whose batches are put there. [`DeviceError::hint`] gives a remedy where one is known.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum DeviceError {
    /// The text is not the name of a device.
    #[error("device `{name}` is none; there are `cpu`, `cuda` and `cuda:N`")]
    Name { name: String },
    /// The CUDA driver cannot be loaded.
    #[error("device `{device}` needs the NVIDIA driver, and `libcuda.so.1` cannot be loaded")]
    DriverMissing { device: String },
    /// The driver lacks a required function.
    #[error("the NVIDIA driver has no function `{symbol}`; it is older than 470 (CUDA 11.4)")]
    DriverOld { symbol: &'static str },
    /// The driver has no device with this number.
    #[error("device `cuda:{ordinal}` does not exist: the driver shows {devices} devices to this process")]
    Index { ordinal: u32, devices: u32 },
    /// `cuda` was given without a number, and the environment does not show which device is this rank's.
    #[error("device `cuda` needs a number: {problem}")]
    Ambiguous { problem: String },
    /// A variable of the environment is not a number.
    #[error("variable `{name}` is `{value}`, not a whole number")]
    Variable { name: &'static str, value: String },
    /// The device has too little free memory.
    #[error(
        "device `{device}` has no {asked_bytes} bytes for {purpose}: {free_bytes} of its {total_bytes} bytes are free"
    )]
    OutOfMemory { device: String, purpose: &'static str, asked_bytes: u64, free_bytes: u64, total_bytes: u64 },
    /// The device, or a kernel on it, has failed fatally: nothing works on it in this process any more.
    #[error("device `{device}` is lost: `{call}` returned {name} ({meaning})")]
    Lost { device: String, call: &'static str, code: u32, name: String, meaning: String },
    /// The system starts no thread for the copies.
    #[error("device `{device}`: the system starts no thread for the copies: {problem}")]
    Thread { device: String, problem: String },
    /// The stream belongs to another device, or to another context on the device.
    #[error("the stream cannot use batches on device `{device}`: it belongs to another device or context")]
    ForeignStream { device: String },
    /// The stream captures a CUDA graph.
    #[error("the stream cannot wait for a batch on device `{device}`: it captures a CUDA graph, or its capture failed")]
    Capturing { device: String },
    /// A call of the driver failed.
    #[error("device `{device}`: `{call}` returned {name} ({meaning})")]
    Call { device: String, call: &'static str, code: u32, name: String, meaning: String },
    /// An option does not fit the job.
    #[error("option `{option}` {problem}")]
    Option { option: &'static str, problem: String },
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
    pub const fn is_out_of_memory(&self) -> bool {
        const OUT_OF_MEMORY: u32 = 2;
        match self {
            Self::OutOfMemory { .. } => true,
            Self::Call { code, .. } => *code == OUT_OF_MEMORY,
            _ => false,
        }
    }

    /// Returns whether a call failed only because a capture of a graph is running.
    pub(crate) const fn is_of_capture(&self) -> bool {
        matches!(self, Self::Call { code: 900..=908, .. })
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
            Self::Index { devices: 0, .. } => Some(
                "check that `nvidia-smi` lists a device and CUDA_VISIBLE_DEVICES hides none; ask a scheduler for one \
                 (`--gres=gpu:1`), and start a container with the NVIDIA runtime (`--gpus all`)",
            ),
            Self::Index { .. } => Some("devices are counted from 0, and CUDA_VISIBLE_DEVICES hides and renumbers them"),
            Self::Ambiguous { .. } => Some(
                "write `cuda:N` with the number of this rank's device, set LOCAL_RANK to the rank's number on its node, \
                 or let each process see one device alone (CUDA_VISIBLE_DEVICES)",
            ),
            Self::OutOfMemory { .. } => {
                Some("lower the number of device buffers or the batch, or leave the loader more of the device's memory")
            }
            Self::Lost { .. } => Some("start the process again; any kernel that ran before can have caused the fault"),
            Self::Call { code, .. } => hint_of_code(*code),
            Self::ForeignStream { .. } => Some(
                "use a stream that was made on the batch's device, in its primary context (in PyTorch: \
                 `torch.cuda.Stream(device)`), or copy the batch to the other device first",
            ),
            Self::Capturing { .. } => Some(
                "a graph uses the same memory at each replay, and each batch comes in other memory: before the capture, \
                 make a tensor of your own, capture work on it alone, and copy each batch there before a replay",
            ),
            Self::Client(error) => error.hint(),
            _ => None,
        }
    }
}

/// Returns a hint for a result of the driver that comes from the installation, not from this program.
const fn hint_of_code(code: u32) -> Option<&'static str> {
    match code {
        // CUDA_ERROR_STUB_LIBRARY
        34 => Some(
            "the loaded `libcuda` is the stub of a CUDA toolkit, which is there to link against: take the folder \
             `stubs` out of LD_LIBRARY_PATH, and install the NVIDIA driver; start a container with the NVIDIA runtime \
             (`--gpus all`)",
        ),
        // CUDA_ERROR_JIT_COMPILER_NOT_FOUND
        221 => Some(
            "install the driver's `libnvidia-ptxjitcompiler.so.1`, which belongs to the NVIDIA driver (in a container \
             set NVIDIA_DRIVER_CAPABILITIES=compute,utility), or normalise on the host: leave out `normalise` of the \
             device's options",
        ),
        // CUDA_ERROR_SYSTEM_NOT_READY
        802 => Some(
            "start the driver's services: on a machine with NVSwitch `nvidia-fabricmanager`, of the same version as \
             the driver (`systemctl status nvidia-fabricmanager`); with confidential computing, set the devices ready \
             (`nvidia-smi conf-compute -srs 1`)",
        ),
        // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
        803 => Some(
            "`libcuda.so.1` and the kernel's NVIDIA module (/proc/driver/nvidia/version) are of different versions: \
             restart the machine after an update of the driver, and in a container remove the image's own `libcuda`",
        ),
        // CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
        804 => Some(
            "the loaded `libcuda` is a package for forward compatibility (`cuda-compat`), which this device does not \
             support: take its folder out of LD_LIBRARY_PATH, and update the driver instead",
        ),
        _ => None,
    }
}
