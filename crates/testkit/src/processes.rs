//! Real processes on loopback: a packed dataset, a coordinator, workers, and ranks that pull batches.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio},
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{LONG, ports, root, stored::files, target};

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

/// Returns the path of `spdl-ctl`. The first call in a process has cargo build it.
///
/// # Panics
/// If it cannot be built.
pub fn program() -> PathBuf {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| built("spdl-cli", "spdl-ctl"));
    PROGRAM.clone()
}

/// Returns the path of the worker in `examples/own-worker`, which has a function in Rust. The first call in a process has
/// cargo build it.
///
/// # Panics
/// If it cannot be built.
pub fn own_worker() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| built("own-worker", "own-worker"));
    &PROGRAM
}

/// Builds a program with the running test's profile, and returns its path. Cargo builds no programs of other packages for
/// a test, and a test must never run an older program than the sources; where cargo has nothing to do, it takes less than a second. Cargo
/// releases the lock of its build directory before it runs tests.
fn built(package: &str, name: &str) -> PathBuf {
    let test = env::current_exe().expect("this program has a path");
    let folder = test.ancestors().nth(2).expect("a test lies in the folder of a profile");
    let profile = match folder.file_name().expect("a profile has a folder").to_str() {
        Some("debug") => "dev",
        profile => profile.expect("the name of a profile is UTF-8"),
    };
    let mut build = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    build.args(["build", "--locked", "--package", package, "--bin", name, "--profile", profile]);
    build.arg("--target-dir").arg(target()).current_dir(root()).stdin(Stdio::null());
    let status = build.status().unwrap_or_else(|error| panic!("{build:?}: {error}"));
    assert!(status.success(), "{build:?}: {status}");
    folder.join(name)
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

/// Writes `count` of the demo's pictures into folders of classes. A picture is drawn once in a process and copied from then on.
#[track_caller]
pub fn write_pictures(folder: &Path, count: u64) {
    static DRAWN: Mutex<Vec<(PathBuf, Vec<u8>)>> = Mutex::new(Vec::new());
    let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    let count = usize::try_from(count).expect("some pictures");
    if drawn.len() < count {
        let new = tempfile::tempdir().expect("a temporary folder");
        let mut pictures = ctl();
        let enough = count.next_power_of_two().to_string();
        pictures.arg("pictures").arg(new.path()).args(["--count", &enough, "--seed", "7", "--quiet"]);
        let Finished { status, stderr, .. } = run(&mut pictures);
        assert!(status.success(), "{stderr}");
        *drawn = drawn_pictures(new.path());
    }
    for (name, picture) in &drawn[..count] {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("it lies in the folder of its class")).expect("a folder is made");
        fs::write(path, picture).expect("a picture is written");
    }
}

/// Returns the pictures below a folder, in the order of their numbers.
fn drawn_pictures(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = files(folder);
    files.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    let name = |file: &Path| file.strip_prefix(folder).expect("a file of the folder").to_owned();
    files.iter().map(|file| (name(file), fs::read(file).expect("a picture"))).collect()
}

/// A folder with a dataset and a job file.
pub struct TestDataset {
    /// The folder; removed when dropped.
    pub folder: tempfile::TempDir,
}

impl TestDataset {
    /// Packs `count` of the demo's pictures into shards of `records` records.
    pub fn of_pictures(count: u64, records: u64) -> Self {
        let dataset = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        let source = dataset.path("pictures");
        write_pictures(&source, count);
        let mut pack = ctl();
        pack.arg("pack").arg(&source).arg(dataset.path("dataset"));
        pack.args(["--records-per-shard", &records.to_string(), "--block-size", "512KiB", "--json"]);
        run(&mut pack).json();
        dataset
    }

    /// Indexes a WebDataset shard that `tar` makes from pictures and labels; the keys are `0000`, `0001`, ...
    pub fn of_records(records: impl IntoIterator<Item = (Vec<u8>, String)>) -> Self {
        let key = |index| format!("{index:04}");
        Self::of_keys(records.into_iter().enumerate().map(|(index, (picture, label))| (key(index), picture, label)))
    }

    /// Indexes a WebDataset shard that `tar` makes from pictures and labels with their keys.
    pub fn of_keys(records: impl IntoIterator<Item = (String, Vec<u8>, String)>) -> Self {
        let dataset = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        let files = dataset.path("records");
        fs::create_dir_all(&files).expect("a folder is made");
        fs::create_dir_all(dataset.path("dataset")).expect("a folder is made");
        for (key, picture, label) in records {
            fs::write(files.join(format!("{key}.jpg")), picture).expect("a picture is written");
            fs::write(files.join(format!("{key}.cls")), label).expect("a label is written");
        }
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(dataset.path("dataset/part-0.tar")).args(["--sort=name", "-C"]).arg(&files).arg(".");
        assert!(run(&mut tar).status.success());
        run(ctl().arg("index").arg(dataset.path("dataset")).arg("--json")).json();
        dataset
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a job file for this dataset: pictures of 64 pixels, their class, and their raw bytes.
    pub fn job(&self, name: &str, keys: &str) -> PathBuf {
        let raw = "[[column]]\nname = \"raw\"\nfrom = \"jpg\"\ndecode = \"bytes\"\nmax_bytes = 400000\n";
        self.write_job(name, &format!("global_batch = 24\n{keys}"), 64, raw)
    }

    /// Writes a job file like that of a training: pictures of 224 pixels and their class, batches of 64.
    pub fn training_job(&self, name: &str, epochs: u64) -> PathBuf {
        self.write_job(name, &format!("global_batch = 64\nepochs = {epochs}"), 224, "")
    }

    fn write_job(&self, name: &str, keys: &str, size: u32, columns: &str) -> PathBuf {
        let dataset = self.path("dataset");
        let text = format!(
            "name = \"{name}\"\ndataset = {dataset:?}\nseed = 5\n{keys}\n\
             [[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
             ops = [{{ random_resized_crop = {{ size = {size} }} }}, {{ random_flip = {{}} }}]\n\
             [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n{columns}"
        );
        let path = self.path(format!("{name}.toml"));
        fs::write(&path, text).expect("a job file is written");
        path
    }
}

/// A coordinator and its workers.
pub struct Cluster {
    /// The folder of the cluster's files; removed when dropped.
    pub folder: tempfile::TempDir,
    /// The coordinator, if it runs.
    pub coordinator: Option<ServerProcess>,
    /// The coordinator's QUIC address.
    pub address: String,
    /// The coordinator's HTTP address.
    pub http: String,
    /// The workers, in the order in which they were started.
    pub workers: Vec<WorkerProcess>,
    /// Additional arguments of the coordinator.
    pub coordinator_args: Vec<String>,
    /// Additional environment variables of all processes.
    pub environment: Vec<(String, String)>,
}

/// A worker and the arguments that it was started with.
pub struct WorkerProcess {
    /// The process.
    pub process: ServerProcess,
    /// The node that it is on.
    pub node: String,
    /// The path of its socket.
    pub socket: PathBuf,
    args: Vec<String>,
    /// The program, if it is not `spdl-ctl worker`.
    program: Option<PathBuf>,
    /// The line that it printed when it was ready.
    pub ready: Value,
}

impl Cluster {
    /// Starts a coordinator and `workers` workers, each on a node of its own: `node-0`, `node-1`, ...
    pub fn start(workers: usize) -> Self {
        Self::start_with(workers, &[], Vec::new())
    }

    /// Starts a cluster with additional arguments of the coordinator and environment variables of all processes.
    pub fn start_with(workers: usize, coordinator_args: &[&str], environment: Vec<(String, String)>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut cluster = Self {
            folder,
            coordinator: None,
            address: ports::lasting(),
            http: ports::lasting(),
            workers: vec![],
            coordinator_args: coordinator_args.iter().map(|arg| (*arg).to_owned()).collect(),
            environment,
        };
        cluster.start_coordinator();
        for role in ["worker", "client", "admin"] {
            let mut cert = ctl();
            cert.arg("cert").arg("--ca").arg(cluster.path("state/ca")).arg("--out").arg(cluster.certs(role));
            run(cert.args(["--role", role, "--name", "test", "--json"])).json();
        }
        for index in 0..workers {
            cluster.start_worker(&format!("node-{index}"), &[]);
        }
        cluster
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the folder with the certificate of `role`.
    pub fn certs(&self, role: &str) -> PathBuf {
        self.path("certs").join(role)
    }

    /// Starts the coordinator; a restart uses the same addresses.
    pub fn start_coordinator(&mut self) {
        let mut command = self.command();
        command.args(["coord", "--listen", &self.address, "--http", &self.http, "--state"]).arg(self.path("state"));
        command.args(&self.coordinator_args);
        let mut process = ServerProcess::spawn(&mut command);
        let ready = process.line();
        self.address = ready["quic"].as_str().expect("an address").to_owned();
        self.http = ready["http"].as_str().expect("an address").to_owned();
        self.coordinator = Some(process);
    }

    /// Starts a worker on `node`, with one core and 256 MiB; `further` arguments override these.
    pub fn start_worker(&mut self, node: &str, further: &[&str]) -> &mut WorkerProcess {
        let socket = self.path(format!("{}.sock", self.workers.len()));
        self.start_worker_on(node, &socket, further)
    }

    /// Starts a worker as [`start_worker`](Self::start_worker) does, with its socket at a given path.
    pub fn start_worker_on(&mut self, node: &str, socket: &Path, further: &[&str]) -> &mut WorkerProcess {
        self.start_program(None, node, socket, further)
    }

    /// Starts a worker as [`start_worker`](Self::start_worker) does, which is a program of its own.
    pub fn start_worker_of(&mut self, program: &Path, node: &str, further: &[&str]) -> &mut WorkerProcess {
        let socket = self.path(format!("{}.sock", self.workers.len()));
        self.start_program(Some(program), node, &socket, further)
    }

    fn start_program(
        &mut self,
        program: Option<&Path>,
        node: &str,
        socket: &Path,
        further: &[&str],
    ) -> &mut WorkerProcess {
        let args: Vec<String> = further.iter().map(|arg| (*arg).to_owned()).collect();
        let (process, ready) = self.worker_process(program, node, socket, &args);
        let (program, node, socket) = (program.map(Path::to_owned), node.to_owned(), socket.to_owned());
        self.workers.push(WorkerProcess { process, node, socket, args, program, ready });
        self.workers.last_mut().expect("one was pushed")
    }

    /// Starts a worker that has ended again, with the same arguments.
    pub fn restart_worker(&mut self, index: usize) {
        let WorkerProcess { node, socket, args, program, .. } = &self.workers[index];
        let (process, ready) = self.worker_process(program.as_deref(), node, socket, args);
        let worker = &mut self.workers[index];
        (worker.process, worker.ready) = (process, ready);
    }

    /// Returns a command for `spdl-ctl` with this cluster's environment variables.
    fn command(&self) -> Command {
        let mut command = ctl();
        command.envs(self.environment.iter().cloned());
        command
    }

    fn worker_process(
        &self,
        program: Option<&Path>,
        node: &str,
        socket: &Path,
        further: &[String],
    ) -> (ServerProcess, Value) {
        let mut command = program.map_or_else(ctl, |program| without_settings(Command::new(program)));
        command.envs(self.environment.iter().cloned());
        if program.is_none() {
            command.arg("worker");
        }
        command.args(["--coord", &self.address, "--http", "127.0.0.1:0"]);
        command
            .args(["--name", node])
            .env("SPDL_WORKER_LISTEN", "127.0.0.1:0")
            .env("SPDL_WORKER_CORES", "1")
            .env("SPDL_WORKER_MEMORY", "256MiB");
        command.arg("--certs").arg(self.certs("worker")).arg("--socket").arg(socket).args(further);
        command.env("SPDL_NODE", node);
        let mut process = ServerProcess::spawn(&mut command);
        let ready = process.line();
        (process, ready)
    }

    /// Returns the sum of a metric over all workers.
    pub fn metric(&self, name: &str) -> f64 {
        let of = |address: &Value| {
            let (_, text) =
                crate::http::get(address.as_str().expect("an address"), "/metrics", LIMIT).expect("metrics");
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).parse::<f64>().expect("a number")
        };
        self.workers.iter().map(|worker| of(&worker.ready["http"])).sum()
    }

    /// Returns a command for `spdl-ctl` with this cluster's address and the certificates of `role`.
    pub fn ctl<I: AsRef<OsStr>>(&self, role: &str, args: impl IntoIterator<Item = I>) -> Command {
        let mut command = self.command();
        command.args(args).args(["--coord", &self.address]).arg("--certs").arg(self.certs(role));
        command
    }

    /// Submits a job file.
    #[track_caller]
    pub fn submit(&self, job: &Path) {
        run(self.ctl("admin", ["job", "submit"]).arg(job).arg("--json")).json();
    }

    /// Returns a command for a rank on `node` that pulls `job`. All ranks have the same launch id, as under a launcher
    /// that restarts the trainer.
    pub fn pull(&self, job: &str, rank: u32, world: u32, node: &str, further: &[&str]) -> Command {
        let mut command = self.ctl("client", ["pull", "--json", "--digest", "--job", job]);
        command.args(["--rank", &rank.to_string(), "--world", &world.to_string()]).args(further).env("SPDL_NODE", node);
        command.env("SPDL_LAUNCH_ID", "test");
        command
    }

    /// Runs all ranks of one launch to their end and returns their reports.
    #[track_caller]
    pub fn pull_all(&self, job: &str, world: u32, nodes: &[&str], further: &[&str]) -> Vec<Value> {
        let start = |rank: u32| {
            let node = nodes[rank as usize % nodes.len()];
            ServerProcess::spawn(&mut self.pull(job, rank, world, node, further))
        };
        let ranks: Vec<ServerProcess> = (0..world).map(start).collect();
        ranks.into_iter().map(ServerProcess::finish).collect()
    }

    /// Returns the status that the coordinator reports.
    #[track_caller]
    pub fn status(&self) -> Value {
        run(self.ctl("admin", ["status"]).arg("--json")).json()
    }

    /// Polls the status until `holds` returns true for it.
    #[track_caller]
    pub fn wait_for(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let status = self.status();
            if holds(&status) {
                return status;
            }
            assert!(started.elapsed() < limit(), "{what} did not come about: {status}");
            // Each look is a process with a handshake, whose CPU time is taken from what is waited for.
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Replays the first steps of a job without a cluster and returns the report: what a run without faults delivers.
pub fn undisturbed(job: &Path, steps: u64, further: &[&str]) -> Value {
    let mut replay = ctl();
    replay.arg("replay").arg(job).args(["--from", "0:0", "--steps", &steps.to_string(), "--json"]).args(further);
    run(&mut replay).json()
}

/// Returns the CPU time of a process and all its threads, also of those that have ended; in steps of 10 ms, the kernel's.
///
/// # Panics
/// If there is no such process.
pub fn cpu_time(pid: u32) -> Duration {
    ticks(pid, 11)
}

/// Returns the CPU time of this process's children that have ended and were waited for, in steps of 10 ms.
pub fn cpu_time_of_children() -> Duration {
    ticks(std::process::id(), 13)
}

/// Adds up two times of a process, the first of which is this many fields behind its name.
fn ticks(pid: u32, first: usize) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process is there");
    // The name, which may contain blanks, ends with the last parenthesis.
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    let times = fields.split_whitespace().skip(first).take(2);
    Duration::from_millis(10 * times.map(|field| field.parse::<u64>().expect("a time")).sum::<u64>())
}

/// Returns the resident memory of a process, in bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    memory_in_status(pid, "VmRSS:")
}

/// Returns the most resident memory that a process has had, in bytes.
pub fn peak_resident_bytes(pid: u32) -> u64 {
    memory_in_status(pid, "VmHWM:")
}

fn memory_in_status(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = text.lines().find(|line| line.starts_with(name)).expect("a line for this memory");
    line.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number") * 1024
}

/// Adds up a 128-bit digest over the ranks' reports.
#[track_caller]
pub fn sum(reports: &[Value], field: &str) -> String {
    let digest = |report: &Value| u128::from_str_radix(report[field].as_str().expect("a digest"), 16).expect("hex");
    format!("{:032x}", reports.iter().map(digest).fold(0, u128::wrapping_add))
}
