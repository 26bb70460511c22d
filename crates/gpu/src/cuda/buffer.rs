//! The memory for one batch on the device.

use std::sync::Arc;

use super::driver::{CudaEvent, DeviceMemory, HostMemory};
use crate::DeviceError;

/// The memory for one batch on the device, with the events of its users.
///
/// ```text
/// the batch as it is in its slot | flips of all columns | computed columns, one after the other
/// ```
pub(crate) struct Buffer {
    pub(super) memory: DeviceMemory,
    /// Offset of the flips. The room for the batch lies before it.
    pub(super) flips_at: usize,
    pub(super) flips: Option<HostMemory>,
    /// Recorded after the copy and the kernels: the batch is complete. Without kernels it is the copy's own event.
    pub(super) ready: Arc<CudaEvent>,
    /// Recorded on the trainer's streams when it dropped the batch.
    pub(super) released: Vec<CudaEvent>,
    /// The number of the last copy into it.
    pub(super) copy: u64,
}

impl Buffer {
    /// Returns the number of bytes that a batch in it may have.
    pub(crate) const fn room(&self) -> usize {
        self.flips_at
    }

    /// Returns whether the device reads the buffer's part on the host directly.
    pub(crate) fn is_page_locked(&self) -> bool {
        self.flips.as_ref().is_none_or(HostMemory::is_locked)
    }

    /// Returns whether the next copy into it may be queued, when all copies up to `done` are over. The device runs
    /// copies in order; only flips, which the host overwrites, must have been read before.
    pub(crate) const fn is_settled(&self, done: u64) -> bool {
        self.flips.is_none() || self.copy <= done
    }

    /// Returns the event after which the batch is complete.
    pub(super) fn ready(&self) -> &CudaEvent {
        &self.ready
    }

    /// Returns a copy of the bytes at `address`, which must lie in this buffer.
    pub(super) fn read(&self, address: usize, bytes: usize) -> Result<Vec<u8>, DeviceError> {
        self.memory.read(address, bytes)
    }

    /// Makes the next copy into the buffer wait for the event.
    pub(super) fn released_by(&mut self, event: CudaEvent) {
        self.released.push(event);
    }
}

/// Frees the memory after the work that still uses it: the kernels, and the work that the trainer queued on its
/// streams. Waits for that work only if the memory is not freed on a stream. A buffer is dropped when it is replaced,
/// or by the thread for completions when its loader is gone.
impl Drop for Buffer {
    fn drop(&mut self) {
        for event in std::iter::once(&*self.ready).chain(&self.released) {
            if self.memory.freed_on().is_none_or(|stream| stream.wait(event).is_err()) {
                let _ = event.synchronise();
            }
        }
    }
}
