//! Streams and events. A stream's thread executes its work in order, with a random delay before each operation.

use std::{
    collections::HashMap,
    ptr,
    sync::{
        Arc, Condvar, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use crate::{
    capture::{self, Capture, CapturedWait},
    gates,
    host_functions::HostFunction,
    ptx::{Grid, StandInKernel},
    state::{Code, LAUNCH_FAILED, lock, state},
};

/// The bytes that a copy copies at a time. In between, other threads can write to the memory that it reads.
const CHUNK: usize = 4096;

/// An operation on a stream.
pub(crate) enum Work {
    Copy {
        from: usize,
        to: usize,
        bytes: usize,
    },
    /// A copy from one place of the device to another.
    CopyOnDevice {
        from: usize,
        to: usize,
        bytes: usize,
    },
    /// A call of a function of the host's.
    Call {
        function: HostFunction,
        data: usize,
    },
    Wait {
        event: Arc<StandInEvent>,
        ticket: u64,
    },
    Record {
        event: Arc<StandInEvent>,
        ticket: u64,
    },
    Launch {
        kernels: Arc<Vec<StandInKernel>>,
        index: usize,
        arguments: Vec<u64>,
        grid: Grid,
    },
    /// A copy whose bytes the driver has read already: from pageable memory, on the default stream.
    StagedCopy {
        bytes: Vec<u8>,
        to: usize,
    },
    /// Memory of a pool can be used from here on.
    Allocate {
        address: usize,
    },
    /// Memory of a pool is free from here on.
    Free {
        address: usize,
    },
    /// Waits until the number at an address that stays valid is not zero.
    Hold {
        until: usize,
    },
    /// Waits for a [`Work::Notify`] of another stream.
    Await(Receiver<()>),
    /// Writes a digest of device memory to a number at an address that stays valid.
    Digest {
        from: usize,
        bytes: usize,
        to: usize,
    },
    Notify(Sender<()>),
}

/// A stream: the sending end of its queue.
pub(crate) struct StandInStream {
    device: usize,
    context: usize,
    kind: StreamKind,
    queue: Mutex<Sender<Work>>,
    /// The capture that the stream's work goes to.
    capture: Mutex<Option<Arc<Capture>>>,
}

/// How a stream is ordered with the default stream of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// The default stream itself.
    Default,
    /// Ordered with the default stream, as a stream is that is created without a flag.
    Blocking,
    /// Not ordered with it.
    NonBlocking,
}

/// An event: the number of its last recording, and the number of the last one that has happened.
pub(crate) struct StandInEvent {
    device: usize,
    context: usize,
    recorded: AtomicU64,
    done: Mutex<u64>,
    changed: Condvar,
    /// The capture in which it was last recorded, and the stream.
    captured: Mutex<Option<(Arc<Capture>, usize)>>,
}

impl StandInEvent {
    pub(crate) fn new(device: usize) -> Arc<Self> {
        Arc::new(Self {
            device,
            context: state().current_context().unwrap_or(0),
            recorded: AtomicU64::new(0),
            done: Mutex::new(0),
            changed: Condvar::new(),
            captured: Mutex::new(None),
        })
    }

    pub(crate) const fn context(&self) -> usize {
        self.context
    }

    pub(crate) fn captured(&self) -> Option<(Arc<Capture>, usize)> {
        lock(&self.captured).clone()
    }

    pub(crate) const fn device(&self) -> usize {
        self.device
    }

    pub(crate) fn is_done(&self) -> bool {
        *lock(&self.done) >= self.recorded.load(Ordering::SeqCst)
    }

    /// Waits until the recording `ticket` has happened, or the device is lost.
    fn wait(&self, ticket: u64) -> Result<(), Code> {
        let mut done = lock(&self.done);
        while *done < ticket {
            state().check_lost(self.device)?;
            let waited = self.changed.wait_timeout(done, Duration::from_millis(20));
            done = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        Ok(())
    }

    pub(crate) fn synchronise(&self) -> Result<(), Code> {
        capture::check_event(self)?;
        self.wait(self.recorded.load(Ordering::SeqCst))
    }
}

impl StandInStream {
    pub(crate) fn new(device: usize, kind: StreamKind) -> Arc<Self> {
        static STREAMS: AtomicU64 = AtomicU64::new(0);
        let seed = state().settings.seed.wrapping_mul(1000) + STREAMS.fetch_add(1, Ordering::Relaxed) + 1;
        let (queue, work) = channel();
        thread::spawn(move || StreamThread { device, random: seed }.run(&work));
        let context = state().current_context().unwrap_or(0);
        Arc::new(Self { device, context, kind, queue: Mutex::new(queue), capture: Mutex::new(None) })
    }

    /// Returns the default stream of the calling thread on a device.
    pub(crate) fn of_thread(device: usize) -> Arc<Self> {
        let this = thread::current().id();
        let mut streams = lock(of_threads());
        if let Some((.., stream)) = streams.iter().find(|(thread, on, _)| *thread == this && *on == device) {
            return stream.clone();
        }
        let stream = Self::new(device, StreamKind::Blocking);
        streams.push((this, device, stream.clone()));
        stream
    }

    /// Returns the default streams of all threads on a device.
    pub(crate) fn of_all_threads(device: usize) -> Vec<Arc<Self>> {
        let streams = lock(of_threads());
        streams.iter().filter(|(_, on, _)| *on == device).map(|(.., stream)| stream.clone()).collect()
    }

    /// Returns a number that no other stream has.
    pub(crate) fn id(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Returns the context; a default stream is in the current one.
    pub(crate) fn context(&self) -> usize {
        match self.kind {
            StreamKind::Default => state().current_context().unwrap_or(0),
            _ => self.context,
        }
    }

    pub(crate) fn capture(&self) -> Option<Arc<Capture>> {
        lock(&self.capture).clone()
    }

    pub(crate) fn set_capture(&self, capture: Option<Arc<Capture>>) {
        *lock(&self.capture) = capture;
    }

    /// Returns the default stream of a device.
    pub(crate) fn default_of(device: usize) -> Arc<Self> {
        static DEFAULTS: OnceLock<Mutex<HashMap<usize, Arc<StandInStream>>>> = OnceLock::new();
        let defaults = DEFAULTS.get_or_init(Mutex::default);
        lock(defaults).entry(device).or_insert_with(|| Self::new(device, StreamKind::Default)).clone()
    }

    pub(crate) const fn device(&self) -> usize {
        self.device
    }

    pub(crate) const fn kind(&self) -> StreamKind {
        self.kind
    }

    /// Queues work, in the order with the default stream that this stream has.
    pub(crate) fn put(&self, work: Work) {
        if let Some(capture) = self.capture() {
            capture.add(self.id(), work);
            return;
        }
        self.join_default();
        self.put_alone(work);
    }

    /// Queues work, whatever is on other streams.
    pub(crate) fn put_alone(&self, work: Work) {
        // This cannot fail: the thread lives as long as the queue.
        let _ = lock(&self.queue).send(work);
    }

    pub(crate) fn record(&self, event: &Arc<StandInEvent>) {
        let capture = self.capture().map(|capture| (capture, self.id()));
        let is_captured = capture.is_some();
        *lock(&event.captured) = capture;
        if is_captured {
            return;
        }
        let ticket = event.recorded.fetch_add(1, Ordering::SeqCst) + 1;
        self.put(Work::Record { event: event.clone(), ticket });
    }

    pub(crate) fn wait(self: &Arc<Self>, event: &Arc<StandInEvent>) -> Result<(), Code> {
        let ticket = event.recorded.load(Ordering::SeqCst);
        if let CapturedWait::No = capture::wait(self, event)? {
            self.put(Work::Wait { event: event.clone(), ticket });
        }
        Ok(())
    }

    pub(crate) fn synchronise(&self) -> Result<(), Code> {
        capture::check_stream(self)?;
        let (notify, notified) = channel();
        self.put_alone(Work::Notify(notify));
        let _ = notified.recv();
        state().check_lost(self.device)
    }
}

type OfThread = (ThreadId, usize, Arc<StandInStream>);

fn of_threads() -> &'static Mutex<Vec<OfThread>> {
    static STREAMS: OnceLock<Mutex<Vec<OfThread>>> = OnceLock::new();
    STREAMS.get_or_init(Mutex::default)
}

impl Work {
    /// Returns the same work, for the replay of a graph. `None` for what a capture cannot contain.
    pub(crate) fn again(&self) -> Option<Self> {
        Some(match self {
            Self::Copy { from, to, bytes } => Self::Copy { from: *from, to: *to, bytes: *bytes },
            Self::Launch { kernels, index, arguments, grid } => {
                Self::Launch { kernels: kernels.clone(), index: *index, arguments: arguments.clone(), grid: *grid }
            }
            Self::Digest { from, bytes, to } => Self::Digest { from: *from, bytes: *bytes, to: *to },
            _ => return None,
        })
    }
}

struct StreamThread {
    device: usize,
    random: u64,
}

impl StreamThread {
    fn run(mut self, work: &Receiver<Work>) {
        while let Ok(work) = work.recv() {
            match work {
                Work::Notify(notify) => {
                    let _ = notify.send(());
                    continue;
                }
                Work::Await(notified) => {
                    let _ = notified.recv();
                    continue;
                }
                _ => {}
            }
            self.delay();
            let is_lost = state().check_lost(self.device).is_err();
            self.work(work, is_lost);
        }
    }

    fn delay(&mut self) {
        let most = state().settings.delay_us;
        if most > 0 {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            thread::sleep(Duration::from_micros(self.random % (most + 1)));
        }
    }

    fn work(&mut self, work: Work, is_lost: bool) {
        match work {
            Work::Copy { from, to, bytes } => {
                if !is_lost {
                    self.copy(from, to, bytes);
                }
                state().host.end_reading(from, bytes);
            }
            _ if is_lost => {}
            Work::StagedCopy { bytes, to } => {
                thread::sleep(Duration::from_micros(state().settings.staging_us));
                let Some(_use) = state().use_memory(self.device) else { return };
                if state().memory.check(self.device, to, bytes.len(), "copy") {
                    // SAFETY: live device memory, as checked.
                    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
                }
            }
            Work::Allocate { address } => state().memory.make_usable(address),
            Work::Free { address } => state().memory.end_free(address),
            Work::Hold { until } => gates::hold(self.device, until),
            Work::Call { function, data } => function(data),
            Work::CopyOnDevice { from, to, bytes } => {
                let Some(_use) = state().use_memory(self.device) else { return };
                let check = |address| state().memory.check(self.device, address, bytes, "copy");
                if check(from) && check(to) {
                    // SAFETY: live device memory, as checked.
                    unsafe { ptr::copy(from as *const u8, to as *mut u8, bytes) };
                }
            }
            Work::Wait { event, ticket } => {
                let _ = event.wait(ticket);
            }
            Work::Record { event, ticket } => {
                let mut done = lock(&event.done);
                *done = (*done).max(ticket);
                event.changed.notify_all();
            }
            Work::Launch { kernels, index, arguments, grid } => {
                let Some(_use) = state().use_memory(self.device) else { return };
                let check = |address, bytes, what: &str| state().memory.check(self.device, address, bytes, what);
                if let Err(problem) = kernels[index].run(&arguments, grid, &check) {
                    state().wrong(problem);
                    state().lose(self.device, LAUNCH_FAILED);
                }
            }
            Work::Digest { from, bytes, to } => {
                let digest = self.digest(from, bytes);
                // SAFETY: the address of a number that stays valid, as the contract of `cuda_stand_in_digest` requires.
                let to = unsafe { AtomicU64::from_ptr(to as *mut u64) };
                to.store(digest, Ordering::SeqCst);
            }
            Work::Notify(_) | Work::Await(_) => unreachable!("handled before"),
        }
    }

    fn copy(&mut self, from: usize, to: usize, bytes: usize) {
        state().gate.pass(self.device);
        let count = state().copies.fetch_add(1, Ordering::SeqCst) + 1;
        if state().settings.lose_at_copy == Some(count) {
            state().lose(self.device, LAUNCH_FAILED);
            return;
        }
        let Some(memory_use) = state().use_memory(self.device) else { return };
        state().copied_bytes.fetch_add(bytes as u64, Ordering::SeqCst);
        if !state().memory.check(self.device, to, bytes, "copy") {
            return;
        }
        for at in (0..bytes).step_by(CHUNK) {
            if !memory_use.may_go_on() {
                return;
            }
            let length = CHUNK.min(bytes - at);
            // SAFETY: live device memory, as checked, and bytes that the caller keeps until here, by contract.
            unsafe { ptr::copy_nonoverlapping((from + at) as *const u8, (to + at) as *mut u8, length) };
            thread::yield_now();
        }
    }

    /// Computes FNV-1a of device memory.
    fn digest(&self, from: usize, bytes: usize) -> u64 {
        let Some(_use) = state().use_memory(self.device) else { return 0 };
        if !state().memory.check(self.device, from, bytes, "digest") {
            return 0;
        }
        // SAFETY: live device memory, as checked.
        let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) };
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
    }
}
