//! `spdl-worker` as a process: its line when it is ready, its probes, its signals.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use spdl_wire::certs::{ClusterCa, LEAF_VALIDITY, Role};

const LONG: Duration = Duration::from_secs(60);

struct Process {
    child: Child,
    ready: serde_json::Value,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn certs(directory: &Path, role: Role) {
    let ca = ClusterCa::open_or_create(&directory.join("ca")).unwrap();
    ca.issue(role, "worker-0", &[], LEAF_VALIDITY).unwrap().write(&directory.join("certs")).unwrap();
}

fn command(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spdl-worker"));
    command
        .args(["--coord", "127.0.0.1:9", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--name", "seven"])
        .args(["--cores", "1"])
        .arg("--certs")
        .arg(directory.join("certs"))
        .arg("--socket")
        .arg(directory.join("worker.sock"))
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs `read` on a thread of its own, so that a process that says nothing fails the test instead of hanging it.
fn within_a_minute<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || done.send(read()));
    result.recv_timeout(LONG).expect("an answer within a minute")
}

fn start(directory: &Path) -> Process {
    let mut child = command(directory).spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    let line = within_a_minute(move || {
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        line
    });
    Process { child, ready: serde_json::from_str(&line).unwrap() }
}

fn http(process: &Process, path: &str) -> String {
    let mut stream = TcpStream::connect(process.ready["http"].as_str().unwrap()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn signal(process: &Process, signal: &str) {
    let pid = process.child.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
}

fn exit_code(mut process: Process) -> Option<i32> {
    within_a_minute(move || process.child.wait().unwrap().code())
}

#[test]
fn it_says_where_it_listens_answers_probes_and_leaves_on_sigterm() {
    let directory = tempfile::tempdir().unwrap();
    certs(directory.path(), Role::Worker);
    let process = start(directory.path());
    let socket = directory.path().join("worker.sock");
    assert_eq!(process.ready["name"], "seven");
    assert_eq!(process.ready["socket"], socket.to_str().unwrap());
    assert!(process.ready["quic"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(http(&process, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(http(&process, "/readyz").starts_with("HTTP/1.1 503"), "no coordinator has heard of it");
    let metrics = http(&process, "/metrics");
    for line in [
        "spdl_worker_coordinator_heard 0",
        "spdl_worker_stage_items_total{stage=\"decode\"} 0",
        "spdl_worker_pictures_total{decoder=\"crop\"} 0",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    signal(&process, "-TERM");
    assert_eq!(exit_code(process), Some(0));
    assert!(!socket.exists());
}

#[test]
fn after_kill_9_the_next_one_starts_on_the_same_socket() {
    let directory = tempfile::tempdir().unwrap();
    certs(directory.path(), Role::Worker);
    let killed = start(directory.path());
    signal(&killed, "-KILL");
    assert_eq!(exit_code(killed), None);
    let process = start(directory.path());
    signal(&process, "-INT");
    assert_eq!(exit_code(process), Some(0));
}

#[test]
fn what_is_wrong_is_named_with_a_hint() {
    let directory = tempfile::tempdir().unwrap();
    let said = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let error = said(&mut command(directory.path()));
    assert!(error.contains("certs") && error.contains("hint: `spdl-ctl cert`"), "{error}");
    certs(directory.path(), Role::Client);
    let error = said(&mut command(directory.path()));
    assert!(error.contains("is for a client, not for a worker"), "{error}");
    let error = said(command(directory.path()).env("SPDL_WORKER_MEMORY", "1MB"));
    assert!(error.contains("`--memory`") && error.contains("1000000 bytes"), "{error}");
    let error = said(command(directory.path()).args(["--cache-bytes", "12 parsecs"]));
    assert!(error.contains("--cache-bytes") && error.contains("parsecs"), "{error}");
}
