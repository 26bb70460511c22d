//! How a loader is opened: over a cluster, or in this process. A recipe is kept, so that a state can be set before.

use std::time::Duration;

use pyo3::prelude::*;
use spdl_client::{Blocking, Builder, Client, ClientError, Settings, State, Stats};
use spdl_cluster::local;
use spdl_shard::{Position, Receipt, job::JobFile};

use crate::errors;

/// How often a wait asks Python whether to go on: well within the 200 ms after which Ctrl-C feels dead.
pub(crate) const CHECK: Duration = Duration::from_millis(50);

/// Where batches come from.
#[derive(Debug)]
pub(crate) enum Recipe {
    Cluster { builder: Box<Builder>, rank: u32, world: u32 },
    Process { builder: Box<local::Builder>, rank: u32, world: u32 },
}

impl Recipe {
    pub(crate) fn rank_and_world(&self) -> (u32, u32) {
        let (Self::Cluster { rank, world, .. } | Self::Process { rank, world, .. }) = self;
        (*rank, *world)
    }

    /// Opens a loader, from `state` where there is one. Waits, and calls `check` on the way.
    pub(crate) fn open(
        &self,
        state: Option<State>,
        check: impl FnMut() -> PyResult<()>,
    ) -> PyResult<Box<dyn AnyLoader>> {
        match self {
            Self::Cluster { builder, rank, world } => {
                let builder = (**builder).clone();
                let builder = match state {
                    Some(state) => builder.state(state),
                    None => builder,
                };
                let opened = Blocking::start_checked(builder.connect(*rank, *world), CHECK, check)?;
                opened.map(boxed).map_err(|error| Python::attach(|py| errors::of_client(py, &error, "")))
            }
            Self::Process { builder, .. } => {
                let builder = (**builder).clone();
                let builder = match state {
                    Some(state) => builder.state(state),
                    None => builder,
                };
                // What a loader in this process says when it cannot be opened is more than a client's error.
                let mut refused = None;
                let open = async {
                    builder.open().await.map_err(|error| {
                        refused = Some(error);
                        ClientError::Closed
                    })
                };
                let opened = Blocking::start_checked(open, CHECK, check)?;
                opened.map(boxed).map_err(|error| {
                    Python::attach(|py| match &refused {
                        Some(refused) => errors::of_local(py, refused),
                        None => errors::of_client(py, &error, ""),
                    })
                })
            }
        }
    }
}

fn boxed<S: spdl_client::Source<Batch = spdl_client::Batch>>(loader: Blocking<S>) -> Box<dyn AnyLoader> {
    Box::new(loader)
}

/// What does not change over a loader's life.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) job: String,
    pub(crate) samples: u64,
    pub(crate) epochs: u64,
    pub(crate) global_batch: u32,
    /// Of an epoch; rounded up where epochs share a batch.
    pub(crate) steps: u64,
    /// Names and types of the columns.
    pub(crate) columns: Vec<(String, &'static str)>,
}

/// A loader, whatever its source.
pub(crate) trait AnyLoader: Send {
    fn next(
        &mut self,
        check: &mut dyn FnMut() -> PyResult<()>,
    ) -> PyResult<Result<Option<spdl_client::Batch>, ClientError>>;
    fn ends_epoch(&self, batch: &spdl_client::Batch) -> bool;
    fn position(&self) -> Position;
    fn state(&self) -> State;
    fn epoch(&self) -> u64;
    fn receipt(&self) -> Receipt;
    fn steps_left(&self) -> u64;
    fn stats(&self) -> Stats;
    fn facts(&self) -> Facts;
}

impl<S: spdl_client::Source<Batch = spdl_client::Batch>> AnyLoader for Blocking<S> {
    fn next(
        &mut self,
        check: &mut dyn FnMut() -> PyResult<()>,
    ) -> PyResult<Result<Option<spdl_client::Batch>, ClientError>> {
        self.next_checked(CHECK, check)
    }

    fn ends_epoch(&self, batch: &spdl_client::Batch) -> bool {
        self.loader().ends_epoch(batch)
    }

    fn position(&self) -> Position {
        self.loader().position()
    }

    fn state(&self) -> State {
        self.loader().state()
    }

    fn epoch(&self) -> u64 {
        self.loader().epoch()
    }

    fn receipt(&self) -> Receipt {
        self.loader().receipt()
    }

    fn steps_left(&self) -> u64 {
        self.loader().steps_left()
    }

    fn stats(&self) -> Stats {
        self.loader().stats()
    }

    fn facts(&self) -> Facts {
        let (job, session) = (self.loader().job(), self.loader().session());
        let batch = u64::from(session.global_batch);
        let columns = job.columns.iter().map(|column| (column.name.clone(), crate::batch::dtype_name(column.dtype)));
        Facts {
            job: job.name.clone(),
            samples: job.samples,
            epochs: job.epochs,
            global_batch: session.global_batch,
            steps: self.loader().steps_per_epoch().unwrap_or_else(|| job.samples.div_ceil(batch)),
            columns: columns.collect(),
        }
    }
}

/// Settings of a cluster's loader: the environment, and over it what the caller gave.
#[derive(Debug, Default)]
pub(crate) struct ClusterOptions {
    pub(crate) job: Option<String>,
    pub(crate) coordinators: Option<String>,
    pub(crate) certs: Option<std::path::PathBuf>,
    pub(crate) transport: Option<String>,
    pub(crate) slots: Option<u32>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) socket: Option<String>,
    pub(crate) node: Option<String>,
    pub(crate) global_batch: Option<u32>,
}

impl ClusterOptions {
    /// A recipe whose settings are all there and make sense.
    pub(crate) fn recipe(self, rank: u32, world: u32) -> Result<Recipe, ClientError> {
        let mut settings = Settings::from_env()?;
        settings.job = self.job.unwrap_or(settings.job);
        settings.coordinators = self.coordinators.unwrap_or(settings.coordinators);
        settings.certs = self.certs.unwrap_or(settings.certs);
        settings.ways = self.transport.map_or(Ok(settings.ways), |text| text.parse())?;
        settings.slots = self.slots.unwrap_or(settings.slots);
        settings.timeout = self.timeout.unwrap_or(settings.timeout);
        settings.socket = self.socket.or(settings.socket);
        settings.node = self.node.or(settings.node);
        settings.check()?;
        let mut builder = Client::builder().settings(settings);
        if let Some(global_batch) = self.global_batch {
            builder = builder.global_batch(global_batch);
        }
        Ok(Recipe::Cluster { builder: Box::new(builder), rank, world })
    }
}

/// Settings of a loader in this process.
#[derive(Debug, Default)]
pub(crate) struct ProcessOptions {
    pub(crate) slots: Option<u32>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) global_batch: Option<u32>,
    /// Of `sharers` processes that share this node's budget.
    pub(crate) sharers: u32,
    pub(crate) cores: Option<f64>,
    pub(crate) memory_bytes: Option<u64>,
}

impl ProcessOptions {
    /// A recipe for `job`.
    pub(crate) fn recipe(self, job: JobFile, rank: u32, world: u32) -> Recipe {
        let mut budget = spdl_worker::budget::Budget::default();
        budget.cores = self.cores.unwrap_or(budget.cores / f64::from(self.sharers.max(1)));
        budget.memory_bytes = self.memory_bytes.unwrap_or(budget.memory_bytes);
        let mut builder = local::builder(job).rank(rank, world).budget(budget);
        if let Some(slots) = self.slots {
            builder = builder.slots(slots);
        }
        if let Some(timeout) = self.timeout {
            builder = builder.timeout(timeout);
        }
        if let Some(global_batch) = self.global_batch {
            builder = builder.global_batch(global_batch);
        }
        Recipe::Process { builder: Box::new(builder), rank, world }
    }
}
