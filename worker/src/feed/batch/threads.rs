//! The decoding threads at work on a batch: they take what there is to do from its sources, one after the other.

use std::time::Instant;

use crossbeam_deque::{Steal, Stealer};
use parking_lot::Mutex;
use spdl_types::BatchId;
use tracing::Span;

use crate::feed::{decoding::SampleDecoding, progress::FeedProgress, stages::DecodingThread};

/// Samples of a batch, or columns of them, that decoding threads write to their places.
pub(super) trait SampleSource: Sync {
    /// Returns whether all has been taken.
    fn is_empty(&self) -> bool;

    /// Takes what comes next and writes it, unless another thread has taken the last.
    fn write_next(&self, thread: &mut DecodingThread<'_>);

    /// Returns where a thread goes for its pauses; without that it sleeps.
    fn parking(&self) -> Option<&Parking> {
        None
    }
}

/// The decoding threads of a process, at work on one batch of a rank.
#[derive(Clone, Debug)]
pub(in crate::feed) struct BatchThreads<'t> {
    pub(in crate::feed) decoding: &'t SampleDecoding,
    pub(in crate::feed) progress: &'t FeedProgress,
    pub(in crate::feed) batch: BatchId,
    pub(in crate::feed) span: Span,
}

impl BatchThreads<'_> {
    /// Lets as many threads as there are, but at most `most`, do all of a source. Must not run on a decoding thread: rayon
    /// would let the blocked thread steal another batch's samples and delay this batch until that one is done.
    pub(super) fn run(&self, most: usize, source: &dyn SampleSource) {
        let pool = &self.decoding.pool;
        pool.in_place_scope(|scope| {
            for _ in 0..pool.current_num_threads().min(most) {
                scope.spawn(|_| self.work(&[source]));
            }
        });
    }

    /// Does on the calling decoding thread what is left of the sources.
    pub(super) fn work(&self, sources: &[&dyn SampleSource]) {
        let _entered = self.span.enter();
        let mut thread = self.decoding.threads.begin(self.decoding.thread_index(), self.batch);
        for source in sources {
            // The slot of a rank that is gone is never published.
            while !source.is_empty() && !self.progress.is_cancelled() {
                if let Some(pause) = thread.due() {
                    // During the pause, helpers decode these samples, and the thread may decode those of other batches.
                    if let Some(parking) = source.parking() {
                        match parking.enter(thread, Instant::now() + pause) {
                            Ok(()) => return,
                            Err(stays) => thread = stays,
                        }
                    }
                    thread.pause_if_due();
                }
                source.write_next(&mut thread);
            }
        }
    }
}

/// Takes the next of a queue.
pub(super) fn steal<T>(queue: &Stealer<T>) -> Option<T> {
    loop {
        match queue.steal() {
            Steal::Success(next) => return Some(next),
            Steal::Retry => {}
            Steal::Empty => return None,
        }
    }
}

/// The decoding threads that left a batch because they have to pause for the budget of cores. `None` while no lender
/// would start them again: then they sleep inside the batch.
#[derive(Debug, Default)]
pub(super) struct Parking(Mutex<Option<Vec<ParkedThread>>>);

#[derive(Debug)]
pub(super) struct ParkedThread {
    pub(super) number: usize,
    until: Instant,
}

impl Parking {
    /// Returns a parking whose threads a lender starts again.
    pub(super) fn open() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }

    /// Lets a thread leave until its pause is over, or returns the thread if the parking is closed.
    pub(super) fn enter<'t>(&self, thread: DecodingThread<'t>, until: Instant) -> Result<(), DecodingThread<'t>> {
        let mut threads = self.0.lock();
        let Some(threads) = threads.as_mut() else { return Err(thread) };
        threads.push(ParkedThread { number: thread.park(), until });
        Ok(())
    }

    /// Removes the threads whose pause is over.
    pub(super) fn leave(&self, now: Instant) -> Vec<ParkedThread> {
        let mut threads = self.0.lock();
        threads.iter_mut().flat_map(|threads| threads.extract_if(.., |thread| thread.until <= now)).collect()
    }

    /// Returns when the first pause is over.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.lock().iter().flatten().map(|thread| thread.until).min()
    }

    /// Closes the parking and returns the threads that have left.
    pub(super) fn close(&self) -> Vec<ParkedThread> {
        self.0.lock().take().unwrap_or_default()
    }
}
