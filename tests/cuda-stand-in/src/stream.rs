//! Streams and events. A stream's thread executes its work in order, with a random delay before each operation.

use std::{
    collections::HashMap,
    ptr,
    sync::{
        Arc, Condvar, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use crate::{
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
    queue: Mutex<Sender<Work>>,
}

/// An event: the number of its last recording, and the number of the last one that has happened.
pub(crate) struct StandInEvent {
    device: usize,
    recorded: AtomicU64,
    done: Mutex<u64>,
    changed: Condvar,
}

impl StandInEvent {
    pub(crate) fn new(device: usize) -> Arc<Self> {
        Arc::new(Self { device, recorded: AtomicU64::new(0), done: Mutex::new(0), changed: Condvar::new() })
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
        self.wait(self.recorded.load(Ordering::SeqCst))
    }
}

impl StandInStream {
    pub(crate) fn new(device: usize) -> Arc<Self> {
        static STREAMS: AtomicU64 = AtomicU64::new(0);
        let seed = state().settings.seed.wrapping_mul(1000) + STREAMS.fetch_add(1, Ordering::Relaxed) + 1;
        let (queue, work) = channel();
        thread::spawn(move || StreamThread { device, random: seed }.run(&work));
        Arc::new(Self { device, queue: Mutex::new(queue) })
    }

    /// Returns the default stream of a device.
    pub(crate) fn default_of(device: usize) -> Arc<Self> {
        static DEFAULTS: OnceLock<Mutex<HashMap<usize, Arc<StandInStream>>>> = OnceLock::new();
        let defaults = DEFAULTS.get_or_init(Mutex::default);
        lock(defaults).entry(device).or_insert_with(|| Self::new(device)).clone()
    }

    pub(crate) const fn device(&self) -> usize {
        self.device
    }

    pub(crate) fn put(&self, work: Work) {
        // This cannot fail: the thread lives as long as the queue.
        let _ = lock(&self.queue).send(work);
    }

    pub(crate) fn record(&self, event: &Arc<StandInEvent>) {
        let ticket = event.recorded.fetch_add(1, Ordering::SeqCst) + 1;
        self.put(Work::Record { event: event.clone(), ticket });
    }

    pub(crate) fn wait(&self, event: &Arc<StandInEvent>) {
        self.put(Work::Wait { event: event.clone(), ticket: event.recorded.load(Ordering::SeqCst) });
    }

    pub(crate) fn synchronise(&self) -> Result<(), Code> {
        let (notify, notified) = channel();
        self.put(Work::Notify(notify));
        let _ = notified.recv();
        state().check_lost(self.device)
    }
}

struct StreamThread {
    device: usize,
    random: u64,
}

impl StreamThread {
    fn run(mut self, work: &Receiver<Work>) {
        while let Ok(work) = work.recv() {
            if let Work::Notify(notify) = work {
                let _ = notify.send(());
                continue;
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
            Work::Wait { event, ticket } => {
                let _ = event.wait(ticket);
            }
            Work::Record { event, ticket } => {
                let mut done = lock(&event.done);
                *done = (*done).max(ticket);
                event.changed.notify_all();
            }
            Work::Launch { kernels, index, arguments, grid } => {
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
            Work::Notify(_) => unreachable!("handled before"),
        }
    }

    fn copy(&mut self, from: usize, to: usize, bytes: usize) {
        let count = state().copies.fetch_add(1, Ordering::SeqCst) + 1;
        if state().settings.lose_at_copy == Some(count) {
            state().lose(self.device, LAUNCH_FAILED);
            return;
        }
        state().copied_bytes.fetch_add(bytes as u64, Ordering::SeqCst);
        if !state().memory.check(self.device, to, bytes, "copy") {
            return;
        }
        for at in (0..bytes).step_by(CHUNK) {
            let length = CHUNK.min(bytes - at);
            // SAFETY: live device memory, as checked, and bytes that the caller keeps until here, by contract.
            unsafe { ptr::copy_nonoverlapping((from + at) as *const u8, (to + at) as *mut u8, length) };
            thread::yield_now();
        }
    }

    /// Computes FNV-1a of device memory.
    fn digest(&self, from: usize, bytes: usize) -> u64 {
        if !state().memory.check(self.device, from, bytes, "digest") {
            return 0;
        }
        // SAFETY: live device memory, as checked.
        let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) };
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
    }
}
