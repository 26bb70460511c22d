//! The coordinator's core: any peer with a valid certificate can send it anything, at any time, in any order.

use spdl_control::{
    coordinator::{
        Answer, ConnectionId, CoordinatorConfig, CoordinatorCore, Durable, Effect, MAX_JOBS, MAX_WORKERS,
        NearestThenLeastLoaded, RequestPeer, Role,
    },
    messages::{FromCoordinator, Refusal, ToCoordinator},
};
use spdl_job::{Job, JobFile};
use spdl_order::DatasetFacts;
use spdl_types::Fingerprint;
use spdl_wire::codec;

use crate::{
    input::{FuzzInput, append_piece},
    messages,
};

/// Sends requests of peers of all roles, closes connections, and lets time pass or jump. Checks that there is always a
/// reply, that it fits its message, and that the state stays within the limits.
pub(crate) fn read(data: &[u8]) {
    let mut input = FuzzInput(data);
    let mut core =
        CoordinatorCore::new(CoordinatorConfig::default(), Box::new(NearestThenLeastLoaded), Durable::default(), 0);
    let mut now_ms = 0_u64;
    while !input.is_empty() {
        let choice = input.byte();
        match choice {
            0xff => core.handle_closed(now_ms, ConnectionId(input.byte().into())),
            0xfe => now_ms = now_ms.wrapping_add(u64::from(input.byte()) * 50),
            0xfd => now_ms = input.u64() >> 16,
            _ => request(&mut core, now_ms, choice, input.piece()),
        }
        core.handle_tick(now_ms);
        while let Some(effect) = core.poll_effect() {
            if let Effect::Log(note) = effect {
                let bytes = note.to_string().len();
                assert!(bytes < 1 << 20, "a line of {bytes} bytes for the log");
            }
        }
    }
    core.flush();
    let status = core.status();
    assert!(status.workers.len() <= MAX_WORKERS && status.jobs.len() <= MAX_JOBS);
    assert!(status.to_json().starts_with('{'));
}

fn request(core: &mut CoordinatorCore, now_ms: u64, choice: u8, message: &[u8]) {
    let Ok(message) = codec::decode::<ToCoordinator>(message) else { return };
    let role = Role::ALL[usize::from(choice % 4)];
    let peer = RequestPeer { connection: ConnectionId(u64::from(choice / 4 % 8)), role, name: "peer".into() };
    let reply = match core.handle_request(now_ms, &peer, message) {
        Answer::Reply(reply) => reply,
        Answer::Clock => FromCoordinator::Clock(now_ms),
        Answer::Classes { .. } => FromCoordinator::Classes { names: Vec::new(), is_last: true },
        Answer::CreateJob { toml, origin } => core.handle_job(now_ms, frozen(&toml, origin)),
        Answer::ReplaceJob { toml, origin } => core.handle_replacement(now_ms, frozen(&toml, origin)),
    };
    let mut bytes = Vec::new();
    codec::encode(&reply, &mut bytes).expect("a reply can be written");
    if let FromCoordinator::Joined { session, .. } = reply {
        session.check(0).expect("a session that is given can be served");
    }
}

fn frozen(toml: &str, origin: String) -> Result<Job, Refusal> {
    let facts = DatasetFacts::new(Fingerprint(7), 100, 10);
    let job = JobFile::parse(toml, &origin).and_then(|file| file.freeze(&facts));
    job.map_err(|error| Refusal::JobInvalid { job: origin, cause: error.to_string() })
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for request in messages::requests() {
        let mut bytes = Vec::new();
        codec::encode(&request, &mut bytes).expect("a seed can be written");
        let role = match request {
            ToCoordinator::WorkerHeartbeat(_) | ToCoordinator::WorkerLeave { .. } => Role::Worker,
            ToCoordinator::ReplaceJob { .. } | ToCoordinator::RemoveJob { .. } | ToCoordinator::SetWeights { .. } => {
                Role::Admin
            }
            _ => Role::Client,
        };
        let role = Role::ALL.iter().position(|known| *known == role).expect("all roles are listed");
        all.push(role as u8);
        append_piece(&mut all, &bytes);
        all.extend([0xfe, 4]);
    }
    vec![all.clone(), [all.clone(), vec![0xff, 0], all].concat()]
}
