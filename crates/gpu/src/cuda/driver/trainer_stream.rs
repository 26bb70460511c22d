//! Calls on the streams of the trainer, which the loader does not own.

use std::ptr;

use cudarc::driver::sys::CUstream;

use super::{
    Context, CudaEvent,
    library::{self, ResultCode, code},
};
use crate::{DeviceError, StreamHandle};

const fn raw(stream: StreamHandle) -> CUstream {
    ptr::with_exposed_provenance_mut(stream.as_raw())
}

impl Context {
    /// Checks that the trainer's `stream` can use batches of this context.
    ///
    /// The driver lets a stream wait for an event of any context, but an event can be recorded only on a stream of its
    /// own context. Without a recorded event, the loader would not know when the stream has finished with a batch.
    pub(crate) fn check_stream(&self, stream: StreamHandle) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        let mut owner = ptr::null_mut();
        // SAFETY: the creator of the handle guarantees that the stream lives; the pointer is to a local of that type.
        // For the default streams, the driver gives the current context.
        let result = unsafe { library::cuStreamGetCtx(raw(stream), &raw mut owner) };
        // Streams of a part of a device (green contexts) have no context that this call could give.
        if result != code::NOT_SUPPORTED {
            self.check("cuStreamGetCtx", result)?;
        }
        if owner != self.handle {
            return Err(DeviceError::ForeignStream { device: self.placement().to_string() });
        }
        if self.is_capturing(stream)? {
            return Err(DeviceError::Capturing { device: self.placement().to_string() });
        }
        Ok(())
    }

    /// Returns whether the trainer captures a graph from `stream`. A stream whose capture has failed still captures, until
    /// the trainer ends the capture.
    pub(crate) fn is_capturing(&self, stream: StreamHandle) -> Result<bool, DeviceError> {
        const NOT_CAPTURING: u32 = 0;
        let _current = self.enter()?;
        let mut status = NOT_CAPTURING;
        // SAFETY: as in `check_stream`.
        let result = unsafe { library::cuStreamIsCapturing(raw(stream), &raw mut status) };
        // This is the device's default stream, which waits for all blocking streams, and one of those captures.
        if result == code::CAPTURE_IMPLICIT {
            return Ok(true);
        }
        self.check("cuStreamIsCapturing", result)?;
        Ok(status != NOT_CAPTURING)
    }

    /// Makes the trainer's `stream` wait for `event`.
    pub(crate) fn make_wait(&self, stream: StreamHandle, event: &CudaEvent) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: as in `check_stream`; the event lives.
        let result = unsafe { library::cuStreamWaitEvent(raw(stream), event.handle, 0) };
        self.check("cuStreamWaitEvent", result)
    }

    /// Records `event` on the trainer's `stream`, after all work queued there so far.
    pub(crate) fn record(&self, stream: StreamHandle, event: &CudaEvent) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: as in `make_wait`.
        let result = unsafe { library::cuEventRecord(event.handle, raw(stream)) };
        self.check("cuEventRecord", result)
    }

    /// Blocks this thread until all work on the trainer's `stream` is done. If that fails, until all work of the
    /// context is done.
    pub(crate) fn synchronise(&self, stream: StreamHandle) -> Result<(), DeviceError> {
        let _current = self.enter()?;
        // SAFETY: as in `check_stream`.
        let result: ResultCode = unsafe { library::cuStreamSynchronize(raw(stream)) };
        if result == code::SUCCESS {
            return Ok(());
        }
        // SAFETY: the context is current.
        self.check("cuCtxSynchronize", unsafe { library::cuCtxSynchronize() })
    }
}
