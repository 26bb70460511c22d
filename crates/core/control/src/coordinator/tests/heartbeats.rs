//! What heartbeats change and what they do not: positions and receipts, homes, and how much of that is persisted.

use crate::{
    coordinator::{
        Change, MAX_WORKERS,
        testing::{heartbeat, join, worker},
        tests::world::CoordinatorWorld,
    },
    messages::{FromCoordinator, Join, RankHeartbeat, Start, WorkerHeartbeat},
};
use spdl_types::{NodeId, Position, Stage, StageStats, WorkerId};

/// Sends a heartbeat of each worker every second, for this many seconds.
fn seconds(world: &mut CoordinatorWorld, seconds: u32, workers: &[WorkerHeartbeat]) {
    for _ in 0..seconds {
        world.pass_ms(1_000);
        workers.iter().for_each(|heartbeat| drop(world.worker(heartbeat.clone())));
    }
}

fn sessions_written(world: &CoordinatorWorld) -> usize {
    world.changes.iter().filter(|change| matches!(change, Change::PutSession(_))).count()
}

#[test]
fn a_heartbeat_that_was_overtaken_takes_back_neither_position_nor_receipt() {
    let mut world = CoordinatorWorld::new();
    world.join(join(0, 1, 10));
    world.heartbeat(heartbeat(1, 0, 10, 192)).unwrap();
    world.heartbeat(heartbeat(1, 0, 10, 96)).unwrap();
    let status = world.core.status();
    let rank = &status.sessions[0].ranks[0];
    assert_eq!(
        (rank.position, rank.receipt.clone()),
        (Position::new(0, 192), Some(heartbeat(1, 0, 10, 192).receipt.to_string()))
    );
}

#[test]
fn heartbeats_of_a_rank_that_keeps_its_position_write_nothing() {
    let mut world = CoordinatorWorld::new();
    world.join(join(0, 1, 10));
    world.heartbeat(heartbeat(1, 0, 10, 96)).unwrap();
    world.pass_ms(2_000);
    let before = sessions_written(&world);
    for _ in 0..10 {
        world.heartbeat(heartbeat(1, 0, 10, 96)).unwrap();
        world.pass_ms(2_000);
    }
    assert_eq!(sessions_written(&world), before);
    world.heartbeat(heartbeat(1, 0, 10, 192)).unwrap();
    world.pass_ms(2_000);
    assert_eq!(sessions_written(&world), before + 1);
}

#[test]
fn a_position_is_written_in_time_though_the_clock_steps_back() {
    let mut world = CoordinatorWorld::new();
    world.join(join(0, 1, 10));
    world.pass_ms(5_000);
    world.heartbeat(heartbeat(1, 0, 10, 96)).unwrap();
    let before = sessions_written(&world);
    world.core.handle_tick(world.now_ms - 3_000);
    world.carry_out();
    assert_eq!(sessions_written(&world), before + 1);
}

#[test]
fn a_position_behind_the_last_sample_is_ignored_and_the_last_one_counts() {
    let mut world = CoordinatorWorld::new();
    world.join(join(0, 1, 10));
    for (offset, believed) in [(10_001, 0), (10_000, 10_000)] {
        world.heartbeat(heartbeat(1, 0, 10, offset)).unwrap();
        assert_eq!(world.core.status().sessions[0].ranks[0].position, Position::new(0, believed));
    }
}

#[test]
fn a_rank_that_was_placed_just_now_is_not_moved_to_a_worker_that_is_back() {
    let mut world = CoordinatorWorld::new();
    let (here, there) = (worker(1, "a"), worker(2, "b"));
    seconds(&mut world, 20, &[here.clone(), there.clone()]);
    world.worker(WorkerHeartbeat { draining: true, ..here.clone() });
    let (_, home) = world.try_join(Join { node: NodeId("a".into()), ..join(0, 1, 10) }).unwrap();
    assert_eq!(home, Some(2));
    world.worker(here.clone());
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 0)), Ok(Some(2)), "it has only just come there");
    seconds(&mut world, 1, &[here.clone(), there.clone()]);
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 0)), Ok(Some(2)));
    seconds(&mut world, 10, &[here, there]);
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 0)), Ok(Some(1)), "its own node's worker has stayed");
}

#[test]
fn a_worker_that_still_lists_a_rank_that_has_left_does_not_become_its_home() {
    let mut world = CoordinatorWorld::new();
    let stats = super::rank_stats(1, 0);
    let serving = WorkerHeartbeat { ranks: vec![stats], ..worker(1, "a") };
    world.worker(serving.clone());
    world.join(join(0, 1, 10));
    world.leave(heartbeat(1, 0, 10, 96));
    world.worker(serving);
    assert_eq!(world.core.status().sessions[0].ranks[0].home_worker, None);
}

#[test]
fn a_worker_that_goes_takes_no_home_from_the_ranks_of_another() {
    let mut world = CoordinatorWorld::new();
    for (id, node) in [(1, "a"), (2, "b")] {
        world.worker(worker(id, node));
        let rank = id as u32 - 1;
        let home = world.try_join(Join { node: NodeId(node.into()), ..join(rank, 2, 10 + u64::from(rank)) }).unwrap().1;
        assert_eq!(home, Some(id));
    }
    world.close(2);
    let status = world.core.status();
    assert!(status.sessions[0].ranks[0].home_worker.is_some());
    assert_eq!(status.sessions[0].ranks[1].home_worker, None);
    assert!(world.log.iter().any(|line| line.contains("`worker-2` lost its connection; 1 ranks need another home")));
}

#[test]
fn a_worker_that_drains_is_logged_once_and_takes_no_more_ranks() {
    let mut world = CoordinatorWorld::new();
    world.worker(worker(1, "a"));
    for _ in 0..3 {
        world.worker(WorkerHeartbeat { draining: true, ..worker(1, "a") });
    }
    assert_eq!(world.log.iter().filter(|line| line.contains("is draining")).count(), 1);
    assert_eq!(world.try_join(join(0, 1, 10)).unwrap().1, None);
}

#[test]
fn a_rank_reports_a_limited_number_of_unreachable_workers_and_the_reports_expire() {
    let mut world = CoordinatorWorld::new();
    for id in 1..=3 {
        world.worker(worker(id, "far"));
    }
    world.join(join(0, 1, 10));
    let unreachable = |worker| RankHeartbeat { unreachable: Some(WorkerId(worker)), ..heartbeat(1, 0, 10, 0) };
    assert_eq!(world.heartbeat(unreachable(1)), Ok(Some(2)));
    assert_eq!(world.heartbeat(unreachable(2)), Ok(Some(3)));
    assert_eq!(world.heartbeat(unreachable(3)), Ok(Some(3)), "out of reach is better than none");
    assert_eq!(world.heartbeat(unreachable(99)), Ok(Some(3)), "there is no such worker");
}

#[test]
fn a_report_about_a_worker_that_is_not_registered_does_not_keep_the_rank_from_it() {
    let mut world = CoordinatorWorld::new();
    world.try_join(Join { node: NodeId("near".into()), ..join(0, 1, 10) }).unwrap();
    let unreachable = RankHeartbeat { unreachable: Some(WorkerId(2)), ..heartbeat(1, 0, 10, 0) };
    assert_eq!(world.heartbeat(unreachable), Ok(None));
    world.worker(worker(1, "far"));
    world.worker(worker(2, "near"));
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 0)), Ok(Some(2)));
}

#[test]
fn a_rank_is_kept_from_64_workers_at_most() {
    let mut world = CoordinatorWorld::new();
    for id in 1..=66 {
        world.worker(worker(id, "far"));
    }
    world.join(join(0, 1, 10));
    let unreachable = |worker| RankHeartbeat { unreachable: Some(WorkerId(worker)), ..heartbeat(1, 0, 10, 0) };
    for id in 1..=64 {
        assert_eq!(world.heartbeat(unreachable(id)), Ok(Some(id + 1)));
    }
    assert_eq!(world.heartbeat(unreachable(65)), Ok(Some(65)), "it is not believed any more");
}

#[test]
fn workers_above_the_limit_are_refused_and_the_others_stay_registered() {
    let mut world = CoordinatorWorld::new();
    for id in 1..=MAX_WORKERS as u64 {
        assert!(matches!(world.worker(worker(id, "a")), FromCoordinator::WorkerAcknowledged { .. }), "worker {id}");
    }
    let reply = world.worker(worker(MAX_WORKERS as u64 + 1, "a"));
    let FromCoordinator::Refused(refusal) = reply else { panic!("{reply:?}") };
    let text = refusal.to_string();
    assert!(text.contains("the number of workers") && text.contains("10001"), "{text}");
    assert!(matches!(world.worker(worker(1, "a")), FromCoordinator::WorkerAcknowledged { .. }));
}

#[test]
fn the_status_of_as_many_workers_as_there_may_be_fits_a_message() {
    const MOST_BYTES: usize = 16 << 20;
    /// The smallest number of workers for which the status shows fewer details.
    const WORKERS: usize = 2_001;
    let stages = |ms: u64| {
        let ns = ms * 1_234_567;
        let stats = |stage: &Stage| StageStats {
            items: ns,
            bytes: ns * 99,
            busy_ns: ns,
            input_wait_ns: ns / 3,
            output_wait_ns: ns / 7,
            throttled_ns: ns / 9,
            cpu_ns: ns / 2,
            ..StageStats::new(stage.clone())
        };
        let of_worker = |stage: &&Stage| !matches!(stage, Stage::Receive | Stage::Copy);
        Stage::KNOWN.iter().filter(of_worker).map(stats).collect()
    };
    let mut world = CoordinatorWorld::new();
    for uptime_ms in [86_400_000, 86_461_000] {
        for id in 1..=WORKERS as u64 {
            let heartbeat =
                WorkerHeartbeat { uptime_ms, stages: stages(uptime_ms), ..worker(id, "a-node-of-a-cluster") };
            world.worker(heartbeat);
        }
    }
    let status = world.core.status();
    assert!(status.workers.iter().all(|worker| worker.windows.len() == 1 && worker.windows[0].window_ms == 10_000));
    let bytes = status.to_json().len() / WORKERS * MAX_WORKERS;
    assert!(bytes < MOST_BYTES, "{bytes} bytes");
}

#[test]
fn a_world_of_as_many_ranks_as_the_batch_has_samples_is_the_largest() {
    let mut world = CoordinatorWorld::new();
    assert!(world.try_join(join(0, 96, 10)).is_ok());
    assert!(CoordinatorWorld::new().try_join(join(0, 97, 10)).is_err());
}

#[test]
fn a_start_at_the_end_of_an_epoch_is_taken_and_one_behind_it_is_not() {
    let at = |offset| Join { start: Start::At(Position::new(0, offset)), ..join(0, 1, 10) };
    assert_eq!(CoordinatorWorld::new().try_join(at(10_000)).unwrap().0.start, Position::new(0, 10_000));
    assert!(CoordinatorWorld::new().try_join(at(10_001)).is_err());
}
