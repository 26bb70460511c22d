//! Streams and events. A stream's thread does one thing after the other, each a random while late.

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
    ptx::{Grid, Kernel},
    state::{Code, LAUNCH_FAILED, lock, state},
};

/// Bytes of a copy that are copied at a time: between them, others can write to what it reads.
const CHUNK: usize = 4096;

/// What can be put on a stream.
pub(crate) enum Work {
    Copy {
        from: usize,
        to: usize,
        bytes: usize,
    },
    Wait {
        event: Arc<Event>,
        ticket: u64,
    },
    Record {
        event: Arc<Event>,
        ticket: u64,
    },
    Launch {
        kernels: Arc<Vec<Kernel>>,
        index: usize,
        arguments: Vec<u64>,
        grid: Grid,
    },
    /// A digest of memory of the device, to a number at an address that stays.
    Digest {
        from: usize,
        bytes: usize,
        to: usize,
    },
    Tell(Sender<()>),
}

/// A stream: the end of its queue where things are put in.
pub(crate) struct Stream {
    device: usize,
    queue: Mutex<Sender<Work>>,
}

/// An event: what was recorded last, and what has happened.
pub(crate) struct Event {
    device: usize,
    recorded: AtomicU64,
    done: Mutex<u64>,
    changed: Condvar,
}

impl Event {
    pub(crate) fn new(device: usize) -> Arc<Self> {
        Arc::new(Self { device, recorded: AtomicU64::new(0), done: Mutex::new(0), changed: Condvar::new() })
    }

    pub(crate) const fn device(&self) -> usize {
        self.device
    }

    pub(crate) fn is_done(&self) -> bool {
        *lock(&self.done) >= self.recorded.load(Ordering::SeqCst)
    }

    /// Waits until `ticket` has happened, or the device is lost.
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

impl Stream {
    pub(crate) fn new(device: usize) -> Arc<Self> {
        static STREAMS: AtomicU64 = AtomicU64::new(0);
        let seed = state().settings.seed.wrapping_mul(1000) + STREAMS.fetch_add(1, Ordering::Relaxed) + 1;
        let (queue, work) = channel();
        thread::spawn(move || Worker { device, random: seed }.run(&work));
        Arc::new(Self { device, queue: Mutex::new(queue) })
    }

    /// The default stream of a device.
    pub(crate) fn default_of(device: usize) -> Arc<Self> {
        static DEFAULTS: OnceLock<Mutex<HashMap<usize, Arc<Stream>>>> = OnceLock::new();
        let defaults = DEFAULTS.get_or_init(Mutex::default);
        lock(defaults).entry(device).or_insert_with(|| Self::new(device)).clone()
    }

    pub(crate) const fn device(&self) -> usize {
        self.device
    }

    pub(crate) fn put(&self, work: Work) {
        // The thread lives as long as the queue, which is here.
        let _ = lock(&self.queue).send(work);
    }

    pub(crate) fn record(&self, event: &Arc<Event>) {
        let ticket = event.recorded.fetch_add(1, Ordering::SeqCst) + 1;
        self.put(Work::Record { event: event.clone(), ticket });
    }

    pub(crate) fn wait(&self, event: &Arc<Event>) {
        self.put(Work::Wait { event: event.clone(), ticket: event.recorded.load(Ordering::SeqCst) });
    }

    pub(crate) fn synchronise(&self) -> Result<(), Code> {
        let (tell, told) = channel();
        self.put(Work::Tell(tell));
        let _ = told.recv();
        state().check_lost(self.device)
    }
}

struct Worker {
    device: usize,
    random: u64,
}

impl Worker {
    fn run(mut self, work: &Receiver<Work>) {
        while let Ok(work) = work.recv() {
            if let Work::Tell(tell) = work {
                let _ = tell.send(());
                continue;
            }
            self.dawdle();
            let is_lost = state().check_lost(self.device).is_err();
            self.work(work, is_lost);
        }
    }

    fn dawdle(&mut self) {
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
                // SAFETY: the address of a number that stays, as the caller of `cuda_stand_in_digest` has promised.
                let to = unsafe { AtomicU64::from_ptr(to as *mut u64) };
                to.store(digest, Ordering::SeqCst);
            }
            Work::Tell(_) => unreachable!("told before"),
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
            // SAFETY: live memory of the device, checked, and bytes that the caller has promised to keep until here.
            unsafe { ptr::copy_nonoverlapping((from + at) as *const u8, (to + at) as *mut u8, length) };
            thread::yield_now();
        }
    }

    /// FNV-1a of memory of the device.
    fn digest(&self, from: usize, bytes: usize) -> u64 {
        if !state().memory.check(self.device, from, bytes, "digest") {
            return 0;
        }
        // SAFETY: live memory of the device, checked.
        let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) };
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
    }
}
