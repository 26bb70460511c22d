//! Three coordinators on one etcd, with workers and ranks that have the addresses of all three.

use std::{
    fs,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;
use spdl_testkit::{
    etcd::EtcdProcess,
    http, ports,
    processes::{Cluster, LIMIT, ServerProcess, ctl, run},
};

/// Lease of the leader: short, to keep the tests short, but longer than a busy machine delays a process.
const LEASE_S: &str = "3";
/// Polling interval.
const LOOK: Duration = Duration::from_millis(50);

/// A cluster with three coordinators.
pub(crate) struct Coordinators {
    pub(crate) etcd: EtcdProcess,
    /// A cluster without a coordinator of its own; its address lists the three coordinators.
    pub(crate) cluster: Cluster,
    pub(crate) each: Vec<Replica>,
}

/// One of the three coordinators.
pub(crate) struct Replica {
    name: String,
    pub(crate) process: ServerProcess,
    pub(crate) quic: String,
    pub(crate) http: String,
}

impl Coordinators {
    /// Starts the coordinators, and workers on separate nodes; `None` if there is no etcd.
    pub(crate) fn start(workers: usize) -> Option<Self> {
        let etcd = EtcdProcess::start()?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let cluster = Cluster {
            folder,
            coordinator: None,
            address: String::new(),
            http: String::new(),
            workers: vec![],
            coordinator_args: vec![],
            environment: vec![],
        };
        for role in ["worker", "client", "admin"] {
            let mut cert = ctl();
            cert.arg("cert").arg("--ca").arg(cluster.path("ca")).arg("--out").arg(cluster.certs(role));
            run(cert.args(["--role", role, "--name", "test", "--json"])).json();
        }
        let mut all = Self { etcd, cluster, each: Vec::new() };
        for index in 0..3 {
            let coordinator = all.spawn(&format!("coord-{index}"), &ports::lasting(), &ports::lasting());
            all.each.push(coordinator);
        }
        all.cluster.address = all.each.iter().map(|one| one.quic.as_str()).collect::<Vec<_>>().join(",");
        for index in 0..workers {
            all.cluster.start_worker(&format!("node-{index}"), &[]);
        }
        Some(all)
    }

    fn spawn(&self, name: &str, listen: &str, http: &str) -> Replica {
        let mut command = ctl();
        command.args(["coord", "--listen", listen, "--http", http, "--name", name, "--lease-s", LEASE_S]);
        command.arg("--state").arg(format!("etcd://{}/test", self.etcd.address));
        command.arg("--ca").arg(self.cluster.path("ca"));
        let mut process = ServerProcess::spawn(&mut command);
        let ready = process.line();
        let address = |key: &str| ready[key].as_str().expect("an address").to_owned();
        Replica { name: name.to_owned(), quic: address("quic"), http: address("http"), process }
    }

    /// Restarts a coordinator that was killed, on the same addresses.
    pub(crate) fn restart(&mut self, at: usize) {
        let Replica { name, quic, http, .. } = &self.each[at];
        let again = self.spawn(name, quic, http);
        self.each[at] = again;
    }

    /// Waits until a coordinator leads and `holds` returns true for its status; returns its index.
    #[track_caller]
    pub(crate) fn wait_for_leader(&self, what: &str, mut holds: impl FnMut(&Value) -> bool) -> usize {
        let started = Instant::now();
        loop {
            if let Some(leader) = self.each.iter().position(|one| one.leads_and(&mut holds)) {
                return leader;
            }
            if started.elapsed() > LIMIT {
                let replies: Vec<_> =
                    self.each.iter().map(|one| (get(&one.http, "/readyz"), get(&one.http, "/status"))).collect();
                panic!("{what} did not come about: {replies:#?}");
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Replica {
    /// Suspends it with SIGSTOP and waits until all its threads are stopped.
    pub(crate) fn stop(&self) {
        self.process.signal(Signal::STOP);
        let threads = format!("/proc/{}/task", self.process.pid());
        let stands = |thread: fs::DirEntry| {
            fs::read_to_string(thread.path().join("status")).is_ok_and(|status| status.contains("\nState:\tT"))
        };
        wait_until("it stands still", || fs::read_dir(&threads).ok()?.flatten().all(stands).then_some(()));
    }

    fn leads_and(&self, mut holds: impl FnMut(&Value) -> bool) -> bool {
        let Some((200, body)) = get(&self.http, "/status") else { return false };
        let status: Value = serde_json::from_str(&body).expect("the status is JSON");
        status["leads"] == true && holds(&status)
    }
}

/// Calls `look` until it returns a value.
#[track_caller]
pub(crate) fn wait_until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < LIMIT, "{what} did not come about");
        std::thread::sleep(LOOK);
    }
}

/// Sends `GET path` and returns the status code and the body; `None` without a response in a second.
pub(crate) fn get(address: &str, path: &str) -> Option<(u16, String)> {
    http::get(address, path, Duration::from_secs(1)).ok()
}

/// Returns a check whether a status shows `count` workers.
pub(crate) fn has_workers(count: usize) -> impl Fn(&Value) -> bool {
    move |status| status["workers"].as_array().is_some_and(|workers| workers.len() == count)
}
