//! The status of the cluster as `/status` and `spdl-ctl status` show it: plain data, written as JSON.

use std::collections::BTreeMap;

use crate::{
    help::HelpReport,
    messages::{PROTOCOL_VERSION, StartReason},
    peers::PeerStats,
};
use serde::{Deserialize, Serialize};
use spdl_insight::{
    CacheStats, CoreDemand, Diagnosis, Limit, LimitRemedy, SlowObject, Stall, StoreStats, Term, Transport,
    rates::{StageWindow, WINDOWS_MS},
    session_gains, session_verdict,
    tuning::{TunedValue, TuningChange},
};
use spdl_job::BadSamples;
use spdl_order::{BatchParams, EpochEnd, OrderParams, Receipt};
use spdl_types::{Position, StageStats, WorkerId};

use super::{
    BadSampleStatus, CoordinatorCore, FirstStep, JobChangeStatus, ScaleStatus, SequenceStatus, SessionProgress,
    SourceStatus, jobs::JobState, session::SessionState,
};

/// The number of bad samples that are shown per job.
const SHOWN_BAD_SAMPLES: usize = 20;
/// With more workers, the status shows fewer details of each, so that it fits into a message.
const DETAILED_WORKERS: usize = 2_000;
const SHORT_WINDOW_MS: u64 = WINDOWS_MS[1];
/// In a session with more ranks, the status shows only the limit of each rank.
const DETAILED_RANKS: usize = 1_000;

/// The status of the cluster. Durations are in milliseconds. Ids and fingerprints are text, because JSON readers differ
/// in how large a number they can hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Status {
    pub version: String,
    pub protocol_version: u16,
    /// Whether this coordinator leads. A standby reports nothing of what follows except `leader`.
    pub leads: bool,
    /// The address of the leader, if it is another coordinator and known.
    pub leader: Option<String>,
    /// Time since this coordinator started or, if it leads among several, since it became the leader.
    pub uptime_ms: u64,
    pub jobs: Vec<JobStatus>,
    /// Files of the jobs directory from which no job could be created.
    pub job_problems: Vec<JobProblem>,
    pub sessions: Vec<SessionStatus>,
    pub workers: Vec<WorkerStatus>,
    /// How many cores the ranks need, and why.
    #[serde(default)]
    pub scale: ScaleStatus,
    /// What leads to a first training; empty once there was a session.
    #[serde(default)]
    pub first_steps: Vec<FirstStep>,
}

/// A job file from which no job could be created, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct JobProblem {
    pub origin: String,
    pub problem: String,
}

/// The status of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct JobStatus {
    pub name: String,
    pub dataset: String,
    pub fingerprint: String,
    pub dataset_fingerprint: String,
    pub samples: u64,
    pub seed: u64,
    pub global_batch: u32,
    pub epochs: u64,
    pub epoch_end: EpochEnd,
    pub bad_samples: BadSamples,
    pub max_bad_fraction: f64,
    pub order: OrderParams,
    /// Why the job failed, if it has.
    pub failed: Option<String>,
    /// The newest session of all runs.
    pub session: Option<u64>,
    /// The position that all ranks of that session have acknowledged.
    pub acknowledged: Position,
    /// The runs, by name.
    pub runs: Vec<RunStatus>,
    pub bad_sample_count: u64,
    pub bad_fraction: f64,
    /// The first bad samples.
    pub bad_sample_list: Vec<BadSampleStatus>,
    /// What the samples hold, if they are sequences.
    #[serde(default)]
    pub sequence: Option<SequenceStatus>,
    /// What each source has given up to `acknowledged`, if the job has several.
    #[serde(default)]
    pub sources: Vec<SourceStatus>,
    /// Where its weights change and samples are redacted, if they do.
    #[serde(default)]
    pub changes: Vec<JobChangeStatus>,
}

/// The status of a run of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct RunStatus {
    pub name: String,
    /// The number of epochs that the run is to have.
    pub epochs: u64,
    /// The run's newest session.
    pub session: u64,
    /// The position where a launch that resumes the run would start.
    pub acknowledged: Position,
    /// The part of the run that is done there.
    #[serde(default)]
    pub done: f64,
    /// Whether no batch is left after that position.
    pub is_finished: bool,
    /// The number of ranks of the newest session that are alive.
    pub ranks_alive: u32,
    /// The holder of the run and since when, if any rank is alive.
    pub holder: Option<String>,
    /// The sum of the receipts of the newest session's ranks, if all are known.
    pub receipt: Option<String>,
    /// What each source has given up to `acknowledged`, if the job has several; bad samples are those of the job.
    #[serde(default)]
    pub sources: Vec<SourceStatus>,
}

/// The status of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SessionStatus {
    pub session: u64,
    pub job: String,
    pub run: String,
    pub world: u32,
    pub global_batch: u32,
    pub epochs: u64,
    pub start: Position,
    /// Why the session started there.
    pub reason: StartReason,
    /// The id of the launch, if the launcher provided one.
    pub launch: Option<String>,
    pub acknowledged: Position,
    /// How far it is with its run, and how long the rest takes.
    #[serde(default)]
    pub progress: SessionProgress,
    /// The time from its beginning until a rank was last heard; unknown if the coordinator started again since.
    #[serde(default)]
    pub lasted_ms: Option<u64>,
    /// The session that superseded this one.
    pub superseded_by: Option<u64>,
    /// Whether the run was reset since.
    pub is_reset: bool,
    /// What limits its ranks, in a sentence; `None` until there is a history of some seconds.
    pub verdict: Option<String>,
    /// The factor by which its rate would rise with each remedy; empty until it is known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gains: BTreeMap<LimitRemedy, f64>,
    pub ranks: Vec<RankStatus>,
}

/// The status of a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct RankStatus {
    pub rank: u32,
    pub client: String,
    pub node: String,
    pub is_alive: bool,
    pub left: bool,
    pub position: Position,
    /// The receipt of the rank; unknown for ranks from the records of an earlier build, until their first heartbeat.
    pub receipt: Option<String>,
    /// The name of the rank's home.
    pub home: Option<String>,
    /// The worker id of the rank's home.
    pub home_worker: Option<String>,
    pub transport: Option<Transport>,
    /// How long the trainer has waited for batches, the wait in progress included.
    pub waited_ms: u64,
    /// The samples per second that the whole job took lately, as this rank observed it.
    pub job_samples_per_s: Option<f64>,
    /// The fraction of the last seconds in which the trainer waited for batches.
    pub waiting: Option<f64>,
    /// What limits the rank; `None` until there is a history of some seconds.
    pub diagnosis: Option<RankDiagnosis>,
    pub heartbeat_age_ms: u64,
}

/// What limited a rank in the last seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct RankDiagnosis {
    /// `None` if the rank got no sample, and nothing that was measured explains it.
    pub limit: Option<Limit>,
    /// The limit in a sentence; empty, like `terms`, in a session of more than 1,000 ranks, whose status would be too
    /// long.
    pub verdict: String,
    /// The rate in samples per second that each resource allows the rank, the smallest first.
    pub terms: Vec<Term>,
}

/// The status of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct WorkerStatus {
    pub worker: String,
    pub name: String,
    pub node: String,
    pub quic: String,
    pub socket: Option<String>,
    pub cores: f64,
    pub draining: bool,
    pub heartbeat_age_ms: u64,
    /// The ranks that the worker serves, as it reports them.
    pub ranks: Vec<ServedRank>,
    /// The totals of the stages since the worker started. Left out if there are more than 2,000 workers.
    pub stages: Vec<StageStats>,
    /// What the stages did in the last 1, 10 and 60 seconds; only 10 if there are more than 2,000 workers.
    pub windows: Vec<StageWindow>,
    /// The time since the worker's start at which `stages` were read.
    pub uptime_ms: u64,
    /// CPU time of the worker, in nanoseconds.
    pub cpu_ns: u64,
    pub store: StoreStats,
    /// What the worker exchanged with other workers. Left out if there are more than 2,000 workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<PeerStats>,
    /// The names of the workers that decode samples for its ranks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub helpers: Vec<String>,
    /// What it exchanged with helpers and homes. Left out if there are more than 2,000 workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<HelpReport>,
    pub cache: CacheStats,
    /// The object of a store whose requests take much longer than all others, if there is one.
    pub slow_object: Option<SlowObject>,
    /// The values that the worker tunes.
    pub tuned: Vec<TunedValue>,
    /// The latest changes of these values, the oldest first.
    pub tuning: Vec<TuningChange>,
}

/// The progress of a worker with one of its ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ServedRank {
    pub session: u64,
    pub rank: u32,
    pub transport: Transport,
    pub batches: u64,
    pub ready: u32,
    pub slots: u32,
    pub stall: Option<Stall>,
}

impl Status {
    /// Returns the status of a standby coordinator, which knows at most the leader.
    #[must_use]
    pub fn stand_by(leader: Option<String>, uptime_ms: u64) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol_version: PROTOCOL_VERSION,
            leads: false,
            leader,
            uptime_ms,
            jobs: Vec::new(),
            job_problems: Vec::new(),
            sessions: Vec::new(),
            workers: Vec::new(),
            scale: ScaleStatus::default(),
            first_steps: Vec::new(),
        }
    }

    /// Returns the status as one JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data serialises")
    }
}

impl CoordinatorCore {
    /// Returns the status of the cluster at the time of the last event.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut demand = CoreDemand::default();
        let sessions = self.sessions.values().map(|session| {
            let diagnoses = self.diagnoses(session);
            self.add_demand(session, &diagnoses, &mut demand);
            self.session_status(session, &diagnoses)
        });
        let sessions = sessions.collect();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol_version: PROTOCOL_VERSION,
            leads: true,
            leader: None,
            uptime_ms: self.now_ms - self.started_ms,
            jobs: self.jobs.values().map(|state| self.job_status(state)).collect(),
            job_problems: self
                .problems
                .iter()
                .map(|(origin, problem)| JobProblem { origin: origin.clone(), problem: problem.clone() })
                .collect(),
            sessions,
            workers: self.workers.keys().map(|id| self.worker_status(*id)).collect(),
            scale: self.scale(demand),
            first_steps: self.first_steps(),
        }
    }

    fn job_status(&self, state: &JobState) -> JobStatus {
        let job = state.job.clone();
        let newest = state.runs.values().filter_map(|run| run.sessions.last()).max();
        let acknowledged = newest.and_then(|id| self.sessions[id].resumes_at()).unwrap_or(Position::START);
        JobStatus {
            fingerprint: state.fingerprint.to_string(),
            dataset_fingerprint: job.dataset_fingerprint.to_string(),
            failed: state.failed.clone(),
            session: newest.map(|id| id.0),
            acknowledged,
            runs: state
                .runs
                .values()
                .filter_map(|run| run.sessions.last())
                .map(|id| self.run_status(state, &self.sessions[id]))
                .collect(),
            bad_sample_count: state.ledger.count(),
            bad_fraction: state.ledger.fraction(&job),
            bad_sample_list: state.ledger.listed(&job, SHOWN_BAD_SAMPLES),
            sequence: SequenceStatus::of(&job),
            sources: SourceStatus::of(state, acknowledged),
            changes: self.job_changes(state),
            dataset: job.dataset_text_at(acknowledged),
            name: job.name,
            samples: job.samples,
            seed: job.seed,
            global_batch: job.global_batch,
            epochs: job.epochs,
            epoch_end: job.epoch_end,
            bad_samples: job.bad_samples,
            max_bad_fraction: job.max_bad_fraction,
            order: job.order,
        }
    }

    fn run_status(&self, state: &JobState, session: &SessionState) -> RunStatus {
        let acknowledged = session.resumes_at().unwrap_or(Position::START);
        let batches = BatchParams { epochs: session.epochs, ..state.job.batches(session.global_batch) };
        let liveness_ms = self.config.liveness_ms;
        let is_over = session.is_over(self.now_ms, liveness_ms);
        let alive = session.ranks.values().filter(|rank| !is_over && rank.is_alive(self.now_ms, liveness_ms)).count();
        let receipt: Option<Receipt> =
            session.ranks.values().map(|rank| rank.receipt.filter(|_| !session.is_reset)).sum();
        RunStatus {
            name: session.run.clone(),
            epochs: session.epochs,
            session: session.id.0,
            acknowledged,
            done: if session.is_reset { 0.0 } else { SessionProgress::of(session, &state.job, &[]).done },
            is_finished: batches.steps_left(state.job.samples, acknowledged) == 0,
            ranks_alive: u32::try_from(alive).unwrap_or(u32::MAX),
            holder: (!is_over).then(|| session.holder(self.now_ms, liveness_ms).to_string()),
            receipt: receipt.map(|receipt| receipt.to_string()),
            sources: SourceStatus::of(state, acknowledged),
        }
    }

    fn session_status(&self, session: &SessionState, diagnoses: &[Diagnosis]) -> SessionStatus {
        let is_short = session.ranks.len() > DETAILED_RANKS;
        let job = self.jobs.get(&session.job).map(|state| &state.job);
        let samples = job.map_or(0, |job| job.samples);
        let ranks = session.ranks.iter().map(|(&rank, state)| {
            let progress = state.progress(samples);
            RankStatus {
                job_samples_per_s: progress.map(|lately| lately.samples as f64 / lately.seconds),
                waiting: progress.map(|lately| (lately.waited_s / lately.seconds).min(1.0)),
                rank,
                client: state.client.clone(),
                node: state.node.0.clone(),
                is_alive: session.superseded_by.is_none()
                    && !session.is_reset
                    && state.is_alive(self.now_ms, self.config.liveness_ms),
                left: state.left,
                position: state.acknowledged,
                receipt: state.receipt.map(|receipt| receipt.to_string()),
                home: state.home.and_then(|id| self.workers.get(&id)).map(|worker| worker.home.name.clone()),
                home_worker: state.home.map(worker_text),
                transport: state.transport,
                waited_ms: state.waited_ms,
                diagnosis: diagnoses
                    .binary_search_by_key(&rank, |found| found.rank.rank)
                    .ok()
                    .map(|at| RankDiagnosis::of(&diagnoses[at], is_short)),
                heartbeat_age_ms: self.now_ms.saturating_sub(state.heard_ms),
            }
        });
        let ranks: Vec<RankStatus> = ranks.collect();
        SessionStatus {
            session: session.id.0,
            job: session.job.clone(),
            run: session.run.clone(),
            world: session.world,
            global_batch: session.global_batch,
            epochs: session.epochs,
            start: session.start,
            reason: session.reason,
            launch: session.launch.clone(),
            acknowledged: session.acknowledged(),
            progress: job.map_or_else(Default::default, |job| SessionProgress::of(session, job, &ranks)),
            lasted_ms: session.lasted_ms(),
            superseded_by: session.superseded_by.as_ref().map(|successor| successor.session.0),
            is_reset: session.is_reset,
            verdict: session_verdict(diagnoses),
            gains: session_gains(diagnoses),
            ranks,
        }
    }

    fn worker_status(&self, id: WorkerId) -> WorkerStatus {
        let worker = &self.workers[&id];
        let is_short = self.workers.len() > DETAILED_WORKERS;
        let windows = worker.history.stages.windows(worker.uptime_ms, &worker.stages).into_iter();
        WorkerStatus {
            worker: worker_text(id),
            name: worker.home.name.clone(),
            node: worker.home.node.0.clone(),
            quic: worker.home.quic.to_string(),
            socket: worker.home.socket.clone(),
            cores: worker.cores,
            draining: worker.draining,
            heartbeat_age_ms: self.now_ms.saturating_sub(worker.heard_ms),
            ranks: worker
                .ranks
                .iter()
                .cloned()
                .map(|stats| ServedRank {
                    session: stats.session.0,
                    rank: stats.rank,
                    transport: stats.transport,
                    batches: stats.batches,
                    ready: stats.ready,
                    slots: stats.slots,
                    stall: stats.stall,
                })
                .collect(),
            stages: if is_short { Vec::new() } else { worker.stages.clone() },
            windows: windows.filter(|window| !is_short || window.window_ms == SHORT_WINDOW_MS).collect(),
            uptime_ms: worker.uptime_ms,
            cpu_ns: worker.cpu_ns,
            store: worker.store,
            peers: (!is_short).then_some(worker.peers),
            helpers: self.helpers_of(worker.home.worker),
            help: (!is_short).then_some(worker.help),
            cache: worker.cache,
            slow_object: worker.slow_object.as_deref().cloned(),
            tuned: worker.tuning.values.clone(),
            tuning: worker.tuning.changes.clone(),
        }
    }
}

impl RankDiagnosis {
    fn of(found: &Diagnosis, is_short: bool) -> Self {
        let (verdict, terms) = if is_short { Default::default() } else { (found.verdict(), found.terms.clone()) };
        Self { limit: found.limit(), verdict, terms }
    }
}

/// Returns the id of a worker as the status shows it.
pub(super) fn worker_text(id: WorkerId) -> String {
    format!("{:016x}", id.0)
}
