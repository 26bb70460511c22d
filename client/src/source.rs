//! Where a loader's batches come from: a home in another process, or a pipeline in this one.

use std::future::Future;

use serde::{Deserialize, Serialize};
use spdl_shard::Position;
use spdl_wire::{
    layout::{Entry, Header},
    messages::{StageFigures, Transport},
};

use crate::{Batch, ClientError, WaitClock, core::Progress};

/// What a loader has to know of a batch to count it, wherever its bytes are.
pub trait Delivery: Send + 'static {
    /// The header.
    fn header(&self) -> &Header;

    /// What each sample is.
    fn entries(&self) -> impl Iterator<Item = Entry> + '_;
}

impl Delivery for Batch {
    fn header(&self) -> &Header {
        Self::header(self)
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        Self::entries(self)
    }
}

/// What a source gives.
#[derive(Debug)]
pub enum SourceEvent<B = Batch> {
    /// The next batch.
    Batch(B),
    /// No batch follows; all epochs are delivered up to this position.
    End(Position),
}

/// By whom and how a rank is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// How batches arrive, or arrived last; `None` as long as nobody has served the rank.
    pub transport: Option<Transport>,
    /// The home's name.
    pub home: Option<String>,
}

/// The batches of one rank, in order, each once. What it gives is handed to the trainer as it is.
pub trait Source: Send + 'static {
    /// A batch as the trainer gets it: in a slot, or [on a device](crate::device).
    type Batch: Delivery;

    /// The next batch, whenever it is there. Dropping the future loses nothing: the next call gives the same batch.
    fn next(&mut self) -> impl Future<Output = Result<SourceEvent<Self::Batch>, ClientError>> + Send;

    /// Why there is no batch, in words: who waits for what. Answers within a few seconds.
    fn explain(&mut self) -> impl Future<Output = String> + Send;

    /// Starts the stream again at `from`: the next batch is the one there, whatever has been fetched of others. Also after the end.
    fn restart(&mut self, from: Position) -> impl Future<Output = Result<(), ClientError>> + Send;

    /// Told after each batch what the trainer has taken so far.
    fn handed(&mut self, progress: Progress);

    /// By whom and how the rank is served just now.
    fn serving(&self) -> Serving;

    /// The clock on which the loader measures its waits: a source that reports them elsewhere gives the one that it reads.
    fn wait_clock(&self) -> WaitClock {
        WaitClock::default()
    }

    /// Figures of the pipeline's stages, where they run in this process.
    fn stages(&self) -> Vec<StageFigures> {
        Vec::new()
    }

    /// Says goodbye, within a second or two. Dropping a source does so in the background where it can.
    fn close(&mut self) -> impl Future<Output = ()> + Send;
}
