//! The slots of a client as units of its stage `receive`.
//!
//! A slot is busy while bytes are read into it, waits for output while it holds a batch that was not given back, and waits
//! for input otherwise. Over shared memory no bytes are read.

use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use spdl_accounting::{StageCounters, UnitGroup, UnitInterval, UnitState};

#[derive(Debug)]
pub(super) struct ReceivedSlots {
    stage: Arc<StageCounters>,
    units: UnitGroup,
    counts: Mutex<SlotCounts>,
}

#[derive(Debug, Default)]
struct SlotCounts {
    reading: usize,
    held: usize,
}

impl ReceivedSlots {
    pub(super) fn new(stage: &Arc<StageCounters>, slots: u32) -> Arc<Self> {
        let units = stage.units().group(slots, Instant::now());
        Arc::new(Self { stage: stage.clone(), units, counts: Mutex::default() })
    }

    /// Awaits `receiving`, which reads a batch into a slot.
    pub(super) async fn count_reading<T>(&self, receiving: impl Future<Output = T>) -> T {
        let mut receiving = pin!(receiving);
        poll_fn(|context| {
            self.change(|counts| counts.reading += 1);
            let polled = receiving.as_mut().poll(context);
            self.change(|counts| counts.reading -= 1);
            polled
        })
        .await
    }

    /// Notes that a slot holds a batch of `bytes` that took no time to arrive.
    pub(super) fn hold(&self, bytes: u64) {
        self.stage.item(Duration::ZERO, bytes);
        self.change(|counts| counts.held += 1);
    }

    /// Notes that a slot holds a batch of `bytes` that began to arrive at `start`.
    pub(super) fn hold_received(&self, slot: u32, start: Instant, bytes: u64) {
        let end = Instant::now();
        self.stage.note_thread();
        self.stage.item(end.saturating_duration_since(start), bytes);
        self.units.add_interval(UnitInterval { unit: slot, state: UnitState::Busy, start, end, batch: None });
        self.change(|counts| counts.held += 1);
    }

    /// Notes that a batch did not arrive.
    pub(super) fn fail(&self) {
        self.stage.failure();
    }

    /// Notes that a slot was given back.
    pub(super) fn free(&self) {
        self.change(|counts| counts.held -= 1);
    }

    /// Changes the counts. There may be more readers than slots: a home that sends too much is refused once it names its
    /// slots.
    fn change(&self, change: impl FnOnce(&mut SlotCounts)) {
        let mut counts = self.counts.lock();
        change(&mut counts);
        self.units.set([(UnitState::Output, counts.held), (UnitState::Busy, counts.reading)], Instant::now());
    }
}
