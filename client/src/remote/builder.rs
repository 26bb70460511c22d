//! Making a client: settings, and joining.

use std::{future::Future, path::PathBuf, time::Duration};

use super::{Client, Remote, join};
use crate::{Blocking, ClientError, Settings, StartFrom, State, core::Ways};

/// What a client is to be; [`Builder::connect`] makes it.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    pub(super) settings: Settings,
    pub(super) global_batch: Option<u32>,
}

impl Builder {
    /// Takes these settings, for instance those of [`Settings::from_env`].
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The coordinator's address, or several separated by commas: `HOST:PORT`.
    pub fn coordinator(mut self, addresses: &str) -> Self {
        addresses.clone_into(&mut self.settings.coordinators);
        self
    }

    /// The job's name.
    pub fn job(mut self, name: impl Into<String>) -> Self {
        self.settings.job = name.into();
        self
    }

    /// The run's name among those of the job; see [`Settings::run`].
    pub fn run(mut self, name: impl Into<String>) -> Self {
        self.settings.run = Some(name.into());
        self
    }

    /// Epochs of the run from this launch on; see [`Settings::epochs`].
    pub const fn epochs(mut self, epochs: u64) -> Self {
        self.settings.epochs = Some(epochs);
        self
    }

    /// Whether a living launch of the run is superseded; see [`Settings::takeover`].
    pub const fn takeover(mut self, takeover: bool) -> Self {
        self.settings.takeover = takeover;
        self
    }

    /// What all ranks of this launch share and no other launch has; see [`Settings::launch`].
    pub fn launch(mut self, id: impl Into<String>) -> Self {
        self.settings.launch = Some(id.into());
        self
    }

    /// Folder with `ca.pem`, `cert.pem` and `key.pem` of a client.
    pub fn certs(mut self, folder: impl Into<PathBuf>) -> Self {
        self.settings.certs = folder.into();
        self
    }

    /// Which ways to a home may be taken. Default: any.
    pub fn ways(mut self, ways: Ways) -> Self {
        self.settings.ways = ways;
        self
    }

    /// Batches that can be ready or in use at once; see [`Settings::slots`].
    pub fn slots(mut self, slots: u32) -> Self {
        self.settings.slots = slots;
        self
    }

    /// How long joining, or waiting for a batch, may take; see [`Settings::timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Path of the home's socket as this process sees it; see [`Settings::socket`].
    pub fn socket(mut self, path: impl Into<String>) -> Self {
        self.settings.socket = Some(path.into());
        self
    }

    /// Name of this node; see [`Settings::node`].
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.settings.node = Some(name.into());
        self
    }

    /// Where to start. Default: at the beginning.
    pub fn start(mut self, start: impl Into<StartFrom>) -> Self {
        self.settings.start = start.into();
        self
    }

    /// Starts where a checkpoint was made. It must be one of this job.
    pub const fn state(mut self, state: State) -> Self {
        self.settings.start = StartFrom::State(state);
        self
    }

    /// B for this launch, where it differs from the job's.
    pub const fn global_batch(mut self, samples: u32) -> Self {
        self.global_batch = Some(samples);
        self
    }

    /// Joins the job as `rank` of `world`; waits for a coordinator for as long as the timeout.
    ///
    /// # Errors
    /// [`ClientError`]: a setting, the certificates, no coordinator in time, or its refusal.
    pub fn connect(self, rank: u32, world: u32) -> impl Future<Output = Result<Client, ClientError>> + Send {
        join(self, rank, world)
    }

    /// The same for a thread that knows no async.
    ///
    /// # Errors
    /// As [`Builder::connect`]; [`ClientError::InsideRuntime`] when called inside an async runtime.
    pub fn connect_blocking(self, rank: u32, world: u32) -> Result<Blocking<Remote>, ClientError> {
        Blocking::start(self.connect(rank, world))
    }
}
