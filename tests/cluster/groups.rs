//! Groups of processes that share a rank: one decodes for all, they map one slab, and a lost one holds up no other for long.

use std::{collections::BTreeSet, fs};

use rustix::process::Signal;
use serde_json::Value;
use spdl_testkit::processes::{Cluster, ServerProcess, TestDataset, run, sum, undisturbed};

const MEMBERS: usize = 8;

fn arguments<'a>(member: &'a str, further: &[&'a str]) -> Vec<&'a str> {
    [&["--member", member][..], further].concat()
}

/// Starts a member of the group of rank 0 of 1.
fn member(cluster: &Cluster, job: &str, node: &str, number: usize, members: usize, further: &[&str]) -> ServerProcess {
    let place = format!("{number}/{members}");
    ServerProcess::spawn(&mut cluster.pull(job, 0, 1, node, &arguments(&place, further)))
}

fn group(cluster: &Cluster, job: &str, node: &str, further: &[&str]) -> Vec<ServerProcess> {
    (0..MEMBERS).map(|number| member(cluster, job, node, number, MEMBERS, further)).collect()
}

/// Returns the slabs that a process has mapped, by their numbers.
fn slabs(process: &ServerProcess) -> BTreeSet<String> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", process.pid())).unwrap_or_default();
    let slabs = maps.lines().filter(|line| line.contains("/memfd:spdl-slab"));
    slabs.map(|line| line.split_whitespace().nth(4).expect("a line has an inode").to_owned()).collect()
}

fn assert_is(report: &Value, expected: &Value) {
    let reports = std::slice::from_ref(report);
    for field in ["receipt", "content_digest"] {
        assert_eq!(sum(reports, field), expected[field], "{field}");
    }
}

#[test]
fn a_group_gets_one_decode_in_one_slab_over_both_transports() {
    let dataset = TestDataset::of_pictures(120, 30);
    let job = dataset.job("grouped", "epochs = 1000000");
    let expected = undisturbed(&job, 40, &[]);
    for node in ["node-0", "elsewhere"] {
        let cluster = Cluster::start(1);
        cluster.submit(&job);
        let mut members = group(&cluster, "grouped", node, &["--steps", "40", "--rate", "60", "--progress"]);
        members.iter_mut().for_each(|member| {
            member.progress_to(24);
        });
        let mapped: BTreeSet<_> = members.iter().map(slabs).collect();
        assert_eq!(mapped.len(), 1, "all map the same memory: {mapped:?}");
        assert_eq!(mapped.first().map_or(0, BTreeSet::len), 1, "it is one slab");
        cluster.wait_for("one rank with its group", |status| {
            let ranks = &status["workers"][0]["ranks"];
            ranks.as_array().is_some_and(|ranks| ranks.len() == 1)
                && status.to_string().contains(&format!(", which leads a group of {MEMBERS}"))
        });
        let reports: Vec<Value> = members.into_iter().map(ServerProcess::finish).collect();
        reports.iter().for_each(|report| assert_is(report, &expected));
        assert!(reports.iter().all(|report| report["state"] == reports[0]["state"]));
        let decoded = cluster.metric("spdl_worker_stage_items_total{stage=\"decode\"}");
        let samples = reports[0]["samples"].as_f64().expect("a number");
        // The worker is ahead by what its four slots hold, and by a few samples more where one took long.
        assert!(
            (samples..1.5 * samples).contains(&decoded),
            "{decoded} samples were decoded for {samples} that each of {MEMBERS} members has got"
        );
    }
}

#[test]
fn a_member_that_is_killed_and_one_that_is_suspended_hold_up_no_other() {
    let dataset = TestDataset::of_pictures(120, 30);
    let job = dataset.job("lost", "epochs = 1000000");
    let expected = undisturbed(&job, 60, &[]);
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    let mut members = group(&cluster, "lost", "node-0", &["--steps", "60", "--rate", "60", "--progress"]);
    members.iter_mut().for_each(|member| {
        member.progress_to(24);
    });
    members[1].kill();
    members[2].signal(Signal::STOP);
    let mut suspended = members.remove(2);
    members.remove(1);
    for member in members {
        assert_is(&member.finish(), &expected);
    }
    suspended.signal(Signal::CONT);
    let failed = suspended.wait();
    assert!(!failed.success(), "it is told that it was lost");
    cluster.wait_for("no rank", |status| status["workers"][0]["ranks"].as_array().is_some_and(Vec::is_empty));
}

#[test]
fn a_leader_that_is_suspended_is_an_error_of_its_members_and_goes_on_when_it_wakes() {
    let dataset = TestDataset::of_pictures(120, 30);
    let job = dataset.job("led", "epochs = 1000000");
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    let further = ["--steps", "30", "--rate", "60", "--progress"];
    let [mut leader, mut other] = [0, 1].map(|number| member(&cluster, "led", "node-0", number, 2, &further));
    for process in [&mut leader, &mut other] {
        process.progress_to(24);
    }
    leader.signal(Signal::STOP);
    assert!(!other.wait().success(), "it does not wait for ever");
    leader.signal(Signal::CONT);
    assert_is(&leader.finish(), &undisturbed(&job, 30, &[]));
}

#[test]
fn a_group_goes_on_from_its_checkpoint_with_other_members_and_another_worker() {
    let dataset = TestDataset::of_pictures(120, 30);
    let job = dataset.job("regrouped", "epochs = 1000000");
    let mut cluster = Cluster::start(1);
    cluster.submit(&job);
    let members = group(&cluster, "regrouped", "node-0", &["--steps", "10"]);
    let mut history: Vec<Value> = members.into_iter().map(ServerProcess::finish).take(1).collect();
    let checkpoint = history[0]["state"].to_string();
    // Two members in place of eight, whose worker is killed on the way.
    let further = ["--steps", "30", "--state", &checkpoint, "--rate", "60", "--progress"];
    let mut members: Vec<_> =
        (0..2).map(|number| member(&cluster, "regrouped", "node-0", number, 2, &further)).collect();
    members.iter_mut().for_each(|member| {
        member.progress_to(24);
    });
    cluster.workers[0].process.kill();
    cluster.restart_worker(0);
    let reports: Vec<Value> = members.into_iter().map(ServerProcess::finish).collect();
    assert_eq!(reports[0]["content_digest"], reports[1]["content_digest"]);
    history.push(reports[0].clone());
    let alone = undisturbed(&job, 40, &[]);
    for field in ["receipt", "content_digest"] {
        assert_eq!(alone[field], sum(&history, field), "{field}");
    }
    assert_eq!(history[1]["state"], alone["state"]);
}

#[test]
fn a_redaction_while_a_group_trains_is_in_the_state_of_all_its_members() {
    let dataset = TestDataset::of_records((0..60).map(|number| (vec![number; 300], (number % 7).to_string())));
    let (job, keys) = (dataset.path("redacted.toml"), dataset.path("keys.txt"));
    let text = format!(
        "name = \"redacted\"\ndataset = {:?}\nseed = 5\nglobal_batch = 6\nepochs = 1000\n\
         [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n",
        dataset.path("dataset")
    );
    fs::write(&job, text).unwrap();
    fs::write(&keys, "./0003\n./0010\n").unwrap();
    let cluster = Cluster::start(1);
    cluster.submit(&job);
    let steps = 240;
    let mut members: Vec<_> = (0..2)
        .map(|number| {
            let further = ["--steps", &steps.to_string(), "--rate", "60", "--progress"];
            member(&cluster, "redacted", "node-0", number, 2, &further)
        })
        .collect();
    members.iter_mut().for_each(|member| {
        member.progress_to(24);
    });
    let redact = ["job", "redact", "redacted", "--keys", keys.to_str().unwrap()];
    let done = run(&mut cluster.ctl("admin", redact));
    assert!(done.status.success(), "{}{}", done.stdout, done.stderr);
    let shown = run(&mut cluster.ctl("admin", ["job", "show", "redacted", "--json"])).json();
    let from = shown["order"]["redactions"][0]["from"].as_u64().expect("where it begins");
    let reports: Vec<Value> = members.into_iter().map(ServerProcess::finish).collect();
    assert!(from < 6 * steps, "the group went past sample {from}");
    assert_eq!(reports[0]["state"], reports[1]["state"]);
    assert_eq!(reports[0]["content_digest"], reports[1]["content_digest"]);
    let verdict = run(&mut cluster.ctl("admin", ["audit", "--run", "redacted", "--json"])).json();
    assert_eq!((&verdict["equal"], &verdict["difference"]), (&Value::Bool(true), &Value::Null), "{verdict}");
}
