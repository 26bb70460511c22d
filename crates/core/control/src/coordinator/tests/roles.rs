//! Which role may send which request.

use crate::{
    coordinator::{
        Answer,
        Role::{self, Admin, Client, Coordinator, Worker},
        testing::{heartbeat, join, trace_part, worker},
        tests::world::CoordinatorWorld,
    },
    messages::{FromCoordinator, Refusal, RunName, ToCoordinator},
};
use spdl_types::{SessionId, WorkerId};

#[test]
fn each_request_is_taken_from_its_roles_only() {
    let submit = ToCoordinator::SubmitJob { toml: String::new(), origin: String::new() };
    let run = RunName { job: "j".to_owned(), run: "j".to_owned() };
    let cases: [(ToCoordinator, &[Role]); 18] = [
        (ToCoordinator::WorkerHeartbeat(worker(1, "a")), &[Worker]),
        (ToCoordinator::WorkerLeave { worker: WorkerId(1) }, &[Worker]),
        (ToCoordinator::Join(join(0, 1, 1)), &[Client, Admin]),
        (ToCoordinator::RankHeartbeat(heartbeat(1, 0, 1, 0)), &[Client, Admin]),
        (ToCoordinator::RankLeave(heartbeat(1, 0, 1, 0)), &[Client, Admin]),
        (submit, &[Client, Admin]),
        (ToCoordinator::RemoveJob { name: "j".to_owned() }, &[Admin]),
        (ToCoordinator::SetWeights { job: "j".to_owned(), from: None, weights: Vec::new() }, &[Admin]),
        (ToCoordinator::DescribeJob { name: "j".to_owned() }, &[Coordinator, Worker, Client, Admin]),
        (ToCoordinator::BadSamples { job: "j".to_owned(), after: None }, &[Client, Admin]),
        (ToCoordinator::ResetRun(run), &[Admin]),
        (ToCoordinator::Measurements { session: SessionId(1), rank: 0 }, &[Client, Admin]),
        (ToCoordinator::Clock, &[Worker, Client, Admin]),
        (ToCoordinator::StartTrace { job: "j".to_owned(), duration_ms: 1 }, &[Client, Admin]),
        (ToCoordinator::TracePart(trace_part(WorkerId(1))), &[Worker]),
        (ToCoordinator::ReadTrace { trace: 1, part: 0 }, &[Client, Admin]),
        (ToCoordinator::Classes { job: "j".to_owned(), first: 0 }, &[Client, Admin]),
        (ToCoordinator::Status, &[Coordinator, Worker, Client, Admin]),
    ];
    for (request, allowed) in cases {
        for role in [Coordinator, Worker, Client, Admin] {
            let answer = CoordinatorWorld::new().send_as(role, 1, request.clone());
            let refused = matches!(&answer, Answer::Reply(FromCoordinator::Refused(Refusal::Role { .. })));
            assert_eq!(!refused, allowed.contains(&role), "{role}: {request:?}");
        }
    }
}

#[test]
fn the_refusal_names_role_and_request() {
    let answer = CoordinatorWorld::new().send_as(Client, 1, ToCoordinator::RemoveJob { name: "j".to_owned() });
    let Answer::Reply(FromCoordinator::Refused(refusal)) = answer else { panic!("{answer:?}") };
    assert_eq!(refusal.to_string(), "a client may not send RemoveJob");
}

#[test]
fn a_submitted_job_needs_its_dataset_first() {
    let request = ToCoordinator::SubmitJob { toml: "text".to_owned(), origin: "x.toml".to_owned() };
    let answer = CoordinatorWorld::new().send_as(Client, 1, request);
    assert_eq!(answer, Answer::CreateJob { toml: "text".to_owned(), origin: "x.toml".to_owned() });
}

#[test]
fn sessions_are_not_confused_between_jobs() {
    let mut world = CoordinatorWorld::new();
    let id = world.join(join(0, 1, 1));
    let mut stranger = heartbeat(id, 0, 1, 0);
    stranger.job = "other".to_owned();
    assert_eq!(world.heartbeat(stranger), Err(Refusal::UnknownSession { session: SessionId(id) }));
}
