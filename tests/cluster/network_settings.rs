//! The settings of QUIC reach all programs, and change nothing that a rank receives.

use std::{
    collections::HashSet,
    fs, thread,
    time::{Duration, Instant},
};

use spdl_testkit::processes::{Cluster, ServerProcess, TestDataset, ctl, limit, run, sum, undisturbed};

/// Settings for paths that are long, lossy, slow, or carry only small packets.
const SETTINGS: [&str; 4] = [
    "payload=1452,offload=off,ack-every=10,congestion=bbr,idle-timeout=9s,keep-alive=700ms",
    "stream-window=64KiB,connection-window=256KiB,socket-buffer=64KiB,initial-window=14720,congestion=new-reno",
    "initial-payload=1400,payload=16000",
    "connections=3",
];

#[test]
fn ranks_receive_the_same_whatever_the_settings_of_the_network() {
    let dataset = TestDataset::of_pictures(60, 20);
    let job = dataset.job("network", "epochs = 2");
    let received = |settings: &str, nodes: &[&str], transport: &str| {
        let cluster = Cluster::start_with(2, &[], vec![("SPDL_QUIC".into(), settings.into())]);
        cluster.submit(&job);
        let ranks = cluster.pull_all("network", 2, nodes, &["--from", "0:0"]);
        assert!(ranks.iter().all(|report| report["transport"] == transport), "{settings}: {ranks:?}");
        let samples: u64 = ranks.iter().map(|report| report["samples"].as_u64().expect("a count")).sum();
        assert_eq!(samples, 96, "{settings}: {ranks:?}");
        ["receipt", "content_digest"].map(|field| sum(&ranks, field))
    };
    let expected = received("", &["node-0", "node-1"], "local");
    for settings in SETTINGS {
        assert_eq!(received(settings, &["elsewhere"], "quic"), expected, "{settings}");
    }
}

#[test]
fn ranks_with_three_connections_lose_nothing_when_workers_are_killed() {
    let dataset = TestDataset::of_pictures(60, 20);
    let job = dataset.job("network", "epochs = 1000000");
    let mut cluster = Cluster::start_with(2, &[], vec![("SPDL_QUIC".into(), "connections=3".into())]);
    cluster.submit(&job);
    // Enough that no rank is done while a busy machine starts the workers again.
    let args = ["--steps", "150", "--from", "0:0", "--rate", "100", "--progress"];
    let pull = |rank| ServerProcess::spawn(&mut cluster.pull("network", rank, 2, "elsewhere", &args));
    let mut ranks = [0, 1].map(pull);
    for life in 0..4 {
        for rank in &mut ranks {
            rank.progress_to(120 * life + 1);
            await_endpoints(rank.pid(), 3);
        }
        let worker = (life % 2) as usize;
        cluster.workers[worker].process.kill();
        cluster.restart_worker(worker);
    }
    let reports = ranks.map(ServerProcess::finish);
    assert!(reports.iter().all(|report| report["transport"] == "quic"), "{reports:?}");
    let expected = undisturbed(&job, 150, &[]);
    for field in ["receipt", "content_digest"] {
        assert_eq!(expected[field], sum(&reports, field), "{field}");
    }
}

/// Returns how many UDP sockets of a process are not connected: those of endpoints.
fn endpoints(pid: u32) -> usize {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("the process is there").flatten();
    let targets: HashSet<String> =
        files.filter_map(|file| Some(fs::read_link(file.path()).ok()?.to_string_lossy().into_owned())).collect();
    let tables = ["udp", "udp6"].map(|table| fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default());
    let is_own = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(2).is_some_and(|remote| remote.chars().all(|digit| matches!(digit, '0' | ':')))
            && fields.get(9).is_some_and(|inode| targets.contains(&format!("socket:[{inode}]")))
    };
    tables.iter().flat_map(|table| table.lines()).filter(is_own).count()
}

/// Waits until a process has so many endpoints: while a rank moves to another home, it has some of both.
fn await_endpoints(pid: u32, count: usize) {
    let deadline = Instant::now() + limit();
    while endpoints(pid) != count {
        assert!(Instant::now() < deadline, "{} endpoints", endpoints(pid));
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_setting_of_the_network_that_cannot_be_meant_is_named_by_every_program() {
    let wrong = "offload=maybe";
    let expected = ["offload=maybe", "it has to be on or off"];
    for program in ["worker", "coord"] {
        let mut command = ctl();
        command.args([program, "--quic", wrong]);
        if program == "worker" {
            command.args(["--coord", "127.0.0.1:1", "--certs", "nowhere"]);
        }
        run(&mut command).error(&expected);
    }
    let mut pull = ctl();
    pull.args(["pull", "--coord", "127.0.0.1:1", "--job", "any", "--certs", "nowhere"]);
    run(pull.env("SPDL_QUIC", wrong)).error(&["SPDL_QUIC", expected[0], expected[1]]);
}
