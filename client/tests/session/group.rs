//! Groups: several clients that share a rank, and what each sees of the others.

use std::{fs::File, os::unix::fs::MetadataExt, time::Duration};

use crate::cluster::{
    LONG, TestCluster,
    coordinator::TestCoordinator,
    home::{HomeScript, ScriptedHome},
    take,
};
use spdl_client::{Batch, Builder, Client, ClientError, ContentDigest};
use spdl_control::client::AllowedTransports;
use spdl_insight::Transport;
use spdl_order::Receipt;
use spdl_types::Position;

/// How long a test waits for something that must not happen.
const SHORT: Duration = Duration::from_millis(100);

/// A coordinator and a home, and the group that they serve.
struct TestGroup {
    coordinator: TestCoordinator,
    home: ScriptedHome,
    cluster: TestCluster,
    members: u32,
}

impl TestGroup {
    fn new(members: u32) -> Self {
        let cluster = TestCluster::new();
        let home = ScriptedHome::start(&cluster, 1, HomeScript::default());
        let coordinator = TestCoordinator::start(&cluster, 1, vec![home.home.clone()]);
        Self { coordinator, home, cluster, members }
    }

    fn builder(&self, member: u32) -> Builder {
        self.cluster.client(self.coordinator.address).member(member, self.members).unwrap()
    }

    async fn connect(&self, change: impl Fn(Builder) -> Builder) -> Vec<Client> {
        let mut clients = Vec::new();
        for member in 0..self.members {
            clients.push(change(self.builder(member)).connect(0, 1).await.unwrap());
        }
        clients
    }
}

/// Returns the number of the memory that a batch lies in, which is the same for all who have mapped it.
fn memory(batch: &Batch) -> u64 {
    let descriptor = batch.slab().fd().expect("it is shared").try_clone_to_owned().unwrap();
    File::from(descriptor).metadata().unwrap().ino()
}

async fn next(client: &mut Client) -> Batch {
    client.next().await.unwrap().expect("not at the end")
}

#[tokio::test]
async fn all_members_get_every_batch_in_one_slab_of_one_rank() {
    for (transports, transport) in
        [(AllowedTransports::Auto, Transport::Local), (AllowedTransports::Quic, Transport::Quic)]
    {
        let group = TestGroup::new(4);
        let mut clients = group.connect(|builder| builder.transports(transports)).await;
        let mut totals = vec![(Receipt::default(), ContentDigest::default()); 4];
        for step in 0..12 {
            let mut batches = Vec::new();
            for (client, total) in clients.iter_mut().zip(&mut totals) {
                let batch = next(client).await;
                assert_eq!(batch.from(), Position::new(step / 6, step % 6 * 8));
                total.0 += batch.receipt();
                total.1 += batch.content_digest();
                batches.push(batch);
            }
            assert!(batches.iter().all(|batch| memory(batch) == memory(&batches[0])), "all have mapped one slab");
            assert!(batches.iter().all(|batch| batch.slot() == batches[0].slot()));
        }
        assert!(totals.iter().all(|total| *total == totals[0]));
        for client in &mut clients {
            assert!(client.next().await.unwrap().is_none());
            assert_eq!((client.receipt(), client.position()), (totals[0].0, Position::new(1, 48)));
        }
        assert_eq!(clients[0].state(), clients[3].state());
        let states: Vec<_> = clients.iter().map(|client| client.stats().serving.transport).collect();
        assert_eq!(states[..2], [Some(transport), Some(Transport::Local)]);
        for client in clients {
            client.close().await;
        }
        let left = group.coordinator.record.wait("the leave", |record| record.leaves.pop()).await;
        assert_eq!((left.acknowledged, left.receipt), (Position::new(1, 48), totals[0].0), "a batch counts once");
        group.home.script.wait("the end of the link", |script| (script.gone == 1).then_some(())).await;
        let seen = group.home.script.change(|script| (script.delivered, script.attached.clone()));
        assert_eq!(seen, (12, vec![(Position::START, transport)]));
        assert_eq!(group.coordinator.record.change(|record| record.joins.len()), 1);
    }
}

#[tokio::test]
async fn a_slot_comes_back_when_the_last_member_has_released_it() {
    let group = TestGroup::new(2);
    let mut clients = group.connect(|builder| builder.slots(2)).await;
    let mut held = Vec::new();
    for client in &mut clients {
        held.push([next(client).await, next(client).await]);
    }
    let of_member = held.pop();
    drop(held);
    let error = clients[0].next_within(SHORT).await.unwrap_err().to_string();
    assert!(error.contains("members 1 of the group hold batches that member 0 has given back"), "{error}");
    let error = clients[1].next_within(SHORT).await.unwrap_err().to_string();
    assert!(
        error.contains("member 0, process") && error.contains("the trainer holds batches in all 2 slots"),
        "{error}"
    );
    assert_eq!(group.home.script.change(|script| (script.delivered, script.freed)), (2, 0));
    let [first, second] = of_member.unwrap();
    drop(first);
    group.home.script.wait("the slot", |script| (script.freed == 1).then_some(())).await;
    for client in &mut clients {
        assert_eq!(next(client).await.from(), Position::new(0, 16));
    }
    assert_eq!(second.entries().next().unwrap().offset, 8, "a batch that is held keeps its bytes");
}

#[tokio::test]
async fn nothing_comes_before_all_members_have_joined_and_the_wait_names_them() {
    let group = TestGroup::new(3);
    let mut leader = group.builder(0).connect(0, 1).await.unwrap();
    let mut first = group.builder(1).connect(0, 1).await.unwrap();
    let error = leader.next_within(SHORT).await.unwrap_err().to_string();
    assert!(error.contains("members 2 of the group have not joined it at `"), "{error}");
    let error = first.next_within(SHORT).await.unwrap_err().to_string();
    assert!(error.contains("member 0, process") && error.contains("members 2 of the group"), "{error}");
    let mut last = group.builder(2).connect(0, 1).await.unwrap();
    for client in [&mut leader, &mut first, &mut last] {
        assert_eq!(next(client).await.from(), Position::START);
    }
    let alone = TestGroup::new(2);
    let error = alone.builder(1).timeout(SHORT).connect(0, 1).await.unwrap_err();
    let ClientError::Group { rank: 0, member: 1, members: 2, problem } = error else { panic!("{error}") };
    assert!(problem.contains("member 0, which leads the group, is not at `"), "{problem}");
}

#[tokio::test]
async fn all_members_go_to_a_position_in_whatever_order_they_do() {
    let group = TestGroup::new(3);
    let mut clients = group.connect(|builder| builder).await;
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        for member in order {
            clients[member].go_to(Position::new(1, 0)).await.unwrap();
        }
        for client in &mut clients {
            assert_eq!(take(client, 2, Batch::from).await, [Position::new(1, 0), Position::new(1, 8)]);
        }
    }
    // One does not go where the leader goes: it gets what there was before, and then the reason why nothing comes.
    clients[0].go_to(Position::START).await.unwrap();
    let error = loop {
        if let Err(error) = clients[1].next_within(SHORT).await {
            break error.to_string();
        }
    };
    assert!(error.contains("has gone to 0:0, and this member has not"), "{error}");
    clients[1].go_to(Position::START).await.unwrap();
    clients[2].go_to(Position::new(0, 8)).await.unwrap();
    let error = clients[2].next().await.unwrap_err().to_string();
    assert!(error.contains("it goes to 0:8 where member 0 goes to 0:0"), "{error}");
    for client in &mut clients[..2] {
        assert_eq!(next(client).await.from(), Position::START);
    }
}

#[tokio::test]
async fn members_that_restart_before_the_others_have_joined_meet_at_one_position() {
    let group = TestGroup::new(2);
    let mut leader = group.builder(0).connect(0, 1).await.unwrap();
    leader.go_to(Position::new(0, 16)).await.unwrap();
    let mut member = group.builder(1).connect(0, 1).await.unwrap();
    member.go_to(Position::new(0, 16)).await.unwrap();
    for client in [&mut leader, &mut member] {
        assert_eq!(next(client).await.from(), Position::new(0, 16));
    }
}

#[tokio::test]
async fn a_member_that_is_gone_holds_nothing_and_what_it_held_does_not_change() {
    let group = TestGroup::new(3);
    let mut clients = group.connect(|builder| builder).await;
    let mut last = clients.pop().unwrap();
    let held = next(&mut last).await;
    let digest = held.content_digest();
    drop(last);
    let mut places = vec![];
    for _ in 0..11 {
        for client in &mut clients {
            places.push(next(client).await.from());
        }
    }
    assert_eq!(places.len(), 22);
    assert_eq!(held.content_digest(), digest, "its slot was not filled again");
    drop(held);
    for client in &mut clients {
        next(client).await;
        assert!(client.next().await.unwrap().is_none());
    }
    let error = group.builder(2).timeout(SHORT).connect(0, 1).await.unwrap_err().to_string();
    assert!(error.contains("restart all members from one checkpoint"), "{error}");
}

#[tokio::test]
async fn a_leader_that_is_gone_ends_its_members_with_its_name() {
    let group = TestGroup::new(2);
    let mut clients = group.connect(|builder| builder).await;
    let mut member = clients.pop().unwrap();
    let mut leader = clients.pop().unwrap();
    assert_eq!(next(&mut leader).await.from(), Position::START);
    leader.close().await;
    let mut taken = 0;
    let error = loop {
        match tokio::time::timeout(LONG, member.next()).await.expect("it does not hang") {
            Ok(batch) => taken += u32::from(batch.is_some()),
            Err(error) => break error,
        }
    };
    assert!(taken <= 3, "no more batches than slots");
    let text = error.to_string();
    assert!(text.starts_with("member 1 of the 2 of rank 0: member 0, which leads the group, has closed"), "{text}");
    // Another group of the rank takes the socket over.
    let mut clients = group.connect(|builder| builder).await;
    for client in &mut clients {
        assert_eq!(next(client).await.from(), Position::START);
    }
}

#[tokio::test]
async fn a_member_that_asks_for_another_start_is_refused_with_both() {
    let group = TestGroup::new(2);
    let _leader = group.builder(0).connect(0, 1).await.unwrap();
    let error = group.builder(1).start(Position::new(0, 8)).connect(0, 1).await.unwrap_err().to_string();
    assert!(error.contains("its start is 0:8, that of member 0 of rank 0 is 0:0"), "{error}");
    let error = group.cluster.client(group.coordinator.address).member(3, 3).unwrap_err().to_string();
    assert!(error.contains("`SPDL_MEMBER` is 3 of 3"), "{error}");
}
