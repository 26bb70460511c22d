//! The map of the workers that read the same blocks.

use crate::{
    coordinator::{
        testing::{heartbeat, join, worker},
        tests::world::CoordinatorWorld,
    },
    messages::{FromCoordinator, Join, WorkerHeartbeat},
    peers::{PeerMap, Readers},
};
use spdl_types::{NodeId, SessionId};

/// Returns the heartbeat of a worker that serves rank 0 of a session and has version `known` of the map.
fn serving(id: u64, session: u64, known: u64) -> WorkerHeartbeat {
    let stats = super::rank_stats(session, 0);
    WorkerHeartbeat { ranks: vec![stats], peer_map: known, ..worker(id, &format!("node-{id}")) }
}

/// Joins rank `rank` of `world` from the node of worker `node`.
fn join_at(rank: u32, world: u32, nonce: u64, node: u64) -> Join {
    Join { node: NodeId(format!("node-{node}")), ..join(rank, world, nonce) }
}

/// Sends a heartbeat and returns the interval to the next, and the map if there is news.
fn news(world: &mut CoordinatorWorld, heartbeat: WorkerHeartbeat) -> (u64, Option<PeerMap>) {
    match world.worker(heartbeat) {
        FromCoordinator::WorkerAcknowledged { heartbeat_ms, peers, .. } => (heartbeat_ms, peers.map(|peers| *peers)),
        other => panic!("{other:?} is no answer to a heartbeat"),
    }
}

/// Returns the workers that the map has as homes.
fn homes(map: &PeerMap, readers: &Readers) -> Vec<Option<u64>> {
    readers.homes.iter().map(|home| Some(map.workers[usize::from((*home)?)].worker.0)).collect()
}

/// Returns a world whose ranks 0 and 1 of 2 have workers 1 and 2 as homes, and the map of worker 1.
fn placed() -> (CoordinatorWorld, PeerMap) {
    let mut world = CoordinatorWorld::new();
    world.worker(serving(1, 1, 0));
    world.worker(serving(2, 1, 0));
    world.join(join_at(0, 2, 10, 1));
    world.join(join_at(1, 2, 11, 2));
    world.now_ms += 100;
    let map = news(&mut world, serving(1, 1, 0)).1.expect("a map");
    (world, map)
}

#[test]
fn the_workers_of_a_session_get_its_homes_once_for_each_change() {
    let (mut world, map) = placed();
    let readers = map.session(SessionId(1)).unwrap();
    assert!(readers.is_complete() && readers.before.is_empty());
    assert_eq!(homes(&map, &readers.now), [Some(1), Some(2)]);
    assert_eq!((readers.now.world, readers.now.global_batch), (2, 96));
    assert_eq!(map.workers[1].quic, worker(2, "").home.quic);
    let of_2 = news(&mut world, serving(2, 1, 0)).1.unwrap();
    assert_eq!(of_2, map, "both see the same owners");
    assert_eq!(news(&mut world, serving(1, 1, map.version)).1, None, "nothing has changed");
    world.close(2);
    world.now_ms += 100;
    let after = news(&mut world, serving(1, 1, map.version)).1.expect("a worker is gone");
    assert_eq!(homes(&after, &after.sessions[0].now), [Some(1), None]);
    assert!(after.sessions[0].before.is_empty(), "a worker that is gone holds nothing");
    assert_eq!(after.workers.len(), 1);
}

#[test]
fn a_worker_without_ranks_gets_no_map_and_one_whose_ranks_have_left_loses_it() {
    let (mut world, map) = placed();
    assert_eq!(news(&mut world, worker(3, "far away")), (1_000, None));
    let (_, empty) = news(&mut world, WorkerHeartbeat { peer_map: map.version, ..worker(1, "node-1") });
    assert_eq!(empty, Some(PeerMap::default()));
}

#[test]
fn heartbeats_come_often_until_all_ranks_have_homes() {
    let mut world = CoordinatorWorld::new();
    world.worker(serving(1, 1, 0));
    world.join(join_at(0, 2, 10, 1));
    let (heartbeat_ms, map) = news(&mut world, serving(1, 1, 0));
    assert_eq!(
        (heartbeat_ms, homes(map.as_ref().unwrap(), &map.as_ref().unwrap().sessions[0].now)),
        (50, vec![Some(1), None])
    );
    world.join(join_at(1, 2, 11, 1));
    assert_eq!(news(&mut world, serving(1, 1, map.as_ref().unwrap().version)), (50, None), "it was listed just before");
    world.now_ms += 100;
    let (heartbeat_ms, map) = news(&mut world, serving(1, 1, map.unwrap().version));
    assert!(heartbeat_ms == 1_000 && map.unwrap().sessions[0].is_complete());
}

#[test]
fn heartbeats_come_as_usual_if_a_rank_never_joins() {
    let mut world = CoordinatorWorld::new();
    world.worker(serving(1, 1, 0));
    world.join(join_at(0, 2, 10, 1));
    assert_eq!(news(&mut world, serving(1, 1, 0)).0, 50);
    for _ in 0..5 {
        world.pass_ms(1_000);
        world.worker(serving(1, 1, 0));
    }
    assert_eq!(news(&mut world, serving(1, 1, 0)).0, 1_000);
}

#[test]
fn the_homes_of_the_session_before_are_listed_after_a_resize() {
    let (mut world, _) = placed();
    world.leave(heartbeat(1, 0, 10, 96));
    world.leave(heartbeat(1, 1, 11, 96));
    let session = world.join(join_at(0, 1, 20, 2));
    assert_eq!(session, 2);
    let map = news(&mut world, serving(2, 2, 0)).1.unwrap();
    let readers = map.session(SessionId(2)).unwrap();
    assert_eq!(homes(&map, &readers.now), [Some(2)]);
    let before: Vec<_> = readers.before.iter().map(|before| homes(&map, before)).collect();
    assert_eq!(before, [[Some(1), Some(2)]]);
    world.now_ms += 100;
    world.close(1);
    let map = news(&mut world, serving(2, 2, map.version)).1.unwrap();
    assert_eq!(homes(&map, &map.sessions[0].before[0]), [None, Some(2)]);
}

#[test]
fn a_home_that_a_rank_has_left_is_listed_while_it_lives() {
    let mut world = CoordinatorWorld::new();
    world.worker(serving(1, 1, 0));
    world.join(join_at(0, 1, 10, 2));
    for _ in 0..12 {
        world.pass_ms(1_000);
        world.worker(serving(1, 1, 0));
        world.worker(serving(2, 1, 0));
        world.heartbeat(heartbeat(1, 0, 10, 0)).unwrap();
    }
    let map = news(&mut world, serving(2, 1, 0)).1.unwrap();
    let readers = &map.sessions[0];
    assert_eq!((homes(&map, &readers.now), homes(&map, &readers.before[0])), (vec![Some(2)], vec![Some(1)]));
}
