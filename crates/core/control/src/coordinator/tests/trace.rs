//! Gathering a trace.

use crate::{
    Role,
    coordinator::{
        Answer,
        testing::{heartbeat, join, trace_part, worker},
        tests::world::CoordinatorWorld,
    },
    messages::{FromCoordinator, Refusal, ToCoordinator},
    trace::{MAX_PART_SPANS, MAX_TRACE_MS, TraceOrder, TracePart, TraceProgress, TraceSource},
};
use spdl_types::{SessionId, WorkerId};

const RANK: TraceSource = TraceSource::Rank { session: SessionId(1), rank: 0 };

fn ask(world: &mut CoordinatorWorld, role: Role, request: ToCoordinator) -> FromCoordinator {
    match world.send_as(role, 1, request) {
        Answer::Reply(reply) => reply,
        other => panic!("{other:?}"),
    }
}

fn start(world: &mut CoordinatorWorld, duration_ms: u64) -> Result<TraceProgress, Refusal> {
    let request = ToCoordinator::StartTrace { job: "j".to_owned(), duration_ms };
    match ask(world, Role::Admin, request) {
        FromCoordinator::Trace(progress) => Ok(*progress),
        FromCoordinator::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

fn read(world: &mut CoordinatorWorld, part: u32) -> TraceProgress {
    match ask(world, Role::Client, ToCoordinator::ReadTrace { trace: 1, part }) {
        FromCoordinator::Trace(progress) => *progress,
        other => panic!("{other:?}"),
    }
}

fn send(world: &mut CoordinatorWorld, role: Role, part: TracePart) -> FromCoordinator {
    ask(world, role, ToCoordinator::TracePart(part))
}

fn refused(reply: FromCoordinator) -> String {
    match reply {
        FromCoordinator::Refused(refusal) => refusal.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Returns what a worker, and the rank, are asked to record.
fn orders(world: &mut CoordinatorWorld, id: u64) -> [Option<TraceOrder>; 2] {
    let of_worker = world.worker(worker(id, "node-0")).trace_order();
    let of_rank = ask(world, Role::Client, ToCoordinator::RankHeartbeat(heartbeat(1, 0, 10, 0))).trace_order();
    [of_worker, of_rank]
}

/// A rank with its home, worker 1, and a worker without ranks.
fn world() -> CoordinatorWorld {
    let mut world = CoordinatorWorld::new();
    world.worker(worker(1, "node-0"));
    world.worker(worker(2, "node-9"));
    world.join(join(0, 1, 10));
    world
}

#[test]
fn a_trace_is_of_the_ranks_of_a_job_and_their_homes_and_of_no_other_worker() {
    let mut world = world();
    assert_eq!(orders(&mut world, 1), [None, None]);
    let progress = start(&mut world, 2_000).unwrap();
    let sources = vec![TraceSource::Worker(WorkerId(1)), RANK];
    assert_eq!((progress.processes, &progress.missing, progress.remaining_ms), (2, &sources, 3_000));
    let order = orders(&mut world, 1);
    assert_eq!(order[0].unwrap().trace, 1);
    assert_eq!(order[0], order[1]);
    assert_eq!(orders(&mut world, 2)[0], None);
    world.pass_ms(3_000);
    assert_eq!(orders(&mut world, 1), [None, None], "it has ended");
}

#[test]
fn parts_are_read_in_the_order_in_which_they_came_until_each_process_has_sent_its_last() {
    let mut world = world();
    start(&mut world, 2_000).unwrap();
    let first = TracePart { is_last: false, ..trace_part(WorkerId(1)) };
    let last = TracePart { number: 1, ..trace_part(WorkerId(1)) };
    assert_eq!(read(&mut world, 0).part, None);
    assert_eq!(send(&mut world, Role::Worker, first.clone()), FromCoordinator::Done);
    assert!(refused(send(&mut world, Role::Worker, TracePart { number: 2, ..last.clone() })).contains("not due"));
    assert_eq!(send(&mut world, Role::Worker, last.clone()), FromCoordinator::Done);
    // A reply was lost, and the part comes again.
    assert_eq!(send(&mut world, Role::Worker, last.clone()), FromCoordinator::Done);
    assert_eq!(read(&mut world, 0).part.as_deref(), Some(&first));
    let progress = read(&mut world, 1);
    assert_eq!((progress.part.as_deref(), progress.missing), (Some(&last), vec![RANK]));
    assert_eq!(orders(&mut world, 1)[0], None, "it has sent all");
    let more = TracePart { number: 2, ..last.clone() };
    assert_eq!(refused(send(&mut world, Role::Worker, more)), "trace 1: part 2 of this process is not due");
    let of_rank = TracePart { source: RANK, number: 0, ..last };
    assert_eq!(send(&mut world, Role::Client, of_rank), FromCoordinator::Done);
    assert_eq!(read(&mut world, 9).missing, []);
}

#[test]
fn what_no_process_was_asked_for_and_what_is_too_much_is_refused() {
    let mut world = world();
    let part = trace_part(WorkerId(1));
    assert!(refused(send(&mut world, Role::Worker, part.clone())).contains("it is not known"));
    start(&mut world, 2_000).unwrap();
    let stranger = trace_part(WorkerId(2));
    assert!(refused(send(&mut world, Role::Worker, stranger)).contains("takes no part"));
    assert_eq!(
        refused(send(&mut world, Role::Client, part.clone())),
        "a client may not send a trace of Worker(WorkerId(1))"
    );
    let span = part.stages[0].1[0];
    let full =
        TracePart { stages: vec![(spdl_types::Stage::Decode, vec![span; MAX_PART_SPANS])], is_last: false, ..part };
    let more = TracePart { stages: vec![(spdl_types::Stage::Decode, vec![span; MAX_PART_SPANS + 1])], ..full.clone() };
    assert!(refused(send(&mut world, Role::Worker, more)).contains("the most is 16384"));
    for number in 0..4 {
        assert_eq!(send(&mut world, Role::Worker, TracePart { number, ..full.clone() }), FromCoordinator::Done);
    }
    let beyond = TracePart { number: 4, ..full };
    assert!(refused(send(&mut world, Role::Worker, beyond)).contains("the most is 0"), "its share is used up");
}

#[test]
fn there_is_one_trace_at_a_time_and_none_without_ranks() {
    let mut world = world();
    assert_eq!(
        start(&mut world, MAX_TRACE_MS + 1).unwrap_err().to_string(),
        "the duration of a trace in milliseconds is 60001; the most is 60000"
    );
    assert!(start(&mut world, 0).is_err());
    let running = start(&mut world, 2_000).unwrap();
    assert_eq!(start(&mut world, 2_000).unwrap(), running, "the request was repeated");
    let refusal = start(&mut world, 5_000).unwrap_err().to_string();
    assert_eq!(refusal, "trace 2: trace 1 of job `j` is being recorded for another 3 s");
    world.pass_ms(3_000);
    assert_eq!(world.heartbeat(heartbeat(1, 0, 10, 0)), Ok(Some(1)), "the rank is alive");
    assert_eq!(start(&mut world, 2_000).unwrap().trace, 2);
    world.pass_ms(70_000);
    let gone = ToCoordinator::ReadTrace { trace: 2, part: 0 };
    assert!(refused(ask(&mut world, Role::Client, gone)).contains("no longer kept"));
    assert_eq!(start(&mut world, 1_000).unwrap_err().to_string(), "trace 3: job `j` has no ranks alive");
}
