//! Counts the batches that the trainer still holds, and warns when none is left to fill.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use crate::DeviceError;

/// The number of batches that the trainer holds, and its limit.
#[derive(Debug)]
pub(crate) struct OutstandingBatches {
    held: AtomicU32,
    limit: AtomicU32,
    /// The name of the limited resource and of its setting: "slots" or "device buffers".
    what: &'static str,
    warned: AtomicBool,
    /// Whether the limit was lowered.
    is_short: AtomicBool,
}

/// Counts one batch as held by the trainer until it is dropped.
#[derive(Debug)]
pub(crate) struct BatchHold(Arc<OutstandingBatches>);

impl OutstandingBatches {
    pub(crate) fn new(limit: u32, what: &'static str) -> Arc<Self> {
        Arc::new(Self {
            held: AtomicU32::new(0),
            limit: AtomicU32::new(limit),
            what,
            warned: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
        })
    }

    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Lowers the limit because the device's memory is too short, and logs that once.
    pub(crate) fn lower_limit(&self, limit: u32, error: &DeviceError) {
        self.set_limit(limit);
        if !self.is_short.swap(true, Ordering::Relaxed) {
            tracing::warn!("the loader goes on with fewer {}: {error}", self.what);
        }
    }

    /// Returns the lowered limit with its reason, or `None` if the limit was not lowered.
    pub(crate) fn shortage(&self) -> Option<String> {
        let limit = self.limit.load(Ordering::Relaxed);
        let is_short = self.is_short.load(Ordering::Relaxed);
        is_short.then(|| format!("the device's memory is too short for more than {limit} {}", self.what))
    }

    /// Counts a delivered batch, until the returned guard is dropped.
    pub(crate) fn take(self: &Arc<Self>) -> BatchHold {
        self.held.fetch_add(1, Ordering::Relaxed);
        BatchHold(self.clone())
    }

    /// Returns the reason why no batch can arrive when the trainer holds all of them, and `None` otherwise.
    pub(crate) fn exhausted_reason(&self) -> Option<String> {
        let (held, limit) = (self.held.load(Ordering::Relaxed), self.limit.load(Ordering::Relaxed));
        (held >= limit).then(|| {
            let there_are = self.shortage().unwrap_or_else(|| format!("there are {limit} {}", self.what));
            format!(
                "the trainer holds {held} batches, and {there_are}; drop some (each tensor keeps its whole batch), or \
                 allow for more"
            )
        })
    }

    /// Logs a warning, once, when the trainer asks for a batch while it holds all of them.
    pub(crate) fn warn(&self) {
        if let Some(reason) = self.exhausted_reason()
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("no batch can be delivered: {reason}");
        }
    }
}

impl Drop for BatchHold {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}
