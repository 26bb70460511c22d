//! Weights of sources that change while a run goes on, and everything is killed in between.

use std::{fs, path::Path};

use serde_json::Value;
use spdl_testkit::processes::{Cluster, ServerProcess, TestDataset, ctl, run};

use super::RATE;

/// The name of the job and of its run.
const RUN: &str = "curriculum";

/// Writes a job of two sources, photos and drawings, whose weights are 7 and 3 at first.
fn write_job((name, path): (&str, &Path), datasets: &[TestDataset; 2], stages: &[(u64, u32, u32)]) {
    let [photos, drawings] = datasets.each_ref().map(|dataset| dataset.path("dataset"));
    let stage = |(from, photos, drawings): &(u64, u32, u32)| {
        format!("[[stage]]\nfrom = {from}\nweights = {{ photos = {photos}, drawings = {drawings} }}\n")
    };
    let stages: String = stages.iter().map(stage).collect();
    let text = format!(
        "name = \"{name}\"\nseed = 5\nglobal_batch = 24\nepochs = 1000\ntotal_samples = 2400\n\
         [[source]]\nname = \"photos\"\ndataset = {photos:?}\nweight = 7\n\
         [[source]]\nname = \"drawings\"\ndataset = {drawings:?}\nweight = 3\n{stages}\
         [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n"
    );
    fs::write(path, text).unwrap();
}

fn replace(cluster: &Cluster, job: &Path) -> spdl_testkit::processes::Finished {
    run(cluster.ctl("admin", ["job", "submit", "--replace"]).arg(job))
}

/// Returns the first sample from which on stages can change: it is in the refusal of one that begins too early.
fn first_free(cluster: &Cluster, job: &Path) -> u64 {
    let refused = replace(cluster, job);
    let error =
        refused.error(&["run `curriculum` has reached sample", "its `stage` tables or redactions differ before that"]);
    let (_, rest) = error.split_once("`from = ").unwrap();
    rest.split('`').next().unwrap().parse().unwrap()
}

/// Kills a launch of so many ranks in its middle, then the coordinator and a worker, and starts both again.
fn kill_all(cluster: &mut Cluster, world: u32, from: &str, samples: u64) {
    let args = ["--from", from, "--rate", RATE, "--progress"];
    let rank = |rank| ServerProcess::spawn(&mut cluster.pull(RUN, rank, world, "node-0", &args));
    let mut ranks: Vec<ServerProcess> = (0..world).map(rank).collect();
    ranks.iter_mut().for_each(|rank| _ = rank.progress_to(samples));
    ranks.iter_mut().for_each(ServerProcess::kill);
    let is_over = |status: &Value| status["jobs"][0]["runs"][0]["ranks_alive"] == 0;
    cluster.wait_for("the end of the launch", is_over);
    cluster.coordinator.as_mut().unwrap().kill();
    cluster.workers[0].process.kill();
    cluster.start_coordinator();
    cluster.restart_worker(0);
    // The coordinator waits for ranks that were only away from the one before.
    cluster.wait_for("the cluster", |status| is_over(status) && status["workers"].as_array().unwrap().len() == 2);
}

fn audit(cluster: &Cluster) -> Value {
    run(&mut cluster.ctl("admin", ["audit", "--run", "curriculum", "--json"])).json()
}

#[test]
fn weights_change_twice_in_a_run_whose_processes_are_killed_and_the_audit_agrees_at_every_world() {
    let datasets = [TestDataset::of_pictures(120, 30), TestDataset::of_pictures(60, 30)];
    let job = datasets[0].path("curriculum.toml");
    write_job((RUN, &job), &datasets, &[]);
    let mut cluster = Cluster::start_with(2, &["--liveness-ms", "1500"], Vec::new());
    cluster.submit(&job);

    kill_all(&mut cluster, 2, "0:0", 120);
    write_job((RUN, &job), &datasets, &[(1, 4, 6)]);
    let first = first_free(&cluster, &job);
    write_job((RUN, &job), &datasets, &[(first + 30, 4, 6), (1_000_000, 1, 1)]);
    let replaced = replace(&cluster, &job);
    assert!(
        replaced.status.success() && replaced.stdout.contains("its runs keep their positions"),
        "{}",
        replaced.stderr
    );
    assert_eq!(audit(&cluster)["equal"], true);

    kill_all(&mut cluster, 3, "resume", 120);
    write_job((RUN, &job), &datasets, &[(first + 31, 4, 6)]);
    let second = first_free(&cluster, &job);
    assert!(second > first + 30, "{second} is past the first change at {first} + 30");
    let mut weights = cluster.ctl("admin", ["job", "weights", RUN, "--set", "photos=0,drawings=1"]);
    let set = run(&mut weights);
    let written = format!("[[stage]]\nfrom = {second}\nweights = {{ drawings = 1, photos = 0 }}");
    assert!(set.stdout.contains(&written), "{}{}", set.stdout, set.stderr);
    write_job((RUN, &job), &datasets, &[(first + 30, 4, 6), (second, 0, 1)]);
    assert!(replace(&cluster, &job).stdout.contains("and the same"), "the file has what the command has printed");

    // A run without faults delivers the same from there on, and the whole run is what the job's stages make of it.
    // It goes past the second change, however far before it the ranks were killed.
    let steps = (second / 24 + 1).to_string();
    let reports = cluster.pull_all(RUN, 1, &["node-1"], &["--steps", &steps, "--from", "resume"]);
    let verdict = audit(&cluster);
    assert_eq!((&verdict["equal"], &verdict["difference"]), (&Value::Bool(true), &Value::Null), "{verdict}");
    let worlds: Vec<_> =
        verdict["sessions"].as_array().unwrap().iter().map(|session| session["world"].as_u64()).collect();
    assert_eq!(worlds, [Some(2), Some(3), Some(1)]);
    let [_, _, last] = verdict["sessions"].as_array().unwrap().as_slice() else { panic!("{verdict}") };
    let start = format!("{}:{}", last["start"]["epoch"], last["start"]["offset"]);
    let mut alone = ctl();
    alone.arg("audit").arg(&job).args(["--from", &start, "--steps", &steps, "--json"]);
    alone.args(["--receipt", reports[0]["receipt"].as_str().unwrap()]);
    assert_eq!(run(&mut alone).json()["equal"], true);
    let shown = run(&mut cluster.ctl("client", ["job", "show", "curriculum"])).stdout;
    assert!(shown.contains(&format!("from sample {}", first + 30)), "{shown}");

    // The last checkpoint is of every job with the same stages before it, and of no other.
    let state = reports[0]["state"].to_string();
    let take = |name: &str, stages: &[(u64, u32, u32)]| {
        write_job((name, &job), &datasets, stages);
        cluster.submit(&job);
        run(&mut cluster.pull(name, 0, 1, "node-1", &["--steps", "1", "--state", &state]))
    };
    let further = take("further", &[(first + 30, 4, 6), (second, 0, 1), (2_000_000, 1, 1)]);
    assert!(further.status.success(), "{}", further.stderr);
    take("other", &[(first + 30, 4, 6), (second, 1, 1)]).error(&["fingerprint"]);
}
