//! `dev`: a cluster that goes on in the background.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use spdl_testkit::processes::{Finished, TestDataset, ctl, limit, run, signal};

/// A folder for clusters, which are ended with it.
struct DevFolder(tempfile::TempDir);

impl DevFolder {
    fn new() -> Self {
        // The names of sockets are short.
        Self(tempfile::Builder::new().prefix("dev-").tempdir_in("/tmp").expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns a command of `dev` for the cluster in the folder `name`.
    fn dev(&self, name: &str, action: &str) -> Command {
        let mut command = ctl();
        command.args(["dev", action, "--dir"]).arg(self.path(name));
        command
    }

    fn up(&self, name: &str, workers: u32, jobs: &[&Path]) -> Finished {
        let mut command = self.dev(name, "up");
        command.args(["--cores", "1", "--memory", "256MiB", "--workers", &workers.to_string()]).args(jobs);
        run(&mut command)
    }
}

impl Drop for DevFolder {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.0.path()).into_iter().flatten().flatten() {
            run(ctl().args(["dev", "down", "--dir"]).arg(entry.path()));
        }
    }
}

/// Returns the variables that `up` or `status` prints.
#[track_caller]
fn exports(finished: &Finished) -> BTreeMap<String, String> {
    assert!(finished.status.success(), "{}{}", finished.stdout, finished.stderr);
    let lines = finished.stdout.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.strip_prefix("export ").and_then(|line| line.split_once('=')).expect("a variable");
            (name.to_owned(), value.to_owned())
        })
        .collect()
}

/// Returns the processes with this folder in their command lines.
fn processes(folder: &Path) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc is there").flatten() {
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).into_owned();
        if command.contains(&*folder.to_string_lossy())
            && let Ok(pid) = entry.file_name().to_string_lossy().parse()
        {
            found.push(pid);
        }
    }
    found
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + limit();
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} does not happen");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_cluster_is_up_between_commands_beside_another_one_and_ends_with_all_that_it_has_left() {
    let (dataset, folder) = (TestDataset::of_pictures(48, 8), DevFolder::new());
    let job = dataset.job("first", "");
    let up = folder.up("a", 2, &[&job]);
    let variables = exports(&up);
    assert_eq!(variables["SPDL_JOB"], "first");
    assert!(up.stdout.contains("# 2 workers; the page: http://127.0.0.1:"), "{}", up.stdout);
    assert_eq!(fs::metadata(folder.path("a")).expect("it is there").permissions().mode() & 0o777, 0o700);

    let other = exports(&folder.up("b", 1, &[]));
    assert!(other["SPDL_COORD"] != variables["SPDL_COORD"] && !other.contains_key("SPDL_JOB"));
    for _ in 0..2 {
        let pulled = run(ctl().args(["pull", "--json"]).envs(&variables));
        assert_eq!(pulled.json()["samples"], 48, "{}", pulled.stderr);
    }
    let again = folder.up("a", 1, &[]);
    again.error(&["error: a cluster is up in `", "hint: `spdl-ctl dev status` shows it, `spdl-ctl dev down` ends it"]);
    assert_eq!(exports(&run(&mut folder.dev("a", "status"))), variables);
    let status = run(folder.dev("a", "status").arg("--json")).json();
    assert_eq!((&status["workers"][1], &status["jobs"][0]), (&"worker-1".into(), &"first".into()));
    assert_eq!(processes(&folder.path("a")).len(), 4, "the parent, a coordinator and two workers");

    let down = run(&mut folder.dev("a", "down"));
    assert!(down.status.success() && down.stdout.contains("has ended"), "{}{}", down.stdout, down.stderr);
    assert!(!folder.path("a").exists());
    wait_until("the end of the processes", || processes(&folder.path("a")).is_empty());
    let down = run(&mut folder.dev("a", "down"));
    assert!(down.status.success() && down.stdout.contains("no cluster is up"), "{}{}", down.stdout, down.stderr);
    assert!(run(&mut folder.dev("b", "status")).status.success(), "the other one goes on");
}

#[test]
fn what_a_killed_cluster_leaves_is_recognised() {
    let folder = DevFolder::new();
    exports(&folder.up("a", 1, &[]));
    let pid = run(folder.dev("a", "status").arg("--json")).json()["pid"].as_u64().expect("a number");
    signal(u32::try_from(pid).expect("a process"), Signal::KILL);
    wait_until("the end of the servers", || processes(&folder.path("a")).is_empty());
    assert!(folder.path("a/certs/client/key.pem").exists());
    run(&mut folder.dev("a", "status")).error(&["no cluster is up in"]);
    let up = folder.up("a", 1, &[]);
    assert!(up.stderr.contains("warning: removed what a killed cluster had left"), "{}", up.stderr);
    exports(&up);

    // A server that ends by itself ends the cluster, whose logs say so.
    let server = processes(&folder.path("a")).into_iter().max().expect("a server");
    signal(server, Signal::KILL);
    wait_until("the end of the cluster", || processes(&folder.path("a")).is_empty());
    let status = run(&mut folder.dev("a", "status"));
    status.error(&["no cluster is up in", "ended by itself with signal: 9 (SIGKILL), and so does the cluster"]);
    assert!(!folder.path("a/certs").exists());
    assert!(run(&mut folder.dev("a", "down")).status.success());
    assert!(!folder.path("a").exists());
}

#[test]
fn what_cannot_be_started_leaves_no_process_and_says_why() {
    let (dataset, folder) = (TestDataset::of_pictures(24, 8), DevFolder::new());
    let job = dataset.job("gone", "");
    let text = fs::read_to_string(&job).expect("it was written");
    fs::write(&job, text.replace("/dataset\"", "/elsewhere\"")).expect("it is written");
    folder.up("a", 1, &[&job]).error(&["error: the cluster in `", "did not start:", "/elsewhere"]);
    wait_until("the end of the processes", || processes(&folder.path("a")).is_empty());
    assert!(!folder.path("a/certs").exists());
    folder.up("b", 1, &[&dataset.path("none.toml")]).error(&["none.toml"]);
    assert!(!folder.path("b").exists());
    let mut command = folder.dev("c", "up");
    run(command.args(["--memory", "1KiB"])).error(&["worker-0 did not start", "worker-0.log", "1024"]);
    let mut command = folder.dev("c", "up");
    run(command.args(["--cores", "abc"]))
        .error(&["worker-0 did not start", "`--cores`: `abc` is not a number of cores"]);
    folder.up(&"long".repeat(30), 1, &[]).error(&["is too long for the paths of the workers' sockets, by", "--dir"]);

    let foreign = folder.path("d");
    fs::create_dir(&foreign).expect("it is made");
    fs::write(foreign.join("mine"), "mine").expect("it is written");
    folder.up("d", 1, &[]).error(&["is not a folder that only you can read"]);
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o700)).expect("it is mine");
    folder.up("d", 1, &[]).error(&["has other files in it; name an empty or a new folder"]);
    assert_eq!(fs::read_dir(&foreign).expect("it is there").count(), 1);
}

#[test]
fn a_cluster_whose_folder_is_removed_ends_and_leaves_alone_the_next_one_there() {
    let folder = DevFolder::new();
    let path = folder.path("a");
    exports(&folder.up("a", 1, &[]));
    fs::remove_dir_all(&path).expect("it is removed");
    let old = processes(&path);
    exports(&folder.up("a", 1, &[]));
    let now = || processes(&path);
    wait_until("the end of the first cluster", || now().iter().all(|pid| !old.contains(pid)));
    assert_eq!(now().len(), 3, "the parent, the coordinator and the worker of the second one");
    assert!(path.join("worker-0.sock").exists());
    assert!(run(&mut folder.dev("a", "status")).status.success());

    fs::remove_file(path.join("lock")).expect("it is removed");
    wait_until("the end of the second cluster", || now().is_empty());
}

#[test]
fn a_cluster_is_ended_whatever_has_become_of_its_files() {
    let folder = DevFolder::new();
    exports(&folder.up("a", 1, &[]));
    let ready = folder.path("a/ready.json");
    fs::write(&ready, "garbage").expect("it is written");
    let status = run(&mut folder.dev("a", "status"));
    status.error(&[
        "a cluster is up, but `",
        "ready.json` is not what `dev up` wrote",
        "hint: `spdl-ctl dev down` ends",
    ]);
    folder.up("a", 1, &[]).error(&["a cluster is up in `"]);
    let down = run(&mut folder.dev("a", "down"));
    assert!(down.status.success() && down.stdout.contains("has ended"), "{}{}", down.stdout, down.stderr);
    assert!(!folder.path("a").exists() && processes(&folder.path("a")).is_empty());

    exports(&folder.up("a", 1, &[]));
    fs::remove_file(&ready).expect("it is removed");
    run(&mut folder.dev("a", "status")).error(&["is still starting"]);
    assert!(run(&mut folder.dev("a", "down")).status.success());
    assert!(!folder.path("a").exists() && processes(&folder.path("a")).is_empty());
}

#[test]
fn what_up_cannot_do_is_refused_before_a_process_starts() {
    let (dataset, folder) = (TestDataset::of_pictures(24, 8), DevFolder::new());
    let job = dataset.job("first", "");
    let copy = folder.path("copy.toml");
    fs::copy(&job, &copy).expect("it is copied");
    folder.up("a", 1, &[&job, &job]).error(&["are both the job `first`", "hint: give each job once"]);
    folder.up("a", 1, &[&job, &copy]).error(&["copy.toml` are both the job `first`"]);
    for action in ["up", "status", "down"] {
        let mut command = ctl();
        let finished = run(command.args(["dev", action]).env("XDG_RUNTIME_DIR", folder.path("none")));
        finished.error(&["XDG_RUNTIME_DIR is `", "/none`, which is no folder", "hint: unset it", "--dir"]);
    }
    assert!(!folder.path("a").exists() && !folder.path("none").exists());
}

#[test]
fn commands_for_one_cluster_at_once_do_not_end_each_other() {
    let folder = DevFolder::new();
    exports(&folder.up("a", 1, &[]));
    let commands: Vec<_> = ["down", "status", "down", "status", "down", "status", "down"]
        .map(|action| {
            let mut command = folder.dev("a", action);
            (action, thread::spawn(move || run(&mut command)))
        })
        .into_iter()
        .collect();
    let finished: Vec<_> =
        commands.into_iter().map(|(action, command)| (action, command.join().expect("it has run"))).collect();
    for (action, finished) in &finished {
        let Finished { status, stdout, stderr, .. } = finished;
        match *action {
            "down" => assert!(status.success() && stdout.contains(" in `"), "{status}: {stdout}{stderr}"),
            _ => assert!(status.code().is_some(), "{status}: {stdout}{stderr}"),
        }
    }
    assert!(finished.iter().any(|(_, finished)| finished.stdout.contains("has ended")));
    assert!(!folder.path("a").exists() && processes(&folder.path("a")).is_empty());
}
