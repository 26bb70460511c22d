//! The task that copies batches from a source to a device, ahead of the trainer.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use spdl_accounting::{StageCounters, UnitGroup, UnitState};
use spdl_client::{Batch, ClientError, Progress, Serving, Session, Source, SourceEvent};
use spdl_types::{Position, Stage, StageStats};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tracing::Instrument;

use super::{
    batch_storage::{BufferReturn, CopiedBatch},
    buffer::Buffer,
    completion::{Completion, CompletionRequest, Completions},
    copy_stream::CopyStream,
    driver::Context,
    page_locks::{LockedPages, PageLocks, on_other_thread},
};
use crate::{DeviceBatch, DeviceError, DeviceOptions, SequenceColumns, outstanding::OutstandingBatches};

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

/// The trainer's handle of the task. When it is dropped, the task closes the source, and the pending copies end by
/// themselves.
pub(crate) struct Prefetcher {
    /// Each result comes with the number of restarts before it.
    ready: mpsc::UnboundedReceiver<(u64, Ready)>,
    restarts: u64,
    commands: mpsc::UnboundedSender<PrefetchCommand>,
    served: Arc<Mutex<Served>>,
    classes: Option<Arc<[String]>>,
    copies: Arc<StageCounters>,
    outstanding: Arc<OutstandingBatches>,
    buffers: u32,
}

impl Prefetcher {
    /// Allocates the device's memory and starts the task.
    pub(crate) fn start<S: Source<Batch = Batch, Error = ClientError>>(
        source: S,
        context: &Arc<Context>,
        layout: &spdl_job::layout::Layout,
        options: DeviceOptions,
        sequences: Option<SequenceColumns>,
    ) -> Result<Self, DeviceError> {
        let buffers = options.buffers;
        let page_locks = PageLocks::new(context.clone(), options.page_lock_max_bytes);
        let copy_stream = Arc::new(CopyStream::new(context, layout, options, sequences)?);
        let free = copy_stream.buffers(buffers)?;
        let (to_ready, ready) = mpsc::unbounded_channel();
        let (commands, to_task) = mpsc::unbounded_channel();
        let (back, returned) = mpsc::unbounded_channel();
        let (completions, completed) = Completions::start().map_err(|error| DeviceError::Thread {
            device: context.placement().to_string(),
            problem: error.to_string(),
        })?;
        let outstanding = OutstandingBatches::new(buffers, "device buffers (option `buffers`)");
        let served = Arc::new(Mutex::new(Served::by(&source)));
        let classes = source.classes();
        let stage = Arc::new(StageCounters::new(Stage::Copy));
        let task = PrefetchTask {
            source,
            copy_stream,
            free,
            buffers,
            units: stage.units().group(buffers, Instant::now()),
            stage: stage.clone(),
            copies: 0,
            copies_done: 0,
            copying: VecDeque::new(),
            page_locks,
            waiting: None,
            is_over: false,
            restarts: 0,
            commands: to_task,
            returned,
            completed,
            back: BufferReturn { to_task: back, completions },
            outstanding: outstanding.clone(),
            ready: to_ready,
            served: served.clone(),
        };
        tokio::spawn(task.run().in_current_span());
        Ok(Self { ready, restarts: 0, commands, served, classes, copies: stage, outstanding, buffers })
    }

    /// Returns the number of buffers on the device.
    pub(crate) const fn buffers(&self) -> u32 {
        self.buffers
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
        let text = match timeout(ANSWER_TIMEOUT, explanation).await {
            Ok(Ok(text)) => text,
            _ => "the task that copies batches to the device does not answer".to_owned(),
        };
        match self.outstanding.shortage() {
            Some(shortage) => format!("{text}; {shortage}"),
            None => text,
        }
    }

    pub(crate) fn record_progress(&self, progress: Progress) {
        let _ = self.commands.send(PrefetchCommand::Delivered(progress));
    }

    pub(crate) fn serving(&self) -> Serving {
        self.served.lock().serving.clone()
    }

    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.served.lock().session.clone()
    }

    pub(crate) fn classes(&self) -> Option<Arc<[String]>> {
        self.classes.clone()
    }

    pub(crate) fn stages(&self) -> Vec<StageStats> {
        let mut stages = self.served.lock().stages.clone();
        stages.push(self.copies.stats(Instant::now()));
        stages
    }

    pub(crate) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.commands.send(PrefetchCommand::Close(done)).is_ok() {
            let _ = timeout(ANSWER_TIMEOUT, closed).await;
        }
    }
}

/// The state of the task.
struct PrefetchTask<S> {
    source: S,
    copy_stream: Arc<CopyStream>,
    /// Buffers that no batch uses.
    free: VecDeque<Buffer>,
    /// The number of buffers that are usable.
    buffers: u32,
    /// Counts the copies; its units are the buffers.
    stage: Arc<StageCounters>,
    units: UnitGroup,
    /// The start and the bytes of each copy that was queued and is not over.
    copying: VecDeque<(Instant, u64)>,
    /// The number of the last copy that was queued.
    copies: u64,
    /// The number of the last copy that is over. Copies end in order, because they are on one stream.
    copies_done: u64,
    page_locks: PageLocks,
    /// A batch of the source that waits for a buffer.
    waiting: Option<Batch>,
    /// Whether the source has ended or failed.
    is_over: bool,
    /// Number of times that the stream was restarted.
    restarts: u64,
    commands: mpsc::UnboundedReceiver<PrefetchCommand>,
    returned: mpsc::UnboundedReceiver<Buffer>,
    completed: mpsc::UnboundedReceiver<Completion>,
    back: BufferReturn,
    outstanding: Arc<OutstandingBatches>,
    ready: mpsc::UnboundedSender<(u64, Ready)>,
    served: Arc<Mutex<Served>>,
}

/// What the source reports of itself, as of its last batch.
struct Served {
    serving: Serving,
    stages: Vec<StageStats>,
    session: Option<Arc<Session>>,
}

impl Served {
    fn by<S: Source>(source: &S) -> Self {
        Self { serving: source.serving(), stages: source.stages(), session: source.session() }
    }
}

impl<S: Source<Batch = Batch, Error = ClientError>> PrefetchTask<S> {
    async fn run(mut self) {
        let done = loop {
            if let Err(error) = self.advance().await {
                self.fail(error);
            }
            self.account();
            let wants_batch = !self.is_over && self.waiting.is_none() && !self.free.is_empty();
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(PrefetchCommand::Delivered(progress)) => self.source.record_progress(progress),
                    Some(PrefetchCommand::Restart(from)) => self.restart(from).await,
                    Some(PrefetchCommand::Explain(reply)) => {
                        let reason = self.held_back_reason();
                        let _ = reply.send(match reason {
                            Some(reason) => reason,
                            None => self.source.explain().await,
                        });
                    }
                    Some(PrefetchCommand::Close(done)) => break Some(done),
                    None => break None,
                },
                Some(buffer) = self.returned.recv() => self.free.push_back(buffer),
                Some(completion) = self.completed.recv() => self.complete(completion),
                event = self.source.next(), if wants_batch => {
                    *self.served.lock() = Served::by(&self.source);
                    match event {
                        Ok(SourceEvent::Batch(batch)) => self.waiting = Some(batch),
                        Ok(SourceEvent::End(position)) => self.end(Ok(SourceEvent::End(position))),
                        Err(error) => self.end(Err(error.into())),
                    }
                }
            }
        };
        self.waiting = None;
        self.source.close().await;
        if let Some(done) = done {
            let _ = done.send(());
        }
    }

    /// Accounts for what each buffer does: a copy is in flight, it waits for a batch, or it waits for the trainer.
    fn account(&self) {
        let copying = self.copying.len();
        let held = (self.buffers as usize).saturating_sub(copying + self.free.len());
        self.units.set([(UnitState::Busy, copying), (UnitState::Output, held)], Instant::now());
    }

    fn lose_buffer(&mut self) {
        self.buffers -= 1;
        self.units = self.stage.units().group(self.buffers, Instant::now());
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

    fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Copied(number, result) => {
                self.copies_done = number;
                let copied = self.copying.pop_front();
                match result {
                    Ok(()) => copied.into_iter().for_each(|(since, bytes)| self.stage.item(since.elapsed(), bytes)),
                    Err(error) => {
                        self.stage.failure();
                        self.fail(error);
                    }
                }
            }
            Completion::Released(buffer) => self.free.push_back(buffer),
            Completion::Abandoned(error) => {
                self.lose_buffer();
                self.outstanding.set_limit(self.buffers);
                if self.buffers == 0 {
                    self.fail(error);
                }
            }
        }
    }

    /// Returns the reason why no batch can arrive when a capture holds all buffers that the trainer does not hold.
    fn held_back_reason(&self) -> Option<String> {
        let held_back = self.back.completions.held_back();
        (held_back > 0 && self.free.is_empty()).then(|| {
            format!(
                "the trainer dropped {held_back} batches while it captured a CUDA graph, and their device buffers are \
                 held back until the capture ends; drop batches before a capture, or set more `buffers`"
            )
        })
    }

    /// Starts the next copy if possible.
    async fn advance(&mut self) -> Result<(), DeviceError> {
        let facts = |batch: &Batch| (batch.slab().clone(), batch.slot(), batch.bytes().len());
        let Some((slab, slot, bytes)) = self.waiting.as_ref().map(facts) else {
            return Ok(());
        };
        let pages = self.page_locks.of(slab, slot, bytes).await;
        let Some(batch) = self.waiting.take() else { return Ok(()) };
        let Some(buffer) = self.free_buffer(batch.bytes().len()).await? else {
            self.waiting = Some(batch);
            return Ok(());
        };
        self.copies += 1;
        self.copying.push_back((Instant::now(), batch.bytes().len() as u64));
        let copied = self.put(batch, pages, buffer).await.inspect_err(|_| {
            self.copying.pop_back();
        })?;
        let _ = self.ready.send((self.restarts, Ok(SourceEvent::Batch(copied))));
        Ok(())
    }

    /// Returns a free buffer with room for a batch of this many bytes, or `None` if the batch has to wait for one. If
    /// the device's memory is too short for a larger buffer, the loader goes on with fewer, as long as one is left.
    async fn free_buffer(&mut self, bytes: usize) -> Result<Option<Buffer>, DeviceError> {
        loop {
            let Some(at) = self.settled(bytes) else { return Ok(None) };
            let buffer = self.free.remove(at).expect("a place in the queue");
            if buffer.room() >= bytes {
                return Ok(Some(buffer));
            }
            let copy_stream = self.copy_stream.clone();
            match on_other_thread(move || copy_stream.enlarge(buffer, bytes)).await {
                Err(error) if error.is_out_of_memory() && self.buffers > 1 => {
                    self.lose_buffer();
                    self.outstanding.lower_limit(self.buffers, &error);
                }
                larger => return larger.map(Some),
            }
        }
    }

    /// Returns the index of a free buffer that the host may write to, preferably of one with room for this many bytes.
    fn settled(&self, bytes: usize) -> Option<usize> {
        let settled = || self.free.iter().enumerate().filter(|(_, buffer)| buffer.is_settled(self.copies_done));
        let found = settled().find(|(_, buffer)| buffer.room() >= bytes).or_else(|| settled().next());
        found.map(|(at, _)| at)
    }

    /// Starts a copy. If the driver has to read the bytes before its call returns, starts it on another thread, because
    /// this may be the only thread of the runtime.
    async fn put(&mut self, batch: Batch, pages: LockedPages, buffer: Buffer) -> Result<CopiedBatch, DeviceError> {
        let number = self.copies;
        if pages.bytes() >= batch.bytes().len() && buffer.is_page_locked() {
            return self.copy_stream.put(batch, pages, number, buffer, &self.back);
        }
        let (copy_stream, back) = (self.copy_stream.clone(), self.back.clone());
        on_other_thread(move || copy_stream.put(batch, pages, number, buffer, &back)).await
    }
}

/// Leaves everything that waits for the device to the thread, because it may have to wait for the trainer's queue.
impl<S> Drop for PrefetchTask<S> {
    fn drop(&mut self) {
        let completions = &self.back.completions;
        self.returned.close();
        self.completed.close();
        let returned = std::iter::from_fn(|| self.returned.try_recv().ok());
        let released =
            std::iter::from_fn(|| self.completed.try_recv().ok()).filter_map(|completion| match completion {
                Completion::Released(buffer) => Some(buffer),
                Completion::Copied(..) | Completion::Abandoned(_) => None,
            });
        for buffer in self.free.drain(..).chain(returned).chain(released) {
            completions.send(CompletionRequest::Free(buffer));
        }
        // Unlocking memory takes time, too. The thread drops this after the copies that it got before.
        let unused = (self.copy_stream.clone(), self.page_locks.take());
        completions.send(CompletionRequest::Drop(Box::new(unused)));
    }
}
