//! The coordinator as a pure state machine: requests, closed connections and ticks in, replies and effects out.
//!
//! Jobs, sessions, membership, placement and the bad-sample ledger live here. No async, clock or I/O: the shell
//! passes `now_ms` (any monotonic count of milliseconds) and carries out what [`Coordinator::poll_effect`] returns.

mod durability;
mod effect;
mod jobs;
mod joins;
mod ledger;
mod limits;
mod members;
mod placement;
mod recent;
mod runs;
mod session;
mod status;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

pub use durability::{Durability, Terms};
pub use effect::{
    Answer, BadSampleRecord, BadSampleReport, Change, ConnectionId, Durable, Effect, JobRecord, LogLevel, LogLine,
    RankRecord, RequestPeer, SessionRecord, Successor,
};
pub use ledger::{LEDGER_SAMPLES, Ledger, NAMED_SAMPLES};
pub use placement::{Candidate, NearestThenLeastLoaded, Placement};
pub use spdl_wire::certs::Role;
use spdl_wire::{
    messages::{FromCoordinator, Refusal, SessionId, ToCoordinator, WorkerId},
    mutations::{Mutation, mutated},
};
pub use status::{
    BadSampleStatus, JobProblem, JobStatus, RankStatus, RunStatus, ServedRank, SessionStatus, StageRate, Status,
    WorkerStatus,
};

use self::{jobs::JobState, members::WorkerRecord, session::SessionState};

/// Jobs that can be there at once.
pub const MAX_JOBS: usize = 1_000;
/// Workers that can be there at once.
pub const MAX_WORKERS: usize = 10_000;
/// Ranks of a session.
pub const MAX_WORLD: u32 = 65_536;
/// Runs of a job that are remembered; one more is refused.
pub const MAX_RUNS: usize = 1_000;
/// Superseded sessions of a run that are remembered, so that their ranks are told by whom.
pub const SUPERSEDED_SESSIONS: usize = 4;

/// The coordinator's knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How often workers and ranks beat, in milliseconds. Default 1,000. Raised: figures and positions are older.
    pub beat_ms: u64,
    /// Silence after which a worker or rank is taken for dead, in milliseconds. Default 5,000. Raised: ranks of a
    /// worker that hangs wait longer for another home.
    pub liveness_ms: u64,
    /// At most how often acknowledged positions are made durable, in milliseconds. Default 1,000. Raised: a launch
    /// without a state, after the coordinator was killed, goes on from further back.
    pub persist_ms: u64,
    /// How long a rank that could not reach a worker is kept from it, in milliseconds. Default 30,000. Raised: a
    /// rank stays longer on another node after its own worker is back.
    pub unreachable_ms: u64,
    /// How long a worker has to be there, and a rank to be with its home, before the rank is moved to a better one, in
    /// milliseconds. Default 5,000. Raised: a new worker gets work later; lowered: one that comes and goes
    /// interrupts its ranks more often.
    pub move_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { beat_ms: 1_000, liveness_ms: 5_000, persist_ms: 1_000, unreachable_ms: 30_000, move_ms: 5_000 }
    }
}

/// The state machine. Call [`new`](Self::new) with what was durable; then any `handle_*` or command, each followed by
/// [`poll_effect`](Self::poll_effect) until it returns `None`; a reply goes out after its effects are done.
/// [`handle_tick`](Self::handle_tick) is due several times per liveness timeout.
pub struct Coordinator {
    config: Config,
    placement: Box<dyn Placement>,
    started_ms: u64,
    now_ms: u64,
    jobs: BTreeMap<String, JobState>,
    problems: BTreeMap<String, String>,
    sessions: BTreeMap<SessionId, SessionState>,
    last_session: u64,
    workers: BTreeMap<WorkerId, WorkerRecord>,
    effects: VecDeque<Effect>,
}

impl Coordinator {
    /// A coordinator that goes on from what was durable.
    #[must_use]
    pub fn new(config: Config, placement: Box<dyn Placement>, durable: Durable, now_ms: u64) -> Self {
        let mut coordinator = Self {
            config,
            placement,
            started_ms: now_ms,
            now_ms,
            jobs: BTreeMap::new(),
            problems: BTreeMap::new(),
            sessions: BTreeMap::new(),
            last_session: durable.last_session,
            workers: BTreeMap::new(),
            effects: VecDeque::new(),
        };
        coordinator.restore(durable);
        coordinator
    }

    fn restore(&mut self, durable: Durable) {
        for record in durable.jobs {
            self.jobs.insert(record.job.name.clone(), JobState::restored(record));
        }
        for record in durable.bad_samples {
            if let Some(job) = self.jobs.get_mut(&record.job) {
                job.ledger.restore(record);
            }
        }
        for record in durable.sessions {
            self.last_session = self.last_session.max(record.id.0);
            if let Some(job) = self.jobs.get_mut(&record.job) {
                let session = SessionState::restored(record, &job.job, self.now_ms);
                let run = job.runs.entry(session.run.clone()).or_default();
                run.sessions.push(session.id);
                run.sessions.sort_unstable();
                self.sessions.insert(session.id, session);
            }
        }
    }

    /// A request came in.
    pub fn handle_request(&mut self, now_ms: u64, peer: &RequestPeer, request: ToCoordinator) -> Answer {
        self.advance(now_ms);
        let result = match permit(peer.role, &request) {
            Err(refusal) => Err(refusal),
            Ok(()) => match request {
                ToCoordinator::WorkerHeartbeat(beat) => self.beat_worker(peer.connection, beat),
                ToCoordinator::WorkerLeave { worker } => {
                    self.remove_worker(worker, "left");
                    Ok(FromCoordinator::Done)
                }
                ToCoordinator::Join(join) => self.join(&join),
                ToCoordinator::RankHeartbeat(beat) => self.beat_rank(&beat),
                ToCoordinator::RankLeave(beat) => self.leave_rank(&beat),
                ToCoordinator::SubmitJob { toml, origin } => return Answer::CreateJob { toml, origin },
                ToCoordinator::RemoveJob { name } => self.remove_job(&name),
                ToCoordinator::DescribeJob { name } => {
                    self.job_or_failed(&name).map(|state| FromCoordinator::Job(Box::new(state.job.clone())))
                }
                ToCoordinator::BadSamples { job, after } => self.bad_samples(&job, after),
                ToCoordinator::ResetRun(run) => self.reset_run(run),
                ToCoordinator::Status => Ok(FromCoordinator::Status(self.status().to_json())),
            },
        };
        Answer::Reply(result.unwrap_or_else(FromCoordinator::Refused))
    }

    /// Whether the answer may rest on what an earlier request has changed: it goes out when that is durable, also where
    /// this request changes nothing. A rank that joins a session, or asks again, is otherwise told of one that a crash
    /// undoes, and a worker drops a bad sample that another has told of and that is lost with both.
    #[must_use]
    pub fn answer_waits_for_earlier(request: &ToCoordinator) -> bool {
        match request {
            ToCoordinator::Join(_) => !mutated(Mutation::ForgetPersist),
            ToCoordinator::ResetRun(_) => true,
            ToCoordinator::WorkerHeartbeat(beat) => !beat.bad_samples.is_empty(),
            _ => false,
        }
    }

    /// Whether the answer may only be given when what it tells is durable: where that cannot be, the request is refused,
    /// and whoever asked asks again. A worker forgets a bad sample that it was told is known. Where another coordinator can
    /// go on from the state (`is_shared`), it would give the id of a session that is not kept to another.
    #[must_use]
    pub fn answer_must_last(request: &ToCoordinator, is_shared: bool) -> bool {
        match request {
            ToCoordinator::SubmitJob { .. } | ToCoordinator::RemoveJob { .. } | ToCoordinator::ResetRun(_) => true,
            ToCoordinator::Join(_) => is_shared,
            ToCoordinator::WorkerHeartbeat(beat) => {
                !beat.bad_samples.is_empty() && !mutated(Mutation::BelieveUnwritten)
            }
            _ => false,
        }
    }

    /// A connection is no more: its worker is dead at once. Ranks stay until they fall silent, for a client that
    /// only lost its connection comes back over another one.
    pub fn handle_closed(&mut self, now_ms: u64, connection: ConnectionId) {
        self.advance(now_ms);
        let gone: Vec<WorkerId> =
            self.workers.iter().filter(|(_, worker)| worker.connection == connection).map(|(id, _)| *id).collect();
        for worker in gone.into_iter().filter(|_| !mutated(Mutation::DeadHome)) {
            self.remove_worker(worker, "lost its connection");
        }
    }

    /// Time has passed.
    pub fn handle_tick(&mut self, now_ms: u64) {
        self.advance(now_ms);
        let (config, now_ms) = (self.config, self.now_ms);
        let due: Vec<SessionId> = self
            .sessions
            .values()
            .filter(|session| session.dirty && now_ms.saturating_sub(session.persisted_ms) >= config.persist_ms)
            .map(|session| session.id)
            .collect();
        for id in due {
            self.persist_session(id);
        }
    }

    /// Hands everything that is not durable yet to the effects, as before a stop.
    pub fn flush(&mut self) {
        let dirty: Vec<SessionId> =
            self.sessions.values().filter(|session| session.dirty).map(|session| session.id).collect();
        for id in dirty {
            self.persist_session(id);
        }
    }

    /// The next thing to do, in order.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Sets the time and takes the silent workers for dead. When nothing at all was heard for half the liveness
    /// timeout, ticks included, it was this process that was away: nobody is blamed for that time.
    fn advance(&mut self, now_ms: u64) {
        let now_ms = now_ms.max(self.now_ms);
        let away_ms = now_ms - self.now_ms;
        self.now_ms = now_ms;
        if away_ms > self.config.liveness_ms / 2 {
            for worker in self.workers.values_mut() {
                worker.heard_ms += away_ms;
            }
            for rank in self.sessions.values_mut().flat_map(|session| session.ranks.values_mut()) {
                rank.heard_ms += away_ms;
            }
        }
        let liveness_ms = self.config.liveness_ms;
        let silent: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(_, worker)| now_ms.saturating_sub(worker.heard_ms) > liveness_ms && !mutated(Mutation::DeadHome))
            .map(|(id, _)| *id)
            .collect();
        for worker in silent {
            self.remove_worker(worker, &format!("was silent for {liveness_ms} ms"));
        }
    }

    fn persist_session(&mut self, id: SessionId) {
        let session = self.sessions.get_mut(&id).expect("a session to persist is there");
        session.dirty = false;
        session.persisted_ms = self.now_ms;
        self.effects.push_back(Effect::Persist(Change::PutSession(session.record())));
    }

    fn log(&mut self, level: LogLevel, text: String) {
        self.effects.push_back(Effect::Log(LogLine { level, text }));
    }
}

/// Who may send what. Everyone whose certificate is of the cluster may read the status and describe jobs.
fn permit(role: Role, request: &ToCoordinator) -> Result<(), Refusal> {
    let (name, allowed): (&str, &[Role]) = match request {
        ToCoordinator::WorkerHeartbeat(_) => ("WorkerBeat", &[Role::Worker]),
        ToCoordinator::WorkerLeave { .. } => ("WorkerLeave", &[Role::Worker]),
        ToCoordinator::Join(_) => ("Join", &[Role::Client, Role::Admin]),
        ToCoordinator::RankHeartbeat(_) => ("RankBeat", &[Role::Client, Role::Admin]),
        ToCoordinator::RankLeave(_) => ("RankLeave", &[Role::Client, Role::Admin]),
        ToCoordinator::SubmitJob { .. } => ("SubmitJob", &[Role::Client, Role::Admin]),
        ToCoordinator::RemoveJob { .. } => ("RemoveJob", &[Role::Admin]),
        ToCoordinator::BadSamples { .. } => ("BadSamples", &[Role::Client, Role::Admin]),
        ToCoordinator::ResetRun(_) => ("ResetRun", &[Role::Admin]),
        ToCoordinator::DescribeJob { .. } | ToCoordinator::Status => return Ok(()),
    };
    if allowed.contains(&role) {
        return Ok(());
    }
    Err(Refusal::Role { role: role.to_string(), request: name.to_owned() })
}

fn over_limit(subject: &str, actual: impl ToString, limit: impl ToString) -> Refusal {
    Refusal::OverLimit { subject: subject.to_owned(), actual: actual.to_string(), limit: limit.to_string() }
}
