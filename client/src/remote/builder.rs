//! Builds a client: collects its settings and joins.

use std::{future::Future, path::PathBuf, time::Duration};

use super::{Client, Remote, join};
use crate::{Blocking, ClientError, Settings, StartFrom, State};
use spdl_control::client::AllowedTransports;

/// The settings of a client that [`Builder::connect`] creates.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    pub(super) settings: Settings,
    pub(super) global_batch: Option<u32>,
}

impl Builder {
    /// Sets all settings, for instance those of [`Settings::from_env`].
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the coordinator's address, or several separated by commas: `HOST:PORT`.
    pub fn coordinator(mut self, addresses: &str) -> Self {
        addresses.clone_into(&mut self.settings.coordinators);
        self
    }

    /// Sets the job's name.
    pub fn job(mut self, name: impl Into<String>) -> Self {
        self.settings.job = name.into();
        self
    }

    /// Sets the run's name among the runs of the job; see [`Settings::run`].
    pub fn run(mut self, name: impl Into<String>) -> Self {
        self.settings.run = Some(name.into());
        self
    }

    /// Sets the run's number of epochs from this launch on; see [`Settings::epochs`].
    pub const fn epochs(mut self, epochs: u64) -> Self {
        self.settings.epochs = Some(epochs);
        self
    }

    /// Sets whether to supersede a live launch of the run; see [`Settings::takeover`].
    pub const fn takeover(mut self, takeover: bool) -> Self {
        self.settings.takeover = takeover;
        self
    }

    /// Sets the id that all ranks of this launch share and no other launch has; see [`Settings::launch`].
    pub fn launch(mut self, id: impl Into<String>) -> Self {
        self.settings.launch = Some(id.into());
        self
    }

    /// Sets the folder with `ca.pem`, `cert.pem` and `key.pem` of a client.
    pub fn certs(mut self, folder: impl Into<PathBuf>) -> Self {
        self.settings.certs = folder.into();
        self
    }

    /// Sets the transports that may be used to reach a home. Default: any.
    pub fn transports(mut self, transports: AllowedTransports) -> Self {
        self.settings.transports = transports;
        self
    }

    /// Sets the number of batches that can be ready or in use at once; see [`Settings::slots`].
    pub fn slots(mut self, slots: u32) -> Self {
        self.settings.slots = slots;
        self
    }

    /// Sets how long joining, or waiting for a batch, may take; see [`Settings::timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Sets which member of the group that shares the rank this process is; see [`Settings::member`]. Member 0 leads: it takes part in
    /// the session, and the others wait for it.
    ///
    /// # Errors
    /// Returns [`ClientError::Setting`] when there is no such member.
    pub fn member(mut self, member: u32, members: u32) -> Result<Self, ClientError> {
        self.settings.member = Settings::place_in_group((member, members))?;
        Ok(self)
    }

    /// Sets how long a member of the group may be silent; see [`Settings::member_timeout`].
    pub const fn member_timeout(mut self, timeout: Duration) -> Self {
        self.settings.member_timeout = timeout;
        self
    }

    /// Sets the path of the home's socket as this process sees it; see [`Settings::socket`].
    pub fn socket(mut self, path: impl Into<String>) -> Self {
        self.settings.socket = Some(path.into());
        self
    }

    /// Sets the name of this node; see [`Settings::node`].
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.settings.node = Some(name.into());
        self
    }

    /// Sets where to start. Default: at the beginning.
    pub fn start(mut self, start: impl Into<StartFrom>) -> Self {
        self.settings.start = start.into();
        self
    }

    /// Sets the start to the position of a checkpoint, which must be one of this job.
    pub const fn state(mut self, state: State) -> Self {
        self.settings.start = StartFrom::State(state);
        self
    }

    /// Sets the size of the global batch for this launch. Default: the job's.
    pub const fn global_batch(mut self, samples: u32) -> Self {
        self.global_batch = Some(samples);
        self
    }

    /// Returns how many threads a runtime for this client alone should have: one for each connection.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.settings.quic.connections_of_rank()
    }

    /// Joins the job as `rank` of `world`. Tries to reach a coordinator until the timeout.
    ///
    /// # Errors
    /// Returns [`ClientError`] when a setting is invalid, the certificates cannot be used, no coordinator answers in
    /// time, or the coordinator refuses the rank.
    pub fn connect(self, rank: u32, world: u32) -> impl Future<Output = Result<Client, ClientError>> + Send {
        join(self, rank, world)
    }

    /// Joins as [`Builder::connect`] does, for a thread without an async runtime.
    ///
    /// # Errors
    /// As [`Builder::connect`]; [`ClientError::InsideRuntime`] when called inside an async runtime.
    pub fn connect_blocking(self, rank: u32, world: u32) -> Result<Blocking<Remote>, ClientError> {
        Blocking::start(self.threads(), self.connect(rank, world))
    }
}
