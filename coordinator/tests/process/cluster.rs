//! A coordinator as a real process, and peers that talk to it over QUIC and HTTP.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;
use spdl_control::{
    Role,
    coordinator::testing,
    messages::{FromCoordinator, Home, RankHeartbeat, Session, ToCoordinator, WorkerHeartbeat},
};
use spdl_order::Receipt;
use spdl_shard::manifest::{BlockFacts, MANIFEST_NAME, ManifestBuilder, ShardFacts};
use spdl_testkit::{http, ports, processes::ServerProcess};
use spdl_types::Fingerprint;
use spdl_wire::{
    certs::{ClusterCa, LEAF_VALIDITY},
    quic::{self, QuicError, QuicSettings},
};

/// A generous time limit: it only matters when something hangs.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A running `spdl-coord`; killed when dropped.
pub(crate) struct CoordinatorProcess {
    process: ServerProcess,
    pub(crate) quic: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) state: PathBuf,
}

pub(crate) fn command(state: &Path, listen: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spdl-coord"));
    command.args(["--listen", listen, "--http", "127.0.0.1:0", "--state"]).arg(state).env_clear();
    command
}

/// Runs a coordinator that must not start, and returns its output.
pub(crate) fn refused(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    if !ready.is_empty() {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(ready.is_empty(), "it has started: {ready}");
    output
}

impl CoordinatorProcess {
    /// Starts a coordinator on free ports and waits until it is ready.
    pub(crate) fn start(state: &Path, more: &[&str]) -> Self {
        Self::start_at(state, &ports::lasting(), more)
    }

    pub(crate) fn start_at(state: &Path, listen: &str, more: &[&str]) -> Self {
        Self::spawn(command(state, listen).args(more))
    }

    /// Starts a coordinator whose log goes to a file.
    pub(crate) fn start_logged(state: &Path, more: &[&str], log: &Path) -> Self {
        Self::spawn(command(state, "127.0.0.1:0").args(more).stderr(std::fs::File::create(log).unwrap()))
    }

    /// Starts a coordinator from a [`command`] and waits until it is ready.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut process = ServerProcess::spawn(command);
        let ready = process.line();
        let address = |key: &str| ready[key].as_str().unwrap().parse().unwrap();
        let state = PathBuf::from(ready["state"].as_str().unwrap());
        Self { quic: address("quic"), http: address("http"), state, process }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Waits until the answer to `GET path` is as wanted.
    pub(crate) fn wait_get(&self, path: &str, wanted: impl Fn(u16, &str) -> bool) -> (u16, String) {
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            let (code, body) = self.get(path);
            if wanted(code, &body) {
                return (code, body);
            }
            assert!(Instant::now() < deadline, "{path} stays {code} {body}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits for the process to end and returns its exit code.
    pub(crate) fn wait(mut self) -> Option<i32> {
        self.process.wait().code()
    }

    pub(crate) fn kill(mut self) {
        self.process.kill();
    }

    /// Sends `GET path` and returns the status code and the body.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        http::get(self.http, path, TIME_LIMIT).unwrap()
    }

    pub(crate) fn status(&self) -> Value {
        let (code, body) = self.get("/status");
        assert_eq!(code, 200);
        serde_json::from_str(&body).unwrap()
    }

    /// Waits until the status is as wanted.
    pub(crate) fn wait_status(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            let status = self.status();
            if wanted(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "the status stays {status:#}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) async fn connect(&self, role: Role) -> TestPeer {
        self.try_connect(&self.state.join("ca"), role).await.unwrap()
    }

    pub(crate) async fn try_connect(&self, ca: &Path, role: Role) -> Result<TestPeer, QuicError> {
        let issued = ClusterCa::open_or_create(ca).unwrap().issue(role, "tester", &[], LEAF_VALIDITY).unwrap();
        let endpoint = quic::client_endpoint(&issued.identity().unwrap(), &QuicSettings::default())?;
        let connection = quic::connect(&endpoint, self.quic, Role::Coordinator, TIME_LIMIT).await?;
        Ok(TestPeer { connection, _endpoint: endpoint })
    }
}

/// A peer of the coordinator.
pub(crate) struct TestPeer {
    pub(crate) connection: quinn::Connection,
    _endpoint: quinn::Endpoint,
}

impl TestPeer {
    pub(crate) async fn ask(&self, request: ToCoordinator) -> FromCoordinator {
        quic::request(&self.connection, &request, TIME_LIMIT).await.unwrap()
    }

    /// Submits [`job_text`] under `name`.
    pub(crate) async fn submit(&self, name: &str, dataset: &Path) -> FromCoordinator {
        let toml = job_text(name, dataset);
        self.ask(ToCoordinator::SubmitJob { toml, origin: format!("{name}.toml") }).await
    }
}

pub(crate) fn job_text(name: &str, dataset: &Path) -> String {
    format!(
        "name = \"{name}\"\ndataset = \"{}\"\nglobal_batch = 8\nmax_bad_fraction = 0.1234567890123456789\n\
         [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n",
        dataset.display()
    )
}

/// Creates a dataset folder with a manifest of 1,000 samples and nothing else: the coordinator never reads a shard.
pub(crate) fn dataset(folder: &Path) -> PathBuf {
    let shard = ShardFacts {
        url: "train-00000.tar".to_owned(),
        bytes: 1 << 20,
        etag: None,
        records: 1_000,
        index_bytes: 100,
        index_hash: Fingerprint(9),
    };
    let block = BlockFacts { offset: 0, bytes: 1 << 20, first_record: 0, records: 1_000, samples: 1_000 };
    let mut builder = ManifestBuilder::new("tiny");
    builder.shard(&shard, &[block]).unwrap();
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join(MANIFEST_NAME), builder.finish().unwrap().bytes()).unwrap();
    folder.to_owned()
}

pub(crate) fn join(rank: u32, world: u32, nonce: u64) -> ToCoordinator {
    ToCoordinator::Join(testing::join(rank, world, nonce))
}

pub(crate) fn heartbeat(session: &Session, rank: u32, nonce: u64, offset: u64) -> ToCoordinator {
    let heartbeat = testing::heartbeat(session.id.0, rank, nonce, offset);
    let fingerprint = session.job.fingerprint();
    ToCoordinator::RankHeartbeat(RankHeartbeat {
        receipt: Receipt(u128::MAX - 7),
        waited_ms: 17,
        fingerprint,
        ..heartbeat
    })
}

pub(crate) fn worker(id: u64) -> ToCoordinator {
    let heartbeat = testing::worker(id, &format!("node-{id}"));
    let home = Home { quic: ([127, 0, 0, 1], id as u16).into(), ..heartbeat.home };
    ToCoordinator::WorkerHeartbeat(WorkerHeartbeat { home, cores: 2.0, ..heartbeat })
}
