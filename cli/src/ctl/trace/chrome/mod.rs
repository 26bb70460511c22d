//! Writes a trace as JSON in the trace event format: a process for each worker and rank, a track for each of their units, a
//! slice for each interval, and for each batch arrows from its fetch to its decoding, its slot and the trainer's step.
//!
//! The format: <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde::Serialize;
use serde_json::{Value, json};
use spdl_control::trace::{STEP, SpanState, TracePart, TraceSource, UnitSpan};
use spdl_types::{BatchId, Stage};

#[cfg(test)]
mod tests;

/// What was written.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct TraceCounts {
    /// Number of intervals.
    pub(super) intervals: u64,
    /// Number of batches that were followed from one stage to another.
    pub(super) batches: u64,
}

/// Number of stages on the path of a batch, which arrows join.
const PATH: usize = 4;
/// The numbers of the tracks of a stage begin at a multiple of this, so that a process's tracks lie in the order of stages.
const TRACKS_OF_STAGE: u64 = 1 << 20;

/// A slice of a track.
#[derive(Clone, Copy, Debug)]
struct Slice {
    process: u64,
    track: u64,
    start_us: u64,
    end_us: u64,
}

/// For each batch its slices, by their [`place`].
type Batches = BTreeMap<BatchId, [Vec<Slice>; PATH]>;

/// Writes the parts of a trace.
pub(super) fn write(parts: &[TracePart], out: impl Write) -> io::Result<TraceCounts> {
    let mut events = TraceEventWriter { out, is_first: true };
    events.out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    let mut written = TraceCounts::default();
    let mut batches = Batches::new();
    let begin_us = all_spans(parts).map(|span| span.start_us).min().unwrap_or(0);
    for (process, (source, parts)) in (1..).zip(by_source(parts)) {
        events.name_process(process, source, parts[0])?;
        for (stage, spans) in by_stage(&parts) {
            let tracks = tracks(stage, &spans);
            for ((unit, name), track) in &tracks {
                let (unit, tid) = (*unit, track + stage_track(stage));
                events.name_track(process, tid, name)?;
                for span in spans.iter().filter(|span| span.unit == unit) {
                    let slice = Slice {
                        process,
                        track: tid,
                        start_us: span.start_us - begin_us,
                        end_us: span.end_us.max(span.start_us) - begin_us,
                    };
                    events.slice(slice, stage, span)?;
                    written.intervals += 1;
                    if let (Some(batch), Some(place)) = (span.batch, place(stage, span.state)) {
                        batches.entry(batch).or_default()[place].push(slice);
                    }
                }
            }
        }
    }
    for (number, (batch, slices)) in (1..).zip(&batches) {
        let path = path(slices);
        if path.len() > 1 {
            events.arrows(number, *batch, &path)?;
            written.batches += 1;
        }
    }
    events.out.write_all(b"\n]}\n")?;
    events.out.flush()?;
    Ok(written)
}

fn all_spans(parts: &[TracePart]) -> impl Iterator<Item = &UnitSpan> {
    parts.iter().flat_map(|part| &part.stages).flat_map(|(_, spans)| spans)
}

/// Groups parts by their process.
fn by_source(parts: &[TracePart]) -> BTreeMap<TraceSource, Vec<&TracePart>> {
    let mut sources: BTreeMap<TraceSource, Vec<&TracePart>> = BTreeMap::new();
    parts.iter().for_each(|part| sources.entry(part.source).or_default().push(part));
    sources
}

/// Groups the intervals of a process by stage, in the order of their beginnings.
fn by_stage<'p>(parts: &[&'p TracePart]) -> Vec<(&'p Stage, Vec<&'p UnitSpan>)> {
    let mut stages: Vec<(&Stage, Vec<&UnitSpan>)> = Vec::new();
    for (stage, spans) in parts.iter().flat_map(|part| &part.stages) {
        match stages.iter_mut().find(|(known, _)| *known == stage) {
            Some((_, known)) => known.extend(spans),
            None => stages.push((stage, spans.iter().collect())),
        }
    }
    stages.iter_mut().for_each(|(_, spans)| spans.sort_by_key(|span| (span.unit, span.start_us)));
    stages
}

/// Returns the number of the first track of a stage.
fn stage_track(stage: &Stage) -> u64 {
    let place = Stage::KNOWN.iter().position(|known| known == stage).unwrap_or(Stage::KNOWN.len());
    (place as u64 + 1) * TRACKS_OF_STAGE
}

/// Returns the units of a stage with the names of their tracks, and the number of each track in its stage.
fn tracks(stage: &Stage, spans: &[&UnitSpan]) -> BTreeMap<(u32, String), u64> {
    let mut rank_of: BTreeMap<u32, Option<(u64, u32)>> = BTreeMap::new();
    for span in spans {
        let rank = rank_of.entry(span.unit).or_default();
        *rank = rank.or(span.batch.map(|batch| (batch.session.0, batch.rank)));
    }
    let mut slots: BTreeMap<Option<(u64, u32)>, u32> = BTreeMap::new();
    let name = |(number, (unit, rank)): (u64, (u32, Option<(u64, u32)>))| {
        let name = match (stage, rank) {
            (Stage::HandOver, Some((_, of_rank))) => {
                let slot = slots.entry(rank).or_default();
                *slot += 1;
                format!("{stage} rank {of_rank} slot {}", *slot - 1)
            }
            _ if stage.name() == STEP => STEP.to_owned(),
            _ => format!("{stage} {unit}"),
        };
        ((unit, name), number)
    };
    (0..).zip(rank_of).map(name).collect()
}

/// Returns the place of an interval on the way of its batch: fetch, decoding, slot, step.
fn place(stage: &Stage, state: SpanState) -> Option<usize> {
    match (stage, state) {
        (Stage::Fetch, SpanState::Busy) => Some(0),
        (Stage::Decode, SpanState::Busy) => Some(1),
        (Stage::HandOver, SpanState::Output) => Some(2),
        (stage, SpanState::Busy) if stage.name() == STEP => Some(3),
        _ => None,
    }
}

/// Returns the slices of a batch to join by arrows: of each stage the last slice that begins no later than the next
/// stage's.
fn path(slices: &[Vec<Slice>; PATH]) -> Vec<Slice> {
    let mut path: Vec<Slice> = Vec::new();
    for of_stage in slices.iter().rev() {
        let is_before = |slice: &&Slice| path.last().is_none_or(|next| slice.start_us <= next.start_us);
        path.extend(of_stage.iter().filter(is_before).max_by_key(|slice| slice.start_us).copied());
    }
    path.reverse();
    path
}

/// The events of a file.
struct TraceEventWriter<W> {
    out: W,
    is_first: bool,
}

impl<W: Write> TraceEventWriter<W> {
    fn event(&mut self, event: &Value) -> io::Result<()> {
        self.out.write_all(if std::mem::take(&mut self.is_first) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut self.out, event)?;
        Ok(())
    }

    fn name_process(&mut self, process: u64, source: TraceSource, part: &TracePart) -> io::Result<()> {
        let name = match source {
            TraceSource::Worker(_) => format!("worker {}", part.name),
            TraceSource::Rank { session, rank } => format!("rank {rank} of {session} ({})", part.name),
        };
        let labels = format!("clock within {:.1} ms", part.accuracy_us as f64 / 1e3);
        self.metadata("process_name", (process, 0), json!({ "name": name }))?;
        self.metadata("process_labels", (process, 0), json!({ "labels": labels }))?;
        self.metadata("process_sort_index", (process, 0), json!({ "sort_index": process }))
    }

    fn name_track(&mut self, process: u64, track: u64, name: &str) -> io::Result<()> {
        self.metadata("thread_name", (process, track), json!({ "name": name }))?;
        self.metadata("thread_sort_index", (process, track), json!({ "sort_index": track }))
    }

    fn metadata(&mut self, name: &str, (process, track): (u64, u64), args: Value) -> io::Result<()> {
        // Some readers demand a category and a time of every event.
        self.event(&json!({
            "ph": "M", "name": name, "cat": "__metadata", "pid": process, "tid": track, "ts": 0, "args": args,
        }))
    }

    fn slice(&mut self, slice: Slice, stage: &Stage, span: &UnitSpan) -> io::Result<()> {
        let Slice { process, track, start_us, end_us } = slice;
        let name = match (stage, span.state) {
            (Stage::HandOver, SpanState::Output) => "holds a batch",
            (_, SpanState::Busy) => stage.name(),
            (_, SpanState::Input) => "waits for input",
            (_, SpanState::Output) => "waits for output",
            (_, SpanState::Throttled) => "throttled",
        };
        let args = span.batch.map_or_else(|| json!({}), |batch| batch_args(&batch));
        self.event(&json!({
            "ph": "X", "name": name, "cat": stage.name(), "pid": process, "tid": track, "ts": start_us,
            "dur": end_us - start_us, "args": args,
        }))
    }

    /// Joins the slices of a batch by arrows.
    fn arrows(&mut self, number: u64, batch: BatchId, path: &[Slice]) -> io::Result<()> {
        let last = path.len() - 1;
        for (at, slice) in path.iter().enumerate() {
            let phase = if at == 0 {
                "s"
            } else if at == last {
                "f"
            } else {
                "t"
            };
            let mut event = json!({
                "ph": phase, "name": "batch", "cat": "batch", "id": number, "pid": slice.process, "tid": slice.track,
                "ts": slice.start_us, "args": batch_args(&batch),
            });
            if at == last {
                // The arrow ends at the slice that encloses this time, and not at the next one.
                event["bp"] = "e".into();
            }
            self.event(&event)?;
        }
        Ok(())
    }
}

fn batch_args(batch: &BatchId) -> Value {
    json!({ "batch": batch.from.to_string(), "rank": batch.rank, "session": batch.session.0 })
}
