//! A worker is killed, suspended, joined by another, or asked to end.

use rustix::process::Signal;
use spdl_testkit::processes::{Cluster, ServerProcess, TestDataset, sum, undisturbed};

use super::{BEYOND_SLOTS, RATE, end_and_compare, endless, home, only_rank};

#[test]
fn a_worker_killed_again_and_again_costs_its_ranks_nothing() {
    let dataset = TestDataset::of_pictures(60, 20);
    let job = dataset.job("again", "epochs = 1000000");
    let mut cluster = Cluster::start(2);
    cluster.submit(&job);
    let args = ["--steps", "60", "--from", "0:0", "--rate", RATE, "--progress"];
    let pull = |(rank, node)| ServerProcess::spawn(&mut cluster.pull("again", rank, 2, node, &args));
    let mut ranks = [(0, "node-0"), (1, "elsewhere")].map(pull);
    for life in 0..4 {
        ranks.iter_mut().for_each(|rank| {
            rank.progress_to(120 * life + 1);
        });
        let worker = (life % 2) as usize;
        cluster.workers[worker].process.kill();
        cluster.restart_worker(worker);
    }
    let reports = ranks.map(ServerProcess::finish);
    let alone = undisturbed(&job, 60, &[]);
    for field in ["receipt", "content_digest"] {
        assert_eq!(alone[field], sum(&reports, field), "{field}");
    }
    assert_eq!(reports[0]["state"], reports[1]["state"]);
}

#[test]
fn a_worker_that_hangs_is_left_for_another_and_harmless_when_it_comes_back() {
    let (_dataset, job) = endless();
    let cluster = Cluster::start_with(2, &["--liveness-ms", "1000"], Vec::new());
    cluster.submit(&job);
    // A hang does not close the local queue, and closes a QUIC connection only after a while. Missed heartbeats reveal
    // it.
    for node in ["node-0", "elsewhere"] {
        let mut rank = only_rank(&cluster, node);
        rank.progress_to(1);
        let seen = cluster.wait_for("a home", |status| home(status).is_some());
        let (first, second) = if home(&seen) == Some("node-0") { (0, "node-1") } else { (1, "node-0") };
        cluster.workers[first].process.signal(Signal::STOP);
        cluster.wait_for("another home", |status| home(status) == Some(second));
        let before = rank.progress_to(1);
        let after = rank.progress_to(before + BEYOND_SLOTS);
        cluster.workers[first].process.signal(Signal::CONT);
        cluster.wait_for("the worker's return", |status| status["workers"].as_array().unwrap().len() == 2);
        rank.progress_to(after + BEYOND_SLOTS);
        end_and_compare(rank, &job);
    }
}

#[test]
fn a_new_worker_on_a_ranks_node_takes_it_over_without_a_restart() {
    let (_dataset, job) = endless();
    let mut cluster = Cluster::start_with(0, &["--liveness-ms", "1000"], Vec::new());
    cluster.start_worker("elsewhere", &[]);
    cluster.submit(&job);
    let mut rank = only_rank(&cluster, "node-0");
    rank.progress_to(1);
    cluster.start_worker("node-0", &[]);
    let moved = |status: &serde_json::Value| {
        home(status) == Some("node-0") && super::rank_status(status, 0)["transport"] == "local"
    };
    cluster.wait_for("the nearer home", moved);
    let before = rank.progress_to(1);
    rank.progress_to(before + BEYOND_SLOTS);
    end_and_compare(rank, &job);
}

#[test]
fn new_workers_share_ranks_that_have_none_on_their_node() {
    let (_dataset, job) = endless();
    let mut cluster = Cluster::start_with(0, &["--liveness-ms", "1000"], Vec::new());
    cluster.start_worker("a", &[]);
    cluster.submit(&job);
    let args = ["--from", "0:0", "--rate", "50", "--progress"];
    let mut ranks: Vec<ServerProcess> =
        (0..3).map(|rank| ServerProcess::spawn(&mut cluster.pull("j", rank, 3, "elsewhere", &args))).collect();
    ranks.iter_mut().for_each(|rank| {
        rank.progress_to(1);
    });
    cluster.start_worker("b", &[]);
    cluster.start_worker("c", &[]);
    cluster.wait_for("one rank each", |status| {
        let mut homes: Vec<_> = (0..3).map(|rank| super::rank_status(status, rank)["home"].clone()).collect();
        homes.sort_by_key(ToString::to_string);
        homes == ["a", "b", "c"]
    });
    for rank in &mut ranks {
        let before = rank.progress_to(1);
        rank.progress_to(before + BEYOND_SLOTS / 3);
    }
}

#[test]
fn a_worker_that_gets_sigterm_passes_its_ranks_to_others_and_leaves() {
    let (_dataset, job) = endless();
    let mut cluster = Cluster::start(2);
    cluster.submit(&job);
    let mut rank = only_rank(&cluster, "node-0");
    let before = rank.progress_to(1);
    let worker = &mut cluster.workers[0].process;
    worker.signal(Signal::TERM);
    assert!(worker.wait().success());
    rank.progress_to(before + BEYOND_SLOTS);
    cluster.wait_for("the other home", |status| home(status) == Some("node-1"));
    end_and_compare(rank, &job);
}

#[test]
fn a_worker_that_gets_sigterm_leaves_though_no_worker_takes_its_ranks() {
    let (_dataset, job) = endless();
    let mut cluster = Cluster::start(1);
    cluster.submit(&job);
    let mut rank = only_rank(&cluster, "node-0");
    let before = rank.progress_to(1);
    let worker = &mut cluster.workers[0].process;
    worker.signal(Signal::TERM);
    assert!(worker.wait().success());
    assert!(!cluster.workers[0].socket.exists());
    cluster.restart_worker(0);
    rank.progress_to(before + BEYOND_SLOTS);
    end_and_compare(rank, &job);
}

#[test]
fn the_ranks_of_a_dead_node_spread_over_the_living() {
    let (_dataset, job) = endless();
    let mut cluster = Cluster::start(3);
    cluster.submit(&job);
    let args = ["--from", "0:0", "--rate", "50", "--progress"];
    let mut ranks: Vec<ServerProcess> =
        (0..4).map(|rank| ServerProcess::spawn(&mut cluster.pull("j", rank, 4, "node-0", &args))).collect();
    ranks.iter_mut().for_each(|rank| {
        rank.progress_to(1);
    });
    cluster.workers[0].process.kill();
    cluster.wait_for("two ranks each", |status| {
        let of = |name: &str| (0..4).filter(|rank| super::rank_status(status, *rank)["home"] == name).count();
        (of("node-1"), of("node-2")) == (2, 2)
    });
    for rank in &mut ranks {
        let before = rank.progress_to(1);
        rank.progress_to(before + BEYOND_SLOTS / 4);
    }
}
