//! How many batches the trainer holds: what makes a loop that hoards them a warning and not a riddle.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

/// Batches in the trainer's hands, and how many there can be.
#[derive(Debug)]
pub(crate) struct Hands {
    held: AtomicU32,
    limit: AtomicU32,
    /// What there are so many of: "slots" or "device buffers", with what sets their number.
    what: &'static str,
    warned: AtomicBool,
}

/// One batch in the trainer's hands.
#[derive(Debug)]
pub(crate) struct InHand(Arc<Hands>);

impl Hands {
    pub(crate) fn new(limit: u32, what: &'static str) -> Arc<Self> {
        Arc::new(Self { held: AtomicU32::new(0), limit: AtomicU32::new(limit), what, warned: AtomicBool::new(false) })
    }

    pub(crate) fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Counts a batch that is handed over, until what it returns is dropped.
    pub(crate) fn take(self: &Arc<Self>) -> InHand {
        self.held.fetch_add(1, Ordering::Relaxed);
        InHand(self.clone())
    }

    /// Why no batch can come, where that is so: all that there can be are in the trainer's hands.
    pub(crate) fn hoarding(&self) -> Option<String> {
        let (held, limit) = (self.held.load(Ordering::Relaxed), self.limit.load(Ordering::Relaxed));
        (held >= limit).then(|| {
            format!(
                "the trainer holds {held} batches, and there are {limit} {}; drop some (each tensor keeps its whole \
                 batch), or allow for more",
                self.what
            )
        })
    }

    /// Warns, once, where the trainer asks for a batch while it holds all that there can be.
    pub(crate) fn warn(&self) {
        if let Some(reason) = self.hoarding()
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("no batch can come: {reason}");
        }
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}
