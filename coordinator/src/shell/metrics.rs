//! The coordinator's metrics, in Prometheus' text format. Labels are names of jobs, requests and outcomes, never ids of
//! samples, shards or clients.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use spdl_control::{
    coordinator::{JobStatus, RankStatus, SessionStatus, SourceStatus, Status},
    messages::{FromCoordinator, ToCoordinator},
};
use spdl_insight::Limit;
use spdl_wire::rejections::Rejections;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    request: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobLabels {
    job: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    job: String,
    source: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RemedyLabels {
    job: String,
    remedy: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RankLabels {
    job: String,
    rank: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RankLimitLabels {
    job: String,
    rank: u32,
    limit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    job: String,
    limit: &'static str,
}

/// Counts requests answered since start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests(Family<RequestLabels, Counter>);

impl Requests {
    /// Counts a request with this [name](request_name) and its outcome.
    pub(crate) fn count(&self, request: &'static str, reply: &FromCoordinator) {
        let outcome = if matches!(reply, FromCoordinator::Refused(_)) { "refused" } else { "done" };
        self.0.get_or_create(&RequestLabels { request, outcome }).inc();
    }
}

/// Returns the name of a request in the metrics.
pub(crate) const fn request_name(request: &ToCoordinator) -> &'static str {
    match request {
        ToCoordinator::WorkerHeartbeat(_) => "worker_heartbeat",
        ToCoordinator::WorkerLeave { .. } => "worker_leave",
        ToCoordinator::Join(_) => "join",
        ToCoordinator::RankHeartbeat(_) => "rank_heartbeat",
        ToCoordinator::RankLeave(_) => "rank_leave",
        ToCoordinator::SubmitJob { .. } => "submit_job",
        ToCoordinator::ReplaceJob { .. } => "replace_job",
        ToCoordinator::RemoveJob { .. } => "remove_job",
        ToCoordinator::SetWeights { .. } => "set_weights",
        ToCoordinator::DescribeJob { .. } => "describe_job",
        ToCoordinator::Status => "status",
        ToCoordinator::BadSamples { .. } => "bad_samples",
        ToCoordinator::ResetRun(_) => "reset_run",
        ToCoordinator::Measurements { .. } => "measurements",
        ToCoordinator::Clock => "clock",
        ToCoordinator::StartTrace { .. } => "start_trace",
        ToCoordinator::TracePart(_) => "trace_part",
        ToCoordinator::ReadTrace { .. } => "read_trace",
        ToCoordinator::Classes { .. } => "classes",
        ToCoordinator::Redact { .. } => "redact",
        ToCoordinator::SessionJob { .. } => "session_job",
    }
}

/// Returns all metrics as text. Values of the status are not counted a second time: each request makes gauges of them.
pub(crate) fn text(
    status: &Status,
    requests: &Requests,
    rejections: &Rejections,
    state_problem: Option<&str>,
) -> String {
    let mut registry = Registry::default();
    registry.register("spdl_coordinator_requests", "Requests answered", requests.0.clone());
    let help = "Peers that were rejected, by cause: what they sent, their certificate, their role, a full server";
    let family = Family::<[(&str, &str); 1], Counter>::default();
    for (cause, count) in rejections.counts() {
        family.get_or_create(&[("cause", cause)]).inc_by(count);
    }
    registry.register("spdl_coordinator_peers_rejected", help, family);
    let leads = f64::from(u8::from(status.leads));
    single(&mut registry, "spdl_coordinator_leads", "1 while this coordinator leads, 0 on standby", leads);
    let help = "Time since start, or since it leads";
    single(&mut registry, "spdl_coordinator_uptime_seconds", help, status.uptime_ms as f64 / 1e3);
    single(&mut registry, "spdl_coordinator_jobs", "Jobs", status.jobs.len() as f64);
    let help = "Job files that gave no job";
    single(&mut registry, "spdl_coordinator_job_problems", help, status.job_problems.len() as f64);
    single(&mut registry, "spdl_coordinator_workers", "Workers alive", status.workers.len() as f64);
    let draining = status.workers.iter().filter(|worker| worker.draining).count();
    single(&mut registry, "spdl_coordinator_workers_draining", "Workers alive that take no new ranks", draining as f64);
    let help = "1 while changes of the state cannot be written";
    single(&mut registry, "spdl_coordinator_state_failing", help, f64::from(u8::from(state_problem.is_some())));
    scale(&mut registry, status);
    per_job(&mut registry, status);
    per_source(&mut registry, status);
    limits(&mut registry, status);
    gains(&mut registry, status);
    per_rank(&mut registry, status);
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes everything");
    text
}

type Real = Gauge<f64, AtomicU64>;

/// Registers the figures by which workers are scaled. A figure that is not known has no value, so that nothing is
/// scaled.
fn scale(registry: &mut Registry, status: &Status) {
    let help =
        "Cores that the ranks need to not wait for CPU, minus those of the workers; no value while it is not known";
    if let Some(cores) = status.scale.wanted_cores {
        single(registry, "spdl_wanted_cores", help, cores);
    }
    let help = "Cores that workers without a socket should have in all; no value while it is not known";
    if let Some(cores) = status.scale.wanted_pool_cores {
        single(registry, "spdl_wanted_pool_cores", help, cores);
    }
    let help = "Cores in the budgets of all workers that do not drain, of those that only help too";
    single(registry, "spdl_coordinator_worker_cores", help, status.scale.worker_cores);
}

fn single(registry: &mut Registry, name: &str, help: &str, value: f64) {
    let gauge = Real::default();
    gauge.set(value);
    registry.register(name, help, gauge);
}

/// Returns a job's newest session.
fn newest_session<'s>(status: &'s Status, job: &JobStatus) -> Option<&'s SessionStatus> {
    status.sessions.iter().find(|session| Some(session.session) == job.session)
}

/// Returns the ranks of a job's newest session.
fn ranks<'s>(status: &'s Status, job: &JobStatus) -> impl Iterator<Item = &'s RankStatus> {
    newest_session(status, job).into_iter().flat_map(|session| &session.ranks)
}

/// Returns the ranks alive of a job's newest session.
fn ranks_alive<'s>(status: &'s Status, job: &JobStatus) -> impl Iterator<Item = &'s RankStatus> {
    ranks(status, job).filter(|rank| rank.is_alive)
}

/// A session with more ranks has no metrics for each rank, so that the number of series stays bounded.
const MAX_RANKS: usize = 1_000;

fn per_rank(registry: &mut Registry, status: &Status) {
    let limits = Family::<RankLimitLabels, Gauge>::default();
    let (waiting, rates) = (Family::<RankLabels, Real>::default(), Family::<RankLabels, Real>::default());
    for job in &status.jobs {
        let Some(session) = newest_session(status, job).filter(|session| session.ranks.len() <= MAX_RANKS) else {
            continue;
        };
        for rank in session.ranks.iter().filter(|rank| rank.is_alive) {
            let labels = RankLabels { job: job.name.clone(), rank: rank.rank };
            if let Some(limit) = rank.diagnosis.as_ref().and_then(|found| found.limit) {
                let RankLabels { job, rank } = labels.clone();
                limits.get_or_create(&RankLimitLabels { job, rank, limit: limit.name() }).set(1);
            }
            if let Some(fraction) = rank.waiting {
                waiting.get_or_create(&labels).set(fraction);
            }
            if let Some(rate) = rank.job_samples_per_s {
                rates.get_or_create(&labels).set(rate / f64::from(session.world.max(1)));
            }
        }
    }
    let help = "1 for what limits a rank alive";
    registry.register("spdl_coordinator_rank_limit", help, limits);
    let help = "Fraction of the last seconds in which the rank waited for batches";
    registry.register("spdl_coordinator_rank_waiting_ratio", help, waiting);
    let help = "Samples per second that the rank took in the last seconds";
    registry.register("spdl_coordinator_rank_samples_per_second", help, rates);
}

fn gains(registry: &mut Registry, status: &Status) {
    let family = Family::<RemedyLabels, Real>::default();
    for job in &status.jobs {
        let session = newest_session(status, job).filter(|_| ranks_alive(status, job).next().is_some());
        for (remedy, factor) in session.into_iter().flat_map(|session| &session.gains) {
            family.get_or_create(&RemedyLabels { job: job.name.clone(), remedy: remedy.name() }).set(*factor);
        }
    }
    let help = "Factor by which the job's rate would rise with twice as much of something";
    registry.register("spdl_coordinator_job_gain_ratio", help, family);
}

fn limits(registry: &mut Registry, status: &Status) {
    let family = Family::<LimitLabels, Gauge>::default();
    for job in &status.jobs {
        for limit in Limit::ALL {
            let limited = ranks(status, job)
                .filter(|rank| rank.diagnosis.as_ref().is_some_and(|found| found.limit == Some(*limit)));
            let count = i64::try_from(limited.count()).unwrap_or(i64::MAX);
            family.get_or_create(&LimitLabels { job: job.name.clone(), limit: limit.name() }).set(count);
        }
    }
    registry.register("spdl_coordinator_job_ranks_limited", "Ranks, by what limits them", family);
}

fn per_source(registry: &mut Registry, status: &Status) {
    let mut add = |name: &str, help: &str, value_of: &dyn Fn(&SourceStatus) -> f64| {
        let family = Family::<SourceLabels, Real>::default();
        for (job, source) in status.jobs.iter().flat_map(|job| job.sources.iter().map(move |source| (job, source))) {
            let labels = SourceLabels { job: job.name.clone(), source: source.name.clone() };
            family.get_or_create(&labels).set(value_of(source));
        }
        registry.register(name, help, family);
    };
    let help = "Samples that the source has given up to where every rank has acknowledged, over all epochs";
    add("spdl_coordinator_source_samples", help, &|source| source.samples as f64);
    let help = "How often the source has gone through its samples by then";
    add("spdl_coordinator_source_passes", help, &|source| source.times);
    add("spdl_coordinator_source_bad_samples", "Distinct bad samples of the source", &|source| {
        source.bad_sample_count as f64
    });
}

fn per_job(registry: &mut Registry, status: &Status) {
    let mut add = |name: &str, help: &str, value_of: &dyn Fn(usize) -> f64| {
        let family = Family::<JobLabels, Real>::default();
        for (at, job) in status.jobs.iter().enumerate() {
            family.get_or_create(&JobLabels { job: job.name.clone() }).set(value_of(at));
        }
        registry.register(name, help, family);
    };
    let jobs = &status.jobs;
    let ranks = |at: usize| ranks_alive(status, &jobs[at]);
    add("spdl_coordinator_job_failed", "1 for a job that has failed", &|at| {
        f64::from(u8::from(jobs[at].failed.is_some()))
    });
    add("spdl_coordinator_job_bad_samples", "Distinct bad samples", &|at| jobs[at].bad_sample_count as f64);
    add("spdl_coordinator_job_epoch", "Epoch that every rank has acknowledged", &|at| {
        jobs[at].acknowledged.epoch as f64
    });
    add("spdl_coordinator_job_offset_samples", "Offset in the epoch that every rank has acknowledged", &|at| {
        jobs[at].acknowledged.offset as f64
    });
    let help = "Samples per second of all ranks alive, in the last seconds";
    add("spdl_coordinator_job_samples_per_second", help, &|at| {
        let rates = ranks(at).filter_map(|rank| rank.job_samples_per_s);
        rates.min_by(f64::total_cmp).unwrap_or(0.0)
    });
    add("spdl_coordinator_job_ranks", "Ranks alive", &|at| ranks(at).count() as f64);
    add("spdl_coordinator_job_ranks_homeless", "Ranks alive without a home", &|at| {
        ranks(at).filter(|rank| rank.home.is_none()).count() as f64
    });
    add("spdl_coordinator_job_waited_seconds", "The most that a rank alive has waited for batches", &|at| {
        ranks(at).map(|rank| rank.waited_ms).max().unwrap_or(0) as f64 / 1e3
    });
}
