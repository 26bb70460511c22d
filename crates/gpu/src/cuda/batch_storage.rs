//! A batch on the device: the streams that use it, and the return of its buffer.

use std::{
    sync::Arc,
    thread::{self, ThreadId},
};

use parking_lot::Mutex;
use spdl_wire::slab::Slab;
use tokio::sync::mpsc::UnboundedSender;

use super::{
    buffer::Buffer,
    completion::{CompletionRequest, Completions},
    driver::{Context, CudaEvent},
    returned_buffer::{ReturnedBuffer, StreamUse},
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
