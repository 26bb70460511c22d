//! The loader that a trainer holds, whatever its source: one batch after the other, and where it stands.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::Stream;
use spdl_shard::{Position, Receipt, job::Job};
use spdl_wire::{
    layout::Entry,
    messages::{Session, StartReason, Transport},
};

use crate::{
    ClientError, Delivery, Source, SourceEvent, Started, State, Stats,
    core::Progress,
    stats::Tally,
    steps::{ends_epoch, epoch, steps_per_epoch},
};

/// The batches of one rank. What it says of itself, position, state and receipt, is about the batches that it
/// has *handed to the caller*, never about what was prefetched.
#[derive(Debug)]
pub struct Loader<S> {
    source: S,
    session: Arc<Session>,
    reason: StartReason,
    rank: u32,
    timeout: Duration,
    phase: Phase,
    position: Position,
    receipt: Receipt,
    tally: Tally,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Ended,
    Failed,
}

impl<S: Source> Loader<S> {
    /// A loader of what `source` gives to `rank` of `session`. A call waits for a batch for `timeout`.
    /// Times count from `started`.
    #[must_use]
    pub fn new(source: S, session: Arc<Session>, rank: u32, timeout: Duration, started: Instant) -> Self {
        let tally = Tally::new(started, source.wait_clock());
        Self {
            source,
            rank,
            timeout,
            phase: Phase::Running,
            position: session.start,
            session,
            reason: StartReason::Given,
            receipt: Receipt::default(),
            tally,
        }
    }

    /// The same loader, which knows why it starts where it does. Without, its caller said so.
    #[must_use]
    pub const fn with_reason(mut self, reason: StartReason) -> Self {
        self.reason = reason;
        self
    }

    /// The same loader over what `map` makes of its source.
    pub(crate) fn try_map_source<T: Source, E>(self, map: impl FnOnce(S) -> Result<T, E>) -> Result<Loader<T>, E> {
        let Self { source, session, reason, rank, timeout, phase, position, receipt, tally } = self;
        let source = map(source)?;
        Ok(Loader { source, session, reason, rank, timeout, phase, position, receipt, tally })
    }

    /// The next batch; `None` when all epochs are delivered. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`ClientError::Timeout`], after which the next call goes on waiting for the same batch. Any other error ends
    /// the loader.
    pub async fn next(&mut self) -> Result<Option<S::Batch>, ClientError> {
        self.next_within(self.timeout).await
    }

    /// The same with its own timeout.
    ///
    /// # Errors
    /// As [`Loader::next`].
    pub async fn next_within(&mut self, timeout: Duration) -> Result<Option<S::Batch>, ClientError> {
        match self.phase {
            Phase::Running => {}
            Phase::Ended => return Ok(None),
            Phase::Failed => return Err(ClientError::Closed),
        }
        let event = {
            let _wait = self.tally.clock().start();
            tokio::time::timeout(timeout, self.source.next()).await
        };
        match event {
            Ok(Ok(SourceEvent::Batch(batch))) => {
                self.hand(&batch);
                Ok(Some(batch))
            }
            Ok(Ok(SourceEvent::End(position))) => {
                self.phase = Phase::Ended;
                self.position = self.position.max(position);
                self.source.handed(self.progress());
                Ok(None)
            }
            Ok(Err(error)) => {
                self.phase = Phase::Failed;
                Err(error)
            }
            Err(_) => Err(self.timed_out().await),
        }
    }

    /// Goes back to the beginning of the stream, from anywhere in it and after its end: an evaluation, once more. What was
    /// prefetched is dropped, the other ranks of the session are not asked, and the receipt is that of what comes from here on.
    ///
    /// # Errors
    /// [`ClientError`] where the source cannot start again, which ends the loader, and [`ClientError::Closed`] of one that an error has ended.
    pub async fn restart(&mut self) -> Result<(), ClientError> {
        if self.phase == Phase::Failed {
            return Err(ClientError::Closed);
        }
        self.phase = Phase::Failed;
        self.source.restart(Position::START).await?;
        self.phase = Phase::Running;
        self.position = Position::START;
        self.receipt = Receipt::default();
        Ok(())
    }

    fn hand(&mut self, batch: &S::Batch) {
        let mut is_news = false;
        for entry in batch.entries().filter(Entry::is_delivery) {
            self.receipt.add_sample(entry.position(), entry.sample());
            is_news |= self.tally.add_sample(entry.flags);
        }
        if is_news {
            self.warn_of_bad_samples();
        }
        let header = batch.header();
        self.position = header.next();
        self.tally.add(header.used_bytes);
        self.source.handed(self.progress());
    }

    /// A pipeline in this process logs what is wrong with them; that of a home does so elsewhere.
    fn warn_of_bad_samples(&self) {
        if self.source.serving().transport == Some(Transport::InProcess) {
            return;
        }
        let (samples, substituted, masked) = self.tally.bad_samples();
        tracing::warn!(
            rank = self.rank,
            job = self.session.job.name,
            "{} of {samples} samples so far were bad: in the place of {substituted} others came, {masked} are zero and flagged; \
             `spdl-ctl status` says which they are and what is wrong with them",
            substituted + masked
        );
    }

    fn progress(&self) -> Progress {
        Progress { position: self.position, receipt: self.receipt, waited_ms: self.tally.clock().total_ms() }
    }

    async fn timed_out(&mut self) -> ClientError {
        let waited_ms = u64::try_from(self.tally.waiting().as_millis()).unwrap_or(u64::MAX);
        let explanation = self.source.explain().await;
        ClientError::Timeout { rank: self.rank, waited_ms, position: self.position, explanation }
    }

    /// The batches as a stream. It ends after the last batch, or after an error that ends the loader; a timeout does not.
    pub fn stream(&mut self) -> impl Stream<Item = Result<S::Batch, ClientError>> + Send + '_ {
        futures::stream::unfold(self, |loader| async move {
            if loader.is_failed() {
                return None;
            }
            let item = loader.next().await.transpose()?;
            Some((item, loader))
        })
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.phase == Phase::Failed
    }

    /// Position after the last batch that was handed over: where to go on.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// Where it started, and why there.
    #[must_use]
    pub fn started(&self) -> Started {
        Started { position: self.session.start, reason: self.reason }
    }

    /// What belongs in the checkpoint: [`Loader::position`] and the job's fingerprint. The same on every rank
    /// that has taken as many batches.
    #[must_use]
    pub fn state(&self) -> State {
        State::new(self.session.job.fingerprint(), self.position)
    }

    /// Receipt of what this rank was handed. Those of all ranks add up to the stream's.
    #[must_use]
    pub const fn receipt(&self) -> Receipt {
        self.receipt
    }

    /// Steps of a whole epoch; `None` where the job's epochs go over into each other within a batch.
    #[must_use]
    pub fn steps_per_epoch(&self) -> Option<u64> {
        steps_per_epoch(&self.session.job, self.session.global_batch)
    }

    /// Steps from [`Loader::position`] to the end of the last epoch.
    #[must_use]
    pub fn steps_left(&self) -> u64 {
        self.session.job.steps_left(self.session.global_batch, self.position)
    }

    /// The epoch that the next batch starts in; the job's number of epochs when all are delivered.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        epoch(&self.session.job, self.session.global_batch, self.position)
    }

    /// Whether this batch of the loader is the last of the epoch that it starts in.
    #[must_use]
    pub fn ends_epoch(&self, batch: &S::Batch) -> bool {
        let header = batch.header();
        ends_epoch(&self.session.job, self.session.global_batch, header.from(), header.next())
    }

    /// Figures so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { stages: self.source.stages(), ..self.tally.stats(self.source.serving()) }
    }

    /// The session: job, world, global batch, start.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.session.job
    }

    /// r.
    #[must_use]
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// Says goodbye to whoever serves the rank; takes at most a second or two. Batches that were handed over stay valid.
    pub async fn close(mut self) {
        self.source.close().await;
    }
}

#[cfg(test)]
mod tests;
