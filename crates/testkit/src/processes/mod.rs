//! Real processes on loopback: a packed dataset, a coordinator, workers, and ranks that pull batches.

mod cluster;
mod dataset;
mod programs;
mod usage;

use std::{
    env,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::Value;

pub use self::{
    cluster::{Cluster, WorkerProcess, sum, undisturbed},
    dataset::{TestDataset, write_pictures},
    programs::{own_worker, program},
    usage::{cpu_time, cpu_time_of_children, peak_resident_bytes, resident_bytes, thread_cpu_times},
};
use crate::LONG;

/// Time limit of each process that a test starts, and of each wait. Only what hangs reaches it, also on a busy machine.
pub const LIMIT: Duration = LONG;
static LIMIT_S: AtomicU64 = AtomicU64::new(LIMIT.as_secs());

/// Returns the time limit: [`LIMIT`], or the one set by [`set_limit`].
pub fn limit() -> Duration {
    Duration::from_secs(LIMIT_S.load(Ordering::Relaxed))
}

/// Sets the time limit of processes and waits that start after this call.
pub fn set_limit(limit: Duration) {
    LIMIT_S.store(limit.as_secs(), Ordering::Relaxed);
}

/// Returns a command for `spdl-ctl` that ends with this test process and inherits no `SPDL_*` variables.
pub fn ctl() -> Command {
    let mut command = without_settings(Command::new(program()));
    command.arg("--die-with-parent");
    command
}

/// Returns the command without standard input and the `SPDL_*` variables of this process.
fn without_settings(mut command: Command) -> Command {
    command.stdin(Stdio::null());
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("SPDL_") {
            command.env_remove(name);
        }
    }
    command
}

/// The output and exit status of a finished command.
pub struct Finished {
    /// The exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Finished {
    /// Returns the last line of standard output as JSON; panics when the command failed.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert!(self.status.success(), "{}\n{}\n{}", self.status, self.stdout, self.stderr);
        let line = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: `{line}`\n{}", self.stderr))
    }

    /// Returns standard error; panics when the command succeeded or standard error lacks one of `parts`.
    #[track_caller]
    pub fn error(&self, parts: &[&str]) -> &str {
        assert!(!self.status.success(), "it should fail, but printed {}", self.stdout);
        for part in parts {
            assert!(self.stderr.contains(part), "`{part}` is not in:\n{}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        &self.stderr
    }
}

/// Runs a command to its end; kills it at the time limit.
#[track_caller]
pub fn run(command: &mut Command) -> Finished {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let watchdog = Watchdog::over(child.id());
    let Output { status, stdout, stderr } = child.wait_with_output().expect("the program can be waited for");
    assert!(!watchdog.has_fired(), "{command:?} did not end within {:?}", limit());
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Finished { status, stdout: text(stdout), stderr: text(stderr) }
}

/// Kills a process at the time limit, unless dropped before.
struct Watchdog {
    fired: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
    done: std::sync::mpsc::Sender<()>,
}

impl Watchdog {
    fn over(pid: u32) -> Self {
        let fired = Arc::new(AtomicBool::new(false));
        let (done, ended) = std::sync::mpsc::channel();
        let thread = {
            let fired = fired.clone();
            thread::spawn(move || {
                if ended.recv_timeout(limit()) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                    fired.store(true, Ordering::Relaxed);
                    signal(pid, rustix::process::Signal::KILL);
                }
            })
        };
        Self { fired, thread: Some(thread), done }
    }

    fn has_fired(&self) -> bool {
        self.fired.load(Ordering::Relaxed)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _ = self.done.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sends a signal to a process that may have ended.
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a process id is not zero");
    let _ = rustix::process::kill_process(pid, signal);
}

/// A running server or rank; killed when dropped.
pub struct ServerProcess {
    /// The process.
    pub child: Child,
    /// Its standard output.
    pub output: BufReader<ChildStdout>,
    _watchdog: Watchdog,
}

impl ServerProcess {
    /// Starts a process whose standard output is read by the test.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { _watchdog: Watchdog::over(child.id()), child, output }
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads the next line of standard output as JSON.
    #[track_caller]
    pub fn line(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("standard output is text");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: `{line}`"))
    }

    /// Waits for the end and returns the last line of standard output as JSON; panics when the process failed.
    #[track_caller]
    pub fn finish(mut self) -> Value {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("standard output is text");
        let status = self.child.wait().expect("the process can be waited for");
        assert!(status.success(), "{status}: {rest}");
        serde_json::from_str(rest.lines().last().unwrap_or_default()).unwrap_or_else(|error| panic!("{error}: {rest}"))
    }

    /// Reads lines of progress until they report `samples` or more.
    #[track_caller]
    pub fn progress_to(&mut self, samples: u64) -> u64 {
        loop {
            let progress = self.line()["progress"].as_u64().expect("a line of progress");
            if progress >= samples {
                return progress;
            }
        }
    }

    /// Sends a signal to the process.
    pub fn signal(&self, which: rustix::process::Signal) {
        signal(self.pid(), which);
    }

    /// Waits until the process has ended.
    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("the process can be waited for")
    }

    /// Kills the process with SIGKILL and waits until it has ended.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
