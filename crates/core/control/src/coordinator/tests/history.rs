//! The history that the coordinator keeps for people: the waits of ranks, the times of stages, the events.

use crate::{
    coordinator::{
        HistoryQuery, LogLevel, SHOWN_SERIES,
        testing::{bad_sample, heartbeat, join, worker},
        tests::world::CoordinatorWorld,
    },
    messages::{Join, RankHeartbeat, ToCoordinator, WorkerHeartbeat},
};
use spdl_types::{NodeId, Position, SessionId, Stage, StageStats, WorkerId};

fn query(step_ms: u64, first: u64) -> HistoryQuery {
    HistoryQuery { step_ms, first, session: SessionId(1), ranks: vec![0], workers: vec![WorkerId(1)] }
}

/// Lets a rank take 96 samples a second for some seconds, of which it waits for a quarter, and a worker decode all the
/// time and fetch for half of it.
fn run_for(world: &mut CoordinatorWorld, seconds: u64) {
    for _ in 0..seconds {
        world.pass_ms(1_000);
        let second = world.now_ms / 1_000;
        let stage = |stage, busy_ns, input_wait_ns| StageStats { busy_ns, input_wait_ns, ..StageStats::new(stage) };
        let ns = second * 1_000_000_000;
        let stages = vec![stage(Stage::Decode, 2 * ns, 0), stage(Stage::Fetch, ns, ns), stage("odd".into(), ns, 0)];
        world.worker(WorkerHeartbeat { stages, uptime_ms: world.now_ms, ..worker(1, "a") });
        let offset = second * 96;
        let acknowledged = Position::new(offset / 10_000, offset % 10_000);
        world.heartbeat(RankHeartbeat { acknowledged, waited_ms: second * 250, ..heartbeat(1, 0, 10, 0) }).unwrap();
    }
}

#[test]
fn the_last_minutes_and_the_last_hour_are_there_and_older_steps_are_not() {
    let mut world = CoordinatorWorld::new();
    world.join(join(0, 1, 10));
    run_for(&mut world, 3 * 3_600);
    for (step_ms, kept) in [(1_000, 300), (10_000, 450)] {
        let page = world.core.history(&query(step_ms, 0));
        let ([rank], [worker]) = (&page.ranks[..], &page.workers[..]) else { panic!("{page:?}") };
        assert_eq!((rank.waiting.clone(), rank.samples_per_s.clone()), (vec![250; kept], vec![96.0; kept]));
        assert_eq!(rank.first + kept as u64, page.now_ms / step_ms, "they end at the step in progress");
        let names: Vec<&str> = worker.stages.iter().map(|stage| stage.stage.name()).collect();
        assert_eq!(names, ["fetch", "decode"], "a stage of another release has no history");
        let (fetch, decode) = (&worker.stages[0], &worker.stages[1]);
        assert_eq!((fetch.busy.clone(), fetch.input_wait.clone()), (vec![50; kept], vec![50; kept]));
        assert_eq!((decode.busy.clone(), decode.throttled.clone()), (vec![100; kept], vec![0; kept]));
        let newest = world.core.history(&query(step_ms, rank.first + kept as u64 - 2));
        assert_eq!((newest.ranks[0].waiting.len(), newest.workers[0].stages[0].busy.len()), (2, 2));
    }
}

#[test]
fn a_removed_job_has_no_history_and_what_is_unknown_is_left_out() {
    let mut world = CoordinatorWorld::new();
    world.join(join(0, 1, 10));
    run_for(&mut world, 5);
    assert_eq!(world.core.history(&query(1_000, 0)).ranks.len(), 1);
    world.send_as(crate::Role::Admin, 7, ToCoordinator::RemoveJob { name: "j".into() });
    let page = world.core.history(&HistoryQuery { workers: vec![WorkerId(9)], ..query(1_000, 0) });
    assert_eq!((page.ranks.len(), page.workers.len()), (0, 0));
}

#[test]
fn a_query_that_asks_for_too_much_or_for_other_steps_is_answered_with_the_limit() {
    assert_eq!(query(10_000, 0).problem(), None);
    assert!(query(5, 0).problem().unwrap().contains("`step_ms` is 5; there are steps of 1000 and 10000"));
    let many = HistoryQuery { ranks: (0..=SHOWN_SERIES as u32).collect(), ..query(1_000, 0) };
    assert_eq!(many.problem().unwrap(), "`ranks` lists 65; ask for 64 at most, and again for others");
}

#[test]
fn events_tell_what_happened_in_order_and_only_new_ones_are_asked_for() {
    let mut world = CoordinatorWorld::new();
    world.worker(worker(1, "a"));
    world.worker(worker(2, "b"));
    let home = world.try_join(Join { node: NodeId("a".into()), ..join(0, 1, 10) }).unwrap().1;
    assert_eq!(home, Some(1));
    world.worker(WorkerHeartbeat { bad_samples: vec![bad_sample(5)], ..worker(1, "a") });
    let before = world.core.events(0).events.last().unwrap().id;
    world.close(1);
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(Some(2)));
    world.pass_ms(1_000);
    world.leave(heartbeat(1, 0, 10, 96));
    let kinds = |after| -> Vec<&str> { world.core.events(after).events.iter().map(|event| event.kind).collect() };
    let expected =
        ["leads", "job_created", "worker_joined", "worker_joined", "session_started", "bad_sample", "worker_gone"];
    assert_eq!(kinds(0)[..7], expected);
    let page = world.core.events(before);
    let texts: Vec<(LogLevel, &str)> = page.events.iter().map(|event| (event.level, event.text.as_str())).collect();
    assert_eq!(
        texts,
        [
            (LogLevel::Warn, "worker `worker-1` lost its connection; 1 ranks need another home"),
            (
                LogLevel::Debug,
                "rank 0 of session 1 gets its batches from worker `worker-2`, and no more from `worker-1`"
            ),
            (LogLevel::Info, "session 1 of job `j` has ended at 0:96: all ranks have left"),
        ]
    );
    assert_eq!((page.now_ms, page.events[2].at_ms), (1_000, 1_000));
}

#[test]
fn a_rank_whose_worker_was_started_again_under_its_name_has_not_moved() {
    let mut world = CoordinatorWorld::new();
    world.worker(worker(1, "a"));
    world.join(join(0, 1, 10));
    let mut again = worker(2, "a");
    again.home.name = "worker-1".to_owned();
    world.worker(again);
    world.close(1);
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 96)), Ok(Some(2)));
    assert!(world.core.events(0).events.iter().all(|event| event.kind != "rank_moved"));
}
