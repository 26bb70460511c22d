//! The network between hosts is cut, or is slow and loses packets. Each host is a network namespace with its own
//! address; a bridge in one more namespace connects them.

use std::{
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

use serde_json::Value;
use spdl_testkit::{
    processes::{ServerProcess, ctl, limit, run},
    skipped,
};

use super::{BEYOND_SLOTS, RATE, end_and_compare, endless, home};

/// The hosts by number: the coordinator's, two workers', a rank's. Their addresses begin at 10.77.0.1.
const HOSTS: [&str; 4] = ["coord", "worker-0", "worker-1", "rank"];
const COORDINATOR: &str = "10.77.0.1:7400";
const RANK: usize = 3;

/// The hosts and their network, deleted when dropped.
struct Lan {
    /// Prefix of the namespaces' names.
    name: String,
}

impl Lan {
    /// Creates the network; the error is the reason why namespaces cannot be created.
    fn build() -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let lan = Self { name: format!("spdl-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)) };
        let switch = lan.switch();
        ip(&["netns", "add", &switch])?;
        ip(&["-n", &switch, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "bridge", "up"])?;
        for host in 0..HOSTS.len() {
            let (space, port, address) = (lan.host(host), port(host), format!("10.77.0.{}/24", host + 1));
            ip(&["netns", "add", &space])?;
            ip(&["-n", &switch, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &space])?;
            ip(&["-n", &switch, "link", "set", &port, "master", "bridge", "up"])?;
            ip(&["-n", &space, "address", "add", &address, "dev", "eth0"])?;
            for link in ["lo", "eth0"] {
                ip(&["-n", &space, "link", "set", link, "up"])?;
            }
        }
        Ok(lan)
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.name)
    }

    fn host(&self, host: usize) -> String {
        format!("{}-{}", self.name, HOSTS[host])
    }

    /// Connects the host to the bridge, or disconnects it.
    fn plug(&self, host: usize, is_in: bool) {
        let state = if is_in { "up" } else { "down" };
        ip(&["-n", &self.switch(), "link", "set", &port(host), state]).expect("a cable");
    }

    /// Returns a command for `spdl-ctl` on a host. `ip netns exec` replaces itself with the program, so the process id
    /// is the program's.
    fn ctl(&self, host: usize, args: &[&str]) -> Command {
        let program = ctl();
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.host(host)])
            .arg(program.get_program())
            .args(program.get_args())
            .args(args);
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(std::process::Stdio::null()).env("SPDL_NODE", HOSTS[host]);
        command
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        for space in (0..HOSTS.len()).map(|host| self.host(host)).chain([self.switch()]) {
            // Deleting a namespace deletes its links. The error of a namespace that was not created does not matter.
            let _ = ip(&["netns", "delete", &space]);
        }
    }
}

fn port(host: usize) -> String {
    format!("port-{host}")
}

fn ip(args: &[&str]) -> Result<(), String> {
    tool("ip", args)
}

fn tool(name: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(name).args(args).output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

/// A cluster whose processes are on different hosts. The processes are dropped before the network.
struct Hosts {
    rank: ServerProcess,
    _servers: Vec<ServerProcess>,
    folder: tempfile::TempDir,
    lan: Lan,
}

impl Hosts {
    /// Starts all processes and waits for the rank's first samples.
    fn start(lan: Lan, job: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
        let coordinator = ["coord", "--listen", COORDINATOR, "--http", "127.0.0.1:0", "--liveness-ms", "1000"];
        let mut servers = vec![ServerProcess::spawn(lan.ctl(0, &coordinator).args(["--state", &path("state")]))];
        servers[0].line();
        for role in ["worker", "client", "admin"] {
            let ca = path("state/ca");
            let issue = ["cert", "--ca", &ca, "--out", &path(role), "--role", role, "--name", "test", "--json"];
            run(ctl().args(issue)).json();
        }
        let reach = |role: &str| [String::from("--coord"), COORDINATOR.into(), String::from("--certs"), path(role)];
        for host in [1, 2] {
            let listen = format!("10.77.0.{}:7402", host + 1);
            let worker = ["worker", "--listen", &listen, "--no-socket", "--cores", "1", "--memory", "256MiB"];
            let mut worker = lan.ctl(host, &worker);
            worker.args(["--name", HOSTS[host]]).args(reach("worker"));
            servers.push(ServerProcess::spawn(&mut worker));
            servers.last_mut().expect("one was pushed").line();
        }
        run(lan.ctl(RANK, &["job", "submit"]).arg(job).arg("--json").args(reach("admin"))).json();
        let pull = ["pull", "--job", "j", "--from", "0:0", "--rate", RATE, "--json", "--digest", "--progress"];
        let mut rank = ServerProcess::spawn(lan.ctl(RANK, &pull).args(reach("client")));
        rank.progress_to(1);
        Self { rank, _servers: servers, folder, lan }
    }

    /// Polls the coordinator's status, on its own host, until `holds` returns true for it.
    #[track_caller]
    fn wait_for(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        let certs = self.folder.path().join("admin");
        loop {
            let args = ["status", "--json", "--coord", COORDINATOR];
            let status = run(self.lan.ctl(0, &args).arg("--certs").arg(&certs)).json();
            if holds(&status) {
                return status;
            }
            assert!(started.elapsed() < limit(), "{what} did not come about: {status}");
        }
    }

    fn goes_on(&mut self) {
        let before = self.rank.progress_to(1);
        self.rank.progress_to(before + BEYOND_SLOTS);
    }
}

/// Returns a network, or prints the reason why there is none.
fn lan() -> Option<Lan> {
    Lan::build().inspect_err(|reason| skipped(format_args!("no network namespaces here: {reason}"))).ok()
}

#[test]
fn a_home_that_the_network_is_cut_from_is_left_for_another() {
    let Some(lan) = lan() else { return };
    let (_dataset, job) = endless();
    let mut hosts = Hosts::start(lan, &job);
    let seen = hosts.wait_for("a home", |status| home(status).is_some());
    let first = HOSTS.iter().position(|name| home(&seen) == Some(name)).expect("a worker of ours");
    hosts.lan.plug(first, false);
    hosts.wait_for("another home", |status| home(status) == Some(HOSTS[3 - first]));
    hosts.goes_on();
    hosts.lan.plug(first, true);
    hosts.wait_for("the worker's return", |status| status["workers"].as_array().unwrap().len() == 2);
    hosts.goes_on();
    let Hosts { rank, .. } = hosts;
    end_and_compare(rank, &job);
}

#[test]
fn a_coordinator_that_the_network_is_cut_from_stops_no_rank() {
    let Some(lan) = lan() else { return };
    let (_dataset, job) = endless();
    let mut hosts = Hosts::start(lan, &job);
    hosts.lan.plug(0, false);
    hosts.goes_on();
    hosts.lan.plug(0, true);
    hosts.wait_for("everyone", |status| {
        status["workers"].as_array().unwrap().len() == 2 && super::rank_status(status, 0)["is_alive"] == true
    });
    hosts.goes_on();
    let Hosts { rank, .. } = hosts;
    end_and_compare(rank, &job);
}

#[test]
fn a_rank_that_the_network_is_cut_from_goes_on_where_it_was() {
    let Some(lan) = lan() else { return };
    let (_dataset, job) = endless();
    let mut hosts = Hosts::start(lan, &job);
    hosts.lan.plug(RANK, false);
    hosts.wait_for("a silent rank", |status| super::rank_status(status, 0)["is_alive"] == false);
    hosts.lan.plug(RANK, true);
    hosts.goes_on();
    let Hosts { rank, .. } = hosts;
    end_and_compare(rank, &job);
}

#[test]
fn a_network_that_delays_and_loses_packets_changes_no_sample() {
    let Some(lan) = lan() else { return };
    let shape = ["qdisc", "add", "dev", "eth0", "root", "netem", "delay", "20ms", "5ms", "loss", "1%"];
    for host in 0..HOSTS.len() {
        let space = lan.host(host);
        if let Err(reason) = tool("tc", &[&["-n", &space], &shape[..]].concat()) {
            return skipped(format_args!("no netem here: {reason}"));
        }
    }
    let (_dataset, job) = endless();
    let mut hosts = Hosts::start(lan, &job);
    hosts.goes_on();
    let Hosts { rank, .. } = hosts;
    end_and_compare(rank, &job);
}
