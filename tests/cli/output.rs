//! Output to a closed pipe, to a full disk, and into a file.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;
use spdl_testkit::processes::{Cluster, ServerProcess, TestDataset, ctl};

/// Returns a command's standard error and exit code.
fn end_of(child: Child) -> (String, Option<i32>) {
    let done = child.wait_with_output().expect("it ends");
    (String::from_utf8_lossy(&done.stderr).into_owned(), done.status.code())
}

/// Runs a command and closes the pipe after a line of its output.
#[track_caller]
fn read_one_line(command: &mut Command) -> (String, Option<i32>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut reader = BufReader::with_capacity(64, child.stdout.take().expect("a pipe"));
    reader.read_line(&mut String::new()).expect("text");
    drop(reader);
    end_of(child)
}

/// Runs a command that writes into a closed pipe.
#[track_caller]
fn read_nothing(command: &mut Command) -> (String, Option<i32>) {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    end_of(command.stdout(writer).stderr(Stdio::piped()).spawn().expect("the program starts"))
}

/// The code that a shell reports for a program which SIGPIPE ends.
const BROKEN_PIPE: Option<i32> = Some(141);

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    let dataset = TestDataset::of_pictures(24, 8);
    let job = dataset.job("j", "epochs = 4000");
    // More output than a pipe holds, so that the program still writes when the pipe is closed.
    let mut plan = ctl();
    plan.arg("plan").arg(&job).args(["--steps", "4000", "--ids"]);
    assert_eq!(read_one_line(&mut plan), (String::new(), BROKEN_PIPE));

    let dataset_path = dataset.path("dataset");
    fs::create_dir(dataset.path("indexed")).expect("a folder");
    let mut commands = [ctl(), ctl(), ctl(), ctl(), ctl(), ctl()];
    commands[0].arg("verify").arg(&dataset_path);
    commands[1].arg("index").arg(&dataset_path).arg("--out").arg(dataset.path("indexed"));
    commands[2].arg("audit").arg(&job).args(["--steps", "1"]);
    commands[3].arg("replay").arg(&job).args(["--steps", "1"]);
    commands[4].arg("unpack").arg(&dataset_path).arg(dataset.path("unpacked")).arg("--json");
    commands[5].arg("--help");
    for mut command in commands {
        assert_eq!(read_nothing(&mut command), (String::new(), BROKEN_PIPE), "{command:?}");
    }

    let cluster = Cluster::start(0);
    cluster.submit(&job);
    for arguments in [&["status"][..], &["status", "--json"], &["job", "show", "j", "--json"]] {
        let mut command = ctl();
        command.args(arguments).args(["--coord", &cluster.address, "--certs"]).arg(cluster.certs("admin"));
        assert_eq!(read_nothing(&mut command), (String::new(), BROKEN_PIPE), "{command:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let dataset = TestDataset::of_pictures(24, 8);
    let job = dataset.job("j", "");
    let full = || File::options().write(true).open("/dev/full").expect("the full device");
    let mut commands = [ctl(), ctl(), ctl(), ctl()];
    commands[0].arg("verify").arg(dataset.path("dataset"));
    commands[1].arg("plan").arg(&job).arg("--ids");
    commands[2].arg("audit").arg(&job);
    commands[3].arg("--help");
    for mut command in commands {
        let child = command.stdout(full()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let done = child.wait_with_output().expect("it ends");
        let error_output = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{command:?}: {error_output}");
        assert_eq!(error_output, "error: cannot write to standard output: No space left on device (os error 28)\n");
    }
    // A log that cannot be written is no error.
    let done = ctl().args(["-vv", "verify", "--json"]).arg(dataset.path("dataset")).stderr(full()).output();
    assert!(done.expect("it runs").status.success());
}

#[test]
fn a_log_that_goes_into_a_file_has_no_colours() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("log");
    let mut coordinator = ctl();
    coordinator.args(["coord", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--state"]);
    coordinator.arg(folder.path().join("state")).env("SPDL_LOG", "info");
    let mut process = ServerProcess::spawn(coordinator.stderr(File::create(&path).expect("a file")));
    process.line();
    process.signal(Signal::TERM);
    process.wait();
    let log = fs::read_to_string(&path).expect("text");
    assert!(log.contains(" INFO ") && !log.contains('\x1b'), "{log:?}");
}
