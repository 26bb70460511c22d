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
use spdl_testkit::processes::{Finished, ServerProcess, TestDataset, ctl, limit, run, signal};

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
    // What is dying has no command line any more, and holds the cluster's lock until its files are closed.
    wait_until("the end of the cluster", || !run(&mut folder.dev("a", "status")).status.success());
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

/// Returns a command that has its clusters in a runtime folder.
fn with_runtime_folder(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = ctl();
    command.args(arguments).env("XDG_RUNTIME_DIR", folder);
    command
}

#[test]
fn commands_find_the_users_cluster_without_settings_and_settings_win() {
    let (dataset, folder) = (TestDataset::of_pictures(48, 8), DevFolder::new());
    let runtime = folder.0.path();
    let run_here = |arguments: &[&str]| run(&mut with_runtime_folder(runtime, arguments));
    run_here(&["status"])
        .error(&["no cluster is named, and none of `spdl-ctl dev up` is running here", "hint: give `--coord`"]);
    let job = dataset.job("first", "epochs = 2").display().to_string();
    let up = run_here(&["dev", "up", &job, "--cores", "1", "--memory", "256MiB"]);
    let variables = exports(&up);
    assert!(up.stdout.contains("# the end: spdl-ctl dev down\n"), "{}", up.stdout);
    let said = format!(
        "note: the cluster of `spdl-ctl dev up` in `{}/spdl-dev`, at {}\n",
        runtime.display(),
        variables["SPDL_COORD"]
    );
    let status = run_here(&["status", "--json"]);
    assert_eq!((&status.json()["jobs"][0]["name"], &status.stderr), (&"first".into(), &said));
    let pulled = run_here(&["pull", "--json", "--steps", "2"]);
    assert_eq!(pulled.json()["samples"], 48);
    assert!(pulled.stderr.starts_with(&said), "{}", pulled.stderr);
    assert!(run_here(&["top", "--once"]).stdout.contains("first"));
    assert!(run_here(&["audit", "--run", "first"]).status.success());
    assert!(run_here(&["run", "reset", "first", "--yes"]).status.success(), "an administrator's certificate is found");

    // What is given wins, and half of it is an error.
    let elsewhere = run(with_runtime_folder(runtime, &["status"])
        .env("SPDL_COORD", "127.0.0.1:9")
        .env("SPDL_CERTS", &variables["SPDL_CERTS"]));
    elsewhere.error(&["127.0.0.1:9"]);
    assert!(!elsewhere.stderr.contains("note:"), "{}", elsewhere.stderr);
    run_here(&["status", "--coord", "127.0.0.1:9"]).error(&["`--coord` is given, and `--certs` is not"]);

    // A cluster that was killed is not found, though its files are there.
    let pid = run_here(&["dev", "status", "--json"]).json()["pid"].as_u64().expect("a number");
    signal(u32::try_from(pid).expect("a process"), Signal::KILL);
    wait_until("the end of the servers", || processes(runtime).is_empty());
    assert!(runtime.join("spdl-dev/ready.json").exists());
    run_here(&["status"]).error(&["no cluster is named"]);
    assert!(run_here(&["dev", "down"]).status.success());
}

#[test]
fn an_edited_job_is_taken_up_and_goes_on_only_where_its_order_is_the_same() {
    let (dataset, folder) = (TestDataset::of_pictures(48, 8), DevFolder::new());
    let job = dataset.job("first", "epochs = 2");
    let variables = exports(&folder.up("a", 1, &[&job]));
    let edit = |from: &str, to: &str| {
        let text = fs::read_to_string(&job).expect("it was written");
        assert!(text.contains(from), "{text}");
        fs::write(&job, text.replace(from, to)).expect("it is written");
    };
    let up_again = || {
        let up = run(folder.dev("a", "up").arg(&job));
        assert_eq!(exports(&up), variables);
        up.stderr
    };
    let pulled = |further: &[&str]| run(ctl().args(["pull", "--json"]).args(further).envs(&variables)).json();
    assert_eq!(pulled(&["--steps", "1"])["samples"], 24);
    assert_eq!(up_again(), "note: job `first` is there, and the same\n");
    edit("epochs = 2", "epochs = 3");
    edit("global_batch = 24", "global_batch = 12");
    let same = "its runs keep their positions, and what they have read stays the same";
    assert_eq!(
        up_again(),
        format!("note: job `first` has changed in `global_batch` (12, was 24), `epochs` (3, was 2): {same}\n")
    );
    // Three epochs of 48, of which 24 samples were delivered before.
    assert_eq!(pulled(&["--from", "resume"])["samples"], 120);

    edit("seed = 5", "seed = 6");
    let mut submit = ctl();
    submit
        .args(["job", "submit"])
        .arg(&job)
        .env("SPDL_COORD", &variables["SPDL_COORD"])
        .env("SPDL_CERTS", folder.path("a/certs/admin"));
    run(&mut submit).error(&["it is there already, and this one differs in `seed` (6, was 5)"]);
    let replaced = run(submit.arg("--replace"));
    assert_eq!(
        replaced.stdout, "job `first` is another one now, by `seed` (6, was 5): its runs begin at the beginning\n",
        "{}",
        replaced.stderr
    );
    assert_eq!(pulled(&["--from", "resume"])["samples"], 144, "there is no position to go on from");

    // A job that is being trained is not replaced under its ranks.
    let mut pull = ctl();
    pull.args(["pull", "--json", "--progress", "--rate", "24", "--epochs", "100000"]).envs(&variables);
    let mut held = ServerProcess::spawn(&mut pull);
    held.progress_to(24);
    edit("seed = 6", "seed = 7");
    run(folder.dev("a", "up").arg(&job)).error(&[
        "job `first` is not replaced: ",
        "is in use",
        "hint: end that launch first",
    ]);
    held.kill();
    let more = run(folder.dev("a", "up").args(["--workers", "2"]).arg(dataset.job("second", "")));
    assert!(more.stderr.contains("note: the cluster is up, and keeps its workers"), "{}", more.stderr);
    assert!(more.stdout.contains("# jobs: first, second\n") && !more.stdout.contains("SPDL_JOB="), "{}", more.stdout);
}
