//! A pending copy, which keeps the batch that it reads until the copy is done.
#![allow(unsafe_code)]

use std::{mem, sync::Arc, thread, time::Duration};

use spdl_client::Batch;

use super::{
    driver::{CudaEvent, DeviceMemory, HostMemory, Stream, is_exiting},
    page_locks::LockedPages,
};
use crate::DeviceError;

/// How long to wait before another attempt when a capture of the trainer's keeps the driver from waiting.
const CAPTURE_POLL: Duration = Duration::from_millis(1);

/// A batch that is being copied to the device. [`PendingCopy::finish`] waits for the copy and frees the batch's slot;
/// dropped without that, the slot is never freed, because the device may still read it.
pub(super) struct PendingCopy {
    batch: Option<Batch>,
    /// Keeps the slot's pages locked.
    pages: LockedPages,
    stream: Arc<Stream>,
    /// Recorded after the copy. It is this copy's alone: the buffer's next copy may be queued, behind work of the
    /// trainer's, before the thread for completions waits for this one.
    copied: Option<Arc<CudaEvent>>,
}

impl PendingCopy {
    pub(super) const fn new(batch: Batch, pages: LockedPages, stream: Arc<Stream>) -> Self {
        Self { batch: Some(batch), pages, stream, copied: None }
    }

    /// Queues the copies of the batch, and of `flips` to offset `flips_at`, and returns an event that is recorded after
    /// them. After an error, some copies may be queued. `flips` must not change until the event has passed: it belongs
    /// to the destination buffer, which is not filled again before that.
    pub(super) fn start(
        &mut self,
        flips: Option<(&HostMemory, usize)>,
        to: &DeviceMemory,
    ) -> Result<&Arc<CudaEvent>, DeviceError> {
        let bytes = self.batch().bytes();
        for part in self.pages.parts(bytes.len()) {
            let at = part.start;
            // SAFETY: the batch keeps its slot, whose bytes are not written while they are read, and lives in this
            // until the stream has passed the copy.
            unsafe { self.stream.copy(&bytes[part], to, at)? };
        }
        if let Some((flips, at)) = flips {
            // SAFETY: its owner fills it again only after the event has passed, and frees it only when no copy reads it.
            unsafe { self.stream.copy(flips.bytes(), to, at)? };
        }
        let copied = Arc::new(CudaEvent::new(self.stream.context())?);
        self.stream.record(&copied)?;
        Ok(self.copied.insert(copied))
    }

    pub(super) const fn batch(&self) -> &Batch {
        self.batch.as_ref().expect("a copy has its batch until it is finished")
    }

    /// Blocks this thread until the copy is done, and frees the slot.
    ///
    /// # Errors
    /// Returns [`DeviceError`] when the driver fails. A lost device reads no memory any more, so its slots are free.
    pub(super) fn finish(mut self) -> Result<(), DeviceError> {
        let recorded = self.copied.as_ref().map(|copied| after_captures(|| copied.synchronise()));
        let ended = match &recorded {
            Some(ended @ (Ok(()) | Err(DeviceError::Lost { .. }))) => ended.clone(),
            _ => after_captures(|| self.stream.synchronise()),
        };
        if !is_exiting() && matches!(ended, Ok(()) | Err(DeviceError::Lost { .. })) {
            // Free the slot first: after a fail-over nothing else holds its locks, and unlocking pages waits for the
            // device.
            drop((self.batch.take(), mem::take(&mut self.pages)));
        }
        recorded.unwrap_or(Ok(())).and(ended)
    }
}

/// Repeats a wait as long as it fails because of a capture.
fn after_captures(mut wait: impl FnMut() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
    loop {
        match wait() {
            Err(error) if error.is_of_capture() => thread::sleep(CAPTURE_POLL),
            ended => return ended,
        }
    }
}

impl Drop for PendingCopy {
    fn drop(&mut self) {
        // Losing the slot is better than corrupt data.
        mem::forget((self.batch.take(), mem::take(&mut self.pages)));
    }
}
