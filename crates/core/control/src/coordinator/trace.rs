//! Gathers traces: asks the workers and ranks of a job to record what their units do, and keeps what they send for a
//! minute after the end of the trace. There is at most one trace at a time.

use std::collections::BTreeMap;

use crate::{
    messages::{FromCoordinator, Refusal},
    trace::{
        MAX_PART_SPANS, MAX_PROCESS_SPANS, MAX_TRACE_MS, MAX_TRACE_SPANS, TraceOrder, TracePart, TraceProgress,
        TraceSource,
    },
};
use spdl_types::{SessionId, WorkerId};

use super::{CoordinatorCore, Role, limits, over_limit};

/// How long a trace is kept after its end, in milliseconds.
const KEPT_MS: u64 = 60_000;
/// The number of intervals that each process may send in any case: it limits how many processes take part.
const MIN_PROCESS_SPANS: u32 = 256;

/// A trace that is recorded or waits to be read.
#[derive(Debug)]
pub(super) struct TraceState {
    trace: u64,
    job: String,
    duration_ms: u64,
    ends_ms: u64,
    /// The most intervals of each process.
    spans: u32,
    processes: BTreeMap<TraceSource, Sent>,
    parts: Vec<TracePart>,
}

/// What a process has sent.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    parts: u32,
    spans: u32,
    is_complete: bool,
}

impl TraceState {
    fn remaining_ms(&self, now_ms: u64) -> u64 {
        self.ends_ms.saturating_sub(now_ms)
    }

    fn progress(&self, now_ms: u64, part: Option<&TracePart>) -> FromCoordinator {
        FromCoordinator::Trace(Box::new(TraceProgress {
            trace: self.trace,
            remaining_ms: self.remaining_ms(now_ms),
            part: part.cloned().map(Box::new),
            processes: u32::try_from(self.processes.len()).unwrap_or(u32::MAX),
            missing: self.processes.iter().filter(|(_, sent)| !sent.is_complete).map(|(source, _)| *source).collect(),
        }))
    }

    /// Adds a part, unless it has come before.
    fn add(&mut self, part: TracePart) -> Result<(), Refusal> {
        let unexpected = |cause: &str| Refusal::NoTrace { trace: part.trace, cause: cause.to_owned() };
        let sent =
            self.processes.get_mut(&part.source).ok_or_else(|| unexpected("this process takes no part in it"))?;
        if part.number < sent.parts {
            return Ok(());
        }
        if sent.is_complete || part.number > sent.parts {
            return Err(unexpected(&format!("part {} of this process is not due", part.number)));
        }
        let spans = u32::try_from(part.spans()).unwrap_or(u32::MAX);
        let limit = (self.spans - sent.spans).min(u32::try_from(MAX_PART_SPANS).unwrap_or(u32::MAX));
        if spans > limit {
            return Err(over_limit("the number of intervals in a part of a trace", spans, limit));
        }
        *sent = Sent { parts: sent.parts + 1, spans: sent.spans + spans, is_complete: part.is_last };
        // A part without intervals is not kept, except the last one.
        if spans > 0 || part.is_last {
            self.parts.push(part);
        }
        Ok(())
    }
}

impl CoordinatorCore {
    /// Begins a trace of the ranks alive of a job and of their homes. Returns a trace of the same job and duration that
    /// is still being recorded, because the request may have been repeated.
    pub(super) fn start_trace(&mut self, job: &str, duration_ms: u64) -> Result<FromCoordinator, Refusal> {
        self.job_or_failed(job)?;
        let trace = self.last_trace + 1;
        if !(1..=MAX_TRACE_MS).contains(&duration_ms) {
            return Err(over_limit("the duration of a trace in milliseconds", duration_ms, MAX_TRACE_MS));
        }
        if let Some(running) = self.trace.as_ref().filter(|running| running.remaining_ms(self.now_ms) > 0) {
            if (running.job.as_str(), running.duration_ms) == (job, duration_ms) {
                return Ok(running.progress(self.now_ms, None));
            }
            let seconds = running.remaining_ms(self.now_ms).div_ceil(1_000);
            let cause =
                format!("trace {} of job `{}` is being recorded for another {seconds} s", running.trace, running.job);
            return Err(Refusal::NoTrace { trace, cause });
        }
        let sources = self.trace_sources(job);
        if sources.is_empty() {
            return Err(Refusal::NoTrace { trace, cause: format!("job `{job}` has no ranks alive") });
        }
        let count = u32::try_from(sources.len()).unwrap_or(u32::MAX);
        if count > MAX_TRACE_SPANS / MIN_PROCESS_SPANS {
            return Err(over_limit("the number of processes in a trace", count, MAX_TRACE_SPANS / MIN_PROCESS_SPANS));
        }
        let spans = (MAX_TRACE_SPANS / count).min(MAX_PROCESS_SPANS);
        self.last_trace = trace;
        let state = TraceState {
            trace,
            job: job.to_owned(),
            duration_ms,
            // Processes learn of it with their next heartbeat.
            ends_ms: self.now_ms + self.config.heartbeat_ms + duration_ms,
            spans,
            processes: sources.into_iter().map(|source| (source, Sent::default())).collect(),
            parts: Vec::new(),
        };
        let progress = state.progress(self.now_ms, None);
        self.trace = Some(state);
        Ok(progress)
    }

    /// Returns the ranks alive of a job, and their homes.
    fn trace_sources(&self, job: &str) -> Vec<TraceSource> {
        let mut sources = Vec::new();
        for session in self.sessions.values().filter(|session| session.job == job && session.superseded_by.is_none()) {
            let is_alive = |rank: &&super::rank_state::RankState| rank.is_alive(self.now_ms, self.config.liveness_ms);
            for (&rank, state) in session.ranks.iter().filter(|(_, rank)| is_alive(rank)) {
                sources.push(TraceSource::Rank { session: session.id, rank });
                sources.extend(state.home.filter(|id| self.workers.contains_key(id)).map(TraceSource::Worker));
            }
        }
        sources.sort_unstable();
        sources.dedup();
        sources
    }

    /// Returns what a process is to record now, if it takes part in a trace.
    pub(super) fn trace_order(&self, source: TraceSource) -> Option<TraceOrder> {
        let state = self.trace.as_ref()?;
        let remaining_ms = state.remaining_ms(self.now_ms);
        let takes_part = remaining_ms > 0 && state.processes.get(&source).is_some_and(|sent| !sent.is_complete);
        takes_part.then_some(TraceOrder { trace: state.trace, remaining_ms, spans: state.spans })
    }

    /// Returns what a worker is to record.
    pub(super) fn trace_order_of_worker(&self, worker: WorkerId) -> Option<TraceOrder> {
        self.trace_order(TraceSource::Worker(worker))
    }

    /// Returns what the trainer of a rank is to record.
    pub(super) fn trace_order_of_rank(&self, session: SessionId, rank: u32) -> Option<TraceOrder> {
        self.trace_order(TraceSource::Rank { session, rank })
    }

    /// Adds a part of a trace.
    pub(super) fn add_trace_part(&mut self, role: Role, part: TracePart) -> Result<FromCoordinator, Refusal> {
        if matches!(part.source, TraceSource::Worker(_)) != (role == Role::Worker) {
            return Err(Refusal::Role { role: role.to_string(), request: format!("a trace of {:?}", part.source) });
        }
        limits::check_trace_part(&part)?;
        self.trace_state(part.trace)?.add(part)?;
        Ok(FromCoordinator::Done)
    }

    /// Returns the state of a trace, and the part of this number if it has come.
    pub(super) fn read_trace(&mut self, trace: u64, part: u32) -> Result<FromCoordinator, Refusal> {
        let now_ms = self.now_ms;
        let state = self.trace_state(trace)?;
        Ok(state.progress(now_ms, state.parts.get(part as usize)))
    }

    fn trace_state(&mut self, trace: u64) -> Result<&mut TraceState, Refusal> {
        let cause = "it is not known, or no longer kept".to_owned();
        self.trace.as_mut().filter(|state| state.trace == trace).ok_or(Refusal::NoTrace { trace, cause })
    }

    /// Forgets a trace a minute after its end.
    pub(super) fn forget_trace(&mut self) {
        let now_ms = self.now_ms;
        self.trace.take_if(|state| now_ms.saturating_sub(state.ends_ms) > KEPT_MS);
    }
}
