//! Runs that are reset, and the requests of a run's audit.

use crate::{
    coordinator::{
        Answer, Role,
        testing::{bad_sample, heartbeat, job, join, worker},
        tests::world::CoordinatorWorld,
    },
    messages::{
        BAD_SAMPLES_PAGE, FromCoordinator, Join, Refusal, RunName, Start, StartReason, ToCoordinator, WorkerHeartbeat,
    },
};
use spdl_job::Job;
use spdl_order::Receipt;
use spdl_types::{Position, SampleId, SessionId};

fn ask(world: &mut CoordinatorWorld, request: ToCoordinator) -> FromCoordinator {
    match world.send_as(Role::Admin, 1, request) {
        Answer::Reply(reply) => reply,
        other => panic!("{other:?} is no reply"),
    }
}

fn reset(world: &mut CoordinatorWorld, run: &str) -> Result<(), Refusal> {
    match ask(world, ToCoordinator::ResetRun(RunName { job: "j".to_owned(), run: run.to_owned() })) {
        FromCoordinator::Done => Ok(()),
        FromCoordinator::Refused(refusal) => Err(refusal),
        other => panic!("{other:?} is no answer to a reset"),
    }
}

/// Returns the join of a rank whose launch has an id of its own.
fn launch(number: u64) -> Join {
    Join { launch: Some(format!("launch {number}")), ..join(0, 1, number) }
}

/// Returns a world in which one rank advanced to 0:960 in session 1, with 9 epochs instead of the job's 3, and left.
fn left_off() -> CoordinatorWorld {
    let mut world = CoordinatorWorld::new();
    world.join(Join { epochs: Some(9), ..launch(10) });
    world.leave(heartbeat(1, 0, 10, 960));
    world
}

#[test]
fn a_run_that_was_reset_begins_at_the_beginning_though_its_launch_resumes_and_a_restart_forgets_nothing() {
    for is_restarted in [false, true] {
        let mut world = left_off();
        reset(&mut world, "j").unwrap();
        reset(&mut world, "j").unwrap();
        if is_restarted {
            world.restart();
        }
        let status = world.core.status();
        let run = &status.jobs[0].runs[0];
        assert_eq!((run.acknowledged, status.jobs[0].acknowledged), (Position::START, Position::START));
        assert_eq!((&run.holder, &run.receipt, run.ranks_alive), (&None, &None, 0));
        let Answer::Reply(FromCoordinator::Joined { session, reason, .. }) =
            world.send_as(Role::Client, 1, ToCoordinator::Join(launch(20)))
        else {
            panic!("no session")
        };
        assert_eq!((session.id, session.start, reason), (SessionId(2), Position::START, StartReason::Beginning));
        assert_eq!(session.job.epochs, 3, "the job's: what prolonged the run is forgotten too");
    }
}

#[test]
fn a_run_is_not_reset_while_its_ranks_are_alive_and_the_refusal_names_the_holder() {
    let mut world = CoordinatorWorld::new();
    world.join(Join { since_unix_s: 1_795_309_262, ..launch(10) });
    let refusal = reset(&mut world, "j").unwrap_err().to_string();
    assert_eq!(
        refusal,
        "job `j` is in use: session 1 is held by rank 0 of 1 (client-10), since 2026-11-22 01:01:02 UTC"
    );
    world.heartbeat(heartbeat(1, 0, 10, 96)).unwrap();
    assert_eq!(world.core.status().jobs[0].runs[0].acknowledged, Position::new(0, 96));
    // Longer than the liveness timeout.
    world.pass_ms(5_200);
    reset(&mut world, "j").unwrap();
}

#[test]
fn ranks_that_were_only_silent_do_not_go_on_in_a_run_that_was_reset() {
    let mut world = CoordinatorWorld::new();
    world.join(launch(10));
    world.join(Join { takeover: true, ..launch(20) });
    world.pass_ms(5_200);
    reset(&mut world, "j").unwrap();
    for again in [false, true] {
        let back = world.heartbeat(heartbeat(2, 0, 20, 96)).unwrap_err();
        assert_eq!(
            back.to_string(),
            "session 2 of job `j` is over: the run was reset, and begins again at the beginning"
        );
        for (session, nonce) in [(2, 20), (2, 21), (1, 10)] {
            let start = Start::At(Position::START);
            let join = Join { session: Some(SessionId(session)), start, ..launch(nonce) };
            let refusal = world.try_join(join).unwrap_err();
            let is_over = matches!(refusal, Refusal::RunReset { .. } | Refusal::SessionSuperseded { .. });
            assert!(is_over, "session {session}, again {again}: {refusal}");
        }
        world.restart();
    }
    assert_eq!(world.join(launch(30)), 3);
}

#[test]
fn another_run_is_not_touched_and_one_that_is_unknown_is_refused_with_those_that_are_known() {
    let mut world = left_off();
    let other = world.join(Join { run: "other".to_owned(), ..launch(40) });
    world.leave(heartbeat(other, 0, 40, 192));
    reset(&mut world, "j").unwrap();
    let runs: Vec<Position> = world.core.status().jobs[0].runs.iter().map(|run| run.acknowledged).collect();
    assert_eq!(runs, [Position::START, Position::new(0, 192)]);
    assert_eq!(reset(&mut world, "k").unwrap_err().to_string(), "job `j` has no run `k`; known are: j, other");
}

#[test]
fn a_receipt_is_as_durable_as_the_position_that_it_belongs_to() {
    let mut world = CoordinatorWorld::new();
    world.join(join(0, 2, 10));
    world.join(join(1, 2, 11));
    world.leave(heartbeat(1, 0, 10, 960));
    world.leave(heartbeat(1, 1, 11, 960));
    world.restart();
    let status = world.core.status();
    let receipts: Vec<_> = status.sessions[0].ranks.iter().map(|rank| rank.receipt.clone()).collect();
    assert_eq!(receipts, [Some(Receipt(960).to_string()), Some(Receipt(960).to_string())]);
    assert_eq!(status.jobs[0].runs[0].receipt, Some(Receipt(1_920).to_string()));
}

#[test]
fn all_ids_of_bad_samples_can_be_had_page_by_page() {
    let mut world = CoordinatorWorld::new();
    let samples = BAD_SAMPLES_PAGE as u64 + 7;
    world.create(Job { samples, max_bad_fraction: 1.0, ..job("bad") });
    let of_job = |sample| spdl_types::BadSample { job: "bad".to_owned(), ..bad_sample(sample) };
    world.worker(WorkerHeartbeat { bad_samples: (0..samples).rev().map(of_job).collect(), ..worker(1, "a") });
    let mut page = |after| {
        let request = ToCoordinator::BadSamples { job: "bad".to_owned(), after };
        let FromCoordinator::BadSamples { samples, is_last } = ask(&mut world, request) else { panic!("no page") };
        (samples, is_last)
    };
    let (first, is_last) = page(None);
    assert_eq!((first.len(), is_last), (BAD_SAMPLES_PAGE, false));
    let (rest, is_last) = page(first.last().copied());
    assert_eq!((rest.len(), is_last), (7, true));
    assert!(first.into_iter().chain(rest).eq((0..samples).map(SampleId)));
    assert_eq!(page(Some(SampleId(u64::MAX))), (Vec::new(), true));
}
