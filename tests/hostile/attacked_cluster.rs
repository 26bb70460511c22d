//! A cluster under attack: the attackers' endpoints, and the ranks that must finish in spite of them.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
};

use quinn::{Connection, Endpoint};
use spdl_control::{
    Role,
    messages::{Session, ToHome},
};
use spdl_job::JobFile;
use spdl_shard::manifest::{MANIFEST_NAME, Manifest, MetadataPlace};
use spdl_testkit::processes::{Cluster, LIMIT, TestDataset, ctl, resident_bytes, run};
use spdl_types::{Position, SessionId};
use spdl_wire::{
    certs::{ClusterCa, Identity, LEAF_VALIDITY},
    quic::{self, QuicSettings},
};
use tokio::runtime::Runtime;

/// Limit of the worker's memory: 256 MiB for slots and cache, and more for its code, stacks, the decoders' scratch and
/// connections that are not authenticated.
const WORKER_LIMIT_BYTES: u64 = (256 + 96) << 20;
const COORDINATOR_LIMIT_BYTES: u64 = 96 << 20;

/// A coordinator, a worker on node `node-0`, and a dataset.
pub(crate) struct AttackedCluster {
    pub(crate) runtime: Runtime,
    pub(crate) cluster: Cluster,
    dataset: TestDataset,
}

impl AttackedCluster {
    pub(crate) fn start() -> Self {
        let dataset = TestDataset::of_pictures(60, 20);
        let cluster = Cluster::start(1);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Self { runtime, cluster, dataset }
    }

    /// Returns the worker's QUIC address.
    pub(crate) fn worker(&self) -> SocketAddr {
        self.address(&self.cluster.workers[0].ready["quic"])
    }

    /// Returns the HTTP address of a worker.
    pub(crate) fn worker_http(&self, worker: usize) -> SocketAddr {
        self.address(&self.cluster.workers[worker].ready["http"])
    }

    pub(crate) fn coordinator(&self) -> SocketAddr {
        self.cluster.address.parse().expect("an address")
    }

    fn address(&self, value: &serde_json::Value) -> SocketAddr {
        value.as_str().expect("an address").parse().expect("an address")
    }

    /// Issues a certificate of this cluster.
    pub(crate) fn identity(&self, role: Role) -> Identity {
        let ca = ClusterCa::open(&self.cluster.path("state/ca")).unwrap();
        ca.issue(role, &format!("{role}-x"), &[], LEAF_VALIDITY).unwrap().identity().unwrap()
    }

    /// Creates a QUIC endpoint on the attackers' address.
    pub(crate) fn endpoint(&self, identity: &Identity) -> Endpoint {
        let _entered = self.runtime.enter();
        let listen = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0));
        quic::server_endpoint(listen, identity, &QuicSettings::default()).unwrap()
    }

    /// Connects to the worker as a client.
    pub(crate) async fn connect(&self, endpoint: &Endpoint) -> Connection {
        quic::connect(endpoint, self.worker(), Role::Worker, LIMIT).await.unwrap()
    }

    /// Runs two ranks, one over shared memory and one over QUIC, to the end of a job. Asserts that their receipts are
    /// the plan's and that both servers' memory is within its limit.
    #[track_caller]
    pub(crate) fn ranks_finish(&self, job: &str) {
        let file = self.dataset.job(job, "epochs = 2");
        self.cluster.submit(&file);
        let reports = self.cluster.pull_all(job, 2, &["node-0", "elsewhere"], &[]);
        assert_eq!([&reports[0]["transport"], &reports[1]["transport"]], ["local", "quic"]);
        let mut audit = ctl();
        audit.arg("audit").arg(&file);
        for report in &reports {
            audit.args(["--receipt", report["receipt"].as_str().expect("a receipt")]);
        }
        assert!(run(&mut audit).status.success(), "the receipts add up to the plan's: {reports:?}");
        let worker = resident_bytes(self.cluster.workers[0].process.pid());
        assert!(worker <= WORKER_LIMIT_BYTES, "the worker has {worker} bytes, {WORKER_LIMIT_BYTES} are allowed");
        let coordinator = resident_bytes(self.cluster.coordinator.as_ref().expect("it runs").pid());
        assert!(coordinator <= COORDINATOR_LIMIT_BYTES, "the coordinator has {coordinator} bytes");
    }

    /// Returns a session that no rank has joined through the coordinator. A home serves each client that presents a
    /// session.
    pub(crate) fn session(&self) -> Session {
        let file = self.dataset.job("shown", "epochs = 1000");
        let file = JobFile::parse(&fs::read_to_string(file).unwrap(), "shown.toml").unwrap();
        let manifest = fs::read(self.dataset.path("dataset").join(MetadataPlace::Hidden.path(MANIFEST_NAME))).unwrap();
        let job = file.freeze(&Manifest::open(manifest).unwrap().facts()).unwrap();
        Session { id: SessionId(99), world: 4, global_batch: job.global_batch, start: Position::START, job }
    }

    pub(crate) fn attach(&self, rank: u32, slots: u32) -> ToHome {
        let session = Box::new(self.session());
        ToHome::Attach { session, rank, from: Position::START, slots, client: "an attacker".into(), join_key: None }
    }
}
