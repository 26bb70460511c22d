//! A coordinator, its workers and the ranks that pull from them; and the results that ranks should get.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{LIMIT, ServerProcess, TestDataset, ctl, limit, run, without_settings};
use crate::{http, ports};

/// A coordinator and its workers.
pub struct Cluster {
    /// The folder of the cluster's files; removed when dropped.
    pub folder: tempfile::TempDir,
    /// The coordinator, if it runs.
    pub coordinator: Option<ServerProcess>,
    /// The coordinator's QUIC address.
    pub address: String,
    /// The coordinator's HTTP address.
    pub http: String,
    /// The workers, in the order in which they were started.
    pub workers: Vec<WorkerProcess>,
    /// Additional arguments of the coordinator.
    pub coordinator_args: Vec<String>,
    /// Additional environment variables of all processes.
    pub environment: Vec<(String, String)>,
}

/// A worker and the arguments that it was started with.
pub struct WorkerProcess {
    /// The process.
    pub process: ServerProcess,
    /// The node that it is on.
    pub node: String,
    /// The path of its socket.
    pub socket: PathBuf,
    args: Vec<String>,
    /// The program, if it is not `spdl-ctl worker`.
    program: Option<PathBuf>,
    /// The line that it printed when it was ready.
    pub ready: Value,
}

impl Cluster {
    /// Starts a coordinator and `workers` workers, each on a node of its own: `node-0`, `node-1`, ...
    pub fn start(workers: usize) -> Self {
        Self::start_with(workers, &[], Vec::new())
    }

    /// Packs a number of pictures, so many in each shard, and starts a cluster that has a [job](TestDataset::job) on them.
    pub fn with_job(workers: usize, [pictures, per_shard]: [u64; 2], name: &str, keys: &str) -> (TestDataset, Self) {
        let dataset = TestDataset::of_pictures(pictures, per_shard);
        let cluster = Self::start(workers);
        cluster.submit(&dataset.job(name, keys));
        (dataset, cluster)
    }

    /// Starts a cluster with additional arguments of the coordinator and environment variables of all processes.
    pub fn start_with(workers: usize, coordinator_args: &[&str], environment: Vec<(String, String)>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut cluster = Self {
            folder,
            coordinator: None,
            address: ports::lasting(),
            http: ports::lasting(),
            workers: vec![],
            coordinator_args: coordinator_args.iter().map(|arg| (*arg).to_owned()).collect(),
            environment,
        };
        cluster.start_coordinator();
        for role in ["worker", "client", "admin"] {
            let mut cert = ctl();
            cert.arg("cert").arg("--ca").arg(cluster.path("state/ca")).arg("--out").arg(cluster.certs(role));
            run(cert.args(["--role", role, "--name", "test", "--json"])).json();
        }
        for index in 0..workers {
            cluster.start_worker(&format!("node-{index}"), &[]);
        }
        cluster
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the folder with the certificate of `role`.
    pub fn certs(&self, role: &str) -> PathBuf {
        self.path("certs").join(role)
    }

    /// Starts the coordinator; a restart uses the same addresses.
    pub fn start_coordinator(&mut self) {
        let mut command = self.command();
        command.args(["coord", "--listen", &self.address, "--http", &self.http, "--state"]).arg(self.path("state"));
        command.args(&self.coordinator_args);
        let mut process = ServerProcess::spawn(&mut command);
        let ready = process.line();
        self.address = ready["quic"].as_str().expect("an address").to_owned();
        self.http = ready["http"].as_str().expect("an address").to_owned();
        self.coordinator = Some(process);
    }

    /// Starts a worker on `node`, with one core and 256 MiB; `further` arguments override these.
    pub fn start_worker(&mut self, node: &str, further: &[&str]) -> &mut WorkerProcess {
        let socket = self.path(format!("{}.sock", self.workers.len()));
        self.start_worker_on(node, &socket, further)
    }

    /// Starts a worker as [`start_worker`](Self::start_worker) does, with its socket at a given path.
    pub fn start_worker_on(&mut self, node: &str, socket: &Path, further: &[&str]) -> &mut WorkerProcess {
        self.start_program(None, node, socket, further)
    }

    /// Starts a worker as [`start_worker`](Self::start_worker) does, but as the program at a given path.
    pub fn start_worker_of(&mut self, program: &Path, node: &str, further: &[&str]) -> &mut WorkerProcess {
        let socket = self.path(format!("{}.sock", self.workers.len()));
        self.start_program(Some(program), node, &socket, further)
    }

    fn start_program(
        &mut self,
        program: Option<&Path>,
        node: &str,
        socket: &Path,
        further: &[&str],
    ) -> &mut WorkerProcess {
        let args: Vec<String> = further.iter().map(|arg| (*arg).to_owned()).collect();
        let (process, ready) = self.worker_process(program, node, socket, &args);
        let (program, node, socket) = (program.map(Path::to_owned), node.to_owned(), socket.to_owned());
        self.workers.push(WorkerProcess { process, node, socket, args, program, ready });
        self.workers.last_mut().expect("one was pushed")
    }

    /// Starts a worker that has ended again, with the same arguments.
    pub fn restart_worker(&mut self, index: usize) {
        let WorkerProcess { node, socket, args, program, .. } = &self.workers[index];
        let (process, ready) = self.worker_process(program.as_deref(), node, socket, args);
        let worker = &mut self.workers[index];
        (worker.process, worker.ready) = (process, ready);
    }

    /// Returns a command for `spdl-ctl` with this cluster's environment variables.
    fn command(&self) -> Command {
        let mut command = ctl();
        command.envs(self.environment.iter().cloned());
        command
    }

    fn worker_process(
        &self,
        program: Option<&Path>,
        node: &str,
        socket: &Path,
        further: &[String],
    ) -> (ServerProcess, Value) {
        let mut command = program.map_or_else(ctl, |program| without_settings(Command::new(program)));
        command.envs(self.environment.iter().cloned());
        if program.is_none() {
            command.arg("worker");
        }
        command.args(["--coord", &self.address, "--http", "127.0.0.1:0"]);
        command
            .args(["--name", node])
            .env("SPDL_WORKER_LISTEN", "127.0.0.1:0")
            .env("SPDL_WORKER_CORES", "1")
            .env("SPDL_WORKER_MEMORY", "256MiB");
        command.arg("--certs").arg(self.certs("worker")).arg("--socket").arg(socket).args(further);
        command.env("SPDL_NODE", node);
        let mut process = ServerProcess::spawn(&mut command);
        let ready = process.line();
        (process, ready)
    }

    /// Returns the sum of a metric over all workers.
    pub fn metric(&self, name: &str) -> f64 {
        let of = |address: &Value| {
            let (_, text) = http::get(address.as_str().expect("an address"), "/metrics", LIMIT).expect("metrics");
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).parse::<f64>().expect("a number")
        };
        self.workers.iter().map(|worker| of(&worker.ready["http"])).sum()
    }

    /// Returns a command for `spdl-ctl` with this cluster's address and the certificates of `role`.
    pub fn ctl<I: AsRef<OsStr>>(&self, role: &str, args: impl IntoIterator<Item = I>) -> Command {
        let mut command = self.command();
        command.args(args).args(["--coord", &self.address]).arg("--certs").arg(self.certs(role));
        command
    }

    /// Submits a job file.
    #[track_caller]
    pub fn submit(&self, job: &Path) {
        run(self.ctl("admin", ["job", "submit"]).arg(job).arg("--json")).json();
    }

    /// Returns a command for a rank on `node` that pulls `job`. All ranks have the same launch id, as under a launcher
    /// that restarts the trainer.
    pub fn pull(&self, job: &str, rank: u32, world: u32, node: &str, further: &[&str]) -> Command {
        let mut command = self.ctl("client", ["pull", "--json", "--digest", "--job", job]);
        command.args(["--rank", &rank.to_string(), "--world", &world.to_string()]).args(further).env("SPDL_NODE", node);
        command.env("SPDL_LAUNCH_ID", "test");
        command
    }

    /// Runs all ranks of one launch to their end and returns their reports.
    #[track_caller]
    pub fn pull_all(&self, job: &str, world: u32, nodes: &[&str], further: &[&str]) -> Vec<Value> {
        let start = |rank: u32| {
            let node = nodes[rank as usize % nodes.len()];
            ServerProcess::spawn(&mut self.pull(job, rank, world, node, further))
        };
        let ranks: Vec<ServerProcess> = (0..world).map(start).collect();
        ranks.into_iter().map(ServerProcess::finish).collect()
    }

    /// Returns the status that the coordinator reports.
    #[track_caller]
    pub fn status(&self) -> Value {
        run(self.ctl("admin", ["status"]).arg("--json")).json()
    }

    /// Polls the status until `holds` returns true for it.
    #[track_caller]
    pub fn wait_for(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let status = self.status();
            if holds(&status) {
                return status;
            }
            assert!(started.elapsed() < limit(), "{what} did not come about: {status}");
            // Each look starts a process with a handshake, which takes CPU time from the processes under test.
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Replays the first steps of a job without a cluster and returns the report: what a run without faults delivers.
pub fn undisturbed(job: &Path, steps: u64, further: &[&str]) -> Value {
    let mut replay = ctl();
    replay.arg("replay").arg(job).args(["--from", "0:0", "--steps", &steps.to_string(), "--json"]).args(further);
    run(&mut replay).json()
}

/// Adds up a 128-bit digest over the ranks' reports.
#[track_caller]
pub fn sum(reports: &[Value], field: &str) -> String {
    let digest = |report: &Value| u128::from_str_radix(report[field].as_str().expect("a digest"), 16).expect("hex");
    format!("{:032x}", reports.iter().map(digest).fold(0, u128::wrapping_add))
}
