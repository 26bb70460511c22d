//! Workers join and leave; every living rank has a living home if there is one.

use crate::{
    coordinator::{
        Role,
        testing::{heartbeat, join, worker},
        tests::world::CoordinatorWorld,
    },
    messages::{FromCoordinator, Join, RankHeartbeat, ToCoordinator, WorkerHeartbeat},
};
use spdl_types::{NodeId, WorkerId};

/// Returns a world with workers 1 and 2 on nodes `a` and `b`, and rank 0 of 2 on node `a`, whose home is worker 1.
fn placed() -> CoordinatorWorld {
    let mut world = CoordinatorWorld::new();
    world.worker(worker(1, "a"));
    world.worker(worker(2, "b"));
    let (session, home) = world.try_join(Join { node: NodeId("a".into()), ..join(0, 2, 10) }).unwrap();
    assert_eq!((session.id.0, home), (1, Some(1)));
    world
}

fn unreachable(worker: u64) -> RankHeartbeat {
    RankHeartbeat { unreachable: Some(WorkerId(worker)), ..heartbeat(1, 0, 10, 0) }
}

#[test]
fn a_worker_gets_the_interval_of_its_heartbeats() {
    let reply = CoordinatorWorld::new().worker(worker(1, "a"));
    let expected = FromCoordinator::WorkerAcknowledged {
        heartbeat_ms: 1_000,
        liveness_ms: 5_000,
        trace: None,
        peers: None,
        helpers: None,
    };
    assert_eq!(reply, expected);
}

#[test]
fn a_rank_without_a_home_gets_one_when_a_worker_comes() {
    let mut world = CoordinatorWorld::new();
    assert_eq!(world.try_join(join(0, 2, 10)).unwrap().1, None);
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 0)), Ok(None));
    world.worker(worker(1, "far away"));
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 0)), Ok(Some(1)));
}

/// Advances the time by seconds in which workers and ranks send heartbeats; returns the homes of ranks `0..ranks` after
/// each.
fn seconds(world: &mut CoordinatorWorld, seconds: u32, workers: &[WorkerHeartbeat], ranks: u32) -> Vec<Vec<u64>> {
    let mut homes = Vec::new();
    for _ in 0..seconds {
        world.pass_ms(1_000);
        for worker in workers {
            world.worker(worker.clone());
        }
        let home = |rank| world.heartbeat(heartbeat(1, rank, 10 + u64::from(rank), 0)).unwrap().unwrap();
        homes.push((0..ranks).map(home).collect());
    }
    homes
}

#[test]
fn a_rank_moves_to_a_worker_that_comes_to_its_node_and_stays() {
    let mut world = CoordinatorWorld::new();
    world.worker(worker(1, "b"));
    world.join(Join { node: NodeId("a".into()), ..join(0, 2, 10) });
    world.worker(worker(2, "a"));
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 0)), Ok(Some(1)), "it has to prove itself first");
    let homes = seconds(&mut world, 60, &[worker(1, "b"), worker(2, "a")], 1).concat();
    let moved = homes.iter().position(|home| *home == 2).unwrap();
    assert!(moved <= 10 && homes[moved..].iter().all(|home| *home == 2), "{homes:?}");
}

#[test]
fn a_worker_that_comes_and_goes_on_a_ranks_node_does_not_get_it() {
    let mut world = CoordinatorWorld::new();
    world.join(Join { node: NodeId("a".into()), ..join(0, 2, 10) });
    for life in 0..20 {
        let homes = seconds(&mut world, 3, &[worker(1, "b"), worker(2 + life, "a")], 1).concat();
        assert!(life == 0 || homes.iter().all(|home| *home == 1), "life {life}: {homes:?}");
        world.close(2 + life);
        seconds(&mut world, 1, &[worker(1, "b")], 1);
    }
}

#[test]
fn a_new_worker_gets_its_share_of_ranks_that_have_no_worker_on_their_node() {
    let mut world = CoordinatorWorld::new();
    world.worker(worker(1, "x"));
    for rank in 0..6 {
        world.join(join(rank, 6, 10 + u64::from(rank)));
    }
    let workers = [worker(1, "x"), worker(2, "y"), worker(3, "z")];
    let homes = seconds(&mut world, 60, &workers, 6);
    let mut last = homes.last().unwrap().clone();
    assert!(homes[20..].iter().all(|homes| *homes == last), "they come to rest: {homes:?}");
    last.sort_unstable();
    assert_eq!(last, [1, 1, 2, 2, 3, 3]);
}

#[test]
fn the_ranks_of_a_dead_node_spread_over_the_living_and_come_back_to_it() {
    let mut world = CoordinatorWorld::new();
    let workers = [worker(1, "a"), worker(2, "b"), worker(3, "c")];
    workers.iter().for_each(|heartbeat| drop(world.worker(heartbeat.clone())));
    for rank in 0..4 {
        world.join(Join { node: NodeId("a".into()), ..join(rank, 4, 10 + u64::from(rank)) });
    }
    assert_eq!(seconds(&mut world, 1, &workers, 4), [[1, 1, 1, 1]]);
    world.close(1);
    let mut homes = seconds(&mut world, 1, &workers[1..], 4).concat();
    homes.sort_unstable();
    assert_eq!(homes, [2, 2, 3, 3]);
    assert_eq!(seconds(&mut world, 20, &workers, 4).last().unwrap(), &[1, 1, 1, 1]);
}

#[test]
fn a_rank_is_not_moved_to_a_better_home_that_it_cannot_reach() {
    let mut world = placed();
    let workers = [worker(1, "a"), worker(2, "b")];
    seconds(&mut world, 10, &workers, 1);
    assert_eq!(world.heartbeat(unreachable(1)), Ok(Some(2)));
    let homes = seconds(&mut world, 25, &workers, 1).concat();
    assert!(homes.iter().all(|home| *home == 2), "{homes:?}");
    let homes = seconds(&mut world, 15, &workers, 1).concat();
    assert_eq!(homes.last(), Some(&1), "its own node's worker is tried again after a while");
}

#[test]
fn a_rank_is_not_moved_to_a_worker_whose_heartbeats_are_overdue() {
    let mut world = CoordinatorWorld::new();
    world.worker(worker(1, "x"));
    for rank in 0..2 {
        world.join(join(rank, 2, 10 + u64::from(rank)));
    }
    let workers = [worker(1, "x"), worker(2, "y")];
    seconds(&mut world, 2, &workers, 2);
    let homes = seconds(&mut world, 4, &workers[..1], 2).concat();
    assert!(homes.iter().all(|home| *home == 1), "it may be dead: {homes:?}");
    let homes = seconds(&mut world, 12, &workers, 2).concat();
    assert!(homes.contains(&2), "it is not: {homes:?}");
}

#[test]
fn ranks_without_a_worker_on_their_node_spread_over_all() {
    let mut world = CoordinatorWorld::new();
    for id in 1..=3 {
        world.worker(worker(id, &format!("w{id}")));
    }
    let mut homes: Vec<u64> =
        (0..6).map(|rank| world.try_join(join(rank, 6, 10 + u64::from(rank))).unwrap().1.unwrap()).collect();
    homes.sort_unstable();
    assert_eq!(homes, [1, 1, 2, 2, 3, 3]);
}

#[test]
fn a_worker_whose_connection_closes_is_dead_at_once() {
    let mut world = placed();
    world.close(1);
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(Some(2)));
    assert!(world.log.iter().any(|line| line.contains("`worker-1` lost its connection; 1 ranks need another home")));
}

#[test]
fn an_old_connection_of_a_worker_that_came_back_over_another_is_no_loss() {
    let mut world = placed();
    world.send_as(Role::Worker, 77, ToCoordinator::WorkerHeartbeat(worker(1, "a")));
    world.close(1);
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(Some(1)));
    world.close(77);
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(Some(2)));
}

#[test]
fn a_worker_that_is_silent_for_the_liveness_timeout_is_dead_and_welcome_back() {
    let mut world = placed();
    for _ in 0..6 {
        world.pass_ms(1_000);
        world.worker(worker(2, "b"));
    }
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(Some(2)));
    world.worker(worker(1, "a"));
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(Some(2)), "its rank stays where it is for a while");
    let (_, home) = world.try_join(Join { node: NodeId("a".into()), ..join(1, 2, 11) }).unwrap();
    assert_eq!(home, Some(1), "new ranks come to it");
}

#[test]
fn a_worker_that_leaves_passes_its_ranks_to_others() {
    let mut world = placed();
    world.send_as(Role::Worker, 1, ToCoordinator::WorkerLeave { worker: WorkerId(1) });
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(Some(2)));
}

#[test]
fn a_worker_that_was_started_anew_at_the_same_address_replaces_its_former_life() {
    let mut world = placed();
    let mut reborn = worker(9, "a");
    reborn.home.quic = worker(1, "a").home.quic;
    world.worker(reborn);
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(Some(9)));
    assert_eq!(world.core.status().workers.len(), 2);
}

#[test]
fn a_draining_worker_loses_its_ranks_and_gets_no_new_ones() {
    let mut world = placed();
    world.worker(WorkerHeartbeat { draining: true, ..worker(1, "a") });
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(Some(2)));
    let (_, home) = world.try_join(Join { node: NodeId("a".into()), ..join(1, 2, 11) }).unwrap();
    assert_eq!(home, Some(2));
}

#[test]
fn a_draining_worker_keeps_its_ranks_when_there_is_no_other() {
    let mut world = placed();
    world.close(2);
    world.worker(WorkerHeartbeat { draining: true, ..worker(1, "a") });
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(Some(1)));
    assert_eq!(world.try_join(join(1, 2, 11)).unwrap().1, None, "and a new rank waits");
}

#[test]
fn a_home_that_its_rank_cannot_reach_is_exchanged_for_that_rank_only() {
    let mut world = placed();
    assert_eq!(world.heartbeat(unreachable(1)), Ok(Some(2)));
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(Some(2)));
    let (_, home) = world.try_join(Join { node: NodeId("a".into()), ..join(1, 2, 11) }).unwrap();
    assert_eq!(home, Some(1));
}

#[test]
fn a_home_out_of_reach_is_kept_when_there_is_no_other() {
    let mut world = placed();
    world.close(2);
    assert_eq!(world.heartbeat(unreachable(1)), Ok(Some(1)));
}

#[test]
fn a_rank_that_reached_neither_worker_tries_the_first_again_after_a_while() {
    let mut world = placed();
    let heartbeat_all = |world: &mut CoordinatorWorld| {
        world.pass_ms(1_000);
        world.worker(worker(1, "a"));
        world.worker(worker(2, "b"));
    };
    assert_eq!(world.heartbeat(unreachable(1)), Ok(Some(2)));
    for _ in 0..20 {
        heartbeat_all(&mut world);
    }
    assert_eq!(world.heartbeat(unreachable(2)), Ok(Some(2)), "worker 1 was out of reach 20 s ago");
    for _ in 0..11 {
        heartbeat_all(&mut world);
    }
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(Some(1)));
}

#[test]
fn ranks_that_left_or_fell_silent_are_no_load() {
    let mut world = CoordinatorWorld::new();
    world.worker(worker(1, "x"));
    for rank in 0..3 {
        world.join(join(rank, 8, 10 + u64::from(rank)));
    }
    world.leave(heartbeat(1, 0, 10, 0));
    world.worker(worker(2, "y"));
    let home = |world: &mut CoordinatorWorld, rank: u32| world.try_join(join(rank, 8, 10 + u64::from(rank))).unwrap().1;
    assert_eq!(home(&mut world, 3), Some(2));
    assert_eq!(home(&mut world, 4), Some(2), "two ranks on worker 1, one on worker 2");
}

#[test]
fn when_the_coordinator_itself_was_away_no_worker_is_considered_dead() {
    let mut world = placed();
    world.now_ms += 60_000;
    world.core.handle_tick(world.now_ms);
    world.carry_out();
    assert_eq!(world.core.status().workers.len(), 2);
    assert!(world.core.status().sessions[0].ranks[0].is_alive);
    world.pass_ms(5_400);
    assert_eq!(world.core.status().workers.len(), 0, "from then on silence counts again");
}

#[test]
fn a_worker_counts_by_the_address_and_the_connection_that_it_has_now() {
    let mut world = CoordinatorWorld::new();
    let known = |world: &CoordinatorWorld| -> Vec<String> {
        world.core.status().workers.into_iter().map(|worker| worker.name).collect()
    };
    let mut moved = worker(1, "a");
    world.worker(moved.clone());
    let old = moved.home.quic;
    moved.home.quic.set_port(7600);
    let new = moved.home.quic;
    world.worker(moved.clone());
    let at = |id, quic| {
        let mut other = worker(id, "b");
        other.home.quic = quic;
        other
    };
    world.worker(at(2, old));
    assert_eq!(known(&world), ["worker-1", "worker-2"], "nobody has the old address any more");
    world.worker(at(3, new));
    assert_eq!(known(&world), ["worker-2", "worker-3"], "worker 1 was restarted as worker 3");
    world.send_as(Role::Worker, 9, ToCoordinator::WorkerHeartbeat(at(2, old)));
    world.close(2);
    assert_eq!(known(&world), ["worker-2", "worker-3"], "it has another connection");
    world.close(9);
    assert_eq!(known(&world), ["worker-3"]);
}

#[test]
fn a_rank_that_falls_silent_leaves_room_at_its_home_and_takes_it_again_when_it_is_heard() {
    let mut world = CoordinatorWorld::new();
    world.worker(worker(1, "a"));
    let elsewhere = |rank, nonce| Join { node: NodeId("elsewhere".to_owned()), ..join(rank, 3, nonce) };
    world.join(elsewhere(0, 10));
    world.join(elsewhere(1, 11));
    let counted = |world: &CoordinatorWorld| world.core.recount();
    assert_eq!(counted(&world), [(WorkerId(1), 2, 2)]);
    for _ in 0..6 {
        world.pass_ms(1_000);
        world.worker(worker(1, "a"));
        world.heartbeat(heartbeat(1, 0, 10, 0)).unwrap();
    }
    assert_eq!(counted(&world), [(WorkerId(1), 1, 1)], "rank 1 is silent");
    world.heartbeat(heartbeat(1, 1, 11, 0)).unwrap();
    assert_eq!(counted(&world), [(WorkerId(1), 2, 2)]);
    world.leave(heartbeat(1, 0, 10, 0));
    assert_eq!(counted(&world), [(WorkerId(1), 1, 1)]);
}
