//! The loader that a trainer holds, over any source: returns one batch after the other and tracks the position.

mod repeat;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::Stream;
use spdl_control::{
    client::Progress,
    messages::{Session, StartReason},
};
use spdl_insight::Transport;
use spdl_job::{Job, layout::Entry};
use spdl_order::{RankSteps, Receipt};
use spdl_types::{BatchId, Position};
use spdl_wire::spans;
use tracing::{Instrument, Span};

use self::repeat::RepeatedBatches;
use crate::{
    ClientError, Delivery, Diagnoser, Source, SourceEvent, Started, State, Stats, diagnoser::RunningLog,
    stats::LoaderTally,
};

/// Gives a trainer the batches of one rank. Its position, state and receipt cover the batches that it has *handed to
/// the caller*, never those that are only prefetched.
#[derive(Debug)]
pub struct Loader<S: Source> {
    source: S,
    session: Arc<Session>,
    reason: StartReason,
    rank: u32,
    timeout: Duration,
    phase: LoaderPhase,
    position: Position,
    receipt: Receipt,
    tally: LoaderTally,
    diagnoser: Diagnoser,
    /// Logs verdicts, if it was asked to.
    log: Option<RunningLog>,
    /// The batches that it gives again and again, if it was asked to.
    repeated: Option<RepeatedBatches<S::Batch>>,
    /// Carries the ids of the session and the rank into the log lines of the source.
    span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoaderPhase {
    Running,
    Ended,
    Failed,
}

impl<S: Source> Loader<S> {
    /// Creates a loader of the batches that `source` gives to `rank` of `session`. A call waits at most `timeout` for a
    /// batch. Times in [`Stats`] count from `started`.
    #[must_use]
    pub fn new(source: S, session: Arc<Session>, rank: u32, timeout: Duration, started: Instant) -> Self {
        let tally = LoaderTally::new(started, source.wait_clock());
        let diagnoser = source.diagnoser();
        let span = spans::rank(Some(session.id), &session.job.name, rank);
        Self {
            source,
            rank,
            span,
            timeout,
            phase: LoaderPhase::Running,
            position: session.start,
            session,
            reason: StartReason::Given,
            receipt: Receipt::default(),
            tally,
            diagnoser,
            log: None,
            repeated: None,
        }
    }

    /// Sets the reason for the start position, which is otherwise [`StartReason::Given`].
    #[must_use]
    pub const fn with_reason(mut self, reason: StartReason) -> Self {
        self.reason = reason;
        self
    }

    /// Replaces the source by the result of `map`, which passes on the same batches, for example from a device. Nothing
    /// else changes. Call it before the first batch.
    ///
    /// # Errors
    /// Returns the error of `map`.
    pub fn try_map_source<T: Source, E>(self, map: impl FnOnce(S) -> Result<T, E>) -> Result<Loader<T>, E> {
        let Self {
            source, session, reason, rank, timeout, phase, position, receipt, tally, diagnoser, log, span, ..
        } = self;
        let source = span.in_scope(|| map(source))?;
        let repeated = None;
        Ok(Loader {
            source,
            session,
            reason,
            rank,
            timeout,
            phase,
            position,
            receipt,
            tally,
            diagnoser,
            log,
            repeated,
            span,
        })
    }

    /// Logs a line after each `every` from now on: the samples per second, and what limits them. Needs a tokio runtime.
    pub fn log_every(&mut self, every: Duration) {
        let _entered = self.span.enter();
        self.log = Some(RunningLog::start(self.diagnoser.clone(), &self.session.job, every));
    }

    /// Measures the trainer alone, without a loader behind it: keeps the next `count` batches, and then gives these again and again, up
    /// to the end of the last epoch as it would have come. Nothing is asked of the source any more, and nothing is copied: the batches
    /// stay in their slots, or in their buffers on a device, and what a trainer changes in them stays changed.
    ///
    /// What comes again counts nowhere but in [`Stats::batches`], `samples` and `bytes`, and in [`Stats::repeated_batches`]:
    /// [`Loader::position`], the receipt and the progress that the coordinator hears of are those of the batches that the source gave. No
    /// loader starts from its [`Loader::state`]. [`Loader::epoch`] and [`Loader::steps_left`] go on, since loops end by them.
    ///
    /// # Errors
    /// Returns [`ClientError::Setting`] when `count` is 0 or more than there are slots or buffers, or when the loader already repeats.
    pub fn repeat_batches(&mut self, count: u32) -> Result<(), ClientError> {
        let most = self.source.most_held();
        let is_under_way = self.repeated.as_ref().is_some_and(|repeated| !repeated.is_empty());
        let problem = match count {
            0 => "is 0; give the number of batches to keep".to_owned(),
            _ if count > most => format!(
                "is {count}, and the loader has room for {most} batches, where they stay; repeat fewer, or give it more `slots`, or on a \
                 device more `buffers`"
            ),
            _ if is_under_way => {
                "was called before, and the loader keeps those batches; make another loader".to_owned()
            }
            _ => {
                self.span.in_scope(|| {
                    tracing::warn!(
                        "job `{}`: `repeat_batches({count})`: the loader gives {count} batches again and again, to measure the trainer alone; \
                         they count in no receipt and no position, and a model that learns from them is of no use",
                        self.session.job.name
                    );
                });
                self.repeated = Some(RepeatedBatches::new(count as usize));
                return Ok(());
            }
        };
        Err(ClientError::Setting { name: "repeat_batches", problem })
    }

    /// Waits for the next batch; returns `None` when all epochs are delivered. Dropping the future loses nothing.
    ///
    /// # Errors
    /// Returns [`ClientError::Timeout`], after which the next call waits for the same batch. Any other error ends the
    /// loader.
    pub async fn next(&mut self) -> Result<Option<S::Batch>, S::Error> {
        self.next_within(self.timeout).await
    }

    /// Waits for the next batch as [`Loader::next`] does, with a timeout of its own.
    ///
    /// # Errors
    /// As [`Loader::next`].
    pub async fn next_within(&mut self, timeout: Duration) -> Result<Option<S::Batch>, S::Error> {
        match self.phase {
            LoaderPhase::Running => {}
            LoaderPhase::Ended => return Ok(None),
            LoaderPhase::Failed => return Err(ClientError::Closed.into()),
        }
        if let Some(repeated) = self.repeat() {
            return Ok(repeated);
        }
        let event = {
            let _wait = self.tally.clock().start();
            tokio::time::timeout(timeout, self.source.next().instrument(self.span.clone())).await
        };
        match event {
            Ok(Ok(SourceEvent::Batch(batch))) => {
                self.hand(&batch);
                Ok(Some(batch))
            }
            Ok(Ok(SourceEvent::End(position))) => {
                self.phase = LoaderPhase::Ended;
                self.session = self.session_now();
                self.position = self.position.max(position);
                self.source.record_progress(self.progress());
                Ok(None)
            }
            Ok(Err(error)) => {
                self.phase = LoaderPhase::Failed;
                Err(error)
            }
            Err(_) => Err(self.timed_out().await.into()),
        }
    }

    /// Goes to a position of the stream, from any other and after the end: for an evaluation that runs again, or a
    /// training that goes to another epoch. Drops what was prefetched and starts a new receipt. The other ranks of the
    /// session are not involved.
    ///
    /// # Errors
    /// Returns [`ClientError`] when the source cannot start again, which ends the loader, and [`ClientError::Closed`]
    /// when an error has already ended it.
    pub async fn go_to(&mut self, position: Position) -> Result<(), S::Error> {
        if self.phase == LoaderPhase::Failed {
            return Err(ClientError::Closed.into());
        }
        if self.repeated.as_mut().is_some_and(|repeated| repeated.go_to(position)) {
            self.phase = LoaderPhase::Running;
            return Ok(());
        }
        self.phase = LoaderPhase::Failed;
        self.source.restart(position).instrument(self.span.clone()).await?;
        self.phase = LoaderPhase::Running;
        self.position = position;
        self.receipt = Receipt::default();
        Ok(())
    }

    fn hand(&mut self, batch: &S::Batch) {
        if let Some(session) = self.source.session() {
            self.session = session;
        }
        let mut is_news = false;
        for entry in batch.entries().filter(Entry::is_delivery) {
            self.receipt.add_sample(entry.position(), entry.sample());
            is_news |= self.tally.add_sample(entry.flags);
        }
        let header = batch.header();
        if is_news {
            self.span.in_scope(|| spans::batch(header.from()).in_scope(|| self.warn_of_bad_samples()));
        }
        self.position = header.next();
        self.tally.add(header.used_bytes);
        self.tally.note_history(|| self.source.stages());
        self.tally.clock().step(BatchId { session: self.session.id, rank: self.rank, from: header.from() });
        self.source.record_progress(self.progress());
        if let Some(repeated) = &mut self.repeated {
            repeated.keep(batch, self.position);
        }
    }

    /// Returns the next batch of a loader that repeats, or `Some(None)` at the end; `None` if the next batch is the source's.
    fn repeat(&mut self) -> Option<Option<S::Batch>> {
        let (steps, batches, samples) = (self.steps(), self.session.batches(), self.session.job.samples);
        let repeated = self.repeated.as_mut()?;
        let batch = repeated.next(&steps, |from, next| batches.ends_epoch(samples, from, next))?;
        let Some(batch) = batch else {
            self.phase = LoaderPhase::Ended;
            return Some(None);
        };
        let deliveries = batch.entries().filter(Entry::is_delivery).count() as u64;
        let header = batch.header();
        self.tally.add_repeated(deliveries, header.used_bytes);
        self.tally.note_history(|| self.source.stages());
        self.tally.clock().step(BatchId { session: self.session.id, rank: self.rank, from: header.from() });
        Some(Some(batch))
    }

    /// Logs the number of bad samples. Does nothing for a pipeline in this process, which itself logs what is wrong
    /// with them; a home does so in its own process.
    fn warn_of_bad_samples(&self) {
        if self.source.serving().transport == Some(Transport::InProcess) {
            return;
        }
        let (samples, substituted, masked) = self.tally.bad_samples();
        tracing::warn!(
            "{} of {samples} samples so far were bad: {substituted} were substituted, {masked} are zero and flagged; \
             `spdl-ctl status` lists them and what is wrong with them",
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

    /// Returns the batches as a stream, which ends after the last batch or after an error that ends the loader. A
    /// timeout does not end it.
    pub fn stream(&mut self) -> impl Stream<Item = Result<S::Batch, S::Error>> + Send + '_ {
        futures::stream::unfold(self, |loader| async move {
            if loader.is_failed() {
                return None;
            }
            let item = loader.next().await.transpose()?;
            Some((item, loader))
        })
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.phase == LoaderPhase::Failed
    }

    /// Returns the position after the last batch that was handed to the caller: where to resume.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// Returns the position where the loader started, and why it started there.
    #[must_use]
    pub fn started(&self) -> Started {
        Started { position: self.session.start, reason: self.reason }
    }

    /// Returns the state for the checkpoint: [`Loader::position`] and the job's fingerprint [up to there](spdl_job::Job::fingerprint_up_to). It is the same on all
    /// ranks that have taken the same number of batches. Once batches were [repeated](Loader::repeat_batches), its text is refused by
    /// whatever reads it.
    #[must_use]
    pub fn state(&self) -> State {
        let state = State::new(self.session.job.fingerprint_up_to(self.position), self.position);
        if self.has_repeated() { state.of_repeated_batches() } else { state }
    }

    fn has_repeated(&self) -> bool {
        self.repeated.as_ref().is_some_and(RepeatedBatches::has_begun)
    }

    /// Returns the position where the loop is: where the next batch begins, or would begin if batches were not repeated.
    fn loop_position(&self) -> Position {
        self.repeated.as_ref().and_then(RepeatedBatches::at).unwrap_or(self.position)
    }

    /// Returns the receipt of the samples that this rank has been handed. The receipts of all ranks add up to the
    /// stream's.
    #[must_use]
    pub const fn receipt(&self) -> Receipt {
        self.receipt
    }

    /// Returns the session as it is now: since the newest batch came, a change of the job may have moved the end of the stream.
    fn session_now(&self) -> Arc<Session> {
        self.source.session().unwrap_or_else(|| self.session.clone())
    }

    fn steps(&self) -> RankSteps {
        self.session_now().steps_of(self.rank)
    }

    /// Returns the number of steps of this rank in an epoch, or `None` where a batch can span two epochs (`continuous`).
    #[must_use]
    pub fn steps_per_epoch(&self) -> Option<u64> {
        self.steps().per_epoch()
    }

    /// Returns the largest number of steps that start in an epoch: [`Loader::steps_per_epoch`], or that of the longest
    /// epoch where a batch can span two epochs.
    #[must_use]
    pub fn max_steps_per_epoch(&self) -> u64 {
        self.steps().max_per_epoch()
    }

    /// Returns the number of steps from [`Loader::position`] to the end of the last epoch.
    #[must_use]
    pub fn steps_left(&self) -> u64 {
        self.steps().left(self.loop_position())
    }

    /// Returns the number of epochs in which batches start. With a source that ends the stream (`when_done = "stop"`) it can change while
    /// the loader is used, as other weights of the sources move the end. [`Loader::next`] returns `None` at the end, wherever that is.
    #[must_use]
    pub fn epochs(&self) -> u64 {
        let session = self.session_now();
        session.batches().epochs_with_steps(session.job.samples)
    }

    /// Returns the epoch in which the next batch starts, or the [number of epochs](Loader::epochs) when all are delivered.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.steps().epoch_at(self.loop_position())
    }

    /// Returns whether `batch`, the newest batch of this loader, is the last one that starts in its epoch.
    #[must_use]
    pub fn ends_epoch(&self, batch: &S::Batch) -> bool {
        if let Some(repeated) = self.repeated.as_ref().filter(|repeated| repeated.has_begun()) {
            return repeated.ended_epoch();
        }
        let header = batch.header();
        self.session.batches().ends_epoch(self.session.job.samples, header.from(), header.next())
    }

    /// Returns the statistics so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.tally.stats(self.source.serving(), self.source.stages())
    }

    /// Returns the diagnoser of this rank, which works also while the loader waits for a batch.
    #[must_use]
    pub const fn diagnoser(&self) -> &Diagnoser {
        &self.diagnoser
    }

    /// Returns the session: job, world, global batch and start position.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the job.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.session.job
    }

    /// Returns the names of the dataset's classes, in the order of their numbers; `None` if the dataset lists none, or a cluster serves this
    /// rank, whose trainers read no datasets.
    #[must_use]
    pub fn classes(&self) -> Option<Arc<[String]>> {
        self.source.classes()
    }

    /// Returns the rank.
    #[must_use]
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// Ends the session and notifies the coordinator and the home; takes at most a second or two. Batches that were
    /// delivered stay valid.
    pub async fn close(mut self) {
        self.source.close().instrument(self.span).await;
    }
}

#[cfg(test)]
mod tests;
