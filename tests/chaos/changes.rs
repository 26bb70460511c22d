//! Weights of sources change and samples are redacted while ranks train, and everything is killed meanwhile.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use spdl_testkit::processes::{Cluster, Finished, ServerProcess, TestDataset, run};

use super::RATE;

/// The name of the job and of its run.
const RUN: &str = "living";
/// The samples of the first source, whose ids are the lowest.
const PHOTOS: usize = 120;

fn write_job(path: &Path, datasets: &[TestDataset; 2]) {
    let [photos, drawings] = datasets.each_ref().map(|dataset| dataset.path("dataset"));
    let text = format!(
        "name = \"{RUN}\"\nseed = 5\nglobal_batch = 24\nepochs = 1000\ntotal_samples = 2400\n\
         [[source]]\nname = \"photos\"\ndataset = {photos:?}\nweight = 7\n\
         [[source]]\nname = \"drawings\"\ndataset = {drawings:?}\nweight = 3\n\
         [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n"
    );
    fs::write(path, text).unwrap();
}

/// Starts a rank that pulls until it is ended, and writes what it gets into a trace.
fn rank(cluster: &Cluster, launch: u32, (rank, world): (u32, u32), from: &str, transport: &str) -> ServerProcess {
    let trace = cluster.path(format!("{launch}-{rank}.trace"));
    let args =
        ["--from", from, "--rate", RATE, "--progress", "--transport", transport, "--trace", trace.to_str().unwrap()];
    ServerProcess::spawn(&mut cluster.pull(RUN, rank, world, "node-0", &args))
}

fn change(cluster: &Cluster, args: &[&str]) -> Finished {
    let done = run(&mut cluster.ctl("admin", [&["job"], args].concat()));
    assert!(done.status.success(), "{args:?}: {}{}", done.stdout, done.stderr);
    done
}

/// Returns the number behind these words in the job as the coordinator has it.
fn last_from(cluster: &Cluster, list: &str) -> u64 {
    let job = run(&mut cluster.ctl("admin", ["job", "show", RUN, "--json"])).json();
    job["order"][list].as_array().unwrap().last().unwrap()["from"].as_u64().unwrap()
}

fn reached(status: &Value) -> u64 {
    let at = &status["jobs"][0]["acknowledged"];
    at["epoch"].as_u64().unwrap() * 2400 + at["offset"].as_u64().unwrap()
}

/// Waits until all ranks are past a sample, by what they report.
fn pass(cluster: &Cluster, sample: u64) {
    cluster.wait_for("ranks past the change", |status| reached(status) > sample + 48);
}

fn audit(cluster: &Cluster) -> Value {
    run(&mut cluster.ctl("admin", ["audit", "--run", RUN, "--json"])).json()
}

/// Checks that no redacted sample is in a batch of a trace that begins at or after sample `from`. Returns how many were there before.
fn check_traces(cluster: &Cluster, launches: &[(u32, u32)], (ids, from): (&BTreeSet<u64>, u64)) -> usize {
    let mut before = 0;
    for (launch, world) in launches {
        for rank in 0..*world {
            let text = fs::read_to_string(cluster.path(format!("{launch}-{rank}.trace"))).unwrap();
            for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
                let at = line["epoch"].as_u64().unwrap() * 2400 + line["offset"].as_u64().unwrap();
                let found = line["ids"].as_array().unwrap().iter().filter(|id| ids.contains(&id.as_u64().unwrap()));
                let found = found.count();
                assert!(found == 0 || at < from, "launch {launch}, rank {rank}: {line}");
                before += found;
            }
        }
    }
    before
}

/// Makes two datasets, and the file of a job that blends them.
fn living_job() -> ([TestDataset; 2], PathBuf) {
    let photos = (0..PHOTOS).map(|number| (vec![number as u8; 500], (number % 7).to_string()));
    let drawings = (0..60).map(|number| (vec![number; 300], (number % 7).to_string()));
    let datasets = [TestDataset::of_records(photos), TestDataset::of_records(drawings)];
    let job = datasets[0].path("living.toml");
    write_job(&job, &datasets);
    (datasets, job)
}

/// Writes the keys of the photos that are to be redacted, and returns their ids.
fn write_keys(path: &Path, further: &str) -> BTreeSet<u64> {
    let redacted: BTreeSet<u64> = (0..PHOTOS as u64).filter(|id| id % 7 == 3).collect();
    let keys: Vec<String> = redacted.iter().map(|id| format!("./{id:04}")).collect();
    fs::write(path, keys.join("\n") + further).unwrap();
    redacted
}

fn change_and_kill_over(transport: &str) {
    let (datasets, job) = living_job();
    let mut cluster = Cluster::start_with(2, &["--liveness-ms", "1500"], Vec::new());
    cluster.submit(&job);
    let mut ranks: Vec<ServerProcess> = (0..2).map(|number| rank(&cluster, 1, (number, 2), "0:0", transport)).collect();
    ranks.iter_mut().for_each(|rank| _ = rank.progress_to(120));

    change(&cluster, &["weights", RUN, "--set", "photos=0.4,drawings=0.6"]);
    let first = last_from(&cluster, "stages");
    cluster.coordinator.as_mut().unwrap().kill();
    cluster.workers[0].process.kill();
    cluster.start_coordinator();
    cluster.restart_worker(0);
    pass(&cluster, first);

    // The keys that a reader of the batches sees, of which one is in no dataset.
    let file = datasets[0].path("keys.txt");
    let redacted = write_keys(&file, "\nnowhere\n");
    let args = ["job", "redact", RUN, "--keys", file.to_str().unwrap()];
    let text = run(&mut cluster.ctl("admin", args))
        .error(&["has keys that no record of job `living` has: `nowhere`"])
        .to_owned();
    assert!(text.contains("--allow-unknown"), "{text}");
    change(&cluster, &["redact", RUN, "--keys", file.to_str().unwrap(), "--allow-unknown"]);
    let from = last_from(&cluster, "redactions");
    pass(&cluster, from);
    let verdict = audit(&cluster);
    assert_eq!((&verdict["equal"], &verdict["difference"]), (&Value::Bool(true), &Value::Null), "{verdict}");

    ranks.iter_mut().for_each(ServerProcess::kill);
    cluster.coordinator.as_mut().unwrap().kill();
    cluster.workers[1].process.kill();
    cluster.start_coordinator();
    cluster.restart_worker(1);
    let is_over = |status: &Value| status["jobs"][0]["runs"][0]["ranks_alive"] == 0;
    cluster.wait_for("the cluster", |status| is_over(status) && status["workers"].as_array().unwrap().len() == 2);

    let mut ranks: Vec<ServerProcess> =
        (0..3).map(|number| rank(&cluster, 2, (number, 3), "resume", transport)).collect();
    ranks.iter_mut().for_each(|rank| _ = rank.progress_to(60));
    change(&cluster, &["weights", RUN, "--set", "photos=1,drawings=1"]);
    pass(&cluster, last_from(&cluster, "stages"));
    let verdict = audit(&cluster);
    assert_eq!((&verdict["equal"], &verdict["difference"]), (&Value::Bool(true), &Value::Null), "{verdict}");
    drop(ranks);
    assert!(check_traces(&cluster, &[(1, 2), (2, 3)], (&redacted, from)) > 0, "they came before");
}

#[test]
fn weights_change_and_samples_are_redacted_in_a_living_run_over_the_local_queue() {
    change_and_kill_over("auto");
}

#[test]
fn weights_change_and_samples_are_redacted_in_a_living_run_over_quic() {
    change_and_kill_over("quic");
}

#[test]
fn a_coordinator_whose_disk_is_an_earlier_copy_learns_a_redaction_from_the_ranks() {
    let (datasets, job) = living_job();
    let mut cluster = Cluster::start(1);
    cluster.submit(&job);
    let mut ranks: Vec<ServerProcess> = (0..2).map(|number| rank(&cluster, 1, (number, 2), "0:0", "auto")).collect();
    ranks.iter_mut().for_each(|rank| _ = rank.progress_to(120));
    let (disk, copy) = (cluster.path("state/coordinator.redb"), cluster.path("earlier.redb"));
    cluster.coordinator.as_mut().unwrap().kill();
    fs::copy(&disk, &copy).unwrap();
    cluster.start_coordinator();
    pass(&cluster, 120);
    let file = datasets[0].path("keys.txt");
    let redacted = write_keys(&file, "\n");
    change(&cluster, &["redact", RUN, "--keys", file.to_str().unwrap()]);
    let from = last_from(&cluster, "redactions");
    pass(&cluster, from);
    cluster.coordinator.as_mut().unwrap().kill();
    fs::copy(&copy, &disk).unwrap();
    cluster.start_coordinator();

    let is_made = |change: &Value| change["redacted"] != 0 && change["is_proposed"] == false;
    let status = cluster.wait_for("the redaction", |status| {
        status["jobs"][0]["changes"].as_array().is_some_and(|changes| changes.iter().any(is_made))
    });
    assert_eq!(last_from(&cluster, "redactions"), from);
    pass(&cluster, reached(&status));
    let verdict = audit(&cluster);
    assert_eq!((&verdict["equal"], &verdict["difference"]), (&Value::Bool(true), &Value::Null), "{verdict}");
    // Ranks of the next launch have it, too.
    ranks.iter_mut().for_each(ServerProcess::kill);
    cluster.wait_for("the end", |status| status["jobs"][0]["runs"][0]["ranks_alive"] == 0);
    let mut ranks: Vec<ServerProcess> = (0..3).map(|number| rank(&cluster, 2, (number, 3), "resume", "auto")).collect();
    ranks.iter_mut().for_each(|rank| _ = rank.progress_to(60));
    drop(ranks);
    assert!(check_traces(&cluster, &[(1, 2), (2, 3)], (&redacted, from)) > 0, "they came before");
}
