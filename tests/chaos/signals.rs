//! Ctrl-C and SIGTERM: the first signal ends a program gracefully, a second one at once. (The programs themselves limit
//! how long that takes; the tests only check that they end.)

use std::{
    fs,
    io::Read as _,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use spdl_testkit::processes::{Cluster, ServerProcess, TestDataset, ctl, limit};

use super::{endless, only_rank};

/// Asserts that a process exited by itself, not by the signal, with the code that shells use: 130 after Ctrl-C.
#[track_caller]
fn assert_interrupted(mut process: ServerProcess, signal: Signal) {
    let mut message = String::new();
    process.child.stderr.take().expect("a pipe").read_to_string(&mut message).expect("text");
    let status = process.wait();
    assert_eq!((status.code(), status.signal()), (Some(128 + signal.as_raw()), None), "{message}");
    assert!(message.contains("interrupted") || message.contains("stopped"), "{message}");
}

fn spawn(command: &mut Command) -> ServerProcess {
    ServerProcess::spawn(command.stderr(Stdio::piped()))
}

/// Waits for a condition, usually about the files of a process, which must not end before.
#[track_caller]
fn wait_until(what: &str, process: &mut ServerProcess, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        let ended = process.child.try_wait().expect("a child");
        if ended.is_some() || started.elapsed() > limit() {
            process.kill();
            let mut message = String::new();
            process.child.stderr.take().expect("a pipe").read_to_string(&mut message).expect("messages are text");
            panic!("{what} did not come about; the process, which has ended: {ended:?}, printed {message}");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // A folder may be deleted while it is read.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            _ => found.push(entry.path()),
        }
    }
    found
}

/// Sends both signals while the process is suspended, so that both are pending when it continues and the second arrives
/// while it handles the first.
fn two_signals(process: &ServerProcess) {
    for signal in [Signal::STOP, Signal::TERM, Signal::INT, Signal::CONT] {
        process.signal(signal);
    }
}

#[test]
fn servers_end_on_a_signal_and_a_second_one_ends_them_at_once() {
    let (_dataset, job) = endless();
    for first in [Signal::TERM, Signal::INT] {
        let mut cluster = Cluster::start(1);
        cluster.submit(&job);
        let mut rank = only_rank(&cluster, "node-0");
        rank.progress_to(1);
        // A suspended rank does not delay the servers' end.
        rank.signal(Signal::STOP);
        for server in [&mut cluster.workers[0].process, cluster.coordinator.as_mut().unwrap()] {
            server.signal(first);
            assert!(server.wait().success());
        }
    }
    let mut cluster = Cluster::start(1);
    cluster.submit(&job);
    let mut rank = only_rank(&cluster, "node-0");
    rank.progress_to(1);
    rank.signal(Signal::STOP);
    for server in [&mut cluster.workers[0].process, cluster.coordinator.as_mut().unwrap()] {
        two_signals(server);
        assert_eq!(server.wait().code(), Some(1));
    }
}

#[test]
fn a_rank_that_gets_sigterm_leaves_its_session_and_prints_its_report() {
    let (_dataset, job) = endless();
    let cluster = Cluster::start(0);
    cluster.submit(&job);
    // The rank has joined and waits for a worker; there is none.
    let pull = || spawn(&mut cluster.pull("j", 0, 1, "node-0", &["--from", "0:0"]));
    let is_there = |left: bool| {
        move |status: &serde_json::Value| {
            let session = status["sessions"].as_array().and_then(|sessions| sessions.last());
            session.is_some_and(|session| session["ranks"][0]["left"] == left)
        }
    };
    let mut rank = pull();
    cluster.wait_for("a rank", is_there(false));
    rank.signal(Signal::INT);
    let mut report = String::new();
    rank.output.read_to_string(&mut report).unwrap();
    assert!(report.contains("\"samples\":0") && report.contains("\"state\""), "{report}");
    assert_interrupted(rank, Signal::INT);
    cluster.wait_for("its leave", is_there(true));

    let mut rank = pull();
    cluster.wait_for("a rank", is_there(false));
    two_signals(&rank);
    assert!(matches!(rank.wait().code(), Some(130 | 143)));
}

/// Writes a list of pictures whose last one is so large that packing it takes many seconds.
fn long_list(dataset: &TestDataset) -> PathBuf {
    let pictures = files(&dataset.path("pictures"));
    let mut list: String = pictures.iter().map(|path| format!("{}\t0\n", path.display())).collect();
    let large = dataset.path("large.jpg");
    // It has no content, so that it takes no room.
    fs::File::create(&large).and_then(|file| file.set_len(8_000_000_000)).expect("a file");
    list.push_str(&format!("{}\t0\n", large.display()));
    let path = dataset.path("list.txt");
    fs::write(&path, list).unwrap();
    path
}

#[test]
fn packing_that_is_interrupted_leaves_nothing() {
    let dataset = TestDataset::of_pictures(60, 20);
    let list = long_list(&dataset);
    let target = dataset.path("packed");
    let pack = || {
        let mut pack = ctl();
        pack.arg("pack").arg(&list).arg(&target).args(["--no-shuffle", "--records-per-shard", "20", "--json"]);
        spawn(&mut pack)
    };
    let is_under_way = || files(&target).iter().any(|path| path.extension().is_some_and(|kind| kind == "tar"));
    let mut process = pack();
    wait_until("a shard", &mut process, is_under_way);
    process.signal(Signal::INT);
    assert_interrupted(process, Signal::INT);
    assert!(files(&target).is_empty(), "{:?}", files(&target));

    let mut process = pack();
    wait_until("a shard", &mut process, is_under_way);
    two_signals(&process);
    assert!(matches!(process.wait().code(), Some(130 | 143)));
    assert!(!target.join(".spdl/manifest.spdl").exists());
}

#[test]
fn making_pictures_that_is_interrupted_leaves_none_half_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = ctl();
    command.arg("pictures").arg(folder.path()).args(["--count", "10000000", "--quiet"]);
    let mut process = spawn(&mut command);
    wait_until("a picture", &mut process, || !files(folder.path()).is_empty());
    process.signal(Signal::TERM);
    assert_interrupted(process, Signal::TERM);
    let partial = |path: &PathBuf| path.extension().is_none_or(|kind| kind != "jpg");
    assert!(!files(folder.path()).iter().any(partial), "{:?}", files(folder.path()));
}

#[test]
fn a_replay_that_is_interrupted_leaves_no_batch_that_looks_whole_and_is_not() {
    let (dataset, job) = endless();
    let out = dataset.path("out");
    let mut command = ctl();
    command.arg("replay").arg(&job).args(["--all", "--json", "--out"]).arg(&out);
    let mut process = spawn(&mut command);
    wait_until("a batch", &mut process, || out.join("step-00001/batch.json").exists());
    process.signal(Signal::TERM);
    assert_interrupted(process, Signal::TERM);
    for step in fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()) {
        assert!(step.join("batch.json").exists() && step.join("image.npy").exists(), "{}", step.display());
    }
}

#[test]
fn a_demo_that_is_interrupted_leaves_no_process_and_no_file() {
    let temporary = tempfile::tempdir().unwrap();
    let mut command = ctl();
    command.args(["demo", "--images", "150", "--epochs", "100000"]).env("TMPDIR", temporary.path());
    let mut process = spawn(&mut command);
    let mut line = String::new();
    while !line.starts_with("worker-1 on") {
        line.clear();
        assert_ne!(std::io::BufRead::read_line(&mut process.output, &mut line).unwrap(), 0, "the demo has ended");
    }
    process.signal(Signal::INT);
    assert_interrupted(process, Signal::INT);
    assert!(files(temporary.path()).is_empty(), "{:?}", files(temporary.path()));
    let name = temporary.path().to_string_lossy().into_owned();
    let commands = fs::read_dir("/proc").unwrap().flatten();
    let commands = commands.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let mut left = commands.filter(|command| String::from_utf8_lossy(command).contains(&name));
    assert_eq!(left.next(), None);
}

#[test]
fn commands_with_nothing_to_tidy_end_by_the_signal() {
    // A coordinator that never answers, so that the command waits.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let cluster = Cluster::start(0);
    let mut status = ctl();
    status.args(["status", "--coord", &address, "--certs"]).arg(cluster.certs("admin"));
    let mut process = spawn(&mut status);
    // The first packet shows that the command is connecting.
    silent.recv_from(&mut [0; 2048]).unwrap();
    process.signal(Signal::TERM);
    assert_eq!(process.wait().signal(), Some(Signal::TERM.as_raw()));
}
