//! How far sessions are with their runs, and what is to be started first.

use crate::{
    coordinator::{
        SessionProgress,
        testing::{heartbeat, join, worker},
        tests::world::CoordinatorWorld,
    },
    messages::{Join, RankHeartbeat, Start},
};
use spdl_types::Position;

/// An epoch has 10,000 samples, of which 9,984 fill batches of 96; the run has three.
const EPOCH: u64 = 9_984;

fn newest(world: &CoordinatorWorld) -> SessionProgress {
    world.core.status().sessions.last().expect("a session").progress.clone()
}

/// Lets a rank take 96 samples a second from session 1, and wait for a quarter of the time.
fn pull(world: &mut CoordinatorWorld, seconds: u64) {
    for second in 1..=seconds {
        world.pass_ms(1_000);
        let at = RankHeartbeat { waited_ms: 250 * second, ..heartbeat(1, 0, 10, 96 * second) };
        world.heartbeat(at).unwrap();
    }
}

#[test]
fn the_time_that_is_left_follows_from_the_rate_of_the_last_seconds() {
    let mut world = CoordinatorWorld::new();
    world.join(join(0, 1, 10));
    let begun = newest(&world);
    assert_eq!((begun.done_samples, begun.samples_per_s, begun.left_ms, begun.epoch), (0, None, None, 1));
    pull(&mut world, 20);
    let at = newest(&world);
    assert_eq!((at.done_samples, at.all_samples, at.epoch_samples), (1_920, 3 * EPOCH, EPOCH));
    assert_eq!((at.done, at.epoch, at.epoch_done), (1_920.0 / (3 * EPOCH) as f64, 1, 1.0 - 8_064.0 / EPOCH as f64));
    assert_eq!((at.samples_per_s, at.epoch_left_ms, at.left_ms), (Some(96.0), Some(84_000), Some(292_000)));
    assert_eq!((at.session_samples, at.mean_samples_per_s, at.waited), (1_920, Some(96.0), Some(0.25)));
    // The last 16 samples of an epoch fill no batch: behind all others the next epoch is under way.
    let end = RankHeartbeat { acknowledged: Position::new(0, EPOCH), ..heartbeat(1, 0, 10, 0) };
    world.heartbeat(end).unwrap();
    let next = newest(&world);
    assert_eq!((next.done_samples, next.epoch, next.epoch_done, next.is_finished), (EPOCH, 2, 0.0, false));
}

#[test]
fn a_run_that_is_finished_is_done_and_a_restart_forgets_only_its_time() {
    let mut world = CoordinatorWorld::new();
    world.join(join(0, 1, 10));
    pull(&mut world, 20);
    world.leave(RankHeartbeat { acknowledged: Position::new(2, EPOCH), ..heartbeat(1, 0, 10, 0) });
    let end = newest(&world);
    assert_eq!((end.done, end.is_finished, end.epoch, end.left_ms), (1.0, true, 3, Some(0)));
    assert_eq!((end.done_samples, end.session_samples), (3 * EPOCH, 3 * EPOCH));
    assert_eq!((end.mean_samples_per_s, end.waited), (Some((3 * EPOCH) as f64 / 20.0), Some(0.25)));
    assert_eq!(world.core.status().jobs[0].runs[0].done, 1.0);
    world.restart();
    let restored = newest(&world);
    assert_eq!((restored.done, restored.is_finished, restored.session_samples), (1.0, true, 3 * EPOCH));
    assert_eq!((restored.mean_samples_per_s, restored.waited), (None, None));
}

#[test]
fn a_run_that_ends_within_an_epoch_is_done_with_the_last_batch_before() {
    let mut world = CoordinatorWorld::new();
    let short = crate::coordinator::testing::job("short");
    world.create(spdl_job::Job { total_samples: Some(15_000), ..short });
    let join = Join { job: "short".to_owned(), run: "short".to_owned(), ..join(0, 1, 10) };
    world.join(Join { start: Start::At(Position::new(1, 2_400)), ..join });
    let at = newest(&world);
    // 5,000 samples of the second epoch are left, of which 4,992 fill batches.
    assert_eq!((at.all_samples, at.done_samples, at.epoch), (EPOCH + 5_000, EPOCH + 2_400, 2));
    assert_eq!((at.epoch_done, at.is_finished), (1.0 - 2_600.0 / 5_000.0, false));
    let last =
        RankHeartbeat { job: "short".to_owned(), acknowledged: Position::new(1, 4_992), ..heartbeat(1, 0, 10, 0) };
    world.heartbeat(last).unwrap();
    let end = newest(&world);
    assert_eq!((end.done, end.is_finished, end.epoch, end.left_ms), (1.0, true, 2, Some(0)));
}

#[test]
fn samples_that_fill_no_batch_at_the_end_of_a_continuous_run_leave_nothing_to_do() {
    let mut world = CoordinatorWorld::new();
    let continuous = crate::coordinator::testing::job("shared");
    world.create(spdl_job::Job { epoch_end: spdl_order::EpochEnd::Continuous, ..continuous });
    let shared = Join { job: "shared".to_owned(), run: "shared".to_owned(), ..join(0, 1, 10) };
    world.join(Join { start: Start::At(Position::new(2, 9_900)), ..shared });
    let at = newest(&world);
    assert_eq!((at.done_samples, at.all_samples, at.session_samples, at.is_finished), (29_900, 30_000, 0, false));
    let last =
        RankHeartbeat { job: "shared".to_owned(), acknowledged: Position::new(2, 9_996), ..heartbeat(1, 0, 10, 0) };
    world.heartbeat(last).unwrap();
    let end = newest(&world);
    assert_eq!((end.done, end.done_samples, end.session_samples, end.is_finished), (1.0, 29_996, 96, true));
}

#[test]
fn a_first_training_needs_a_worker_a_job_and_a_trainer() {
    let mut world = CoordinatorWorld::new();
    let done = |world: &CoordinatorWorld| -> Vec<bool> {
        world.core.status().first_steps.iter().map(|step| step.is_done).collect()
    };
    assert_eq!(done(&world), [false, true, false]);
    world.worker(worker(1, "node-0"));
    assert_eq!(done(&world), [true, true, false]);
    assert!(world.core.status().first_steps[2].command.ends_with("spdl-ctl pull --job j"));
    world.join(join(0, 1, 10));
    assert!(done(&world).is_empty(), "a trainer has found its way");
}
