//! The task that moves batches from a source to a device, ahead of the trainer.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use spdl_shard::Position;
use spdl_wire::{messages::StageFigures, slab::Slab};
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

use super::{
    driver::{Context, PageLock},
    flight::Flight,
    lane::{Buffer, Lane},
};
use crate::{
    Batch, ClientError, Serving, Source, SourceEvent,
    core::Progress,
    device::{DeviceBatch, DeviceError, DeviceOptions, hands::Hands, tensor::Keeper},
};

/// How often the events of copies are looked at while there are copies. A slot is free that much later at most.
const POLL: Duration = Duration::from_millis(1);
/// How long copies may take to end when the loader is closed.
const LAND_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the task may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

type Ready = Result<SourceEvent<DeviceBatch>, ClientError>;

/// What the task is told.
enum Command {
    Handed(Progress),
    Restart(Position),
    Explain(oneshot::Sender<String>),
    Close(oneshot::Sender<()>),
}

/// The trainer's end of the task. Dropped, the task ends what is under way and says goodbye.
pub(crate) struct Pump {
    /// With the number of restarts before each.
    ready: mpsc::UnboundedReceiver<(u64, Ready)>,
    restarts: u64,
    commands: mpsc::UnboundedSender<Command>,
    served: Arc<Mutex<Served>>,
    hands: Arc<Hands>,
}

impl Pump {
    /// Allocates what is needed on the device and starts the task.
    pub(crate) fn start<S: Source<Batch = Batch>>(
        source: S,
        context: &Arc<Context>,
        layout: &spdl_wire::layout::Layout,
        options: DeviceOptions,
    ) -> Result<Self, ClientError> {
        let buffers = options.buffers;
        let lane = Arc::new(Lane::new(context, layout, options)?);
        // Ragged values come on top, and buffers grow when they do.
        let free = (0..buffers).map(|_| lane.buffer(layout.fixed_bytes())).collect::<Result<_, _>>()?;
        let (to_ready, ready) = mpsc::unbounded_channel();
        let (commands, to_task) = mpsc::unbounded_channel();
        let (back, returned) = mpsc::unbounded_channel();
        let served = Arc::new(Mutex::new(Served::by(&source)));
        let task = Task {
            source,
            lane,
            free,
            flights: VecDeque::new(),
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
        tokio::spawn(task.run());
        Ok(Self {
            ready,
            restarts: 0,
            commands,
            served,
            hands: Hands::new(buffers, "device buffers (option `buffers`)"),
        })
    }

    pub(crate) async fn next(&mut self) -> Ready {
        self.hands.warn();
        let ready = loop {
            match self.ready.recv().await {
                // Copied ahead, of the stream before it was started again.
                Some((restarts, Ok(_))) if restarts < self.restarts => {}
                Some((_, ready)) => break ready?,
                None => return Err(ClientError::Closed),
            }
        };
        if let SourceEvent::Batch(batch) = &ready
            && let Keeper::Cuda(held) = batch.keeper()
        {
            held.hand(self.hands.take());
        }
        Ok(ready)
    }

    pub(crate) fn restart(&mut self, from: Position) -> Result<(), ClientError> {
        self.commands.send(Command::Restart(from)).map_err(|_| ClientError::Closed)?;
        self.restarts += 1;
        Ok(())
    }

    pub(crate) async fn explain(&mut self) -> String {
        if let Some(reason) = self.hands.hoarding() {
            return reason;
        }
        let (reply, explanation) = oneshot::channel();
        let _ = self.commands.send(Command::Explain(reply));
        match timeout(ANSWER_TIMEOUT, explanation).await {
            Ok(Ok(text)) => text,
            _ => "the task that copies batches to the device does not answer".to_owned(),
        }
    }

    pub(crate) fn handed(&self, progress: Progress) {
        let _ = self.commands.send(Command::Handed(progress));
    }

    pub(crate) fn serving(&self) -> Serving {
        self.served.lock().serving.clone()
    }

    pub(crate) fn stages(&self) -> Vec<StageFigures> {
        self.served.lock().stages.clone()
    }

    pub(crate) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.commands.send(Command::Close(done)).is_ok() {
            let _ = timeout(LAND_TIMEOUT + ANSWER_TIMEOUT, closed).await;
        }
    }
}

/// The task.
struct Task<S> {
    source: S,
    lane: Arc<Lane>,
    /// Buffers that no batch has.
    free: VecDeque<Buffer>,
    /// Copies under way, oldest first. They end in this order: one stream carries them.
    flights: VecDeque<Flight>,
    locked: Locked,
    /// Came from the source and has no buffer yet.
    waiting: Option<Batch>,
    /// Nothing more comes: the end, or an error.
    is_over: bool,
    /// Times that the stream was started again.
    restarts: u64,
    commands: mpsc::UnboundedReceiver<Command>,
    returned: mpsc::UnboundedReceiver<Buffer>,
    back: mpsc::UnboundedSender<Buffer>,
    ready: mpsc::UnboundedSender<(u64, Ready)>,
    served: Arc<Mutex<Served>>,
}

/// What the source says of itself, as of the last batch that it gave.
struct Served {
    serving: Serving,
    stages: Vec<StageFigures>,
}

impl Served {
    fn by<S: Source>(source: &S) -> Self {
        Self { serving: source.serving(), stages: source.stages() }
    }
}

/// Slabs that are page-locked. After a fail-over there is another.
#[derive(Default)]
struct Locked {
    locks: Vec<PageLock>,
    /// Slabs that could not be; asked once.
    refused: Vec<Slab>,
}

fn is_same(one: &Slab, other: &Slab) -> bool {
    one.as_ptr() == other.as_ptr()
}

impl Locked {
    fn knows(&self, slab: &Slab) -> bool {
        self.locks.iter().map(PageLock::slab).chain(&self.refused).any(|known| is_same(known, slab))
    }

    /// Lets go of all slabs but the one that batches come in, as soon as no copy reads them.
    fn keep_only(&mut self, slab: &Slab, flights: &VecDeque<Flight>) {
        let is_used =
            |known: &Slab| is_same(known, slab) || flights.iter().any(|flight| is_same(flight.batch().slab(), known));
        self.locks.retain(|lock| is_used(lock.slab()));
        self.refused.retain(is_used);
    }
}

impl<S: Source<Batch = Batch>> Task<S> {
    async fn run(mut self) {
        let done = loop {
            if let Err(error) = self.advance().await {
                self.fail(error);
            }
            let wants_batch = !self.is_over && self.waiting.is_none() && !self.free.is_empty();
            let polls = !self.flights.is_empty() || self.waiting.is_some();
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(Command::Handed(progress)) => self.source.handed(progress),
                    Some(Command::Restart(from)) => self.restart(from).await,
                    Some(Command::Explain(reply)) => {
                        let _ = reply.send(self.source.explain().await);
                    }
                    Some(Command::Close(done)) => break Some(done),
                    None => break None,
                },
                buffer = self.returned.recv() => self.free.extend(buffer),
                event = self.source.next(), if wants_batch => {
                    *self.served.lock() = Served::by(&self.source);
                    match event {
                        Ok(SourceEvent::Batch(batch)) => self.waiting = Some(batch),
                        Ok(SourceEvent::End(position)) => self.end(Ok(SourceEvent::End(position))),
                        Err(error) => self.end(Err(error)),
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
            Err(error) => self.end(Err(error)),
        }
    }

    fn fail(&mut self, error: DeviceError) {
        self.waiting = None;
        if !self.is_over {
            self.end(Err(error.into()));
        }
    }

    /// Frees the slots of the copies that are done, and starts the next copy where it can be.
    async fn advance(&mut self) -> Result<(), DeviceError> {
        while let Some(flight) = self.flights.front_mut() {
            match flight.has_landed() {
                Ok(false) => break,
                Ok(true) => drop(self.flights.pop_front()),
                Err(error) => {
                    self.flights.pop_front();
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
        let buffer = with_room(&self.lane, buffer, batch.bytes().len()).await?;
        let (flight, on_device) = self.lane.put(batch, buffer, &self.back)?;
        self.flights.push_back(flight);
        let _ = self.ready.send((self.restarts, Ok(SourceEvent::Batch(on_device))));
        Ok(())
    }

    /// A free buffer that the host may write to.
    fn settled(&self) -> Result<Option<usize>, DeviceError> {
        for (at, buffer) in self.free.iter().enumerate() {
            if buffer.is_settled()? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Locking pages takes long, about a second for 10 GB, so another thread does it.
    async fn lock(&mut self, slab: Slab) {
        self.locked.keep_only(&slab, &self.flights);
        let (lane, to_lock) = (self.lane.clone(), slab.clone());
        match tokio::task::spawn_blocking(move || lane.page_lock(&to_lock)).await {
            Ok(Some(lock)) => self.locked.locks.push(lock),
            _ => self.locked.refused.push(slab),
        }
    }

    /// Lets copies and kernels end before what they use goes, then says goodbye.
    async fn finish(mut self) {
        self.waiting = None;
        let landed = timeout(LAND_TIMEOUT, async {
            while let Some(flight) = self.flights.front_mut() {
                match flight.has_landed() {
                    Ok(false) => sleep(POLL).await,
                    _ => drop(self.flights.pop_front()),
                }
            }
            let mark = self.lane.mark();
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

/// The buffer, or a larger one in its place, with a quarter to spare, so that few are made.
async fn with_room(lane: &Arc<Lane>, buffer: Buffer, bytes: usize) -> Result<Buffer, DeviceError> {
    if buffer.room() >= bytes {
        return Ok(buffer);
    }
    let lane = lane.clone();
    let made = tokio::task::spawn_blocking(move || {
        drop(buffer);
        lane.buffer(bytes + bytes / 4)
    });
    made.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
