//! The memory of a batch: where it lies, and what keeps it from being reused.

use std::{fmt, sync::Arc};

use spdl_wire::slab::Slab;

use crate::{DeviceError, StreamHandle};

/// Where a batch lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchPlacement {
    /// In this process's memory.
    Host,
    /// In the memory of a CUDA device.
    Cuda {
        /// The device's number in CUDA's order.
        ordinal: u32,
    },
}

impl BatchPlacement {
    /// Returns DLPack's device type and number: `(1, 0)` for the host, `(2, N)` for `cuda:N`.
    #[must_use]
    pub const fn dlpack_device(self) -> (i32, i32) {
        match self {
            Self::Host => (1, 0),
            Self::Cuda { ordinal } => (2, ordinal.cast_signed()),
        }
    }
}

impl fmt::Display for BatchPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("cpu"),
            Self::Cuda { ordinal } => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// The memory of one batch, a slot or a device buffer. It is reused when the last reference to it is dropped.
pub(crate) trait BatchStorage: Send + Sync {
    /// Returns where the memory lies.
    fn placement(&self) -> BatchPlacement;

    /// Returns the slab and the number of the slot, or `None` when the batch was copied to a device.
    fn slot(&self) -> Option<(&Slab, u32)>;

    /// Makes later work on `stream` wait until the batch is in the memory.
    fn wait_on(&self, stream: StreamHandle) -> Result<(), DeviceError>;

    /// Blocks this thread until the batch is in the memory.
    fn synchronise(&self) -> Result<(), DeviceError>;

    /// Returns a copy of `bytes` bytes at `address`, which must lie in a tensor of this batch.
    fn read(&self, address: usize, bytes: usize) -> Result<Vec<u8>, DeviceError>;
}

/// A reference to the memory of a batch. The batch and each of its tensors has one.
pub(crate) type Storage = Arc<dyn BatchStorage>;
