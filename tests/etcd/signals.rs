//! A signal ends a coordinator gracefully, and a second one at once, even while etcd hangs.

use rustix::process::Signal;
use serde_json::Value;
use spdl_testkit::processes::TestDataset;

use super::coordinators::{Coordinators, Replica, get, wait_until};

impl Replica {
    fn ends_with(&mut self) -> Option<i32> {
        self.process.child.wait().expect("it is ours").code()
    }
}

#[test]
fn a_leader_that_gets_sigterm_gives_up_its_lease_and_ends_in_order() {
    let Some(mut all) = Coordinators::start(0) else { return };
    let leader = all.wait_for_leader("a leader", |_| true);
    for (at, one) in all.each.iter().enumerate() {
        let ready =
            wait_until("everyone knows who leads", || get(&one.http, "/readyz").filter(|(code, _)| *code == 200));
        let metrics = get(&one.http, "/metrics").expect("metrics").1;
        let status: Value = serde_json::from_str(&get(&one.http, "/status").expect("a status").1).expect("JSON");
        assert_eq!(ready.1 == "ready\n", at == leader, "{}", ready.1);
        assert_eq!(metrics.contains("spdl_coordinator_leads 1.0"), at == leader, "{metrics}");
        assert_eq!(status["leads"], at == leader);
        assert_eq!(status["leader"].as_str(), (at != leader).then_some(all.each[leader].quic.as_str()));
    }
    for signal in [Signal::TERM, Signal::INT] {
        let leader = all.wait_for_leader("a leader", |_| true);
        all.each[leader].process.signal(signal);
        assert_eq!(all.each[leader].ends_with(), Some(0));
        all.each.remove(leader);
    }
    all.wait_for_leader("the last one leads", |_| true);
}

#[test]
fn one_signal_ends_a_coordinator_while_etcd_hangs_and_a_second_one_at_once() {
    let dataset = TestDataset::of_pictures(24, 24);
    let Some(mut all) = Coordinators::start(0) else { return };
    all.cluster.submit(&dataset.job("signals", ""));
    let leader =
        all.wait_for_leader("a leader", |status| status["jobs"].as_array().is_some_and(|jobs| jobs.len() == 1));
    all.etcd.pause();
    // A standby and the leader: neither waits for etcd.
    let other = &mut all.each[(leader + 1) % 3];
    other.process.signal(Signal::TERM);
    assert_eq!(other.ends_with(), Some(0));
    let leader = &mut all.each[leader];
    // It would take the leader a while to release its lease.
    leader.process.signal(Signal::TERM);
    leader.process.signal(Signal::INT);
    assert_eq!(leader.ends_with(), Some(1));
}
