//! Limits the number of jobs that are being created at one time. One submitter can have only 4 of the 16 slots, so that
//! its datasets in slow stores do not hold up other submitters.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of slots. Each can take the memory of a manifest that is not large.
const SLOTS: usize = 16;
/// The number of slots that one submitter can have.
const SLOTS_OF_ONE: usize = 4;
/// Time limit for waiting for a slot, after which the request is refused. Together with the limit for reading a
/// manifest, it is shorter than the wait of `spdl-ctl` for an answer.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// The slots for creating jobs.
pub(super) struct SubmitSlots {
    all: Arc<Semaphore>,
    /// The slots of each submitter that has or wants any.
    of_one: Mutex<HashMap<String, Arc<Semaphore>>>,
    timeout: Duration,
}

impl Default for SubmitSlots {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(SLOTS)), of_one: Mutex::default(), timeout: WAIT_TIMEOUT }
    }
}

/// A slot; free again when dropped.
#[derive(Debug)]
pub(super) struct SubmitSlot {
    _of_one: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl SubmitSlots {
    /// Waits for a slot of `submitter`, its name in errors, within a time limit.
    ///
    /// # Errors
    /// If no slot is free in that time: a text that names the holders and the remedy.
    pub(super) async fn take(&self, submitter: &str) -> Result<SubmitSlot, String> {
        let own = self.of_one(submitter);
        let take = async {
            let of_one = own.clone().acquire_owned().await.expect("it is never closed");
            let of_all = self.all.clone().acquire_owned().await.expect("it is never closed");
            SubmitSlot { _of_one: of_one, _of_all: of_all }
        };
        tokio::time::timeout(self.timeout, take).await.map_err(|_| {
            let seconds = self.timeout.as_secs();
            let whose = match own.available_permits() {
                0 => format!("{SLOTS_OF_ONE} other jobs of {submitter}"),
                _ => format!("{SLOTS} other jobs"),
            };
            format!("{whose} were being created for {seconds} s, because their stores are slow to answer; submit it again later")
        })
    }

    fn of_one(&self, submitter: &str) -> Arc<Semaphore> {
        let mut of_one = self.of_one.lock();
        // Only this map refers to the slots of a submitter that has no slot and waits for none.
        of_one.retain(|_, slots| Arc::strong_count(slots) > 1);
        let new = || Arc::new(Semaphore::new(SLOTS_OF_ONE));
        of_one.entry(submitter.to_owned()).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_submitter_has_some_of_the_slots_and_waits_for_its_own_within_a_time_limit() {
        let slots = SubmitSlots { timeout: Duration::ZERO, ..SubmitSlots::default() };
        let mut held = Vec::new();
        for _ in 0..SLOTS_OF_ONE {
            held.push(slots.take("a").await.unwrap());
        }
        let refused = slots.take("a").await.unwrap_err();
        assert!(refused.starts_with("4 other jobs of a were being created for 0 s"), "{refused}");
        for other in ["b", "c", "d"] {
            for _ in 0..SLOTS_OF_ONE {
                held.push(slots.take(other).await.unwrap());
            }
        }
        let refused = slots.take("e").await.unwrap_err();
        assert!(refused.starts_with("16 other jobs were being created for 0 s"), "{refused}");
        held.remove(0);
        drop(slots.take("a").await.unwrap());
        drop(held);
        drop(slots.take("e").await.unwrap());
        assert_eq!(slots.of_one.lock().len(), 1, "those without slots are forgotten");
    }
}
