//! The memory for decoding pictures: bounded, reserved before it is allocated, and granted in the order of requests.

use std::{collections::VecDeque, fmt};

use parking_lot::{Condvar, Mutex};

/// Called with the number of bytes by which decoding exceeds its own memory, whenever that changes.
type OnOverdraft = Box<dyn Fn(u64) + Send + Sync>;

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
        self.change(&mut state, |used| used + bytes);
    }

    fn change(&self, state: &mut ShareState, by: impl FnOnce(u64) -> u64) {
        let over = |used: u64| used.saturating_sub(self.limits.own_bytes);
        let before = over(state.used_bytes);
        state.used_bytes = by(state.used_bytes);
        let after = over(state.used_bytes);
        if before != after {
            (self.on_overdraft)(after);
        }
    }
}

impl Drop for MemoryPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.memory.state.lock();
        self.memory.change(&mut state, |used| used - self.bytes);
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
}
