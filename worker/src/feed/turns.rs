//! Whose samples are decoded next: the batch whose trainer will want it soonest.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Hands out turns on the decoding threads, counted in samples, so that these always have work while no batch that
/// can wait is in front of one that cannot.
#[derive(Debug)]
pub(crate) struct Turns {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Samples that may be queued to be decoded before a batch has to wait for its turn.
    limit: usize,
    running: usize,
    next_ticket: u64,
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// Batches its trainer can take before this one.
    lead: u64,
    ticket: u64,
    samples: usize,
    turn: oneshot::Sender<Turn>,
}

/// The right to decode some samples; ends when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    samples: usize,
    left: AtomicUsize,
    /// As that of the state: with this many left or more, nobody else gets a turn anyway.
    limit: usize,
}

impl Turn {
    /// One of its samples is done. Towards the end of a turn the next one is granted, so that no thread waits for
    /// another's last sample.
    pub(crate) fn finish_one(&self) {
        let left = self.left.fetch_sub(1, Ordering::Relaxed) - 1;
        if left < self.limit {
            // The first one that matters speaks for all before it.
            self.give_back(if left + 1 == self.limit { self.samples - left } else { 1 });
        }
    }

    fn give_back(&self, samples: usize) {
        self.turns.state.lock().running -= samples;
        self.turns.grant();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let left = *self.left.get_mut();
        self.give_back(if left < self.limit { left } else { self.samples });
    }
}

impl Turns {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { limit, running: 0, next_ticket: 0, waiting: Vec::new() }) })
    }

    /// Waits for a turn to decode `samples` of a batch that has `lead` batches before it at its trainer.
    pub(crate) async fn take(self: &Arc<Self>, lead: u64, samples: usize) -> Turn {
        let (turn, granted) = oneshot::channel();
        {
            let mut state = self.state.lock();
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            state.waiting.push(Waiting { lead, ticket, samples, turn });
        }
        self.grant();
        granted.await.expect("a turn that is waited for is granted in the end")
    }

    fn grant(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            if state.running >= state.limit {
                return;
            }
            let keys = state.waiting.iter().map(|waiting| (waiting.lead, waiting.ticket)).enumerate();
            let Some((first, _)) = keys.min_by_key(|(_, key)| *key) else { return };
            let waiting = state.waiting.swap_remove(first);
            if waiting.turn.is_closed() {
                continue;
            }
            let (samples, limit) = (waiting.samples, state.limit);
            state.running += samples;
            drop(state);
            let turn = Turn { turns: self.clone(), samples, left: AtomicUsize::new(samples), limit };
            // Where it is given up just now the turn comes back, and its end grants the next.
            drop(waiting.turn.send(turn));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn the_batch_that_is_wanted_soonest_goes_first() {
        let turns = Turns::new(8);
        let running = turns.take(9, 8).await;
        let mut far = Box::pin(turns.take(3, 8));
        let mut near = Box::pin(turns.take(1, 8));
        let mut given_up = Box::pin(turns.take(0, 8));
        assert!(far.as_mut().now_or_never().is_none());
        assert!(near.as_mut().now_or_never().is_none());
        assert!(given_up.as_mut().now_or_never().is_none());
        drop(given_up);
        drop(running);
        let turn = near.await;
        assert!(far.as_mut().now_or_never().is_none());
        drop(turn);
        far.await;
        assert_eq!(turns.state.lock().running, 0);
    }

    #[tokio::test]
    async fn the_next_turn_begins_when_the_last_one_is_nearly_over() {
        let turns = Turns::new(4);
        let running = turns.take(0, 10).await;
        let mut next = Box::pin(turns.take(0, 10));
        for _ in 0..6 {
            running.finish_one();
            assert!(next.as_mut().now_or_never().is_none(), "enough is left for all threads");
        }
        running.finish_one();
        let next = next.as_mut().now_or_never().expect("three samples are less than four places");
        assert_eq!(turns.state.lock().running, 13);
        running.finish_one();
        drop(running);
        assert_eq!(turns.state.lock().running, 10);
        drop(next);
        let few = turns.take(0, 2).await;
        few.finish_one();
        assert_eq!(turns.state.lock().running, 1);
        drop(few);
        assert_eq!(turns.state.lock().running, 0);
    }

    #[tokio::test]
    async fn small_batches_share_the_threads() {
        let turns = Turns::new(8);
        let _held = [turns.take(0, 3).await, turns.take(0, 3).await, turns.take(0, 3).await];
        assert!(turns.take(0, 3).now_or_never().is_none(), "nine samples are enough for eight places");
    }
}
