//! A small world around the core: jobs, workers and ranks that send heartbeats in virtual time.

use crate::{
    Role,
    coordinator::{
        Answer, Change, ConnectionId, CoordinatorConfig, CoordinatorCore, Durable, Effect, MemoryState,
        NearestThenLeastLoaded, RequestPeer, testing::job,
    },
    messages::{FromCoordinator, Join, RankHeartbeat, Refusal, Session, ToCoordinator, WorkerHeartbeat},
};
use spdl_job::Job;
use spdl_types::Fingerprint;

/// A coordinator with its durable state and its clock.
pub(crate) struct CoordinatorWorld {
    pub(crate) core: CoordinatorCore,
    pub(crate) state: MemoryState,
    pub(crate) now_ms: u64,
    pub(crate) log: Vec<String>,
    pub(crate) changes: Vec<Change>,
}

impl CoordinatorWorld {
    /// Creates a coordinator that has the job `j`.
    pub(crate) fn new() -> Self {
        let mut world = Self {
            core: core(Durable::default(), 0),
            state: MemoryState::default(),
            now_ms: 0,
            log: vec![],
            changes: vec![],
        };
        assert_eq!(world.create(job("j")), FromCoordinator::Done);
        world
    }

    pub(crate) fn create(&mut self, job: Job) -> FromCoordinator {
        let reply = self.core.handle_job(self.now_ms, Ok(job));
        self.carry_out();
        reply
    }

    /// Returns the fingerprint of a job as it is in the durable state.
    pub(crate) fn fingerprint(&self, job: &str) -> Fingerprint {
        let jobs = self.state.durable().jobs;
        jobs.iter().find(|record| record.job.name == job).expect("it was created").fingerprint
    }

    /// Carries out the effects of the core.
    pub(crate) fn carry_out(&mut self) {
        while let Some(effect) = self.core.poll_effect() {
            match effect {
                Effect::Log(line) => self.log.push(line.to_string()),
                Effect::Persist(change) => {
                    self.state.apply(std::slice::from_ref(&change));
                    self.changes.push(change);
                }
            }
        }
    }

    pub(crate) fn send_as(&mut self, role: Role, connection: u64, request: ToCoordinator) -> Answer {
        let peer = RequestPeer { connection: ConnectionId(connection), role, name: "somebody".to_owned() };
        let answer = self.core.handle_request(self.now_ms, &peer, request);
        self.carry_out();
        answer
    }

    /// Sends a request of a rank, and returns the reply.
    pub(crate) fn ask(&mut self, request: ToCoordinator) -> FromCoordinator {
        self.reply(Role::Client, 1 << 40, request)
    }

    fn reply(&mut self, role: Role, connection: u64, request: ToCoordinator) -> FromCoordinator {
        match self.send_as(role, connection, request) {
            Answer::Reply(reply) => reply,
            other => panic!("{other:?} is no reply"),
        }
    }

    /// Sends a worker's heartbeat over the connection with the worker's id.
    pub(crate) fn worker(&mut self, heartbeat: WorkerHeartbeat) -> FromCoordinator {
        self.reply(Role::Worker, heartbeat.home.worker.0, ToCoordinator::WorkerHeartbeat(heartbeat))
    }

    pub(crate) fn try_join(&mut self, join: Join) -> Result<(Session, Option<u64>), Refusal> {
        match self.ask(ToCoordinator::Join(join)) {
            FromCoordinator::Joined { session, home, .. } => Ok((*session, home.map(|home| home.worker.0))),
            FromCoordinator::Refused(refusal) => Err(refusal),
            other => panic!("{other:?} is no answer to a join"),
        }
    }

    /// Replaces a job.
    pub(crate) fn replace(&mut self, job: Job) -> FromCoordinator {
        let reply = self.core.handle_replacement(self.now_ms, Ok(job));
        self.carry_out();
        reply
    }

    /// Joins and returns the session's number.
    pub(crate) fn join(&mut self, join: Join) -> u64 {
        self.try_join(join).unwrap().0.id.0
    }

    /// Sends a rank's heartbeat and returns the rank's home.
    pub(crate) fn heartbeat(&mut self, heartbeat: RankHeartbeat) -> Result<Option<u64>, Refusal> {
        match self.ask(ToCoordinator::RankHeartbeat(heartbeat)) {
            FromCoordinator::RankAcknowledged { home, .. } => Ok(home.map(|home| home.worker.0)),
            FromCoordinator::Refused(refusal) => Err(refusal),
            other => panic!("{other:?} is no answer to a heartbeat"),
        }
    }

    pub(crate) fn leave(&mut self, heartbeat: RankHeartbeat) {
        let reply = self.ask(ToCoordinator::RankLeave(heartbeat));
        assert_eq!(reply, FromCoordinator::Done);
    }

    pub(crate) fn close(&mut self, connection: u64) {
        self.core.handle_closed(self.now_ms, ConnectionId(connection));
        self.carry_out();
    }

    /// Advances the time in steps that are shorter than any liveness timeout.
    pub(crate) fn pass_ms(&mut self, ms: u64) {
        let end = self.now_ms + ms;
        while self.now_ms < end {
            self.now_ms = (self.now_ms + 200).min(end);
            self.core.handle_tick(self.now_ms);
            self.carry_out();
        }
    }

    /// Kills the coordinator and restarts it from its durable state.
    pub(crate) fn restart(&mut self) {
        self.core = core(self.state.durable(), self.now_ms);
    }
}

pub(crate) fn core(durable: Durable, now_ms: u64) -> CoordinatorCore {
    CoordinatorCore::new(CoordinatorConfig::default(), Box::new(NearestThenLeastLoaded), durable, now_ms)
}
