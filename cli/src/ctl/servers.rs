//! A coordinator and workers on this machine, for the demo and `dev`. Each runs this program with another subcommand,
//! and ends with this process.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use spdl_control::Role;
use spdl_wire::quic::QuicSettings;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use super::{CtlError, cert, coordinator::Connection};

/// Any free port of this machine.
pub(super) const ANY_PORT: &str = "127.0.0.1:0";
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The time that the workers together get to stop, and then the coordinator.
const STOP_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Lines of a server's log that are shown.
const SHOWN_LINES: usize = 12;
/// Maximum bytes of a log that are read to find these lines.
const LOG_END_BYTES: u64 = 64 << 10;

/// The line that a server prints once it serves.
#[derive(Debug, Deserialize)]
pub(super) struct ServerReady {
    pub(super) quic: String,
    #[serde(default)]
    pub(super) http: Option<String>,
    #[serde(default)]
    pub(super) socket: Option<String>,
}

/// Where servers write their logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerLogs {
    /// To this process's standard error.
    Inherited,
    /// To a file for each server, in the folder.
    Files,
}

/// A server process. Killed when dropped.
struct LocalServer {
    name: String,
    child: Child,
    /// Kept open, so that the process never writes into a closed pipe.
    _output: Lines<BufReader<ChildStdout>>,
}

/// The running servers.
pub(super) struct LocalCluster {
    folder: PathBuf,
    logs: ServerLogs,
    coordinator: ServerReady,
    servers: Vec<LocalServer>,
}

/// This program, which ends with its parent.
pub(super) fn program() -> Result<Command, CtlError> {
    let mut command = Command::new(std::env::current_exe().map_err(CtlError::Runtime)?);
    command.arg("--die-with-parent").stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    Ok(command)
}

impl LocalCluster {
    /// Starts the coordinator with its state under `folder`, and makes a certificate for each other role, which names
    /// `owner`. Its page is at the address `page`.
    pub(super) async fn start_coordinator(
        folder: &Path,
        logs: ServerLogs,
        owner: &str,
        page: &str,
    ) -> Result<Self, CtlError> {
        let coordinator = ServerReady { quic: String::new(), http: None, socket: None };
        let mut cluster = Self { folder: folder.to_owned(), logs, coordinator, servers: Vec::new() };
        let mut command = program()?;
        command.args(["coord", "--listen", ANY_PORT, "--http", page, "--state"]);
        command.arg(folder.join("coordinator"));
        cluster.coordinator = cluster.start("coordinator", command).await?;
        let ca = folder.join("coordinator").join("ca");
        for role in [Role::Worker, Role::Client, Role::Admin] {
            cert::issue(&ca, role, owner, &cluster.certs(role))?;
        }
        Ok(cluster)
    }

    /// Starts a worker; `set` adds its arguments.
    pub(super) async fn start_worker(
        &mut self,
        name: &str,
        set: impl FnOnce(&mut Command),
    ) -> Result<ServerReady, CtlError> {
        let mut command = program()?;
        command.args(["worker", "--name", name, "--coord", &self.coordinator.quic, "--listen", ANY_PORT]);
        command.args(["--http", ANY_PORT, "--certs"]).arg(self.certs(Role::Worker));
        command.arg("--socket").arg(self.folder.join(format!("{name}.sock")));
        set(&mut command);
        self.start(name, command).await
    }

    async fn start(&mut self, name: &str, mut command: Command) -> Result<ServerReady, CtlError> {
        let failed = |cause: String| CtlError::Start { name: name.to_owned(), cause };
        let log = (self.logs == ServerLogs::Files).then(|| self.folder.join(format!("{name}.log")));
        if let Some(path) = &log {
            let file = File::create(path).map_err(|source| CtlError::WriteFile { path: path.clone(), source })?;
            command.stderr(file);
        }
        let messages = || match &log {
            Some(path) => format!("the end of `{}`:\n{}", path.display(), last_lines(path, SHOWN_LINES)),
            None => "its messages are above".to_owned(),
        };
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let mut output = BufReader::new(child.stdout.take().expect("standard output is a pipe")).lines();
        let line = timeout(START_TIMEOUT, output.next_line())
            .await
            .map_err(|_| failed(format!("it was not ready after {} s; {}", START_TIMEOUT.as_secs(), messages())))?
            .map_err(|error| failed(error.to_string()))?
            .ok_or_else(|| failed(format!("it ended; {}", messages())))?;
        let ready = serde_json::from_str(&line)
            .map_err(|error| failed(format!("its line `{line}` is not what was expected: {error}")))?;
        self.servers.push(LocalServer { name: name.to_owned(), child, _output: output });
        Ok(ready)
    }

    /// The coordinator's QUIC address.
    pub(super) fn coordinator_addr(&self) -> &str {
        &self.coordinator.quic
    }

    /// The address of the coordinator's page.
    pub(super) fn page_addr(&self) -> Option<&str> {
        self.coordinator.http.as_deref()
    }

    /// Folder of the certificates of `role`.
    pub(super) fn certs(&self, role: Role) -> PathBuf {
        self.folder.join("certs").join(role.to_string())
    }

    /// How to reach the coordinator as `role`.
    pub(super) fn connection(&self, role: Role) -> Connection {
        Connection {
            coord: Some(self.coordinator.quic.parse().expect("the coordinator has printed where it listens")),
            certs: Some(self.certs(role)),
            quic: QuicSettings::default(),
        }
    }

    /// Ends the process `name` with SIGKILL, as the kernel does when memory runs out.
    pub(super) fn kill(&self, name: &str) -> Result<(), CtlError> {
        let server = self.servers.iter().find(|server| server.name == name).expect("it was started");
        server.signal(Signal::KILL).map_err(|error| CtlError::Runtime(error.into()))
    }

    /// Waits until a server ends by itself, and returns its name and status.
    pub(super) async fn ended(&mut self) -> (String, std::io::Result<ExitStatus>) {
        let ends = self
            .servers
            .iter_mut()
            .map(|server| Box::pin(async move { (server.name.clone(), server.child.wait().await) }));
        futures::future::select_all(ends).await.0
    }

    /// Asks every process to end, workers first, and waits.
    pub(super) async fn stop(mut self) {
        let (coordinator, workers) = self.servers.split_at_mut(1);
        for servers in [workers, coordinator] {
            servers.iter().for_each(LocalServer::ask_to_end);
            let all_end = futures::future::join_all(servers.iter_mut().map(|server| server.child.wait()));
            let ended = timeout(STOP_TIMEOUT, all_end).await.is_ok();
            for server in servers.iter_mut().filter(|_| !ended) {
                let _ = server.child.kill().await;
            }
        }
    }
}

/// Returns the last lines of a log, at most so many.
pub(super) fn last_lines(path: &Path, lines_max: usize) -> String {
    let text = log_end(path).unwrap_or_else(|error| format!("({error})"));
    let lines: Vec<&str> = text.lines().map(|line| line.strip_prefix("error: ").unwrap_or(line)).collect();
    lines[lines.len().saturating_sub(lines_max)..].join("\n")
}

/// Returns the last [`LOG_END_BYTES`] of a log, which may have grown for weeks.
fn log_end(path: &Path) -> std::io::Result<String> {
    let mut log = File::open(path)?;
    let bytes = log.metadata()?.len();
    log.seek(SeekFrom::Start(bytes.saturating_sub(LOG_END_BYTES)))?;
    let mut end = Vec::new();
    log.take(LOG_END_BYTES).read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

impl LocalServer {
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
