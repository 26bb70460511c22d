//! A pending copy, which keeps the batch that it reads until the copy is done.
#![allow(unsafe_code)]

use std::sync::Arc;

use spdl_client::Batch;

use super::driver::{CudaEvent, DeviceMemory, HostMemory, Stream};
use crate::DeviceError;

/// A batch that is being copied to the device. Dropping this frees the batch's slot. The loader drops it when the copy
/// is done; dropped earlier, it blocks until then.
pub(crate) struct PendingCopy {
    batch: Option<Batch>,
    stream: Arc<Stream>,
    copied: Arc<CudaEvent>,
    /// Whether the copy is known to be done, or nothing can run on the device any more.
    is_over: bool,
}

impl PendingCopy {
    /// Queues on `stream` the copies of a batch, and of `flips` to offset `flips_at`, and records `copied` after them.
    /// `flips` must not change until then: it belongs to the destination buffer, which is not filled again before that.
    pub(crate) fn start(
        batch: Batch,
        flips: Option<(&HostMemory, usize)>,
        stream: &Arc<Stream>,
        to: &DeviceMemory,
        copied: &Arc<CudaEvent>,
    ) -> Result<Self, DeviceError> {
        // From here on, an error drops this, which waits for the work already on the stream.
        let pending = Self { batch: Some(batch), stream: stream.clone(), copied: copied.clone(), is_over: false };
        // SAFETY: the batch keeps its slot, whose bytes are not written while they are read, and lives in this
        // until the stream has passed the copy.
        unsafe { stream.copy(pending.batch().bytes(), to, 0)? };
        if let Some((flips, at)) = flips {
            // SAFETY: page-locked memory. Its owner fills it again only after `copied` has passed, and the driver frees
            // it only when no copy reads it.
            unsafe { stream.copy(flips.bytes(), to, at)? };
        }
        stream.record(copied)?;
        Ok(pending)
    }

    pub(crate) const fn batch(&self) -> &Batch {
        self.batch.as_ref().expect("a copy has its batch until it is dropped")
    }

    /// Returns whether the copy is done.
    ///
    /// # Errors
    /// Returns [`DeviceError`] when the driver fails. A lost device reads no memory any more, so the copy then counts
    /// as over.
    pub(crate) fn has_landed(&mut self) -> Result<bool, DeviceError> {
        if !self.is_over {
            let done = self.copied.is_done();
            self.is_over = matches!(done, Ok(true) | Err(DeviceError::Lost { .. }));
            done?;
        }
        Ok(self.is_over)
    }
}

impl Drop for PendingCopy {
    fn drop(&mut self) {
        if !self.is_over
            && let Err(error) = self.stream.synchronise()
            && !matches!(error, DeviceError::Lost { .. })
        {
            // The device may still read the slot, with no way to learn when it ends. Losing the slot is better than
            // corrupt data.
            std::mem::forget(self.batch.take());
        }
    }
}
