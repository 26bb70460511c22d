//! Records what a process does while the coordinator gathers a trace, and sends it, on the coordinator's clock.

use std::{
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use spdl_accounting::{Recording, UnitInterval, UnitState};
use spdl_control::{
    messages::{FromCoordinator, ToCoordinator},
    trace::{
        ClockOffset, MAX_PART_SPANS, MAX_PROCESS_SPANS, MAX_TRACE_MS, RoundTrip, SpanState, TraceOrder, TracePart,
        TraceSource, UnitSpan,
    },
};
use spdl_types::Stage;

use crate::coordinators::{CoordinatorClient, CoordinatorError};

/// Number of round trips by which the coordinator's clock is compared with this process's.
const ROUND_TRIPS: usize = 8;
/// How long a reply of the coordinator may take.
const TIMEOUT: Duration = Duration::from_secs(3);

/// A process's stages, whose units can be recorded.
pub trait Recorded {
    /// Records from now on what the units do, and keeps the last `capacity` intervals of each stage.
    fn record(&self, capacity: usize);

    /// Ends the recording and returns what was recorded.
    fn take_recordings(&self) -> Vec<(Stage, Recording)>;
}

/// Follows the coordinator's orders to record.
#[derive(Debug)]
pub struct Tracer<R> {
    recorded: Arc<R>,
    /// The beginning of this process's clock.
    epoch: Instant,
    /// What is being recorded, and until when.
    running: Option<(TraceOrder, Instant)>,
    /// The last order that was followed, while the coordinator repeats it.
    followed: Option<u64>,
}

impl<R: Recorded> Tracer<R> {
    /// Creates a tracer that records nothing.
    #[must_use]
    pub fn new(recorded: Arc<R>) -> Self {
        Self { recorded, epoch: Instant::now(), running: None, followed: None }
    }

    /// Follows the order in a reply to a heartbeat: begins to record if the order is new.
    pub fn follow(&mut self, order: Option<TraceOrder>) {
        let followed = std::mem::replace(&mut self.followed, order.map(|order| order.trace));
        let Some(order) = order.filter(|order| followed != Some(order.trace)) else { return };
        let remaining = Duration::from_millis(order.remaining_ms.min(2 * MAX_TRACE_MS));
        self.recorded.record(order.spans.min(MAX_PROCESS_SPANS) as usize);
        self.running = Some((order, Instant::now() + remaining));
    }

    /// Waits until a recording is over and has to be [sent](Self::send).
    pub async fn until_over(&self) {
        match self.running {
            Some((_, ends)) => tokio::time::sleep_until(ends.into()).await,
            None => pending().await,
        }
    }

    /// Ends the recording and sends it.
    pub async fn send(&mut self, coordinator: &mut CoordinatorClient, source: TraceSource, name: &str) {
        let Some((order, _)) = self.running.take() else { return };
        let recordings = self.recorded.take_recordings();
        match self.send_all(coordinator, order, source, name, recordings).await {
            Ok(count) => tracing::debug!(trace = order.trace, count, "sent what was recorded"),
            Err(error) => tracing::warn!(trace = order.trace, %error, "what was recorded for a trace is lost"),
        }
    }

    async fn send_all(
        &self,
        coordinator: &mut CoordinatorClient,
        order: TraceOrder,
        source: TraceSource,
        name: &str,
        recordings: Vec<(Stage, Recording)>,
    ) -> Result<usize, CoordinatorError> {
        let mut trips = Vec::new();
        for _ in 0..ROUND_TRIPS {
            let sent_us = self.micros(Instant::now());
            if let FromCoordinator::Clock(remote_us) = coordinator.ask(&ToCoordinator::Clock, TIMEOUT).await? {
                trips.push(RoundTrip { sent_us, remote_us, received_us: self.micros(Instant::now()) });
            }
        }
        let Some(clock) = ClockOffset::of(&trips) else { return Ok(0) };
        let (spans, lost) = self.last_spans(recordings, &clock, order.spans.min(MAX_PROCESS_SPANS) as usize);
        let count = spans.len();
        let mut chunks: Vec<&[(Stage, UnitSpan)]> = spans.chunks(MAX_PART_SPANS).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        let last = chunks.len() - 1;
        for (number, chunk) in chunks.into_iter().enumerate() {
            let part = TracePart {
                trace: order.trace,
                source,
                number: u32::try_from(number).unwrap_or(u32::MAX),
                name: name.to_owned(),
                accuracy_us: clock.accuracy_us,
                lost: if number == last { lost } else { 0 },
                stages: by_stage(chunk),
                is_last: number == last,
            };
            if let FromCoordinator::Refused(refusal) = coordinator.ask(&ToCoordinator::TracePart(part), TIMEOUT).await?
            {
                tracing::warn!(trace = order.trace, %refusal, "the coordinator refuses a part of a trace");
                break;
            }
        }
        Ok(count)
    }

    /// Returns the last intervals of all stages in the order of their ends, at most `limit`, and how many are left out.
    fn last_spans(
        &self,
        recordings: Vec<(Stage, Recording)>,
        clock: &ClockOffset,
        limit: usize,
    ) -> (Vec<(Stage, UnitSpan)>, u64) {
        let mut lost = recordings.iter().map(|(_, recording)| recording.lost).sum();
        let of_stage = |(stage, recording): (Stage, Recording)| {
            recording
                .intervals
                .into_iter()
                .filter_map(move |interval| Some((stage.clone(), self.span(&interval, clock)?)))
        };
        let mut spans: Vec<(Stage, UnitSpan)> = recordings.into_iter().flat_map(of_stage).collect();
        spans.sort_by_key(|(_, span)| span.end_us);
        let excess = spans.len().saturating_sub(limit);
        lost += excess as u64;
        spans.drain(..excess);
        (spans, lost)
    }

    fn span(&self, interval: &UnitInterval, clock: &ClockOffset) -> Option<UnitSpan> {
        let state = match interval.state {
            UnitState::Busy => SpanState::Busy,
            UnitState::Input => SpanState::Input,
            UnitState::Output => SpanState::Output,
            UnitState::Throttled => SpanState::Throttled,
            UnitState::Idle => return None,
        };
        let [start_us, end_us] = [interval.start, interval.end].map(|at| clock.remote_us(self.micros(at)));
        Some(UnitSpan { unit: interval.unit, state, start_us, end_us, batch: interval.batch })
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_micros()).unwrap_or(u64::MAX)
    }
}

/// Groups intervals by their stage.
fn by_stage(spans: &[(Stage, UnitSpan)]) -> Vec<(Stage, Vec<UnitSpan>)> {
    let mut stages: Vec<(Stage, Vec<UnitSpan>)> = Vec::new();
    for (stage, span) in spans {
        match stages.iter_mut().find(|(known, _)| known == stage) {
            Some((_, spans)) => spans.push(*span),
            None => stages.push((stage.clone(), vec![*span])),
        }
    }
    stages
}
