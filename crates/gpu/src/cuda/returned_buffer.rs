//! The buffer of a dropped batch, until the trainer's streams have released it.

use std::{
    sync::Arc,
    thread::{self, ThreadId},
};

use super::{
    buffer::Buffer,
    driver::{Context, CudaEvent},
};
use crate::{DeviceError, StreamHandle};

/// A stream of the trainer that waits for the batch, and the event to record on it when the batch is dropped.
pub(super) struct StreamUse {
    pub(super) stream: StreamHandle,
    /// The thread whose default stream it is. The handle is the same for all threads.
    pub(super) thread: Option<ThreadId>,
    pub(super) released: CudaEvent,
}

impl StreamUse {
    pub(super) fn is_of(&self, stream: StreamHandle, thread: Option<ThreadId>) -> bool {
        self.stream == stream && self.thread == thread
    }

    /// Returns the stream to record the release on. The default stream of another thread cannot be named: the device's
    /// default stream waits for those of all threads.
    fn release_stream(&self) -> StreamHandle {
        match self.thread {
            Some(thread) if thread != thread::current().id() => StreamHandle::LEGACY,
            _ => self.stream,
        }
    }
}

/// The buffer of a dropped batch, with the streams on which its release is not recorded.
pub(super) struct ReturnedBuffer {
    pub(super) context: Arc<Context>,
    pub(super) buffer: Buffer,
    pub(super) uses: Vec<StreamUse>,
}

/// Why a release is not recorded.
pub(super) enum Unrecorded {
    /// The trainer captures a graph. An event that is recorded now would be part of the graph, and the copy that waits
    /// for it, too.
    Capturing,
    /// The driver failed.
    Failed(DeviceError),
}

impl ReturnedBuffer {
    /// Records the releases, without blocking the thread. Streams on which that fails stay in the list.
    pub(super) fn record_releases(&mut self) -> Result<(), Unrecorded> {
        self.each_use(|context, each| context.record(each.release_stream(), &each.released))
    }

    /// Waits for the streams, instead of recording events on them.
    pub(super) fn wait_for_uses(&mut self) -> Result<(), Unrecorded> {
        self.each_use(|context, each| context.synchronise(each.release_stream()))
    }

    fn each_use(
        &mut self,
        release: impl Fn(&Context, &StreamUse) -> Result<(), DeviceError>,
    ) -> Result<(), Unrecorded> {
        while let Some(each) = self.uses.last() {
            let stream = each.release_stream();
            let released = self.context.is_capturing(stream).and_then(|is_capturing| {
                if is_capturing { Ok(false) } else { release(&self.context, each).map(|()| true) }
            });
            match released {
                Ok(true) => {}
                Ok(false) => return Err(Unrecorded::Capturing),
                // Nothing runs on a lost device.
                Err(DeviceError::Lost { .. }) => {}
                Err(error) if error.is_of_capture() => return Err(Unrecorded::Capturing),
                Err(error) => return Err(Unrecorded::Failed(error)),
            }
            // An event that was never recorded counts as passed.
            self.buffer.released_by(self.uses.pop().expect("the last one").released);
        }
        Ok(())
    }

    pub(super) fn into_buffer(self) -> Buffer {
        self.buffer
    }

    /// Gives the buffer up: its memory is neither used nor freed any more.
    pub(super) fn abandon(self) {
        std::mem::forget(self);
    }
}
