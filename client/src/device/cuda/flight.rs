//! A copy under way: it keeps the batch that it reads, whatever else happens.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::driver::{DeviceMemory, Event, HostMemory, Stream};
use crate::{Batch, device::DeviceError};

/// A batch that is being copied to the device. Its slot is free when the flight is dropped, and the flight is dropped when
/// the copy is done: otherwise dropping it waits.
pub(crate) struct Flight {
    batch: Option<Batch>,
    stream: Arc<Stream>,
    copied: Arc<Event>,
    /// The copy was seen to be done, or nothing can run on the device any more.
    is_over: bool,
}

impl Flight {
    /// Puts the copies of a batch, and of `flips` to `flips_at`, on `stream`, and records `copied` after them. `flips` must
    /// stay as they are until then: they belong to the buffer that is copied to, which nobody fills before.
    pub(crate) fn start(
        batch: Batch,
        flips: Option<(&HostMemory, usize)>,
        stream: &Arc<Stream>,
        to: &DeviceMemory,
        copied: &Arc<Event>,
    ) -> Result<Self, DeviceError> {
        // From here on, an error drops the flight, which waits for what was put on the stream.
        let flight = Self { batch: Some(batch), stream: stream.clone(), copied: copied.clone(), is_over: false };
        // SAFETY: the batch keeps its slot, whose bytes nobody writes while it is being read, and lives in the flight
        // until the stream has passed the copy.
        unsafe { stream.copy(flight.batch().bytes(), to, 0)? };
        if let Some((flips, at)) = flips {
            // SAFETY: page-locked memory whose owner fills it again only after `copied` has passed, and which the driver
            // frees only when no copy reads it.
            unsafe { stream.copy(flips.bytes(), to, at)? };
        }
        stream.record(copied)?;
        Ok(flight)
    }

    pub(crate) const fn batch(&self) -> &Batch {
        self.batch.as_ref().expect("a flight has its batch until it is dropped")
    }

    /// Whether the copy is done.
    ///
    /// # Errors
    /// [`DeviceError`] from the driver. A lost device reads nothing any more, so then the flight is over too.
    pub(crate) fn has_landed(&mut self) -> Result<bool, DeviceError> {
        if !self.is_over {
            let done = self.copied.is_done();
            self.is_over = matches!(done, Ok(true) | Err(DeviceError::Lost { .. }));
            done?;
        }
        Ok(self.is_over)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.is_over
            && let Err(error) = self.stream.synchronise()
            && !matches!(error, DeviceError::Lost { .. })
        {
            // The device may still read the slot, and nothing says when it has: better lost than torn.
            std::mem::forget(self.batch.take());
        }
    }
}
