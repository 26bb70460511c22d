//! `spdl-ctl dev`: a cluster on this machine that goes on in the background, for work on a training.
//!
//! `up` starts this program once more as `serve`, which is the parent of the servers and ends with them. All of these
//! processes hold a lock on a file in the cluster's folder, so that the lock is free once the last of them has ended,
//! even if it was killed. A cluster whose lock file is gone ends by itself, because no command would find it.

mod lock;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    process::{ChildStdin, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use clap::Subcommand;
use lock::{HeldLock, LockState, holders};
use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{geteuid, setsid},
};
use spdl_control::Role;
use spdl_wire::local::MAX_PATH_BYTES;
use tokio::sync::mpsc;

use super::{
    CtlError, CtlResult,
    coordinator::Connection,
    interrupt::Interrupt,
    job, job_file,
    output::{note, outln, shell_word, warn},
    report,
    servers::{ANY_PORT, LocalCluster, ServerLogs, last_lines},
};
use crate::dev_cluster::{DevCluster, default_folder, is_ready_file, lock_file, ready_file};

/// The address of the coordinator's page that the documentation names.
const USUAL_PAGE: &str = "127.0.0.1:7401";
/// What `serve` writes to standard error.
const LOG: &str = "dev.log";
/// How long `down` waits for the end of the cluster: the workers stop, and then the coordinator.
const DOWN_TIMEOUT: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(50);
/// Number of lines of the log that are shown: more than of a server's log, because they may include the lines shown of
/// that.
const SHOWN_LINES: usize = 20;

/// Arguments of `dev`.
#[derive(Debug, clap::Args)]
pub(crate) struct DevArgs {
    #[command(subcommand)]
    action: DevAction,
}

#[derive(Debug, Subcommand)]
enum DevAction {
    /// Starts a coordinator and workers, submits jobs, and prints the variables for trainers once all are ready. Submits jobs to a
    /// cluster that is up, in place of those of their names.
    Up {
        #[command(flatten)]
        place: DevFolder,
        #[command(flatten)]
        servers: DevServers,
    },
    /// Prints the variables of the cluster that is up.
    Status {
        #[command(flatten)]
        place: DevFolder,
        /// Prints the cluster as one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Ends the cluster and removes what it has left.
    Down {
        #[command(flatten)]
        place: DevFolder,
    },
    /// Runs the servers for `up`.
    #[command(hide = true)]
    Serve {
        #[command(flatten)]
        place: DevFolder,
        #[command(flatten)]
        servers: DevServers,
    },
}

#[derive(Debug, clap::Args)]
struct DevFolder {
    /// Folder of the cluster, which only you may read; for another cluster, another one. `spdl-dev` in XDG_RUNTIME_DIR when not given.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct DevServers {
    /// Job files (TOML) to submit.
    jobs: Vec<PathBuf>,
    /// Number of workers; 1 when not given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: Option<u16>,
    /// Cores of each worker, or a share of the machine's, such as 25%; 40 % when not given.
    #[arg(long, value_name = "N|N%")]
    cores: Option<String>,
    /// Memory of each worker for slots and cached data; 1 GiB when not given.
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Python interpreter for the functions of jobs. Without it, workers refuse jobs that have some.
    #[arg(long, env = "SPDL_PYTHON", value_name = "PATH")]
    python: Option<PathBuf>,
}

/// Runs `dev`.
pub(crate) fn run(args: DevArgs) -> CtlResult {
    match args.action {
        DevAction::Up { place, servers } => up(&place.path()?, &servers)?,
        DevAction::Status { place, json } => return status(&place.path()?, json),
        DevAction::Down { place } => down(&place.path()?)?,
        DevAction::Serve { place, servers } => {
            // One thread: children that end with their parent end with the thread that started them.
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CtlError::Runtime)?;
            runtime.block_on(serve(&place.path()?, &servers))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl DevFolder {
    fn path(&self) -> Result<PathBuf, CtlError> {
        let chosen = self.dir.clone().map_or_else(default_folder, Ok)?;
        std::path::absolute(&chosen).map_err(|source| CtlError::ReadFile { path: chosen, source })
    }
}

impl DevServers {
    /// Returns these settings as arguments for `serve`.
    fn arguments(&self) -> Vec<std::ffi::OsString> {
        let mut arguments: Vec<std::ffi::OsString> = Vec::new();
        arguments.extend(self.workers.iter().flat_map(|workers| ["--workers".into(), workers.to_string().into()]));
        for (flag, value) in [("--cores", &self.cores), ("--memory", &self.memory)] {
            arguments.extend(value.iter().flat_map(|value| [flag.into(), value.into()]));
        }
        arguments.extend(self.python.iter().flat_map(|python| ["--python".into(), python.into()]));
        arguments.push("--".into());
        arguments.extend(self.jobs.iter().map(Into::into));
        arguments
    }
}

/// Starts the cluster and returns when it is ready.
fn up(folder: &Path, servers: &DevServers) -> Result<(), CtlError> {
    check_jobs(&servers.jobs)?;
    make_private(folder)?;
    let Some(lock) = lock::take(folder)? else {
        return submit_again(folder, servers);
    };
    if remove_left(folder, Logs::Remove)? {
        warn(&format!("removed what a killed cluster had left in `{}`", folder.display()));
    }
    // The processes that are started inherit the lock.
    fcntl_setfd(&lock, FdFlags::empty()).map_err(|error| CtlError::Runtime(error.into()))?;
    let log = folder.join(LOG);
    let errors = File::create(&log).map_err(|source| CtlError::WriteFile { path: log.clone(), source })?;
    let mut command = Command::new(std::env::current_exe().map_err(CtlError::Runtime)?);
    command.args(["dev", "serve", "--dir"]).arg(folder).args(servers.arguments());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
    let mut child = command.spawn().map_err(CtlError::Runtime)?;
    // `serve` ends when this pipe is closed before it has read a line, so that an interrupted `up` leaves nothing.
    let mut accept: ChildStdin = child.stdin.take().expect("standard input is a pipe");
    let mut line = String::new();
    let output = child.stdout.take().expect("standard output is a pipe");
    BufReader::new(output).read_line(&mut line).map_err(CtlError::Runtime)?;
    let Ok(ready) = serde_json::from_str::<DevCluster>(&line) else {
        drop(accept);
        child.wait().map_err(CtlError::Runtime)?;
        let cause = last_lines(&log, SHOWN_LINES);
        drop(lock);
        return Err(CtlError::DevFailed { folder: folder.to_owned(), cause });
    };
    accept.write_all(b"\n").map_err(CtlError::Runtime)?;
    print(&ready)
}

/// Submits jobs to the cluster that is up, in place of those of their names.
fn submit_again(folder: &Path, servers: &DevServers) -> Result<(), CtlError> {
    if servers.jobs.is_empty() {
        return Err(CtlError::DevIsUp { folder: folder.to_owned() });
    }
    let mut cluster = DevCluster::read(folder)?;
    let connection = Connection::of(&cluster, Role::Admin)?;
    super::runtime()?.block_on(async {
        for path in &servers.jobs {
            let (name, done) = job::replace(&connection, path, servers.python.clone()).await?;
            note(&done);
            cluster.add_job(path, name);
        }
        Ok::<_, CtlError>(())
    })?;
    cluster.write()?;
    if servers.workers.is_some() || servers.cores.is_some() || servers.memory.is_some() {
        note("the cluster is up, and keeps its workers; `spdl-ctl dev down` comes before others");
    }
    print(&cluster)
}

/// Checks the job files, and that each has a name of its own.
fn check_jobs(files: &[PathBuf]) -> Result<(), CtlError> {
    let mut named = BTreeMap::new();
    for file in files {
        let job = job_file::read(file)?;
        job.check()?;
        if let Some(first) = named.insert(job.name.clone(), file) {
            return Err(CtlError::DevSameJob { first: first.clone(), second: file.clone(), name: job.name });
        }
    }
    Ok(())
}

/// Runs the servers until a signal, until one of them ends, or until the lock file is gone.
async fn serve(folder: &Path, servers: &DevServers) -> Result<(), CtlError> {
    let lock = HeldLock::of(folder)?;
    let mut cluster = None;
    let ended = tokio::select! {
        ended = run_servers(folder, servers, &mut cluster) => ended,
        () = lock.gone() => Err(CtlError::DevFolderGone { folder: folder.to_owned() }),
    };
    // Without the lock file, the folder may belong to another cluster, whose files the servers would remove if they
    // ended in an orderly way. So the drop kills them.
    if !lock.is_there() {
        return ended;
    }
    if let Some(cluster) = cluster {
        cluster.stop().await;
    }
    match ended {
        Ok(()) => remove_left(folder, Logs::Remove).map(drop),
        Err(error) => {
            // The first error is the one to report.
            let _ = remove_left(folder, Logs::Keep);
            Err(error)
        }
    }
}

/// Starts the servers, and waits for a signal or the end of one of them.
async fn run_servers(folder: &Path, servers: &DevServers, cluster: &mut Option<LocalCluster>) -> Result<(), CtlError> {
    // In a session of its own, this process outlives the terminal.
    let _ = setsid();
    let mut interrupt = Interrupt::listen()?;
    let mut input = input();
    let started = tokio::select! {
        started = start(folder, servers, cluster) => started,
        () = interrupt.asked() => Err(CtlError::Interrupted),
        _ = input.recv() => Err(CtlError::Interrupted),
    };
    match (started, cluster.as_mut()) {
        (Ok(ready), Some(cluster)) => {
            spdl_process::announce(&ready);
            tokio::select! {
                ended = accepted(&mut input, cluster) => ended,
                () = interrupt.asked() => Ok(()),
            }
        }
        (Err(error), _) => Err(error),
        (Ok(_), None) => unreachable!("what was started is there"),
    }
}

/// Waits until `up` has taken over, and then until a server ends by itself.
async fn accepted(input: &mut mpsc::Receiver<()>, cluster: &mut LocalCluster) -> Result<(), CtlError> {
    input.recv().await.ok_or(CtlError::Interrupted)?;
    let (name, status) = cluster.ended().await;
    let cause = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    Err(CtlError::DevEnded { name, cause })
}

/// Reads standard input on a thread of its own. Each byte is a message, and the channel ends with the input.
fn input() -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel(1);
    thread::spawn(move || {
        while matches!(io::stdin().read(&mut [0]), Ok(1)) {
            if sender.blocking_send(()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Starts the servers and submits the jobs. Returns what `up` prints.
async fn start(folder: &Path, servers: &DevServers, cluster: &mut Option<LocalCluster>) -> Result<String, CtlError> {
    let cluster = cluster.insert(start_coordinator(folder).await?);
    let mut workers = Vec::new();
    for number in 0..servers.workers.unwrap_or(1) {
        let name = format!("worker-{number}");
        let set = |command: &mut tokio::process::Command| {
            for (flag, value) in [("--cores", &servers.cores), ("--memory", &servers.memory)] {
                command.args(value.iter().flat_map(|value| [flag, value.as_str()]));
            }
            if let Some(python) = &servers.python {
                command.arg("--python").arg(python);
            }
        };
        cluster.start_worker(&name, set).await?;
        workers.push(name);
    }
    let mut ready = DevCluster {
        folder: folder.to_owned(),
        pid: std::process::id().cast_signed(),
        coordinator: cluster.coordinator_addr().to_owned(),
        page: cluster.page_addr().unwrap_or_default().to_owned(),
        workers,
        jobs: Vec::new(),
        job_files: BTreeMap::new(),
    };
    for path in &servers.jobs {
        ready.add_job(path, job::submit(&cluster.connection(Role::Admin), path, servers.python.clone()).await?);
    }
    ready.write()?;
    Ok(ready.json())
}

/// Starts the coordinator, with its page at the usual address if that is free.
async fn start_coordinator(folder: &Path) -> Result<LocalCluster, CtlError> {
    if TcpListener::bind(USUAL_PAGE).is_ok() {
        // Another cluster may take the address meanwhile.
        if let Ok(cluster) = LocalCluster::start_coordinator(folder, ServerLogs::Files, "dev", USUAL_PAGE).await {
            return Ok(cluster);
        }
    }
    LocalCluster::start_coordinator(folder, ServerLogs::Files, "dev", ANY_PORT).await
}

fn status(folder: &Path, json: bool) -> CtlResult {
    if !matches!(lock::take_existing(folder)?, LockState::Held) {
        let log = folder.join(LOG);
        let why = if log.exists() {
            format!("; the last one ended:\n{}", last_lines(&log, SHOWN_LINES))
        } else {
            String::new()
        };
        warn(&format!("no cluster is up in `{}`{why}", folder.display()));
        return Ok(ExitCode::FAILURE);
    }
    let ready = DevCluster::read(folder)?;
    if json {
        report::json(&ready)?
    } else {
        print(&ready)?
    }
    Ok(ExitCode::SUCCESS)
}

fn down(folder: &Path) -> Result<(), CtlError> {
    let deadline = Instant::now() + DOWN_TIMEOUT;
    let mut asked = Vec::new();
    let lock = loop {
        match lock::take_existing(folder)? {
            LockState::Taken(lock) => break lock,
            LockState::Absent if asked.is_empty() => return outln!("no cluster is up in `{}`", folder.display()),
            // Another `down` has removed the rest.
            LockState::Absent => return outln!("the cluster in `{}` has ended", folder.display()),
            LockState::Held if Instant::now() > deadline => {
                return Err(CtlError::DevStays { pids: asked, seconds: DOWN_TIMEOUT.as_secs() });
            }
            LockState::Held => {}
        }
        // While a cluster starts, its `up` holds the lock too, and the cluster ends with it.
        for holder in holders(folder)? {
            let number = holder.pid.as_raw_nonzero().get();
            if !asked.contains(&number) {
                holder.ask_to_end();
                asked.push(number);
            }
        }
        thread::sleep(PAUSE);
    };
    let was_killed = remove_left(folder, Logs::Remove)?;
    let _ = fs::remove_file(lock_file::path(folder));
    // A folder with other files stays.
    let _ = fs::remove_dir(folder);
    drop(lock);
    let folder = folder.display();
    match (!asked.is_empty(), was_killed) {
        (true, _) => outln!("the cluster in `{folder}` has ended"),
        (false, true) => outln!("no cluster was up in `{folder}`; what a killed one had left is removed"),
        (false, false) => outln!("no cluster was up in `{folder}`"),
    }
}

/// Prints the variables of a cluster as a shell reads them.
fn print(ready: &DevCluster) -> Result<(), CtlError> {
    outln!("export SPDL_COORD={}", ready.coordinator)?;
    outln!("export SPDL_CERTS={}", shell_word(&ready.certs(Role::Client).display().to_string()))?;
    if let [job] = &ready.jobs[..] {
        outln!("export SPDL_JOB={}", shell_word(job))?;
    }
    if !ready.job_files.is_empty() {
        let files = serde_json::to_string(&ready.job_files).expect("plain data serialises");
        outln!("export SPDL_JOB_FILES={}", shell_word(&files))?;
    }
    let workers = report::count(ready.workers.len() as u64, "worker", "workers");
    outln!("# {workers}; the page: http://{}", ready.page)?;
    if ready.jobs.len() > 1 {
        outln!("# jobs: {}", ready.jobs.join(", "))?;
    }
    let is_found = default_folder().is_ok_and(|folder| folder == ready.folder);
    if is_found {
        outln!("# this user's programs on this machine find it without these variables")?;
        return outln!("# the end: spdl-ctl dev down");
    }
    outln!("# the end: spdl-ctl dev down --dir {}", shell_word(&ready.folder.display().to_string()))
}

/// Makes a folder that only this user can read, or checks that it is one.
fn make_private(folder: &Path) -> Result<(), CtlError> {
    let problem = |problem: String| CtlError::DevFolder { folder: folder.to_owned(), problem };
    let socket_bytes = folder.join("worker-63.sock").as_os_str().len();
    if socket_bytes > MAX_PATH_BYTES {
        let beyond = socket_bytes - MAX_PATH_BYTES;
        return Err(problem(format!("is too long for the paths of the workers' sockets, by {beyond} bytes")));
    }
    let made = fs::DirBuilder::new().mode(0o700).create(folder);
    if let Err(error) = made
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(problem(format!("cannot be made: {error}")));
    }
    let found = fs::symlink_metadata(folder).map_err(|error| problem(error.to_string()))?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o077 != 0 {
        return Err(problem(
            "is not a folder that only you can read, which the keys in it need (`chmod 700`)".to_owned(),
        ));
    }
    let is_ours = lock_file::path(folder).exists();
    if !is_ours && fs::read_dir(folder).map_err(|error| problem(error.to_string()))?.next().is_some() {
        return Err(problem("has other files in it; name an empty or a new folder".to_owned()));
    }
    Ok(())
}

/// What happens to the logs of a cluster that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logs {
    Keep,
    Remove,
}

/// Removes the files that clusters leave in their folder, except the lock. Returns whether a cluster was killed there.
fn remove_left(folder: &Path, logs: Logs) -> Result<bool, CtlError> {
    let was_killed = ready_file(folder).exists() || folder.join("certs").exists();
    let fail = |path: &Path, source| CtlError::WriteFile { path: path.to_owned(), source };
    for name in ["coordinator", "certs"] {
        let path = folder.join(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(&path, error)),
            _ => {}
        }
    }
    for entry in fs::read_dir(folder).map_err(|error| fail(folder, error))? {
        let path = entry.map_err(|error| fail(folder, error))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let is_workers = |suffix| name.starts_with("worker-") && name.ends_with(suffix);
        let is_log = is_workers(".log") || name == LOG || name == "coordinator.log";
        if is_workers(".sock") || is_workers(".decoding") || is_ready_file(&name) || is_log && logs == Logs::Remove {
            fs::remove_file(&path).map_err(|error| fail(&path, error))?;
        }
    }
    Ok(was_killed)
}
