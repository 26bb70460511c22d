//! The coordinator as a pure state machine: it takes requests, closed connections and ticks, and returns replies and
//! effects.
//!
//! It holds jobs, sessions, membership, placement and the bad-sample ledger. It has no async code, clock or I/O: the
//! shell passes `now_ms` (any monotonic count of milliseconds) and carries out what [`CoordinatorCore::poll_effect`]
//! returns.

mod changes;
mod diagnosis;
mod durability;
mod effect;
mod events;
mod history;
mod jobs;
mod joins;
mod later_jobs;
mod ledger;
mod lending;
mod limits;
mod load;
mod members;
mod memory;
mod note;
mod peers;
mod placement;
mod progress;
mod proposed_change;
mod rank_state;
mod runs;
mod scale;
mod sequence_status;
mod session;
mod source_status;
mod status;
#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;
mod trace;

use std::collections::{BTreeMap, VecDeque};

pub use self::changes::JobChangeStatus;
pub use crate::Role;
use crate::messages::{FromCoordinator, Refusal, ToCoordinator};
pub use durability::{Durability, Terms, usable_lease};
pub use effect::{
    Answer, BadSampleRecord, BadSampleReport, Change, ConnectionId, Durable, Effect, JobRecord, RankRecord,
    RequestPeer, SessionRecord, Successor,
};
pub use events::{ClusterEvent, EventPage};
pub use history::{HistoryPage, HistoryQuery, RankHistory, SHOWN_SERIES, StageShares, WorkerHistory};
pub use ledger::{BadSampleStatus, LEDGER_SAMPLES, Ledger, NAMED_SAMPLES};
pub use lending::Lending;
pub use memory::MemoryState;
pub use note::{ClusterNote, LogLevel, WorkerGone};
pub use placement::{Candidate, NearestThenLeastLoaded, Placement};
pub use progress::{FirstStep, SessionProgress};
pub use scale::ScaleStatus;
pub use sequence_status::SequenceStatus;
pub use source_status::SourceStatus;
use spdl_types::{
    SessionId, WorkerId,
    mutations::{Mutation, mutated},
};
pub use status::{
    JobProblem, JobStatus, RankDiagnosis, RankStatus, RunStatus, ServedRank, SessionStatus, Status, WorkerStatus,
};

use self::{
    events::Events, history::ClusterHistory, jobs::JobState, load::Watch, members::WorkerRecord,
    proposed_change::JobChange, session::SessionState, trace::TraceState,
};

/// The largest number of jobs at one time.
pub const MAX_JOBS: usize = 1_000;
/// The largest number of workers at one time.
pub const MAX_WORKERS: usize = 10_000;
/// The largest number of ranks in a session.
pub const MAX_WORLD: u32 = 65_536;
/// The largest number of runs kept for a job; a further run is refused.
pub const MAX_RUNS: usize = 1_000;
/// The number of superseded sessions kept for a run, so that the refusal to their ranks can name the successor.
pub const SUPERSEDED_SESSIONS: usize = 4;

/// The settings of the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoordinatorConfig {
    /// The interval between heartbeats of workers and ranks, in milliseconds. Default 1,000. If raised, statistics and
    /// positions are older.
    pub heartbeat_ms: u64,
    /// The silence after which a worker or rank counts as dead, in milliseconds. Default 5,000. If raised, ranks of a
    /// worker that hangs wait longer for another home.
    pub liveness_ms: u64,
    /// The shortest interval between two writes of acknowledged positions to the durable state, in milliseconds.
    /// Default 1,000. If raised, a launch that has no state of its own resumes further back after the coordinator was
    /// killed.
    pub persist_ms: u64,
    /// How long a rank is not placed on a worker that it could not reach, in milliseconds. Default 30,000. If raised, a
    /// rank stays longer on another node after its own worker is back.
    pub unreachable_ms: u64,
    /// The shortest time that a worker must have been present, and a rank must have been with its home, before the rank
    /// moves to a better home, in milliseconds. Default 5,000. If raised, a new worker gets work later; if lowered, a
    /// worker that comes and goes interrupts its ranks more often.
    pub move_ms: u64,
}

impl Default for CoordinatorConfig {
    fn default() -> Self {
        Self { heartbeat_ms: 1_000, liveness_ms: 5_000, persist_ms: 1_000, unreachable_ms: 30_000, move_ms: 5_000 }
    }
}

/// The coordinator's state machine. Call [`new`](Self::new) with the durable state, then any `handle_*` method or
/// command, each followed by [`poll_effect`](Self::poll_effect) until it returns `None`. Send a reply only after its
/// effects are done. Call [`handle_tick`](Self::handle_tick) several times per liveness timeout.
pub struct CoordinatorCore {
    config: CoordinatorConfig,
    placement: Box<dyn Placement>,
    started_ms: u64,
    now_ms: u64,
    jobs: BTreeMap<String, JobState>,
    problems: BTreeMap<String, String>,
    sessions: BTreeMap<SessionId, SessionState>,
    last_session: u64,
    workers: BTreeMap<WorkerId, WorkerRecord>,
    watch: Watch,
    /// Counts the changes of ranks' homes.
    home_changes: u64,
    lending: Lending,
    history: ClusterHistory,
    events: Events,
    last_trace: u64,
    trace: Option<TraceState>,
    effects: VecDeque<Effect>,
}

impl CoordinatorCore {
    /// Creates a coordinator that continues from the durable state.
    #[must_use]
    pub fn new(config: CoordinatorConfig, placement: Box<dyn Placement>, durable: Durable, now_ms: u64) -> Self {
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
            watch: Watch::default(),
            home_changes: 0,
            lending: Lending::default(),
            history: ClusterHistory::default(),
            events: Events::default(),
            last_trace: 0,
            trace: None,
            effects: VecDeque::new(),
        };
        coordinator.restore(durable);
        let (jobs, sessions) = (coordinator.jobs.len(), coordinator.sessions.len());
        coordinator.log(ClusterNote::Leads { jobs, sessions });
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

    /// Handles a request from a peer and returns the answer.
    pub fn handle_request(&mut self, now_ms: u64, peer: &RequestPeer, request: ToCoordinator) -> Answer {
        self.advance(now_ms);
        let result = match permit(peer.role, &request) {
            Err(refusal) => Err(refusal),
            Ok(()) => match request {
                ToCoordinator::WorkerHeartbeat(heartbeat) => self.on_worker_heartbeat(peer.connection, heartbeat),
                ToCoordinator::WorkerLeave { worker } => {
                    self.remove_worker(worker, WorkerGone::Left);
                    Ok(FromCoordinator::Done)
                }
                ToCoordinator::Join(join) => self.join(&join),
                ToCoordinator::RankHeartbeat(heartbeat) => self.on_rank_heartbeat(&heartbeat),
                ToCoordinator::RankLeave(heartbeat) => self.leave_rank(&heartbeat),
                ToCoordinator::SubmitJob { toml, origin } => return Answer::CreateJob { toml, origin },
                ToCoordinator::ReplaceJob { toml, origin } => return Answer::ReplaceJob { toml, origin },
                ToCoordinator::RemoveJob { name } => self.remove_job(&name),
                ToCoordinator::SetWeights { job, from, weights } => {
                    self.change_job(&job, from, JobChange::Weights(weights))
                }
                ToCoordinator::Redact { job, from, samples } => {
                    self.change_job(&job, from, JobChange::Redaction(samples))
                }
                ToCoordinator::SessionJob { session, job, rank, nonce } => {
                    self.session_job(session, &job, (rank, nonce))
                }
                ToCoordinator::DescribeJob { name } => {
                    self.job_or_failed(&name).map(|state| FromCoordinator::Job(Box::new(state.job.clone())))
                }
                ToCoordinator::BadSamples { job, after } => self.bad_samples(&job, after),
                ToCoordinator::ResetRun(run) => self.reset_run(run),
                ToCoordinator::Measurements { session, rank } => self.measurements(session, rank),
                ToCoordinator::Status => Ok(FromCoordinator::Status(self.status().to_json())),
                ToCoordinator::Clock => return Answer::Clock,
                ToCoordinator::StartTrace { job, duration_ms } => self.start_trace(&job, duration_ms),
                ToCoordinator::TracePart(part) => self.add_trace_part(peer.role, part),
                ToCoordinator::ReadTrace { trace, part } => self.read_trace(trace, part),
                ToCoordinator::Classes { job, first } => match self.job_or_failed(&job) {
                    Ok(state) => return Answer::Classes { job: Box::new(state.job.clone()), first },
                    Err(refusal) => Err(refusal),
                },
            },
        };
        Answer::Reply(result.unwrap_or_else(FromCoordinator::Refused))
    }

    /// Returns whether the answer may depend on a change that an earlier request made. Such an answer waits until all
    /// earlier changes are durable, even if this request changes nothing. Without that, a rank that joins, or repeats
    /// its join, could learn of a session that a crash undoes; and a worker could forget a bad sample that another
    /// worker reported and that is lost together with that worker.
    #[must_use]
    pub fn answer_waits_for_earlier(request: &ToCoordinator) -> bool {
        match request {
            ToCoordinator::Join(_) => !mutated(Mutation::ForgetPersist),
            ToCoordinator::ResetRun(_) => true,
            ToCoordinator::WorkerHeartbeat(heartbeat) => !heartbeat.bad_samples.is_empty(),
            _ => false,
        }
    }

    /// Returns whether the answer may only be sent once its changes are durable. If they cannot be written, the request
    /// is refused and the sender retries. A worker forgets a bad sample once the coordinator has confirmed it, so the
    /// confirmation must be durable, and so must a change of the job before a rank gets the changed job. If another coordinator can continue from the state (`is_shared`), it would
    /// otherwise reuse the id of a session that was never written.
    #[must_use]
    pub fn answer_must_last(request: &ToCoordinator, is_shared: bool) -> bool {
        match request {
            ToCoordinator::SubmitJob { .. }
            | ToCoordinator::ReplaceJob { .. }
            | ToCoordinator::RemoveJob { .. }
            | ToCoordinator::SetWeights { .. }
            | ToCoordinator::Redact { .. }
            | ToCoordinator::SessionJob { .. }
            | ToCoordinator::ResetRun(_) => true,
            ToCoordinator::Join(_) => is_shared,
            ToCoordinator::WorkerHeartbeat(heartbeat) => {
                !heartbeat.bad_samples.is_empty() && !mutated(Mutation::BelieveUnwritten)
            }
            _ => false,
        }
    }

    /// Handles a closed connection. Its worker counts as dead at once. Ranks stay until they fall silent, because a
    /// client that only lost its connection reconnects over another one.
    pub fn handle_closed(&mut self, now_ms: u64, connection: ConnectionId) {
        self.advance(now_ms);
        for worker in self.watch.over(connection) {
            self.remove_silent_worker(worker, WorkerGone::Disconnected);
        }
    }

    /// Advances the time and persists the sessions whose positions are due.
    pub fn handle_tick(&mut self, now_ms: u64) {
        self.advance(now_ms);
        self.forget_trace();
        let changing = self.jobs.values().filter(|state| state.proposed.is_some());
        for job in changing.map(|state| state.job.name.clone()).collect::<Vec<_>>() {
            self.advance_change(&job);
        }
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

    /// Queues effects that persist everything that is not durable yet, as before a stop.
    pub fn flush(&mut self) {
        let dirty: Vec<SessionId> =
            self.sessions.values().filter(|session| session.dirty).map(|session| session.id).collect();
        for id in dirty {
            self.persist_session(id);
        }
    }

    /// Returns the next effect to carry out, in order.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Sets the time and removes workers that have been silent for too long. If no event at all, ticks included,
    /// arrived for half the liveness timeout, this process was suspended: that time does not count as silence of the
    /// peers.
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
        self.end_silent();
    }

    fn persist_session(&mut self, id: SessionId) {
        let session = self.sessions.get_mut(&id).expect("a session to persist is there");
        session.dirty = false;
        session.persisted_ms = self.now_ms;
        self.effects.push_back(Effect::Persist(Change::PutSession(session.record())));
    }

    fn log(&mut self, note: ClusterNote) {
        self.events.note(self.now_ms - self.started_ms, &note);
        self.effects.push_back(Effect::Log(note));
    }
}

/// Checks that the role may send the request. Every role in the cluster's certificates may read the status and describe
/// jobs.
fn permit(role: Role, request: &ToCoordinator) -> Result<(), Refusal> {
    let (name, allowed): (&str, &[Role]) = match request {
        ToCoordinator::WorkerHeartbeat(_) => ("WorkerHeartbeat", &[Role::Worker]),
        ToCoordinator::WorkerLeave { .. } => ("WorkerLeave", &[Role::Worker]),
        ToCoordinator::Join(_) => ("Join", &[Role::Client, Role::Admin]),
        ToCoordinator::RankHeartbeat(_) => ("RankHeartbeat", &[Role::Client, Role::Admin]),
        ToCoordinator::RankLeave(_) => ("RankLeave", &[Role::Client, Role::Admin]),
        ToCoordinator::SubmitJob { .. } => ("SubmitJob", &[Role::Client, Role::Admin]),
        ToCoordinator::ReplaceJob { .. } => ("ReplaceJob", &[Role::Admin]),
        ToCoordinator::RemoveJob { .. } => ("RemoveJob", &[Role::Admin]),
        ToCoordinator::SetWeights { .. } => ("SetWeights", &[Role::Admin]),
        ToCoordinator::Redact { .. } => ("Redact", &[Role::Admin]),
        ToCoordinator::SessionJob { .. } => ("SessionJob", &[Role::Client, Role::Admin]),
        ToCoordinator::BadSamples { .. } => ("BadSamples", &[Role::Client, Role::Admin]),
        ToCoordinator::ResetRun(_) => ("ResetRun", &[Role::Admin]),
        ToCoordinator::Measurements { .. } => ("Measurements", &[Role::Client, Role::Admin]),
        ToCoordinator::Clock => ("Clock", &[Role::Worker, Role::Client, Role::Admin]),
        ToCoordinator::StartTrace { .. } => ("StartTrace", &[Role::Client, Role::Admin]),
        ToCoordinator::TracePart(_) => ("TracePart", &[Role::Worker, Role::Client, Role::Admin]),
        ToCoordinator::ReadTrace { .. } => ("ReadTrace", &[Role::Client, Role::Admin]),
        ToCoordinator::Classes { .. } => ("Classes", &[Role::Client, Role::Admin]),
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
