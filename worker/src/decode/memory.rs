//! The memory for decoding pictures: bounded, reserved before it is allocated, and granted in the order of requests. What nobody
//! waits for may have decoded frames of videos meanwhile.

use std::{collections::VecDeque, fmt, sync::Arc};

use parking_lot::{Condvar, Mutex};
use spdl_frames::KeptFrame;

use super::kept_frames::KeptFrames;

/// Called with the number of bytes by which decoding exceeds its own memory, whenever that changes.
type OnOverdraft = Box<dyn Fn(u64) + Send + Sync>;

/// Decoded frames take at most this part of the memory for decoding.
const KEPT_FRAMES_SHARE: u64 = 2;

/// The memory that all decoding threads of a process share. A picture that does not fit beside the others waits, and
/// later ones wait behind it. A picture that does not fit alone is refused.
pub struct DecodeMemory {
    limits: DecodeLimits,
    state: Mutex<ShareState>,
    freed: Condvar,
    on_overdraft: OnOverdraft,
}

/// The limits of the memory for decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodeLimits {
    /// Maximum bytes for all pictures that are being decoded. When raised, larger pictures can be decoded, and less is
    /// cached meanwhile.
    pub(crate) max_bytes: u64,
    /// Part of these bytes that is reserved for decoding; the rest is lent by the cache.
    pub(crate) own_bytes: u64,
    /// Maximum bytes that a thread keeps between pictures.
    pub(crate) kept_bytes: usize,
}

#[derive(Debug, Default)]
struct ShareState {
    used_bytes: u64,
    next_ticket: u64,
    /// Tickets of the waiting requests, in order.
    waiting: VecDeque<u64>,
    kept: KeptFrames,
    next_run: u64,
}

/// Memory that is reserved for decoding a picture; given back when dropped.
#[derive(Debug)]
pub(crate) struct MemoryPermit<'m> {
    memory: &'m DecodeMemory,
    bytes: u64,
}

/// The error of a request for more than the total memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeverFits {
    pub(crate) max_bytes: u64,
}

impl Default for DecodeMemory {
    /// Returns memory without a limit.
    fn default() -> Self {
        let limits = DecodeLimits { max_bytes: u64::MAX, own_bytes: u64::MAX, kept_bytes: 64 << 20 };
        Self::new(limits, Box::new(|_| ()))
    }
}

impl DecodeMemory {
    pub(crate) fn new(limits: DecodeLimits, on_overdraft: OnOverdraft) -> Self {
        Self { limits, state: Mutex::default(), freed: Condvar::new(), on_overdraft }
    }

    pub(crate) const fn kept_bytes(&self) -> usize {
        self.limits.kept_bytes
    }

    /// Reserves `bytes`; blocks until they are free. A thread that holds a permit must not ask for another.
    pub(crate) fn take(&self, bytes: u64) -> Result<MemoryPermit<'_>, NeverFits> {
        let max_bytes = self.limits.max_bytes;
        if bytes > max_bytes {
            return Err(NeverFits { max_bytes });
        }
        self.wait(bytes);
        Ok(MemoryPermit { memory: self, bytes })
    }

    /// Reserves all memory, so that nothing else is decoded meanwhile.
    pub(crate) fn take_all(&self) -> MemoryPermit<'_> {
        let bytes = self.limits.max_bytes;
        self.wait(bytes);
        MemoryPermit { memory: self, bytes }
    }

    /// Returns separate memory with the same limits, for the holder of [`take_all`](Self::take_all).
    pub(crate) fn of_its_own(&self) -> Self {
        Self::new(self.limits, Box::new(|_| ()))
    }

    /// Returns separate memory of what is left beside `bytes`, for the holder of [`take_all`](Self::take_all).
    pub(crate) fn beside(&self, bytes: u64) -> Result<Self, NeverFits> {
        let max_bytes = self.limits.max_bytes;
        let left = max_bytes.checked_sub(bytes).ok_or(NeverFits { max_bytes })?;
        Ok(Self::new(DecodeLimits { max_bytes: left, ..self.limits }, Box::new(|_| ())))
    }

    /// Returns separate memory of no bytes.
    pub(crate) fn none() -> Self {
        Self::new(DecodeLimits { max_bytes: 0, own_bytes: 0, kept_bytes: 0 }, Box::new(|_| ()))
    }

    /// Returns the number of a new run of packets, of which frames may be kept.
    pub(super) fn new_run(&self) -> u64 {
        let mut state = self.state.lock();
        state.next_run += 1;
        state.next_run
    }

    /// Returns how many bytes of frames can be kept.
    pub(super) fn frames_room(&self) -> u64 {
        self.state.lock().frames_room(&self.limits)
    }

    /// Keeps the frame of a run that is shown at a time, which so many samples will take, if there is room.
    pub(super) fn keep_frame(&self, (run, pts): (u64, i64), frame: KeptFrame, uses: usize) {
        let mut state = self.state.lock();
        if frame.bytes() <= state.frames_room(&self.limits) {
            self.change(&mut state, |state| state.kept.put((run, pts), Arc::new(frame), uses));
        }
    }

    /// Returns whether the frames of a run that are shown at some times are all kept.
    pub(super) fn has_frames(&self, run: u64, times: &[i64]) -> bool {
        let state = self.state.lock();
        times.iter().all(|pts| state.kept.has((run, *pts)))
    }

    /// Returns a frame for one of the samples for which it is kept.
    pub(super) fn take_frame(&self, run: u64, pts: i64) -> Option<Arc<KeptFrame>> {
        let mut state = self.state.lock();
        self.change(&mut state, |state| state.kept.take((run, pts)))
    }

    /// Drops the frames of a run.
    pub(super) fn forget_run(&self, run: u64) {
        let mut state = self.state.lock();
        self.change(&mut state, |state| state.kept.forget(run));
    }

    fn wait(&self, bytes: u64) {
        let mut state = self.state.lock();
        let fits = |state: &ShareState| state.used_bytes <= self.limits.max_bytes - bytes;
        if !state.waiting.is_empty() || !fits(&state) {
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            state.waiting.push_back(ticket);
            while state.waiting.front() != Some(&ticket) || !fits(&state) {
                self.freed.wait(&mut state);
            }
            state.waiting.pop_front();
            // The next request may fit as well.
            self.freed.notify_all();
        }
        self.change(&mut state, |state| {
            state.used_bytes += bytes;
            state.kept.trim_to(self.limits.max_bytes - state.used_bytes);
        });
    }

    fn change<T>(&self, state: &mut ShareState, by: impl FnOnce(&mut ShareState) -> T) -> T {
        let over = |state: &ShareState| {
            state.used_bytes.saturating_add(state.kept.bytes()).saturating_sub(self.limits.own_bytes)
        };
        let before = over(state);
        let changed = by(state);
        let after = over(state);
        if before != after {
            (self.on_overdraft)(after);
        }
        changed
    }
}

impl ShareState {
    /// Returns how many bytes of frames can be kept: none while pictures wait for memory.
    fn frames_room(&self, limits: &DecodeLimits) -> u64 {
        if !self.waiting.is_empty() {
            return 0;
        }
        let most = (limits.max_bytes / KEPT_FRAMES_SHARE).min(limits.max_bytes - self.used_bytes);
        most.saturating_sub(self.kept.bytes())
    }
}

impl Drop for MemoryPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.memory.state.lock();
        self.memory.change(&mut state, |state| state.used_bytes -= self.bytes);
        if !state.waiting.is_empty() {
            self.memory.freed.notify_all();
        }
    }
}

impl fmt::Debug for DecodeMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecodeMemory").field("limits", &self.limits).field("state", &*self.state.lock()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    };

    use spdl_frames::{FramePlanes, Plane, PlaneFormat, PlaneKind};
    use spdl_media::VideoColor;

    use super::*;

    #[test]
    fn what_never_fits_is_refused_and_what_fits_alone_goes_alone() {
        let most = Arc::new(AtomicU64::new(0));
        let most_seen = most.clone();
        let limits = DecodeLimits { max_bytes: 100, own_bytes: 40, kept_bytes: 0 };
        let memory = DecodeMemory::new(limits, Box::new(move |over| _ = most_seen.fetch_max(over, SeqCst)));
        assert_eq!(memory.take(101).unwrap_err(), NeverFits { max_bytes: 100 });
        let running = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (memory, running) = (&memory, &running);
                scope.spawn(move || {
                    for round in 0..300 {
                        let bytes = if (thread + round) % 5 == 0 { 100 } else { 13 + thread };
                        let permit = memory.take(bytes).unwrap();
                        let now = running.fetch_add(bytes, SeqCst) + bytes;
                        assert!(now <= 100, "{now} bytes at once");
                        running.fetch_sub(bytes, SeqCst);
                        drop(permit);
                    }
                });
            }
        });
        assert_eq!(memory.state.lock().used_bytes, 0);
        assert_eq!(most.load(SeqCst), 60, "the largest excess over its own share was reported");
    }

    #[test]
    fn frames_are_kept_in_memory_that_nobody_needs() {
        let frame = || {
            let planes = [&[7; 1000][..], &[], &[]].map(|bytes| Plane { bytes, stride: 10 });
            let format = PlaneFormat { kind: PlaneKind::Grey, bits: 8 };
            KeptFrame::new(&FramePlanes { size: [10, 100], format, color: VideoColor::default(), planes })
        };
        let bytes = frame().bytes();
        let over = Arc::new(AtomicU64::new(0));
        let seen = over.clone();
        let limits = DecodeLimits { max_bytes: 8 * bytes, own_bytes: 2 * bytes, kept_bytes: 0 };
        let memory = DecodeMemory::new(limits, Box::new(move |bytes| seen.store(bytes, SeqCst)));
        let (first, second) = (memory.new_run(), memory.new_run());
        for (run, pts) in [(first, 0), (first, 1), (second, 0), (second, 1), (second, 2)] {
            memory.keep_frame((run, pts), frame(), 2);
        }
        assert_eq!((memory.frames_room(), over.load(SeqCst)), (0, 2 * bytes));
        assert!(
            memory.has_frames(second, &[0, 1]) && !memory.has_frames(second, &[1, 2]),
            "half of the memory is full"
        );
        assert!(memory.take_frame(first, 0).is_some() && memory.take_frame(first, 0).is_some());
        assert!(memory.take_frame(first, 0).is_none(), "two samples have it");
        assert_eq!(memory.frames_room(), bytes);
        // Pictures get what they need, at the expense of frames.
        let permit = memory.take(6 * bytes).unwrap();
        assert!(memory.has_frames(first, &[1]) && memory.has_frames(second, &[0]) && !memory.has_frames(second, &[1]));
        assert_eq!((memory.frames_room(), over.load(SeqCst)), (0, 6 * bytes));
        let all = std::thread::scope(|scope| {
            let waits = scope.spawn(|| memory.take_all());
            while memory.state.lock().waiting.is_empty() {
                std::thread::yield_now();
            }
            memory.keep_frame((first, 9), frame(), 1);
            assert!(!memory.has_frames(first, &[9]), "nothing is kept while others wait");
            drop(permit);
            waits.join().unwrap()
        });
        assert!(!memory.has_frames(first, &[1]));
        drop(all);
        memory.keep_frame((first, 1), frame(), 1);
        memory.keep_frame((second, 1), frame(), 1);
        memory.forget_run(first);
        assert!(!memory.has_frames(first, &[1]) && memory.has_frames(second, &[1]));
        memory.forget_run(second);
        assert_eq!((memory.frames_room(), over.load(SeqCst)), (4 * bytes, 0));
    }
}
