//! The demo's processes: one coordinator and its workers, each this very program under another name.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use spdl_core::Role;
use spdl_wire::quic::QuicSettings;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::ctl::{CtlError, coordinator::Connection};

const START_TIMEOUT: Duration = Duration::from_secs(20);
/// For the workers together, and for the coordinator.
const STOP_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Memory of one demo worker: slots and block cache.
const WORKER_MEMORY: &str = "192MiB";

/// The line that a server prints once it serves.
#[derive(Debug, Deserialize)]
pub(super) struct ClusterReady {
    pub(super) quic: String,
    #[serde(default)]
    pub(super) socket: Option<String>,
}

/// A server process. Killed when dropped.
struct DemoProcess {
    name: String,
    child: Child,
    /// Kept open, so that the process never writes into a closed pipe.
    _output: Lines<BufReader<ChildStdout>>,
}

/// The running processes.
pub(super) struct DemoCluster {
    folder: PathBuf,
    coordinator_addr: String,
    servers: Vec<DemoProcess>,
}

/// This program, which ends with its parent.
pub(super) fn program() -> Result<Command, CtlError> {
    let mut command = Command::new(std::env::current_exe().map_err(CtlError::Runtime)?);
    command.arg("--die-with-parent").stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    Ok(command)
}

impl DemoCluster {
    /// Starts the coordinator with its state under `folder`.
    pub(super) async fn start_coordinator(folder: &Path) -> Result<Self, CtlError> {
        let mut cluster = Self { folder: folder.to_owned(), coordinator_addr: String::new(), servers: Vec::new() };
        let mut command = program()?;
        command.args(["coord", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--state"]);
        command.arg(folder.join("coordinator"));
        cluster.coordinator_addr = cluster.start("coordinator", command).await?.quic;
        Ok(cluster)
    }

    /// Starts a worker on the node that is named `node`.
    pub(super) async fn start_worker(&mut self, name: &str, node: &str) -> Result<ClusterReady, CtlError> {
        let mut command = program()?;
        command.args(["worker", "--name", name, "--coord", &self.coordinator_addr, "--listen", "127.0.0.1:0"]);
        command.args(["--http", "127.0.0.1:0", "--cores", "1", "--memory", WORKER_MEMORY]);
        command.arg("--certs").arg(self.certs(Role::Worker));
        command.arg("--socket").arg(self.folder.join(format!("{name}.sock")));
        command.env("SPDL_NODE", node);
        self.start(name, command).await
    }

    async fn start(&mut self, name: &str, mut command: Command) -> Result<ClusterReady, CtlError> {
        let failed = |cause: String| CtlError::Start { name: name.to_owned(), cause };
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let mut output = BufReader::new(child.stdout.take().expect("standard output is a pipe")).lines();
        let line = timeout(START_TIMEOUT, output.next_line())
            .await
            .map_err(|_| failed(format!("it was not ready after {} s", START_TIMEOUT.as_secs())))?
            .map_err(|error| failed(error.to_string()))?
            .ok_or_else(|| failed("it ended; see its messages above".to_owned()))?;
        let ready = serde_json::from_str(&line)
            .map_err(|error| failed(format!("its line `{line}` is not what was expected: {error}")))?;
        self.servers.push(DemoProcess { name: name.to_owned(), child, _output: output });
        Ok(ready)
    }

    /// The coordinator's QUIC address.
    pub(super) fn coordinator_addr(&self) -> &str {
        &self.coordinator_addr
    }

    /// Folder of the CA that the coordinator made.
    pub(super) fn ca(&self) -> PathBuf {
        self.folder.join("coordinator").join("ca")
    }

    /// Folder of the certificates of `role`.
    pub(super) fn certs(&self, role: Role) -> PathBuf {
        self.folder.join("certs").join(role.to_string())
    }

    /// How to reach the coordinator as `role`.
    pub(super) fn connection(&self, role: Role) -> Connection {
        Connection {
            coord: self.coordinator_addr.parse().expect("the coordinator has printed where it listens"),
            certs: self.certs(role),
            quic: QuicSettings::default(),
        }
    }

    /// Ends the process `name` with SIGKILL, as the kernel does when memory runs out.
    pub(super) fn kill(&self, name: &str) -> Result<(), CtlError> {
        let server = self.servers.iter().find(|server| server.name == name).expect("it was started");
        server.signal(Signal::KILL).map_err(|error| CtlError::Runtime(error.into()))
    }

    /// Asks every process to end, workers first, and waits.
    pub(super) async fn stop(mut self) {
        let (coordinator, workers) = self.servers.split_at_mut(1);
        for servers in [workers, coordinator] {
            servers.iter().for_each(DemoProcess::ask_to_end);
            let all_end = futures::future::join_all(servers.iter_mut().map(|server| server.child.wait()));
            let ended = timeout(STOP_TIMEOUT, all_end).await.is_ok();
            for server in servers.iter_mut().filter(|_| !ended) {
                let _ = server.child.kill().await;
            }
        }
    }
}

impl DemoProcess {
    fn ask_to_end(&self) {
        // Fails only when the process is gone already.
        let _ = self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        match self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
            Some(pid) => kill_process(pid, signal),
            None => Ok(()),
        }
    }
}
