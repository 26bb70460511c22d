//! After SIGKILL of any process, nothing it left behind disturbs the next one. A suspended trainer costs no memory.

use std::{collections::BTreeSet, fs, time::Duration};

use rustix::process::Signal;
use spdl_testkit::processes::{Cluster, ServerProcess, resident_bytes, run, sum};

fn shared_memory() -> BTreeSet<String> {
    let names = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(|name| name.contains("spdl")).collect()
}

/// Returns the files of the cluster's folder that may be locks or leftovers.
fn leftovers(cluster: &Cluster) -> Vec<String> {
    let names = fs::read_dir(cluster.folder.path()).unwrap().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("lock") || name.contains("tmp")).collect()
}

#[test]
fn a_killed_worker_and_coordinator_restart_on_the_same_addresses() {
    let (_dataset, mut cluster) = Cluster::with_job(1, [60, 20], "kill", "");
    let before = cluster.pull_all("kill", 2, &["node-0"], &["--from", "0:0"]);

    let socket = cluster.workers[0].socket.clone();
    cluster.workers[0].process.kill();
    cluster.coordinator.as_mut().unwrap().kill();
    assert!(socket.exists(), "kill -9 leaves the socket's file; it must not block the next worker");
    cluster.start_coordinator();
    cluster.start_worker_on("node-0", &socket, &[]);

    let after = cluster.pull_all("kill", 2, &["node-0"], &["--from", "0:0"]);
    assert!(after.iter().all(|report| report["transport"] == "local"), "{after:?}");
    assert_eq!(sum(&before, "content_digest"), sum(&after, "content_digest"));
    assert!(shared_memory().is_empty(), "{:?}", shared_memory());
    assert!(leftovers(&cluster).is_empty(), "{:?}", leftovers(&cluster));
}

#[test]
fn a_killed_trainer_gives_its_slots_back_at_once() {
    let (_dataset, cluster) = Cluster::with_job(1, [60, 20], "trainer", "epochs = 1000000");
    for node in ["node-0", "elsewhere"] {
        let mut rank = ServerProcess::spawn(&mut cluster.pull("trainer", 0, 1, node, &["--progress"]));
        assert!(rank.line()["progress"].is_u64());
        rank.kill();
        cluster.wait_for("a worker without ranks", |status| {
            status["workers"][0]["ranks"].as_array().is_some_and(Vec::is_empty)
        });
    }
    assert!(shared_memory().is_empty(), "{:?}", shared_memory());
}

#[test]
fn a_second_worker_on_a_socket_in_use_is_refused_by_name() {
    let cluster = Cluster::start(1);
    let socket = cluster.workers[0].socket.clone();
    let mut second = cluster.ctl("worker", ["worker", "--listen", "127.0.0.1:0"]);
    run(second.arg("--socket").arg(&socket)).error(&[socket.to_str().unwrap(), "hint:"]);
}

#[test]
fn a_second_coordinator_on_a_state_in_use_is_refused_by_name() {
    let cluster = Cluster::start(0);
    let mut second = spdl_testkit::processes::ctl();
    second.args(["coord", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--state"]).arg(cluster.path("state"));
    run(&mut second).error(&["state", "hint:"]);
}

/// Limit of the worker's memory: 256 MiB for slots and cache, and more for its code, stacks and the decoders' scratch.
const WORKER_LIMIT_BYTES: u64 = (256 + 96) << 20;

#[test]
fn memory_stays_within_the_budget_while_the_trainer_is_stopped() {
    let (_dataset, cluster) = Cluster::with_job(1, [400, 100], "stopped", "epochs = 1000000");
    let mut ranks: Vec<ServerProcess> = ["node-0", "elsewhere"]
        .iter()
        .enumerate()
        .map(|(rank, node)| ServerProcess::spawn(&mut cluster.pull("stopped", rank as u32, 2, node, &["--progress"])))
        .collect();
    for rank in &mut ranks {
        assert!(rank.line()["progress"].is_u64());
        rank.signal(Signal::STOP);
    }
    // The test observes memory for a minute; it does not wait for an event.
    let worker = cluster.workers[0].process.pid();
    let mut most = 0;
    for _ in 0..60 {
        std::thread::sleep(Duration::from_secs(1));
        most = most.max(resident_bytes(worker));
    }
    assert!(most <= WORKER_LIMIT_BYTES, "{most} bytes resident, {WORKER_LIMIT_BYTES} allowed");
    for rank in &ranks {
        rank.signal(Signal::CONT);
    }
    for rank in &mut ranks {
        assert!(rank.line()["progress"].is_u64(), "the trainer goes on");
    }
}
