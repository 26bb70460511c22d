//! A batch on the device: the streams that use it, and the return of its buffer.

use std::{
    sync::Arc,
    thread::{self, ThreadId},
};

use parking_lot::Mutex;
use spdl_wire::slab::Slab;
use tokio::sync::mpsc::UnboundedSender;

use super::{
    completion::{CompletionRequest, Completions},
    copy_stream::Buffer,
    driver::{Context, CudaEvent},
};
use crate::{BatchPlacement, DeviceBatch, DeviceError, StreamHandle, outstanding::BatchHold, storage::BatchStorage};

/// A batch on the device that the trainer does not have yet.
pub(crate) struct CopiedBatch {
    pub(super) batch: DeviceBatch,
    pub(super) held: Arc<DeviceBatchStorage>,
}

impl CopiedBatch {
    /// Passes the batch on to the trainer, who holds it until the last of its tensors is dropped.
    pub(crate) fn hand(self, hold: BatchHold) -> DeviceBatch {
        *self.held.hold.lock() = Some(hold);
        self.batch
    }
}

/// Where the buffer of a dropped batch goes.
#[derive(Clone)]
pub(super) struct BufferReturn {
    /// To the loader's task, which fills it again.
    pub(super) to_task: UnboundedSender<Buffer>,
    /// To the thread, if something has to be waited for, or if the loader is gone.
    pub(super) completions: Completions,
}

/// A batch on the device. It keeps its buffer until the last of its tensors is dropped.
pub(super) struct DeviceBatchStorage {
    context: Arc<Context>,
    /// `None` only while this is being dropped.
    buffer: Option<Buffer>,
    uses: Mutex<Vec<StreamUse>>,
    back: BufferReturn,
    hold: Mutex<Option<BatchHold>>,
}

impl DeviceBatchStorage {
    pub(super) fn new(context: Arc<Context>, buffer: Buffer, back: BufferReturn) -> Arc<Self> {
        let (uses, hold) = (Mutex::default(), Mutex::default());
        Arc::new(Self { context, buffer: Some(buffer), uses, back, hold })
    }

    fn buffer(&self) -> &Buffer {
        self.buffer.as_ref().expect("a batch has its buffer until it is dropped")
    }
}

/// A stream of the trainer that waits for the batch, and the event to record on it when the batch is dropped.
pub(super) struct StreamUse {
    stream: StreamHandle,
    /// The thread whose default stream it is. The handle is the same for all threads.
    thread: Option<ThreadId>,
    released: CudaEvent,
}

impl StreamUse {
    fn is_of(&self, stream: StreamHandle, thread: Option<ThreadId>) -> bool {
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

/// Returns the thread whose stream a handle means, if that depends on the thread.
fn thread_of(stream: StreamHandle) -> Option<ThreadId> {
    (stream == StreamHandle::PER_THREAD).then(|| thread::current().id())
}

impl BatchStorage for DeviceBatchStorage {
    fn placement(&self) -> BatchPlacement {
        self.context.placement()
    }

    fn slot(&self) -> Option<(&Slab, u32)> {
        None
    }

    fn wait_on(&self, stream: StreamHandle) -> Result<(), DeviceError> {
        self.context.check_stream(stream)?;
        let thread = thread_of(stream);
        let mut uses = self.uses.lock();
        if uses.iter().any(|each| each.is_of(stream, thread)) {
            return Ok(());
        }
        let released = CudaEvent::new(&self.context)?;
        self.context.make_wait(stream, self.buffer().ready())?;
        uses.push(StreamUse { stream, thread, released });
        Ok(())
    }

    fn synchronise(&self) -> Result<(), DeviceError> {
        self.buffer().ready().synchronise()
    }

    fn read(&self, address: usize, bytes: usize) -> Result<Vec<u8>, DeviceError> {
        self.synchronise()?;
        self.buffer().read(address, bytes)
    }
}

/// Runs on the trainer's thread, which may hold a lock that the whole program needs, so it does not wait for the
/// device.
impl Drop for DeviceBatchStorage {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        let uses = std::mem::take(self.uses.get_mut());
        let mut returned = ReturnedBuffer { context: self.context.clone(), buffer, uses };
        let request = match returned.record_releases() {
            Ok(()) => match self.back.to_task.send(returned.buffer) {
                Ok(()) => return,
                Err(error) => CompletionRequest::Free(error.0),
            },
            Err(reason) => CompletionRequest::Release(returned, reason),
        };
        self.back.completions.send(request);
    }
}

/// The buffer of a dropped batch, with the streams on which its release is not recorded.
pub(super) struct ReturnedBuffer {
    context: Arc<Context>,
    buffer: Buffer,
    uses: Vec<StreamUse>,
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
