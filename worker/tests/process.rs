//! Tests of `spdl-worker` as a process: its ready line, its probes, its signals.

use std::{
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::Signal;
use spdl_control::Role;
use spdl_testkit::{LONG, http, processes::ServerProcess};
use spdl_wire::certs::{ClusterCa, LEAF_VALIDITY};

/// A worker that has printed its ready line.
struct ReadyWorker {
    process: ServerProcess,
    ready: serde_json::Value,
}

impl ReadyWorker {
    fn spawn(command: &mut Command) -> Self {
        let mut process = ServerProcess::spawn(command);
        Self { ready: process.line(), process }
    }

    fn start(directory: &Path) -> Self {
        Self::spawn(&mut command(directory))
    }

    /// Sends `GET path` and returns the status code and the body.
    fn get(&self, path: &str) -> (u16, String) {
        http::get(self.ready["http"].as_str().unwrap(), path, LONG).unwrap()
    }

    /// Sends a signal and returns the exit code.
    fn end(mut self, signal: Signal) -> Option<i32> {
        self.process.signal(signal);
        self.process.wait().code()
    }
}

fn certs(directory: &Path, role: Role) {
    let ca = ClusterCa::open_or_create(&directory.join("ca")).unwrap();
    ca.issue(role, "worker-0", &[], LEAF_VALIDITY).unwrap().write(&directory.join("certs")).unwrap();
}

fn command(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spdl-worker"));
    command
        .args(["--coord", "127.0.0.1:9", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--cores", "1"])
        .env_clear()
        .env("SPDL_WORKER_NAME", "seven")
        .arg("--certs")
        .arg(directory.join("certs"))
        .arg("--socket")
        .arg(directory.join("worker.sock"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Returns the error output of a worker that must not start.
fn refused(command: &mut Command) -> String {
    let mut child = command.spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    if !ready.is_empty() {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(ready.is_empty() && !output.status.success(), "it has started: {ready}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn it_prints_where_it_listens_answers_probes_and_leaves_on_sigterm() {
    let directory = tempfile::tempdir().unwrap();
    certs(directory.path(), Role::Worker);
    let process = ReadyWorker::start(directory.path());
    let socket = directory.path().join("worker.sock");
    assert_eq!(process.ready["name"], "seven");
    assert_eq!(process.ready["socket"], socket.to_str().unwrap());
    assert!(process.ready["quic"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(process.get("/healthz").0, 200);
    assert_eq!(process.get("/readyz").0, 503, "it has reached no coordinator");
    let metrics = process.get("/metrics").1;
    for line in [
        "spdl_worker_coordinator_up 0",
        "spdl_worker_stage_items_total{stage=\"decode\"} 0",
        "spdl_worker_pictures_total{decoder=\"crop\"} 0",
        "spdl_worker_video_packets_total 0",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    assert_eq!(process.end(Signal::TERM), Some(0));
    assert!(!socket.exists());
}

#[test]
fn after_kill_9_the_next_one_starts_on_the_same_socket() {
    let directory = tempfile::tempdir().unwrap();
    certs(directory.path(), Role::Worker);
    let killed = ReadyWorker::start(directory.path());
    assert_eq!(killed.end(Signal::KILL), None);
    let process = ReadyWorker::start(directory.path());
    assert_eq!(process.end(Signal::INT), Some(0));
}

#[test]
fn what_is_wrong_is_named_with_a_hint() {
    let directory = tempfile::tempdir().unwrap();
    let error = refused(&mut command(directory.path()));
    assert!(error.contains("certs") && error.contains("hint: `spdl-ctl cert`"), "{error}");
    certs(directory.path(), Role::Client);
    let error = refused(&mut command(directory.path()));
    assert!(error.contains("is for a client, not for a worker"), "{error}");
    certs(directory.path(), Role::Worker);
    for (flags, parts) in [
        (["--name", "../../etc/x"], ["`--name`", "../../etc/x"]),
        (["--ranks", "0"], ["`--ranks`", "1 or more"]),
        (["--advertise", "0.0.0.0:0"], ["`--advertise`", "any address or port"]),
        (["--advertise", "127.0.0.1:0"], ["`--advertise`", "any address or port"]),
        (["--stores", ""], ["--stores", "an entry is empty"]),
        (["--stores", " "], ["--stores", "an entry is empty"]),
        (["--stores", "s3://mine,,"], ["--stores", "an entry is empty"]),
        (["--cache-dir", "/dev/null"], ["`--cache-dir`", "`/dev/null` is not a folder"]),
    ] {
        let error = refused(command(directory.path()).args(flags));
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    for (name, value) in [("AWS_ENDPOINT", "minio:9000"), ("AWS_SECRET_ACCESS_KEY", "one\ntwo")] {
        let error = refused(command(directory.path()).env(name, value));
        assert!(error.contains(name) && error.contains("hint: ") && !error.contains("two"), "{error}");
    }
    let error = refused(command(directory.path()).env("SPDL_STORES", ""));
    assert!(error.contains("--stores") && error.contains("leave the option out to allow every place"), "{error}");
    let error = refused(command(directory.path()).env("SPDL_WORKER_MEMORY", "1MB"));
    assert!(error.contains("`--memory`") && error.contains("1000000 bytes"), "{error}");
    let error = refused(command(directory.path()).args(["--cache-bytes", "12 parsecs"]));
    assert!(error.contains("--cache-bytes") && error.contains("parsecs"), "{error}");
}

/// Returns a worker's command line without a socket.
fn command_without_socket(directory: &Path) -> Command {
    let whole = command(directory);
    let mut command = Command::new(whole.get_program());
    let is_socket = |arg: &&std::ffi::OsStr| *arg != "--socket" && !arg.to_string_lossy().ends_with("worker.sock");
    command.args(whole.get_args().filter(is_socket)).env_clear().env("TMPDIR", directory);
    command.env("SPDL_WORKER_NAME", "seven").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn its_socket_is_in_a_folder_of_its_user_even_if_another_user_made_one_first() {
    let directory = tempfile::tempdir().unwrap();
    certs(directory.path(), Role::Worker);
    let private = |process: &ReadyWorker| {
        let socket = std::path::PathBuf::from(process.ready["socket"].as_str().unwrap());
        let folder = socket.parent().unwrap().to_owned();
        let mode = std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777;
        assert_eq!((socket.file_name().unwrap().to_str(), mode), (Some("seven.sock"), 0o700));
        folder
    };
    let usual = private(&ReadyWorker::spawn(&mut command_without_socket(directory.path())));
    assert_eq!(usual.parent(), Some(directory.path()));
    let runtime = directory.path().join("runtime");
    std::fs::create_dir(&runtime).unwrap();
    let process = ReadyWorker::spawn(command_without_socket(directory.path()).env("XDG_RUNTIME_DIR", &runtime));
    assert_eq!(private(&process), runtime.join("spdl"));
    // A symbolic link, and a folder that others can write to.
    let elsewhere = directory.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::remove_dir_all(&usual).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &usual).unwrap();
    assert_ne!(private(&ReadyWorker::spawn(&mut command_without_socket(directory.path()))), usual);
    std::fs::remove_file(&usual).unwrap();
    std::fs::create_dir(&usual).unwrap();
    std::fs::set_permissions(&usual, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert_ne!(private(&ReadyWorker::spawn(&mut command_without_socket(directory.path()))), usual);
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn a_folder_that_another_user_keeps_locked_stops_no_worker() {
    if !rustix::process::geteuid().is_root() {
        spdl_testkit::skipped("only root can act as another user");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    certs(directory.path(), Role::Worker);
    // Like the folder for temporary files: every user can open it and therefore lock it.
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    let mut holder = Command::new("flock");
    holder.args([directory.path().as_os_str(), "-c".as_ref(), "echo locked; cat".as_ref()]).uid(65534).gid(65534);
    let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "locked\n");
    let folder = std::fs::File::open(directory.path()).unwrap();
    assert!(folder.try_lock().is_err(), "the other user has the lock");
    let process = ReadyWorker::start(directory.path());
    assert_eq!(process.end(Signal::TERM), Some(0));
    // It ends with its input.
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

#[test]
fn workers_share_a_cache_folder_and_one_that_is_killed_holds_up_none() {
    let directory = tempfile::tempdir().unwrap();
    certs(directory.path(), Role::Worker);
    let cache = directory.path().join("cache");
    let first = ReadyWorker::spawn(command(directory.path()).arg("--cache-dir").arg(&cache));
    let other = |name: &str| {
        let mut command = command_without_socket(directory.path());
        command.args(["--socket", directory.path().join(name).to_str().unwrap(), "--name", name]);
        command.arg("--cache-dir").arg(&cache);
        command
    };
    let second = ReadyWorker::spawn(&mut other("second.sock"));
    assert_eq!(first.end(Signal::KILL), None);
    let third = ReadyWorker::spawn(&mut other("third.sock"));
    assert_eq!(second.end(Signal::TERM), Some(0));
    assert_eq!(third.end(Signal::TERM), Some(0));
}
