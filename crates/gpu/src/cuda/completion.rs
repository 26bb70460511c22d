//! The thread that waits for the device, one for each loader.
//!
//! It frees the slot of each copy when the copy is done, and wakes the loader's task. It does everything else that
//! waits for the device, too: it releases memory, and waits for streams on which a release could not be recorded. So
//! neither the task nor a trainer's thread waits for the device. It ends when the loader and all its batches are
//! dropped.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{
    buffer::Buffer,
    driver::is_exiting,
    pending_copy::PendingCopy,
    returned_buffer::{ReturnedBuffer, Unrecorded},
};
use crate::DeviceError;

/// How often the thread checks whether captures during which batches were dropped have ended. The driver has no call
/// that waits for that.
const CAPTURE_POLL: Duration = Duration::from_millis(5);

/// Work for the thread, which does it in order.
pub(super) enum CompletionRequest {
    /// Waits for the copy with this number, and frees its slot.
    Copy(u64, PendingCopy),
    /// Returns a buffer when the work that still uses it is recorded or done.
    Release(ReturnedBuffer, Unrecorded),
    /// Frees a buffer.
    Free(Buffer),
    /// Drops what the loader no longer needs.
    Drop(Box<dyn Send>),
}

/// What the thread reports to the loader's task.
pub(super) enum Completion {
    /// The copy with this number is over.
    Copied(u64, Result<(), DeviceError>),
    /// A buffer can be filled again.
    Released(Buffer),
    /// A buffer cannot be used any more, because of this error.
    Abandoned(DeviceError),
}

/// The loader's side of the thread. Cheap to clone.
#[derive(Clone)]
pub(super) struct Completions {
    requests: Sender<CompletionRequest>,
    held_back: Arc<AtomicUsize>,
}

impl Completions {
    /// Starts the thread; returns its reports, too.
    pub(super) fn start() -> io::Result<(Self, UnboundedReceiver<Completion>)> {
        let (requests, to_do) = mpsc::channel();
        let (reports, reported) = unbounded_channel();
        let held_back = Arc::new(AtomicUsize::new(0));
        let thread = CompletionThread { requests: to_do, reports, held_back: held_back.clone(), waiting: Vec::new() };
        thread::Builder::new().name("spdl-copies".into()).spawn(move || thread.run())?;
        Ok((Self { requests, held_back }, reported))
    }

    pub(super) fn send(&self, request: CompletionRequest) {
        // The thread lives as long as this.
        let _ = self.requests.send(request);
    }

    /// Returns how many buffers wait for the end of a capture.
    pub(super) fn held_back(&self) -> usize {
        self.held_back.load(Ordering::Relaxed)
    }
}

struct CompletionThread {
    requests: Receiver<CompletionRequest>,
    reports: UnboundedSender<Completion>,
    held_back: Arc<AtomicUsize>,
    /// Buffers of batches that were dropped during a capture.
    waiting: Vec<ReturnedBuffer>,
}

impl CompletionThread {
    fn run(mut self) {
        loop {
            let request = if self.waiting.is_empty() {
                self.requests.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.requests.recv_timeout(CAPTURE_POLL)
            };
            match request {
                Ok(request) => self.work(request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if self.waiting.is_empty() => return,
                Err(RecvTimeoutError::Disconnected) => thread::sleep(CAPTURE_POLL),
            }
            if is_exiting() {
                // The driver is torn down: nothing can be waited for or freed any more.
                std::mem::forget(self);
                return;
            }
            for returned in std::mem::take(&mut self.waiting) {
                self.release(returned);
            }
            self.held_back.store(self.waiting.len(), Ordering::Relaxed);
        }
    }

    fn work(&mut self, request: CompletionRequest) {
        match request {
            CompletionRequest::Copy(number, copy) => {
                let _ = self.reports.send(Completion::Copied(number, copy.finish()));
            }
            CompletionRequest::Release(returned, Unrecorded::Capturing) => self.waiting.push(returned),
            CompletionRequest::Release(returned, Unrecorded::Failed(error)) => self.wait_for_uses(returned, error),
            CompletionRequest::Free(buffer) => drop(buffer),
            CompletionRequest::Drop(unused) => drop(unused),
        }
    }

    fn release(&mut self, mut returned: ReturnedBuffer) {
        match returned.record_releases() {
            Ok(()) => give_back(returned, &self.reports),
            Err(Unrecorded::Capturing) => self.waiting.push(returned),
            Err(Unrecorded::Failed(error)) => self.wait_for_uses(returned, error),
        }
    }

    /// Waits for streams on which no event can be recorded, because of `error`: on a thread of its own, since the slots
    /// of later copies must not wait for the trainer.
    fn wait_for_uses(&self, returned: ReturnedBuffer, error: DeviceError) {
        let reports = self.reports.clone();
        let waits = thread::Builder::new().name("spdl-release".into());
        if let Err(problem) = waits.spawn(move || wait_for_uses(returned, &error, &reports)) {
            // The buffer was dropped with the closure; dropping it waits for the device.
            tracing::warn!("a device buffer is not used any more: the system starts no thread: {problem}");
        }
    }
}

fn wait_for_uses(mut returned: ReturnedBuffer, error: &DeviceError, reports: &UnboundedSender<Completion>) {
    loop {
        match returned.wait_for_uses() {
            _ if is_exiting() => return returned.abandon(),
            Ok(()) => return give_back(returned, reports),
            Err(Unrecorded::Capturing) => thread::sleep(CAPTURE_POLL),
            Err(Unrecorded::Failed(second)) => {
                tracing::warn!(
                    "a device buffer is not used any more, because nothing reports the end of the work on it: {error}; \
                     {second}"
                );
                returned.abandon();
                let _ = reports.send(Completion::Abandoned(second));
                return;
            }
        }
    }
}

/// Gives the buffer to the task, or frees it if the loader is gone.
fn give_back(returned: ReturnedBuffer, reports: &UnboundedSender<Completion>) {
    let _ = reports.send(Completion::Released(returned.into_buffer()));
}
