//! What each thread, request and slot did while a part was measured, as drawings.

use std::{collections::BTreeMap, fmt::Write, time::Instant};

use spdl_accounting::{Recording, UnitInterval, UnitState};
use spdl_types::Stage;

use super::{
    super::measure::{Measurement, Timeline},
    escaped,
};
use crate::ctl::report::count;

/// Width of a drawing, in units of its own.
const WIDTH: f64 = 2_000.0;
/// The states that are drawn. What remains is waiting for input.
const DRAWN: [(UnitState, &str); 3] =
    [(UnitState::Busy, "busy"), (UnitState::Throttled, "throttled"), (UnitState::Output, "output")];

/// Draws the timelines of all parts that have one.
pub(super) fn section(measurements: &[Measurement]) -> String {
    let mut section = "<h2>What each thread did</h2><p class=\"key\">".to_owned();
    for (class, name) in [
        ("busy", "busy"),
        ("throttled", "throttled by the budget"),
        ("output", "waiting for output"),
        ("input", "waiting for input"),
    ] {
        let _ = write!(section, "<span class=\"{class}\"></span>{name}");
    }
    section.push_str("</p>");
    for found in measurements {
        let Some(timeline) = &found.timeline else { continue };
        let _ = write!(section, "<h3>{}</h3><div class=\"rows\">", escaped(&found.name));
        for (stage, recording) in &timeline.stages {
            section.push_str(&rows(timeline, stage, recording));
        }
        let ms = (timeline.end - timeline.begin).as_millis();
        let _ = write!(section, "<span></span><span class=\"axis\"><span>0</span><span>{ms} ms</span></span></div>");
    }
    section
}

/// Draws a row for each unit of a stage that did not only wait for input.
fn rows(timeline: &Timeline, stage: &Stage, recording: &Recording) -> String {
    let mut units: BTreeMap<u32, Vec<&UnitInterval>> = BTreeMap::new();
    recording.intervals.iter().for_each(|interval| units.entry(interval.unit).or_default().push(interval));
    let all = units.len();
    units.retain(|_, intervals| intervals.iter().any(|interval| interval.state != UnitState::Input));
    let idle = all - units.len();
    if all == 0 {
        return String::new();
    }
    let mut rows = format!("<span class=\"stage\">{}", escaped(stage.name()));
    if idle > 0 {
        let _ = write!(rows, ": {} had nothing to do", count(idle as u64, "unit", "units"));
    }
    if recording.lost > 0 {
        let _ = write!(rows, "; the first {} are left out", count(recording.lost, "interval", "intervals"));
    }
    rows.push_str("</span>");
    for (index, intervals) in units.values().enumerate() {
        let shares = shares(timeline, intervals);
        let name = format!("{} {index}", unit_name(stage));
        let _ = write!(
            rows,
            "<span>{name}</span><svg viewBox=\"0 0 {WIDTH} 1\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{name}: {shares}\">{}</svg><span class=\"shares\">{shares}</span>",
            paths(timeline, intervals)
        );
    }
    rows
}

/// Returns what a unit of a stage is.
const fn unit_name(stage: &Stage) -> &'static str {
    match stage {
        Stage::Fetch => "request",
        Stage::Decode => "thread",
        Stage::Transform => "process",
        Stage::HandOver => "slot",
        _ => "unit",
    }
}

/// Returns the shares of a unit's time, in percent.
fn shares(timeline: &Timeline, intervals: &[&UnitInterval]) -> String {
    let whole = (timeline.end - timeline.begin).as_secs_f64();
    let share = |(state, name): (UnitState, &str)| {
        let of_state = intervals.iter().filter(|interval| interval.state == state);
        let time: f64 = of_state.map(|interval| (interval.end - interval.start).as_secs_f64()).sum();
        let percent = (100.0 * time / whole).round();
        (percent > 0.0).then(|| format!("{percent} % {name}"))
    };
    let shares: Vec<String> = DRAWN.into_iter().filter_map(share).collect();
    if shares.is_empty() { "less than 1 % busy".to_owned() } else { shares.join(", ") }
}

/// Draws the intervals of a unit: a path for each state.
fn paths(timeline: &Timeline, intervals: &[&UnitInterval]) -> String {
    let whole = (timeline.end - timeline.begin).as_secs_f64();
    let at = |time: Instant| time.saturating_duration_since(timeline.begin).as_secs_f64() / whole * WIDTH;
    let path = |(state, class)| {
        let of_state = intervals.iter().filter(|interval| interval.state == state);
        let path: String = of_state
            .map(|interval| {
                let start = at(interval.start);
                format!("M{start:.1} 0h{:.1}v1H{start:.1}z", at(interval.end) - start)
            })
            .collect();
        if path.is_empty() { path } else { format!("<path class=\"{class}\" d=\"{path}\"/>") }
    };
    DRAWN.into_iter().map(path).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_row_has_the_intervals_of_its_unit_and_their_shares() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let interval = |unit, state, from, to| UnitInterval { unit, state, start: at(from), end: at(to), batch: None };
        let intervals = vec![
            interval(7, UnitState::Busy, 0, 500),
            interval(8, UnitState::Input, 0, 1_000),
            interval(7, UnitState::Throttled, 500, 750),
            interval(7, UnitState::Input, 750, 1_000),
            interval(9, UnitState::Output, 0, 4),
        ];
        let timeline = Timeline { begin, end: at(1_000), stages: Vec::new() };
        let rows = rows(&timeline, &Stage::Decode, &Recording { intervals, lost: 3 });
        for part in [
            "decode: 1 unit had nothing to do; the first 3 intervals are left out",
            "aria-label=\"thread 0: 50 % busy, 25 % throttled\"",
            "<path class=\"busy\" d=\"M0.0 0h1000.0v1H0.0z\"/>",
            "<path class=\"throttled\" d=\"M1000.0 0h500.0v1H1000.0z\"/>",
            "aria-label=\"thread 1: less than 1 % busy\"",
        ] {
            assert!(rows.contains(part), "`{part}` is not in {rows}");
        }
        assert_eq!(rows.matches("<svg").count(), 2, "the idle unit has no row: {rows}");
        assert_eq!(super::rows(&timeline, &Stage::Decode, &Recording::default()), "");
    }
}
