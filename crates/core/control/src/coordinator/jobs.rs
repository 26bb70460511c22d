//! Jobs: created once, failed by too many bad samples, replaced or removed by an admin.

use std::collections::BTreeMap;

use crate::messages::{FromCoordinator, JobReplacement, Refusal};
use spdl_job::{Column, Job, JobSource, redact};
use spdl_order::{BlendStage, Redaction};
use spdl_types::{
    BadSample, Fingerprint, Position, SessionId,
    mutations::{Mutation, mutated},
};

use super::{
    Change, ClusterNote, CoordinatorCore, Effect, JobRecord, MAX_JOBS, NAMED_SAMPLES, ledger::Ledger, over_limit,
    proposed_change::ProposedChange,
};

/// The largest number of job files whose problems are kept for the status.
const MAX_PROBLEMS: usize = 1_000;

/// A job and its state.
#[derive(Clone, Debug)]
pub(super) struct JobState {
    pub(super) job: Job,
    pub(super) fingerprint: Fingerprint,
    pub(super) failed: Option<String>,
    pub(super) ledger: Ledger,
    /// The runs, by name.
    pub(super) runs: BTreeMap<String, RunState>,
    /// The change that waits for the promises of ranks. It is not durable: it is made, or proposed once more.
    pub(super) proposed: Option<Box<ProposedChange>>,
}

/// A run of a job: one training, in one launch or several.
#[derive(Clone, Debug, Default)]
pub(super) struct RunState {
    /// The sessions, newest last; all but the newest are superseded.
    pub(super) sessions: Vec<SessionId>,
}

impl JobState {
    fn created(job: Job) -> Self {
        let fingerprint = job.fingerprint();
        Self { job, fingerprint, failed: None, ledger: Ledger::default(), runs: BTreeMap::new(), proposed: None }
    }

    pub(super) fn restored(record: JobRecord) -> Self {
        let mut job = *record.job;
        if mutated(Mutation::ForgetRedactions) {
            job.redactions.clear();
        }
        let mut state = Self::created(job);
        state.failed = record.failed;
        state
    }

    /// Returns a job that was submitted for this one with the redactions that this one has, if they are of the same samples.
    fn with_redactions(&self, submitted: Job) -> Job {
        let has_same_ids = self.job.has_ids_of(&submitted) && submitted.redactions.is_empty();
        if has_same_ids { Job { redactions: self.job.redactions.clone(), ..submitted } } else { submitted }
    }

    pub(super) fn record(&self) -> JobRecord {
        JobRecord {
            job: self.job.clone().into(),
            fingerprint: self.fingerprint,
            max_bad_fraction_bits: self.job.max_bad_fraction.to_bits(),
            failed: self.failed.clone(),
        }
    }
}

impl CoordinatorCore {
    /// Handles the outcome of [`Answer::CreateJob`](super::Answer::CreateJob): a valid job, or the reason why there is
    /// none.
    pub fn handle_job(&mut self, now_ms: u64, job: Result<Job, Refusal>) -> FromCoordinator {
        self.advance(now_ms);
        job.and_then(|job| self.create_job(job)).unwrap_or_else(FromCoordinator::Refused)
    }

    /// Handles the outcome of [`Answer::ReplaceJob`](super::Answer::ReplaceJob): a valid job, or the reason why there is none.
    pub fn handle_replacement(&mut self, now_ms: u64, job: Result<Job, Refusal>) -> FromCoordinator {
        self.advance(now_ms);
        let replaced = job.and_then(|job| self.replace_job(job));
        replaced.map_or_else(FromCoordinator::Refused, FromCoordinator::Replaced)
    }

    /// Sets, or with `None` clears, the problem that the status shows for a file in the jobs directory.
    pub fn set_problem(&mut self, origin: &str, problem: Option<String>) {
        match problem {
            None => {
                self.problems.remove(origin);
            }
            Some(problem) if self.problems.len() < MAX_PROBLEMS || self.problems.contains_key(origin) => {
                self.problems.insert(origin.to_owned(), problem);
            }
            Some(_) => {}
        }
    }

    fn create_job(&mut self, job: Job) -> Result<FromCoordinator, Refusal> {
        if let Some(existing) = self.jobs.get(&job.name) {
            let job = existing.with_redactions(job);
            return if existing.job.is_same_as(&job) {
                Ok(FromCoordinator::Done)
            } else {
                Err(differs(existing, &job))
            };
        }
        if self.jobs.len() >= MAX_JOBS {
            return Err(over_limit("the number of jobs", self.jobs.len() + 1, MAX_JOBS));
        }
        let name = job.name.clone();
        let state = JobState::created(job);
        let created = ClusterNote::JobCreated {
            job: name.clone(),
            samples: state.job.samples,
            called: if state.job.sequence.is_some() { "sequences" } else { "samples" },
            dataset: state.job.dataset_text(),
            fingerprint: state.fingerprint,
        };
        self.effects.push_back(Effect::Persist(Change::PutJob(state.record())));
        self.log(created);
        self.jobs.insert(name, state);
        Ok(FromCoordinator::Done)
    }

    /// Puts a job in the place of the one of its name, which keeps its redactions if its file has none.
    pub(super) fn replace_job(&mut self, job: Job) -> Result<JobReplacement, Refusal> {
        match self.jobs.get(&job.name) {
            Some(existing) => {
                let job = existing.with_redactions(job);
                let invalid = |cause| Refusal::JobInvalid { job: job.name.clone(), cause };
                job.check().map_err(|error| invalid(error.to_string()))?;
                self.replace_job_as_it_is(job)
            }
            None => self.create_job(job).map(|_| JobReplacement::Created),
        }
    }

    /// Puts a job in the place of the one of its name. A run goes on where it was only if the order and the bytes are the same, but for
    /// stages of sources and redactions that no run has reached: then its positions mean the same samples.
    pub(super) fn replace_job_as_it_is(&mut self, job: Job) -> Result<JobReplacement, Refusal> {
        let Some(existing) = self.jobs.get(&job.name) else {
            return self.create_job(job).map(|_| JobReplacement::Created);
        };
        if existing.job.is_same_as(&job) && existing.failed.is_none() {
            return Ok(JobReplacement::Unchanged);
        }
        let sessions = existing.runs.values().flat_map(|run| &run.sessions).map(|id| &self.sessions[id]);
        let liveness_ms = self.config.liveness_ms;
        if let Some(alive) = sessions
            .filter(|session| session.superseded_by.is_none())
            .find(|session| !session.is_over(self.now_ms, liveness_ms))
        {
            return Err(self.in_use(alive));
        }
        let differences = differences(&existing.job, &job);
        let name = job.name.clone();
        let reached = self.reached(existing);
        let at = reached.as_ref().map_or(Position::START, |(at, _)| *at);
        if !existing.job.continues(job.fingerprint_up_to(at), at) {
            if let Some((at, run)) = reached
                && existing.job.continues(job.fingerprint_up_to(Position::START), Position::START)
            {
                return Err(position_reached(&job, at, run));
            }
            let job = Job { earlier: Vec::new(), ..job.redacted_from_the_beginning() };
            self.remove_job(&name)?;
            self.create_job(job)?;
            return Ok(JobReplacement::New { differences });
        }
        let job = job.after(&existing.job);
        let is_outdated = !existing.job.is_identified_by(job.fingerprint());
        let (before, now) = (existing.job.epochs, job.epochs);
        let state = self.jobs.get_mut(&name).expect("it was just found");
        state.failed = state.ledger.verdict(&job);
        state.proposed = None;
        (state.fingerprint, state.job) = (job.fingerprint(), job);
        let record = state.record();
        let sessions: Vec<SessionId> = state.runs.values().flat_map(|run| run.sessions.clone()).collect();
        // Before the job: a rank that was only silent must not go on in a session of the job with other stages.
        for id in sessions.iter().filter(|_| is_outdated) {
            self.outdate(*id);
        }
        if !is_outdated || !mutated(Mutation::ForgetStages) {
            self.effects.push_back(Effect::Persist(Change::PutJob(record)));
        }
        for id in sessions {
            let session = self.sessions.get_mut(&id).expect("a run has its sessions");
            // A launch with a number of its own keeps that, and so does one that has got further.
            if session.epochs == before && now != before && session.acknowledged() <= Position::new(now, 0) {
                session.epochs = now;
                self.persist_session(id);
            }
        }
        self.log(ClusterNote::JobReplaced { job: name, differences: differences.clone() });
        Ok(JobReplacement::Changed { differences })
    }

    pub(super) fn remove_job(&mut self, name: &str) -> Result<FromCoordinator, Refusal> {
        self.job_or_failed(name)?;
        let state = self.jobs.remove(name).expect("it was found");
        for session in state.runs.into_values().flat_map(|run| run.sessions) {
            self.uncount_session(session);
            self.sessions.remove(&session);
            self.history.forget(session);
        }
        if !mutated(Mutation::ForgetRemoval) {
            self.effects.push_back(Effect::Persist(Change::DeleteJob(name.to_owned())));
        }
        self.log(ClusterNote::JobRemoved { job: name.to_owned() });
        Ok(FromCoordinator::Done)
    }

    /// Returns the job of that name, even if it has failed.
    pub(super) fn job_or_failed(&self, name: &str) -> Result<&JobState, Refusal> {
        self.jobs.get(name).ok_or_else(|| {
            let mut known: Vec<&str> = self.jobs.keys().take(10).map(String::as_str).collect();
            if self.jobs.len() > known.len() {
                known.push("...");
            }
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Refusal::UnknownJob { job: name.to_owned(), known }
        })
    }

    /// Returns the job of that name, or a refusal if it has failed.
    pub(super) fn job(&self, name: &str) -> Result<&JobState, Refusal> {
        let state = self.job_or_failed(name)?;
        match &state.failed {
            None => Ok(state),
            Some(cause) => Err(Refusal::JobFailed { job: name.to_owned(), cause: cause.clone() }),
        }
    }

    /// Counts a bad sample that a worker reported, and fails the job when there are too many.
    pub(super) fn record_bad_sample(&mut self, worker: &str, bad: BadSample) {
        let Some(state) = self.jobs.get_mut(&bad.job) else { return };
        // Of a view, and of documents in sequences, the numbers are those of the dataset, which the job does not have.
        if state.job.id_bound().is_some_and(|bound| bad.sample.0 >= bound) {
            let worker = worker.to_owned();
            return self.log(ClusterNote::UnknownSample { worker, job: bad.job, sample: bad.sample });
        }
        let name = bad.job.clone();
        let Some(record) = state.ledger.record(bad) else { return };
        let mut notes = Vec::new();
        if let Some(named) = &record.named {
            // If a dataset lacks a field, every sample of it is bad: log the first, and then each tenfold count.
            let alike = state.ledger.named().iter().filter(|(_, bad)| bad.cause == named.cause).count();
            if [1, 10, 100, 1000].contains(&alike) {
                notes.push(ClusterNote::BadSample {
                    job: name.clone(),
                    sample: record.sample,
                    shard: named.shard.clone(),
                    key: named.key.clone(),
                    cause: named.cause.clone(),
                    alike,
                });
            }
            if state.ledger.named().len() == NAMED_SAMPLES {
                notes.push(ClusterNote::BadSamplesMuted { job: name.clone() });
            }
        }
        if !mutated(Mutation::ForgetBadSamples) {
            self.effects.push_back(Effect::Persist(Change::PutBadSample(record)));
        }
        if state.failed.is_none() {
            state.failed = state.ledger.verdict(&state.job);
            if let Some(cause) = &state.failed {
                notes.push(ClusterNote::JobFailed { job: name, cause: cause.clone() });
                if !mutated(Mutation::ForgetVerdict) {
                    self.effects.push_back(Effect::Persist(Change::PutJob(state.record())));
                }
            }
        }
        notes.into_iter().for_each(|note| self.log(note));
    }
}

/// Lists how the columns of a submitted job differ from those of the existing job.
fn column_differences(ours: &[Column], theirs: &[Column]) -> Vec<String> {
    let names = |columns: &[Column]| columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>().join(", ");
    let (old, new) = (names(ours), names(theirs));
    if old != new {
        return vec![format!("its columns ({new}, was {old})")];
    }
    let differing = ours.iter().zip(theirs).filter(|(old, new)| old != new);
    let mut differences: Vec<String> = differing.map(|(old, new)| column_difference(old, new)).collect();
    // Columns that one call of a function returns have the same difference: list it once.
    differences.dedup();
    differences
}

/// Names a column of a submitted job that differs, or its function if only the function's source differs.
fn column_difference(ours: &Column, theirs: &Column) -> String {
    let (mut old, mut new) = (ours.clone(), theirs.clone());
    if let (Some(old), Some(new)) = (old.callable_mut(), new.callable_mut()) {
        (old.source, new.source) = (None, None);
    }
    let is_source = old == new;
    match old.callable_mut() {
        Some(callable) if is_source => format!("the source of the function `{callable}`"),
        _ => format!("column `{}`", ours.name),
    }
}

/// Describes the sources of a job, with all in which two jobs may differ.
fn sources_text(job: &Job) -> String {
    if job.sources.is_empty() {
        return "none".to_owned();
    }
    let of = |source: &JobSource| {
        let JobSource {
            name,
            dataset,
            dataset_fingerprint,
            view,
            weight,
            lanes,
            window,
            max_epochs,
            when_done,
            packed,
            ..
        } = source;
        let view = view.map_or_else(String::new, |view| format!(", samples {view}"));
        let pools = packed.map_or_else(String::new, |packed| format!(", pools {}", packed.pools));
        let most = max_epochs.map_or_else(String::new, |most| format!(", at most {most} times"));
        let then = when_done.map_or_else(String::new, |then| format!(", then {}", then.name()));
        let dataset = redact(dataset);
        format!(
            "{name}: {weight} of 65536 from {dataset}, fingerprint {dataset_fingerprint}{view}{pools}, lanes {lanes}, window {window}{most}{then}"
        )
    };
    job.sources.iter().map(of).collect::<Vec<_>>().join("; ")
}

/// Describes how many samples an epoch has, if the job says it.
fn total_text(job: &Job) -> String {
    if job.sources.is_empty() { "all".to_owned() } else { job.samples.to_string() }
}

fn view_text(job: &Job) -> String {
    job.view.map_or_else(|| "all samples".to_owned(), |view| format!("samples {view}"))
}

/// Describes a table of a job, or that it has none.
fn or_none(table: Option<&impl ToString>) -> String {
    table.map_or_else(|| "none".to_owned(), ToString::to_string)
}

/// Builds the refusal for a submitted job that differs from the existing job of the same name.
fn differs(existing: &JobState, submitted: &Job) -> Refusal {
    let is_same_at_first = existing.job.continues(submitted.fingerprint_up_to(Position::START), Position::START);
    let remedy = if is_same_at_first && existing.job.stages != submitted.stages {
        "stages that no run has reached are changed by `spdl-ctl job submit --replace`"
    } else {
        "jobs do not change: give this one another name, or remove the other"
    };
    let differences = differences(&existing.job, submitted);
    let cause = format!("it is there already, and this one differs in {differences}; {remedy}");
    Refusal::JobInvalid { job: submitted.name.clone(), cause }
}

/// Lists what differs between a submitted job and the existing one of the same name.
pub(super) fn differences(existing: &Job, submitted: &Job) -> String {
    let (ours, submitted) = &existing.with_common_sources(submitted);
    let mut pairs = vec![
        ("dataset", redact(&ours.dataset).into_owned(), redact(&submitted.dataset).into_owned()),
        ("source", sources_text(ours), sources_text(submitted)),
        (
            "the dataset's content",
            format!("fingerprint {}", ours.dataset_fingerprint),
            format!("fingerprint {}", submitted.dataset_fingerprint),
        ),
        ("total_samples", total_text(ours), total_text(submitted)),
        ("stage", stages_text(ours), stages_text(submitted)),
        ("redactions", redactions_text(ours), redactions_text(submitted)),
        ("view", view_text(ours), view_text(submitted)),
        ("sequence", or_none(ours.sequence.as_deref()), or_none(submitted.sequence.as_deref())),
        ("mix", or_none(ours.mix.as_ref()), or_none(submitted.mix.as_ref())),
        ("shuffle", ours.order.shuffle.to_string(), submitted.order.shuffle.to_string()),
        ("order.lanes", ours.order.lanes.to_string(), submitted.order.lanes.to_string()),
        ("order.window", ours.order.window.to_string(), submitted.order.window.to_string()),
    ];
    pairs.extend(ours.differences(submitted));
    let mut differences: Vec<String> = pairs
        .iter()
        .filter(|(_, ours, theirs)| ours != theirs)
        .map(|(key, ours, theirs)| format!("`{key}` ({theirs}, was {ours})"))
        .collect();
    differences.extend(column_differences(&ours.columns, &submitted.columns));
    differences.join(", ")
}

/// Describes the stages of a job.
fn stages_text(job: &Job) -> String {
    if job.stages.is_empty() {
        return "none".to_owned();
    }
    let of = |stage: &BlendStage| {
        if stage.is_end() {
            format!("end at {}", stage.from)
        } else {
            format!("from {}: {:?}", stage.from, stage.weights)
        }
    };
    job.stages.iter().map(of).collect::<Vec<_>>().join("; ")
}

/// Describes the redactions of a job.
fn redactions_text(job: &Job) -> String {
    if job.redactions.is_empty() {
        return "none".to_owned();
    }
    let of = |redaction: &Redaction| {
        let samples = redaction.samples.len();
        format!("from {}: {samples} {}", redaction.from, if samples == 1 { "sample" } else { "samples" })
    };
    job.redactions.iter().map(of).collect::<Vec<_>>().join("; ")
}

/// Builds the refusal for a job with other stages or redactions before a position that a run has reached.
pub(super) fn position_reached(submitted: &Job, at: Position, run: &str) -> Refusal {
    let sample = submitted.samples_before(at);
    let cause = format!(
        "run `{run}` has reached sample {sample} ({at}), and its `stage` tables or redactions differ before that; those may change that \
         begin with `from = {sample}` or later: change only these, or give the job another name"
    );
    Refusal::JobInvalid { job: submitted.name.clone(), cause }
}
