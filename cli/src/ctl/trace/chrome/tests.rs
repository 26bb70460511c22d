use spdl_types::{Position, SessionId, WorkerId};

use super::*;

fn batch(rank: u32, offset: u64) -> BatchId {
    BatchId { session: SessionId(1), rank, from: Position { epoch: 2, offset } }
}

fn span(unit: u32, state: SpanState, start_us: u64, end_us: u64, batch: Option<BatchId>) -> UnitSpan {
    UnitSpan { unit, state, start_us, end_us, batch }
}

fn part(source: TraceSource, stages: Vec<(Stage, Vec<UnitSpan>)>) -> TracePart {
    TracePart {
        trace: 1,
        source,
        number: 0,
        name: "node-0".to_owned(),
        accuracy_us: 40,
        lost: 0,
        stages,
        is_last: true,
    }
}

/// Writes parts and returns the events.
fn events(parts: &[TracePart]) -> (TraceCounts, Vec<Value>) {
    let mut text = Vec::new();
    let written = write(parts, &mut text).unwrap();
    let file: Value = serde_json::from_slice(&text).unwrap();
    (written, file["traceEvents"].as_array().unwrap().clone())
}

fn with_phase<'e>(events: &'e [Value], phase: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["ph"] == phase).collect()
}

#[test]
fn a_batch_is_followed_from_its_last_fetch_to_the_step() {
    let of = Some(batch(0, 64));
    let worker = part(
        TraceSource::Worker(WorkerId(1)),
        vec![
            (
                Stage::Fetch,
                vec![span(0, SpanState::Busy, 1_000, 1_500, of), span(1, SpanState::Busy, 1_100, 1_900, of)],
            ),
            (
                Stage::Decode,
                vec![
                    span(0, SpanState::Input, 1_000, 2_000, None),
                    span(0, SpanState::Busy, 2_000, 2_600, of),
                    span(1, SpanState::Busy, 1_050, 2_100, of),
                ],
            ),
            (Stage::HandOver, vec![span(8, SpanState::Output, 2_700, 4_000, of)]),
        ],
    );
    let rank = TraceSource::Rank { session: SessionId(1), rank: 0 };
    let rank = part(
        rank,
        vec![(
            STEP.into(),
            vec![span(0, SpanState::Input, 1_000, 2_750, None), span(0, SpanState::Busy, 2_750, 4_010, of)],
        )],
    );
    let (written, events) = events(&[worker, rank]);
    assert_eq!(written, TraceCounts { intervals: 8, batches: 1 });
    let arrows: Vec<(&str, u64, u64)> = ["s", "t", "f"]
        .into_iter()
        .flat_map(|phase| with_phase(&events, phase).into_iter().map(move |event| (phase, event)))
        .map(|(phase, event)| (phase, event["pid"].as_u64().unwrap(), event["ts"].as_u64().unwrap()))
        .collect();
    // Times count from the first.
    assert_eq!(arrows, [("s", 1, 100), ("t", 1, 1_000), ("t", 1, 1_700), ("f", 2, 1_750)]);
    let names: Vec<&Value> = with_phase(&events, "M").into_iter().map(|event| &event["args"]["name"]).collect();
    for name in
        ["worker node-0", "rank 0 of session 1 (node-0)", "fetch 1", "decode 0", "hand-over rank 0 slot 0", "step"]
    {
        assert!(names.iter().any(|found| **found == name), "{name} is not in {names:?}");
    }
}

#[test]
fn slots_are_numbered_within_their_rank_and_a_batch_of_one_stage_has_no_arrow() {
    let slots = [(3, 0, 0), (4, 1, 0), (7, 0, 64), (9, 1, 64)];
    let spans = slots.map(|(unit, rank, offset)| span(unit, SpanState::Output, 5, 6, Some(batch(rank, offset))));
    let (written, events) = events(&[part(TraceSource::Worker(WorkerId(1)), vec![(Stage::HandOver, spans.to_vec())])]);
    assert_eq!(written, TraceCounts { intervals: 4, batches: 0 });
    let named = with_phase(&events, "M").into_iter().filter(|event| event["name"] == "thread_name");
    let names: Vec<&str> = named.map(|event| event["args"]["name"].as_str().unwrap()).collect();
    let expected = ["rank 0 slot 0", "rank 1 slot 0", "rank 0 slot 1", "rank 1 slot 1"];
    assert_eq!(names, expected.map(|name| format!("hand-over {name}")));
}

#[test]
fn an_arrow_never_leads_back_in_time() {
    let of = Some(batch(0, 0));
    // The trainer's clock is early: its step begins before the slot was filled.
    let worker = part(
        TraceSource::Worker(WorkerId(1)),
        vec![
            (Stage::Decode, vec![span(0, SpanState::Busy, 10, 20, of)]),
            (Stage::HandOver, vec![span(0, SpanState::Output, 30, 90, of)]),
        ],
    );
    let rank = TraceSource::Rank { session: SessionId(1), rank: 0 };
    let rank = part(rank, vec![(STEP.into(), vec![span(0, SpanState::Busy, 25, 80, of)])]);
    let (_, events) = events(&[worker, rank]);
    let [start, end] = ["s", "f"].map(|phase| with_phase(&events, phase)[0]["ts"].as_u64().unwrap());
    assert_eq!((start, end, with_phase(&events, "t").len()), (0, 15, 0));
}

#[test]
fn a_trace_of_nothing_is_a_file_without_events() {
    assert_eq!(events(&[]), (TraceCounts::default(), Vec::new()));
}
