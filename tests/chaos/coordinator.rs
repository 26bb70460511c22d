//! The coordinator is unavailable for a while: killed, or suspended.

use rustix::process::Signal;
use spdl_testkit::processes::{Cluster, run};

use super::{BEYOND_SLOTS, end_and_compare, endless, home, only_rank, rank_status};

#[test]
fn a_coordinator_that_is_killed_stops_no_rank_and_comes_back_with_its_state() {
    let (_dataset, job) = endless();
    let mut cluster = Cluster::start(2);
    cluster.submit(&job);
    let mut rank = only_rank(&cluster, "node-0");
    let before = rank.progress_to(1);
    cluster.coordinator.as_mut().unwrap().kill();
    let away = rank.progress_to(before + BEYOND_SLOTS);
    cluster.start_coordinator();
    let seen = cluster.wait_for("the rank at its home", |status| {
        status["sessions"].as_array().is_some_and(|sessions| !sessions.is_empty())
            && home(status) == Some("node-0")
            && rank_status(status, 0)["position"]["offset"].is_u64()
    });
    assert_eq!(seen["jobs"][0]["name"], "j");
    assert_eq!(rank_status(&seen, 0)["is_alive"], true);

    // The coordinator works again: it notices the home's end and gives the rank another home.
    cluster.wait_for("the other worker", |status| status["workers"].as_array().unwrap().len() == 2);
    cluster.workers[0].process.kill();
    rank.progress_to(away + BEYOND_SLOTS);
    cluster.wait_for("another home", |status| home(status) == Some("node-1"));
    end_and_compare(rank, &job);
}

#[test]
fn a_coordinator_that_hangs_stops_no_rank() {
    let (_dataset, job) = endless();
    let cluster = Cluster::start_with(1, &["--liveness-ms", "1000"], Vec::new());
    cluster.submit(&job);
    let mut rank = only_rank(&cluster, "elsewhere");
    let before = rank.progress_to(1);
    let coordinator = cluster.coordinator.as_ref().unwrap();
    coordinator.signal(Signal::STOP);
    let away = rank.progress_to(before + BEYOND_SLOTS);
    coordinator.signal(Signal::CONT);
    cluster.wait_for("the rank at its home", |status| home(status) == Some("node-0"));
    rank.progress_to(away + BEYOND_SLOTS);
    end_and_compare(rank, &job);
}

#[test]
fn a_rank_that_starts_while_the_coordinator_is_away_waits_for_it() {
    let (_dataset, job) = endless();
    let mut cluster = Cluster::start(1);
    cluster.submit(&job);
    cluster.coordinator.as_mut().unwrap().kill();
    let mut rank = only_rank(&cluster, "node-0");
    cluster.start_coordinator();
    rank.progress_to(1);
    end_and_compare(rank, &job);
    assert!(run(cluster.ctl("admin", ["status"]).arg("--json")).json()["jobs"].is_array());
}
