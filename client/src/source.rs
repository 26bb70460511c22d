//! The source of a loader's batches: a home in another process, or a pipeline in this one.

use std::{error::Error, fmt, future::Future, sync::Arc};

use serde::{Deserialize, Serialize};
use spdl_control::{client::Progress, messages::Session};
use spdl_insight::Transport;
use spdl_job::layout::{Entry, Header};
use spdl_types::{Position, StageStats};

use crate::{Batch, ClientError, Diagnoser, WaitClock};

/// The facts about a batch that a loader needs to count it, wherever the batch's bytes are.
pub trait Delivery: fmt::Debug + Send + 'static {
    /// Returns the batch's header.
    fn header(&self) -> &Header;

    /// Returns the id, the position and the flags of each sample.
    fn entries(&self) -> impl Iterator<Item = Entry> + '_;

    /// Returns the same batch again, in the same memory, which is freed with the last of them.
    #[must_use]
    fn share(&self) -> Self;
}

impl Delivery for Batch {
    fn header(&self) -> &Header {
        Self::header(self)
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        Self::entries(self)
    }

    fn share(&self) -> Self {
        Self::share(self)
    }
}

/// The result of [`Source::next`].
#[derive(Debug)]
pub enum SourceEvent<B = Batch> {
    /// The next batch.
    Batch(B),
    /// All epochs are delivered up to this position; no batch follows.
    End(Position),
}

/// Which home serves a rank, and over which transport.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// The transport of the latest batches; `None` until a home has served the rank.
    pub transport: Option<Transport>,
    /// The home's name.
    pub home: Option<String>,
}

/// Yields the batches of one rank, in order, each exactly once. The loader hands each to the trainer unchanged.
pub trait Source: Send + 'static {
    /// A batch as the trainer gets it: in a slot, or copied to a device.
    type Batch: Delivery;
    /// The error of the source, which includes every error of a [`Loader`](crate::Loader).
    type Error: Error + From<ClientError> + Send + Sync + 'static;

    /// Waits for the next batch. Dropping the future loses nothing: the next call returns the same batch.
    fn next(&mut self) -> impl Future<Output = Result<SourceEvent<Self::Batch>, Self::Error>> + Send;

    /// Explains why there is no batch, and what the source waits for. Answers within a few seconds.
    fn explain(&mut self) -> impl Future<Output = String> + Send;

    /// Starts the stream again at `from`, also after its end: the next batch is the one at `from`. Drops what was
    /// prefetched.
    fn restart(&mut self, from: Position) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Records what the trainer has taken so far. The loader calls this after each batch and at the end.
    fn record_progress(&mut self, progress: Progress);

    /// Returns the home that serves the rank now, and the transport.
    fn serving(&self) -> Serving;

    /// Returns the session as it is now. Its job may have changed since the loader was made, from a position on that no batch has
    /// reached which came before. By default, it does not change.
    fn session(&self) -> Option<Arc<Session>> {
        None
    }

    /// Returns the clock on which the loader measures its waits. A source that reports waits elsewhere returns the
    /// clock that it reads.
    fn wait_clock(&self) -> WaitClock {
        WaitClock::default()
    }

    /// Returns the diagnoser of the rank. By default, it has no measurements.
    fn diagnoser(&self) -> Diagnoser {
        Diagnoser::default()
    }

    /// Returns the names of the job's classes, in the order of their numbers. By default, they are not known: a home does not send them,
    /// and [`Builder::classes`](crate::Builder::classes) asks the coordinator.
    fn classes(&self) -> Option<Arc<[String]>> {
        None
    }

    /// Returns how many batches the caller can hold at once: the number of slots, or of buffers on a device. By default, any number.
    fn most_held(&self) -> u32 {
        u32::MAX
    }

    /// Returns the statistics of the stages that run in this process.
    fn stages(&self) -> Vec<StageStats> {
        Vec::new()
    }

    /// Ends the session and notifies its peers, within a second or two. Dropping a source does this in the background
    /// where it can.
    fn close(&mut self) -> impl Future<Output = ()> + Send;
}
