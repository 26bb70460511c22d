//! The task that copies batches from a source to a device, ahead of the trainer.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use spdl_client::{Batch, ClientError, Progress, Serving, Source, SourceEvent};
use spdl_core::{Position, messages::StageStats};
use spdl_wire::slab::Slab;
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};
use tracing::Instrument;

use super::{
    copy_stream::{Buffer, CopiedBatch, CopyStream},
    driver::{Context, PageLock},
    pending_copy::PendingCopy,
};
use crate::{DeviceBatch, DeviceError, DeviceOptions, outstanding::OutstandingBatches};

/// How often the task checks the events of pending copies. A slot is freed at most this much later.
const POLL: Duration = Duration::from_millis(1);
/// How long pending copies may take to finish when the loader is closed.
const LAND_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the task may take to answer a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

type Ready = Result<SourceEvent<CopiedBatch>, DeviceError>;

/// A message from the trainer to the task.
enum PrefetchCommand {
    Delivered(Progress),
    Restart(Position),
    Explain(oneshot::Sender<String>),
    Close(oneshot::Sender<()>),
}

/// The trainer's handle of the task. When it is dropped, the task finishes the pending copies and closes the source.
pub(crate) struct Prefetcher {
    /// Each result comes with the number of restarts before it.
    ready: mpsc::UnboundedReceiver<(u64, Ready)>,
    restarts: u64,
    commands: mpsc::UnboundedSender<PrefetchCommand>,
    served: Arc<Mutex<Served>>,
    outstanding: Arc<OutstandingBatches>,
}

impl Prefetcher {
    /// Allocates the device's memory and starts the task.
    pub(crate) fn start<S: Source<Batch = Batch, Error = ClientError>>(
        source: S,
        context: &Arc<Context>,
        layout: &spdl_core::layout::Layout,
        options: DeviceOptions,
    ) -> Result<Self, DeviceError> {
        let buffers = options.buffers;
        let copy_stream = Arc::new(CopyStream::new(context, layout, options)?);
        // Ragged values need more room; a buffer that is too small is replaced.
        let free =
            (0..buffers).map(|_| copy_stream.buffer(layout.fixed_bytes())).collect::<Result<_, DeviceError>>()?;
        let (to_ready, ready) = mpsc::unbounded_channel();
        let (commands, to_task) = mpsc::unbounded_channel();
        let (back, returned) = mpsc::unbounded_channel();
        let served = Arc::new(Mutex::new(Served::by(&source)));
        let task = PrefetchTask {
            source,
            copy_stream,
            free,
            pending_copies: VecDeque::new(),
            locked: Locked::default(),
            waiting: None,
            is_over: false,
            restarts: 0,
            commands: to_task,
            returned,
            back,
            ready: to_ready,
            served: served.clone(),
        };
        tokio::spawn(task.run().in_current_span());
        Ok(Self {
            ready,
            restarts: 0,
            commands,
            served,
            outstanding: OutstandingBatches::new(buffers, "device buffers (option `buffers`)"),
        })
    }

    pub(crate) async fn next(&mut self) -> Result<SourceEvent<DeviceBatch>, DeviceError> {
        self.outstanding.warn();
        let ready = loop {
            match self.ready.recv().await {
                // A batch that was copied ahead before the stream was restarted.
                Some((restarts, Ok(_))) if restarts < self.restarts => {}
                Some((_, ready)) => break ready?,
                None => return Err(ClientError::Closed.into()),
            }
        };
        Ok(match ready {
            SourceEvent::Batch(copied) => SourceEvent::Batch(copied.hand(self.outstanding.take())),
            SourceEvent::End(position) => SourceEvent::End(position),
        })
    }

    pub(crate) fn restart(&mut self, from: Position) -> Result<(), DeviceError> {
        self.commands.send(PrefetchCommand::Restart(from)).map_err(|_| ClientError::Closed)?;
        self.restarts += 1;
        Ok(())
    }

    pub(crate) async fn explain(&mut self) -> String {
        if let Some(reason) = self.outstanding.exhausted_reason() {
            return reason;
        }
        let (reply, explanation) = oneshot::channel();
        let _ = self.commands.send(PrefetchCommand::Explain(reply));
        match timeout(ANSWER_TIMEOUT, explanation).await {
            Ok(Ok(text)) => text,
            _ => "the task that copies batches to the device does not answer".to_owned(),
        }
    }

    pub(crate) fn record_progress(&self, progress: Progress) {
        let _ = self.commands.send(PrefetchCommand::Delivered(progress));
    }

    pub(crate) fn serving(&self) -> Serving {
        self.served.lock().serving.clone()
    }

    pub(crate) fn stages(&self) -> Vec<StageStats> {
        self.served.lock().stages.clone()
    }

    pub(crate) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.commands.send(PrefetchCommand::Close(done)).is_ok() {
            let _ = timeout(LAND_TIMEOUT + ANSWER_TIMEOUT, closed).await;
        }
    }
}

/// The state of the task.
struct PrefetchTask<S> {
    source: S,
    copy_stream: Arc<CopyStream>,
    /// Buffers that no batch uses.
    free: VecDeque<Buffer>,
    /// Pending copies, oldest first. They end in this order, because they are on one stream.
    pending_copies: VecDeque<PendingCopy>,
    locked: Locked,
    /// A batch of the source that waits for a buffer.
    waiting: Option<Batch>,
    /// Whether the source has ended or failed.
    is_over: bool,
    /// Number of times that the stream was restarted.
    restarts: u64,
    commands: mpsc::UnboundedReceiver<PrefetchCommand>,
    returned: mpsc::UnboundedReceiver<Buffer>,
    back: mpsc::UnboundedSender<Buffer>,
    ready: mpsc::UnboundedSender<(u64, Ready)>,
    served: Arc<Mutex<Served>>,
}

/// What the source reports of itself, as of its last batch.
struct Served {
    serving: Serving,
    stages: Vec<StageStats>,
}

impl Served {
    fn by<S: Source>(source: &S) -> Self {
        Self { serving: source.serving(), stages: source.stages() }
    }
}

/// The slabs that are page-locked. A fail-over brings a new slab.
#[derive(Default)]
struct Locked {
    locks: Vec<PageLock>,
    /// Slabs that could not be page-locked, to try each only once.
    refused: Vec<Slab>,
}

fn is_same(one: &Slab, other: &Slab) -> bool {
    one.as_ptr() == other.as_ptr()
}

impl Locked {
    fn knows(&self, slab: &Slab) -> bool {
        self.locks.iter().map(PageLock::slab).chain(&self.refused).any(|known| is_same(known, slab))
    }

    /// Unlocks all slabs except the current one, once no pending copy reads them.
    fn keep_only(&mut self, slab: &Slab, pending_copies: &VecDeque<PendingCopy>) {
        let is_used = |known: &Slab| {
            is_same(known, slab) || pending_copies.iter().any(|pending| is_same(pending.batch().slab(), known))
        };
        self.locks.retain(|lock| is_used(lock.slab()));
        self.refused.retain(is_used);
    }
}

impl<S: Source<Batch = Batch, Error = ClientError>> PrefetchTask<S> {
    async fn run(mut self) {
        let done = loop {
            if let Err(error) = self.advance().await {
                self.fail(error);
            }
            let wants_batch = !self.is_over && self.waiting.is_none() && !self.free.is_empty();
            let polls = !self.pending_copies.is_empty() || self.waiting.is_some();
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(PrefetchCommand::Delivered(progress)) => self.source.record_progress(progress),
                    Some(PrefetchCommand::Restart(from)) => self.restart(from).await,
                    Some(PrefetchCommand::Explain(reply)) => {
                        let _ = reply.send(self.source.explain().await);
                    }
                    Some(PrefetchCommand::Close(done)) => break Some(done),
                    None => break None,
                },
                buffer = self.returned.recv() => self.free.extend(buffer),
                event = self.source.next(), if wants_batch => {
                    *self.served.lock() = Served::by(&self.source);
                    match event {
                        Ok(SourceEvent::Batch(batch)) => self.waiting = Some(batch),
                        Ok(SourceEvent::End(position)) => self.end(Ok(SourceEvent::End(position))),
                        Err(error) => self.end(Err(error.into())),
                    }
                }
                () = sleep(POLL), if polls => {}
            }
        };
        self.finish().await;
        if let Some(done) = done {
            let _ = done.send(());
        }
    }

    fn end(&mut self, last: Ready) {
        self.is_over = true;
        let _ = self.ready.send((self.restarts, last));
    }

    async fn restart(&mut self, from: Position) {
        self.waiting = None;
        self.restarts += 1;
        match self.source.restart(from).await {
            Ok(()) => self.is_over = false,
            Err(error) => self.end(Err(error.into())),
        }
    }

    fn fail(&mut self, error: DeviceError) {
        self.waiting = None;
        if !self.is_over {
            self.end(Err(error));
        }
    }

    /// Frees the slots of the copies that are done, and starts the next copy if possible.
    async fn advance(&mut self) -> Result<(), DeviceError> {
        while let Some(pending) = self.pending_copies.front_mut() {
            match pending.has_landed() {
                Ok(false) => break,
                Ok(true) => drop(self.pending_copies.pop_front()),
                Err(error) => {
                    self.pending_copies.pop_front();
                    return Err(error);
                }
            }
        }
        if let Some(batch) = &self.waiting
            && !self.locked.knows(batch.slab())
        {
            self.lock(batch.slab().clone()).await;
        }
        let Some(batch) = self.waiting.take() else { return Ok(()) };
        let Some(at) = self.settled()? else {
            self.waiting = Some(batch);
            return Ok(());
        };
        let buffer = self.free.remove(at).expect("a place in the queue");
        let buffer = with_room(&self.copy_stream, buffer, batch.bytes().len()).await?;
        let (pending, copied) = self.copy_stream.put(batch, buffer, &self.back)?;
        self.pending_copies.push_back(pending);
        let _ = self.ready.send((self.restarts, Ok(SourceEvent::Batch(copied))));
        Ok(())
    }

    /// Returns the index of a free buffer that the host may write to.
    fn settled(&self) -> Result<Option<usize>, DeviceError> {
        for (at, buffer) in self.free.iter().enumerate() {
            if buffer.is_settled()? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Page-locks a slab on another thread, because that takes about a second for 10 GB.
    async fn lock(&mut self, slab: Slab) {
        self.locked.keep_only(&slab, &self.pending_copies);
        let (copy_stream, to_lock) = (self.copy_stream.clone(), slab.clone());
        match tokio::task::spawn_blocking(move || copy_stream.page_lock(&to_lock)).await {
            Ok(Some(lock)) => self.locked.locks.push(lock),
            _ => self.locked.refused.push(slab),
        }
    }

    /// Lets copies and kernels finish before their memory is freed, then closes the source.
    async fn finish(mut self) {
        self.waiting = None;
        let landed = timeout(LAND_TIMEOUT, async {
            while let Some(pending) = self.pending_copies.front_mut() {
                match pending.has_landed() {
                    Ok(false) => sleep(POLL).await,
                    _ => drop(self.pending_copies.pop_front()),
                }
            }
            let mark = self.copy_stream.mark();
            while mark.as_ref().is_ok_and(|mark| matches!(mark.is_done(), Ok(false))) {
                sleep(POLL).await;
            }
        });
        if landed.await.is_err() {
            tracing::warn!("copies to the device do not end; the loader waits for them");
        }
        self.source.close().await;
    }
}

/// Returns the buffer, or a larger one in its place. The new one has a quarter more than needed, so that few
/// replacements happen.
async fn with_room(copy_stream: &Arc<CopyStream>, buffer: Buffer, bytes: usize) -> Result<Buffer, DeviceError> {
    if buffer.room() >= bytes {
        return Ok(buffer);
    }
    let copy_stream = copy_stream.clone();
    let made = tokio::task::spawn_blocking(move || {
        drop(buffer);
        copy_stream.buffer(bytes + bytes / 4)
    });
    made.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
