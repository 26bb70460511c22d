//! Tests of the client against the protocol's real coordinator side and home side, over both transports.

use std::{collections::VecDeque, time::Duration};

use crate::cluster::{
    LONG, TestCluster,
    coordinator::{CoordinatorRecord, TestCoordinator},
    home::{HomeScript, ScriptedHome, Then},
    job, take,
};
use spdl_client::{Client, ClientError, ContentDigest, State};
use spdl_control::{
    client::{AllowedTransports, RankError},
    messages::{Refusal, RunName, Start},
};
use spdl_insight::{ReceiveStats, Stall, Transport};
use spdl_order::Receipt;
use spdl_types::{Fingerprint, Position, SessionId, Stage};

fn script(thens: impl IntoIterator<Item = (u64, Then)>) -> HomeScript {
    HomeScript { thens: VecDeque::from_iter(thens), ..HomeScript::default() }
}

/// Takes all remaining batches. Returns the position of each, and the sums over all.
async fn drain(client: &mut Client) -> (Vec<Position>, Receipt, ContentDigest) {
    let (mut places, mut receipt, mut digest) = (Vec::new(), Receipt::default(), ContentDigest::default());
    while let Some(batch) = client.next().await.unwrap() {
        places.push(batch.from());
        receipt += batch.receipt();
        digest += batch.content_digest();
    }
    (places, receipt, digest)
}

/// Returns the positions of the job's twelve steps.
fn all_steps() -> Vec<Position> {
    (0..2).flat_map(|epoch| (0..6).map(move |step| Position::new(epoch, step * 8))).collect()
}

#[tokio::test]
async fn both_transports_hand_over_every_batch_in_order_with_the_same_bytes() {
    let cluster = TestCluster::new();
    let home = ScriptedHome::start(&cluster, 1, HomeScript::default());
    let mut sums = Vec::new();
    for (transports, transport) in
        [(AllowedTransports::Auto, Transport::Local), (AllowedTransports::Quic, Transport::Quic)]
    {
        let coordinator = TestCoordinator::start(&cluster, 1, vec![home.home.clone()]);
        let mut client = cluster.client(coordinator.address).transports(transports).connect(0, 1).await.unwrap();
        let first = client.next().await.unwrap().unwrap();
        assert_eq!(first.column("image").unwrap().as_slice::<f32>().unwrap()[18..36], [1.0; 18]);
        assert_eq!(first.column("text").unwrap().sample::<u8>(7).unwrap(), b"sample 0:0 7");
        assert_eq!(first.column("label").unwrap().as_slice::<i64>().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
        let stats = client.stats();
        assert_eq!((stats.serving.transport, stats.serving.home.as_deref()), (Some(transport), Some("w1")));
        let mut whole = (first.receipt(), first.content_digest());
        drop(first);
        let (places, receipt, digest) = drain(&mut client).await;
        assert_eq!(places, all_steps()[1..]);
        whole.0 += receipt;
        whole.1 += digest;
        assert_eq!(client.receipt(), whole.0);
        assert_eq!((client.stats().batches, client.stats().samples), (12, 96));
        sums.push(whole);
        client.close().await;
        coordinator.record.wait("the leave", |record| record.leaves.pop()).await;
    }
    assert_eq!(sums[0], sums[1]);
    let script = home.script.change(|script| script.attached.clone());
    assert_eq!(script, [(Position::START, Transport::Local), (Position::START, Transport::Quic)]);
}

#[tokio::test]
async fn the_ranks_of_a_world_share_the_stream() {
    let cluster = TestCluster::new();
    let home = ScriptedHome::start(&cluster, 1, HomeScript::default());
    let mut totals = Vec::new();
    for world in [1, 3] {
        let coordinator = TestCoordinator::start(&cluster, world, vec![home.home.clone()]);
        let mut total = (Receipt::default(), ContentDigest::default());
        for rank in 0..world {
            let mut client = cluster.client(coordinator.address).connect(rank, world).await.unwrap();
            let (places, receipt, digest) = drain(&mut client).await;
            assert_eq!(places, all_steps());
            total.0 += receipt;
            total.1 += digest;
        }
        totals.push(total);
    }
    assert_eq!(totals[0], totals[1]);
}

#[tokio::test]
async fn a_home_fills_no_more_slots_than_there_are_until_one_is_given_back() {
    for transports in [AllowedTransports::Local, AllowedTransports::Quic] {
        let cluster = TestCluster::new();
        let home = ScriptedHome::start(&cluster, 1, HomeScript::default());
        let coordinator = TestCoordinator::start(&cluster, 1, vec![home.home.clone()]);
        let mut client =
            cluster.client(coordinator.address).transports(transports).slots(2).connect(0, 1).await.unwrap();
        let first = client.next().await.unwrap().unwrap();
        let second = client.next().await.unwrap().unwrap();
        let error = client.next_within(Duration::from_millis(100)).await.unwrap_err();
        assert!(error.to_string().contains("the trainer holds batches in all 2 slots"), "{error}");
        assert_eq!(home.script.change(|script| (script.delivered, script.freed)), (2, 0));
        drop(first);
        home.script.wait("the slot", |script| (script.freed == 1).then_some(())).await;
        assert_eq!(client.next().await.unwrap().unwrap().from(), Position::new(0, 16));
        assert_eq!(second.entries().next().unwrap().offset, 8, "a batch that is held keeps its bytes");
    }
}

#[tokio::test]
async fn a_rank_whose_home_dies_goes_on_with_another_at_its_position() {
    for (thens, transports) in [
        ((5, Then::Die), AllowedTransports::Auto),
        ((5, Then::Die), AllowedTransports::Quic),
        ((0, Then::Die), AllowedTransports::Quic),
    ] {
        let cluster = TestCluster::new();
        let dying = ScriptedHome::start(&cluster, 1, script([thens]));
        let living = ScriptedHome::start(&cluster, 2, HomeScript { early_steps: 0, ..HomeScript::default() });
        let coordinator = TestCoordinator::start(&cluster, 1, vec![dying.home.clone(), living.elsewhere()]);
        let mut client = cluster.client(coordinator.address).transports(transports).connect(0, 1).await.unwrap();
        dying.script.wait("the attach", |script| (!script.attached.is_empty()).then_some(())).await;
        let (places, ..) = drain(&mut client).await;
        assert_eq!(places, all_steps());
        let reported = coordinator
            .record
            .wait("the report", |record| record.heartbeats.iter().find_map(|heartbeat| heartbeat.unreachable))
            .await;
        assert_eq!(reported, dying.home.worker);
        let (from, transport) = living.script.change(|script| script.attached[0]);
        assert!(from <= Position::new(0, 40), "{from}");
        assert_eq!(transport, Transport::Quic);
    }
}

#[tokio::test]
async fn batches_that_a_home_repeats_after_a_reconnect_are_not_handed_over_twice() {
    for transports in [AllowedTransports::Local, AllowedTransports::Quic] {
        let cluster = TestCluster::new();
        let home = ScriptedHome::start(&cluster, 1, script([(3, Then::FaultWhenAsked)]));
        let coordinator = TestCoordinator::start(&cluster, 1, vec![home.home.clone()]);
        let mut client = cluster.client(coordinator.address).transports(transports).connect(0, 1).await.unwrap();
        let mut places = take(&mut client, 3, |batch| batch.from()).await;
        home.script.change(|script| script.early_steps = 2);
        let error = client.next_within(Duration::from_millis(20)).await.unwrap_err();
        assert!(error.is_retryable(), "{error}");
        places.extend(drain(&mut client).await.0);
        assert_eq!(places, all_steps());
        let attached = home.script.change(|script| script.attached.clone());
        assert_eq!(attached[1].0, Position::new(0, 24), "it goes on after the three that it had");
        assert_eq!(home.script.change(|script| script.delivered), 3 + 2 + 9);
    }
}

#[tokio::test]
async fn a_home_that_leaves_passes_its_rank_to_another() {
    let cluster = TestCluster::new();
    let leaving = ScriptedHome::start(&cluster, 1, script([(4, Then::Leave)]));
    let coordinator = TestCoordinator::start(&cluster, 1, vec![leaving.home.clone()]);
    let mut client = cluster.client(coordinator.address).connect(0, 1).await.unwrap();
    let mut places = take(&mut client, 4, |batch| batch.from()).await;
    let other = ScriptedHome::start(&cluster, 2, HomeScript::default());
    coordinator.record.change(|record| record.homes.push(other.home.clone()));
    places.extend(drain(&mut client).await.0);
    assert_eq!(places, all_steps());
    leaving.script.wait("the end", |script| (script.gone == 1).then_some(())).await;
    assert_eq!(client.stats().batches, 12);
}

#[tokio::test]
async fn a_fault_that_no_home_can_mend_comes_after_the_batches_before_it() {
    let cluster = TestCluster::new();
    let home = ScriptedHome::start(&cluster, 1, script([(2, Then::Fault { is_retryable: false })]));
    let coordinator = TestCoordinator::start(&cluster, 1, vec![home.home.clone()]);
    let mut client = cluster.client(coordinator.address).connect(0, 1).await.unwrap();
    assert_eq!(take(&mut client, 2, |batch| batch.from()).await, all_steps()[..2]);
    let error = client.next().await.unwrap_err();
    assert_eq!(error.to_string(), "home `w1`: shard `train-0.tar` is gone");
    assert!(!error.is_retryable());
    assert_eq!(client.next().await.unwrap_err(), ClientError::Closed);
}

#[tokio::test]
async fn a_wait_that_is_too_long_reports_which_stage_waits_for_what() {
    let stall =
        Stall { worker: "w1".into(), stage: Stage::Fetch, waiting_for: "shard `train-3.tar`".into(), waited_ms: 4000 };
    for (answer, expected) in [(Some(stall), "stage `fetch` of worker `w1`"), (None, "is about to arrive")] {
        let cluster = TestCluster::new();
        let home = ScriptedHome::start(&cluster, 1, script([(1, Then::Stall(answer))]));
        let coordinator = TestCoordinator::start(&cluster, 1, vec![home.home.clone()]);
        let mut client = cluster.client(coordinator.address).connect(0, 1).await.unwrap();
        take(&mut client, 1, |_| ()).await;
        let error = client.next_within(Duration::from_millis(50)).await.unwrap_err();
        let text = error.to_string();
        assert!(["rank 0", "0:8", "home `w1`", expected].iter().all(|part| text.contains(part)), "{text}");
        assert!(error.is_retryable());
    }
}

#[tokio::test]
async fn without_a_worker_the_wait_has_that_reason_and_ends_when_one_comes() {
    let cluster = TestCluster::new();
    let coordinator = TestCoordinator::start(&cluster, 1, vec![]);
    let mut client = cluster.client(coordinator.address).connect(0, 1).await.unwrap();
    let error = client.next_within(Duration::from_millis(50)).await.unwrap_err().to_string();
    assert!(error.contains("no worker"), "{error}");
    let home = ScriptedHome::start(&cluster, 1, HomeScript::default());
    coordinator.record.change(|record| record.homes.push(home.home.clone()));
    assert_eq!(take(&mut client, 1, |batch| batch.from()).await, [Position::START]);
}

#[tokio::test]
async fn a_coordinator_that_dies_stops_no_batch_and_a_dead_home_is_named() {
    let cluster = TestCluster::new();
    let home = ScriptedHome::start(&cluster, 1, HomeScript::default());
    let coordinator = TestCoordinator::start(&cluster, 1, vec![home.elsewhere()]);
    let mut client = cluster.client(coordinator.address).connect(0, 1).await.unwrap();
    take(&mut client, 1, |_| ()).await;
    coordinator.die();
    assert_eq!(take(&mut client, 6, |batch| batch.from()).await, all_steps()[1..7]);
    home.die();
    let error = loop {
        match client.next_within(Duration::from_millis(200)).await {
            Ok(batch) => assert!(batch.is_some(), "not all were delivered"),
            Err(error) if error.to_string().contains("no home serves the rank") => break error.to_string(),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    };
    assert!(error.contains("`w1`") && error.contains("the coordinator has not answered"), "{error}");
}

#[tokio::test]
async fn a_socket_that_is_not_there_makes_way_for_quic() {
    let cluster = TestCluster::new();
    let home = ScriptedHome::start(&cluster, 1, HomeScript::default());
    let coordinator = TestCoordinator::start(&cluster, 1, vec![home.home.clone()]);
    let elsewhere = cluster.path("nowhere.sock");
    let client = cluster.client(coordinator.address).socket(elsewhere.to_str().unwrap());
    let mut client = client.connect(0, 1).await.unwrap();
    take(&mut client, 1, |_| ()).await;
    assert_eq!(client.stats().serving.transport, Some(Transport::Quic));
}

#[tokio::test]
async fn heartbeats_and_the_last_message_carry_what_the_trainer_has_taken() {
    let cluster = TestCluster::new();
    let home = ScriptedHome::start(&cluster, 1, HomeScript::default());
    let coordinator = TestCoordinator::start(&cluster, 1, vec![home.home.clone()]);
    let mut client = cluster.client(coordinator.address).connect(0, 1).await.unwrap();
    take(&mut client, 2, |_| ()).await;
    let acknowledged =
        |heartbeat: &&spdl_control::messages::RankHeartbeat| heartbeat.acknowledged == Position::new(0, 16);
    let heartbeat =
        coordinator.record.wait("the heartbeat", |record| record.heartbeats.iter().find(acknowledged).cloned()).await;
    assert_eq!(
        (heartbeat.receipt, heartbeat.transport, heartbeat.session),
        (client.receipt(), Some(Transport::Local), SessionId(7))
    );
    take(&mut client, 1, |_| ()).await;
    let receipt = client.receipt();
    drop(client);
    let leave = coordinator.record.wait("the leave", |record| record.leaves.pop()).await;
    assert_eq!((leave.acknowledged, leave.receipt), (Position::new(0, 24), receipt));
    home.script.wait("the end", |script| (script.gone == 1).then_some(())).await;
}

#[tokio::test]
async fn heartbeats_carry_what_came_over_quic_and_the_cpu_time_of_the_thread_that_received_it() {
    let cluster = TestCluster::new();
    let home = ScriptedHome::start(&cluster, 1, HomeScript::default());
    let coordinator = TestCoordinator::start(&cluster, 1, vec![home.home.clone()]);
    let client = cluster.client(coordinator.address).transports(AllowedTransports::Quic);
    let mut client = client.connect(0, 1).await.unwrap();
    take(&mut client, 1, |_| ()).await;
    let more_than = async |before: ReceiveStats| {
        let is_more = |now: &ReceiveStats| now.bytes > before.bytes && now.thread_ns > before.thread_ns;
        let found =
            |record: &mut CoordinatorRecord| record.heartbeats.iter().map(|heartbeat| heartbeat.received).find(is_more);
        coordinator.record.wait("a heartbeat with more bytes and CPU time", found).await
    };
    let first = more_than(ReceiveStats::default()).await;
    take(&mut client, 3, |_| ()).await;
    let later = more_than(first).await;
    assert!(first.connections == 1 && later.connections == 1, "{first:?} {later:?}");
}

#[tokio::test]
async fn a_state_starts_where_it_was_made_and_one_of_another_job_is_refused() {
    let cluster = TestCluster::new();
    let home = ScriptedHome::start(&cluster, 1, HomeScript::default());
    let coordinator = TestCoordinator::start(&cluster, 1, vec![home.home.clone()]);
    let mut client = cluster.client(coordinator.address).connect(0, 1).await.unwrap();
    take(&mut client, 3, |_| ()).await;
    let state = State::from_bytes(&client.state().to_bytes()).unwrap();
    client.close().await;
    coordinator.record.change(|record| record.session.start = state.position());
    let mut client = cluster.client(coordinator.address).state(state).connect(0, 1).await.unwrap();
    assert_eq!(drain(&mut client).await.0, all_steps()[3..]);
    let join = coordinator.record.change(|record| record.joins.pop().unwrap());
    assert_eq!((join.start, join.fingerprint), (Start::At(Position::new(0, 24)), Some(job().fingerprint())));
    let other = State::new(Fingerprint(3), state.position());
    let error = cluster.client(coordinator.address).state(other).connect(0, 1).await.unwrap_err().to_string();
    assert!(error.contains(&Fingerprint(3).to_string()) && error.contains(&job().fingerprint().to_string()), "{error}");
}

#[tokio::test]
async fn a_superseded_session_ends_the_loader_with_the_name_of_its_successor() {
    let cluster = TestCluster::new();
    let home = ScriptedHome::start(&cluster, 1, script([(1, Then::Stall(None))]));
    let coordinator = TestCoordinator::start(&cluster, 1, vec![home.home.clone()]);
    let mut client = cluster.client(coordinator.address).connect(0, 1).await.unwrap();
    take(&mut client, 1, |_| ()).await;
    let refusal = Refusal::SessionSuperseded {
        run: Box::new(RunName { job: "train".into(), run: "train".into() }),
        session: SessionId(7),
        rank: 0,
        client: "process 9 on there".into(),
    };
    coordinator.record.change(|record| record.refusal = Some(refusal.clone()));
    let error = client.next().await.unwrap_err();
    assert_eq!(error, ClientError::from(refusal));
    assert!(error.hint().is_some());
}

#[tokio::test]
async fn joining_fails_with_what_is_wrong() {
    let cluster = TestCluster::new();
    let coordinator = TestCoordinator::start(&cluster, 1, vec![]);
    let short = || cluster.client(coordinator.address).timeout(Duration::from_millis(200));
    let error = short().connect(1, 1).await.unwrap_err().to_string();
    assert_eq!(error, "rank 1 is not below world 1");
    let error = short().certs(cluster.path("nothing")).connect(0, 1).await.unwrap_err();
    assert!(matches!(error, ClientError::Certificates { .. }) && error.hint().is_some(), "{error}");
    let unused = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = short().coordinator(&unused.to_string()).connect(0, 1).await.unwrap_err();
    assert!(matches!(error, ClientError::Rank(RankError::Unreachable { .. })) && error.hint().is_some(), "{error}");
    assert!(error.to_string().contains(&format!("`{unused}`")), "{error}");
    let other = TestCluster::new();
    let error = short().certs(other.path("client")).connect(0, 1).await.unwrap_err().to_string();
    assert!(error.contains("cluster"), "{error}");
    let unknown = Refusal::UnknownJob { job: "train".into(), known: "none".into() };
    coordinator.record.change(|record| record.refusal = Some(unknown.clone()));
    assert_eq!(short().connect(0, 1).await.unwrap_err(), ClientError::from(unknown));
}

#[tokio::test]
async fn the_second_of_two_addresses_is_tried_when_the_first_is_dead() {
    let cluster = TestCluster::new();
    let coordinator = TestCoordinator::start(&cluster, 1, vec![]);
    let unused = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = cluster.client(coordinator.address).coordinator(&format!("{unused},{}", coordinator.address));
    tokio::time::timeout(LONG, client.connect(0, 1)).await.unwrap().unwrap();
}

#[test]
fn a_blocking_client_iterates_to_the_end() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = TestCluster::new();
    let (coordinator, home) = runtime.block_on(async {
        let home = ScriptedHome::start(&cluster, 1, HomeScript::default());
        (TestCoordinator::start(&cluster, 1, vec![home.home.clone()]), home)
    });
    let client = cluster.client(coordinator.address).connect_blocking(0, 1).unwrap();
    let places: Vec<Position> = client.map(|batch| batch.unwrap().from()).collect();
    assert_eq!(places, all_steps());
    runtime.block_on(coordinator.record.wait("the leave", |record| record.leaves.pop()));
    drop(home);
}
