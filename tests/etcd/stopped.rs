//! A leader that is suspended until after its lease has expired, and then continues.

use rustix::process::Signal;
use spdl_control::{
    Role,
    coordinator::testing,
    messages::{FromCoordinator, Join, Refusal, ToCoordinator},
};
use spdl_testkit::processes::{LIMIT, TestDataset};
use spdl_wire::{
    certs::Identity,
    quic::{self, QuicSettings},
};

use super::coordinators::{Coordinators, get};

fn join(nonce: u64) -> ToCoordinator {
    let (job, run) = ("stopped".to_owned(), "stopped".to_owned());
    ToCoordinator::Join(Join { job, run, ..testing::join(0, 1, nonce) })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_stopped_past_its_lease_neither_answers_as_one_nor_writes_when_it_goes_on() {
    let dataset = TestDataset::of_pictures(48, 24);
    let Some(all) = Coordinators::start(0) else { return };
    all.cluster.submit(&dataset.job("stopped", ""));
    let first = all.wait_for_leader("a leader", |status| status["jobs"].as_array().is_some_and(|jobs| jobs.len() == 1));
    let identity = Identity::load(&all.cluster.certs("client")).unwrap();
    let endpoint = quic::client_endpoint(&identity, &QuicSettings::default()).unwrap();
    let address = all.each[first].quic.parse().unwrap();
    let connection = quic::connect(&endpoint, address, Role::Coordinator, LIMIT).await.unwrap();
    let joined = quic::request(&connection, &join(1), LIMIT).await.unwrap();
    assert!(matches!(joined, FromCoordinator::Joined { .. }), "{joined:?}");

    all.each[first].stop();
    // Each join would begin a session, which is written to the state. The requests wait in the suspended leader's
    // socket.
    let late: Vec<_> = (2..10)
        .map(|nonce| {
            let connection = connection.clone();
            tokio::spawn(async move { quic::request(&connection, &join(nonce), LIMIT).await })
        })
        .collect();
    let second = tokio::task::block_in_place(|| {
        all.wait_for_leader("another leader", |status| status["sessions"].as_array().is_some_and(|all| all.len() == 1))
    });
    assert_ne!(first, second);
    let before = all.etcd.revision();
    all.each[first].process.signal(Signal::CONT);
    for answer in late {
        match answer.await.unwrap() {
            Ok(FromCoordinator::Refused(Refusal::NotLeader { .. })) | Err(_) => {}
            other => panic!("it answers as the leader: {other:?}"),
        }
    }
    // When it names the new leader it has taken part in an election, and would have written all it had to write.
    let named = all.each[second].quic.clone();
    tokio::task::block_in_place(|| {
        super::coordinators::wait_until("the stopped one knows who leads", || {
            get(&all.each[first].http, "/readyz").filter(|(code, text)| *code == 200 && text.contains(&named))
        })
    });
    assert_eq!(all.etcd.revision(), before, "nothing was written");
}
