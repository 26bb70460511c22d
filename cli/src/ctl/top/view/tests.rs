//! Tests of the frames of `top`.

use ratatui::{buffer::Buffer, layout::Rect, text::Text, widgets::Widget};
use serde_json::{Value, json};

use super::*;
use crate::ctl::status::tests::{ended, rank, session, status, worker};

fn limited(number: u32, waiting: f64, limit: &str) -> Value {
    let mut rank = rank(number, waiting);
    rank["diagnosis"] = json!({ "limit": limit, "verdict": "", "terms": [] });
    rank
}

fn with_verdict(mut session: Value, verdict: &str) -> Value {
    session["verdict"] = verdict.into();
    session
}

fn view(sessions: &[Value], workers: &[Value]) -> TopView {
    let mut view = TopView::new(None, Glyphs::of_locale("C.UTF-8"));
    view.take(Report { status: Ok(status(sessions, workers)), at: Instant::now() });
    view
}

fn shown(view: &mut TopView, width: u16, height: u16) -> Vec<String> {
    shown_at(view, width, height, Instant::now())
}

fn shown_at(view: &mut TopView, width: u16, height: u16, now: Instant) -> Vec<String> {
    let frame = view.frame(Size { width, height }, now);
    assert_eq!(frame.len(), usize::from(height), "{frame:#?}");
    let area = Rect { x: 0, y: 0, width, height };
    let mut screen = Buffer::empty(area);
    Text::from(frame).render(area, &mut screen);
    let rows = screen.content.chunks(width.into());
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()).collect()
}

fn line<'a>(lines: &'a [String], start: &str) -> &'a str {
    let found = lines.iter().find(|line| line.trim_start().starts_with(start));
    found.unwrap_or_else(|| panic!("no line begins with `{start}`: {lines:#?}"))
}

#[test]
fn a_frame_shows_ranks_with_their_waits_and_marks_the_stage_that_limits() {
    let verdict = "rank 1 waits 50 % of its time: worker `node-0` is short of CPU";
    let session = with_verdict(session(2, &[limited(0, 0.004, "cpu"), limited(1, 0.5, "cpu")]), verdict);
    let lines = shown(&mut view(&[session], &[worker("node-0")]), 80, 24);
    assert_eq!(lines.len(), 24);
    assert_eq!(lines[0], "coordinator 0.1.0, up 2 h 1 min: 1 job, 1 worker");
    let about = "session 2 of job `train`: running, 2 of 2 ranks, at 2:4096, 4 000 samples/s, 1";
    let progress = "2 % done, 2 566 400 of 115 303 680 samples; epoch 3 of 90 at 0 %; 7 h 49 min";
    let left = "left, 5 min 19 s of this epoch";
    assert_eq!(lines[1..6], [about, "bad sample", progress, left, verdict]);
    assert!(line(&lines, "rank 1: stage `fetch` of worker `node-0` has waited 8481 ms").ends_with("shard"));
    assert_eq!(line(&lines, "RANK"), "  RANK  STATE    SAMPLES/S  LIMIT            HOME              WAITING");
    assert_eq!(line(&lines, "1  alive"), "     1  alive        2 000  cpu              node-0 (local)       50 % ▅");
    assert_eq!(line(&lines, "worker"), "worker node-0: ready, 1 rank, 8 cores, node rack-7");
    let decode = line(&lines, "decode");
    assert!(decode.starts_with("  decode    ████████████████▒▒·· ◀ limit  4 012/s"), "{decode}");
    let wide = shown(&mut view(&[], &[worker("node-0")]), 200, 20);
    assert!(line(&wide, "decode").ends_with("78 % busy, 13 % input, 9 % throttled"), "{wide:#?}");
}

#[test]
fn a_session_that_has_ended_is_summed_up() {
    let lines = shown(&mut view(&[ended(2, true)], &[]), 200, 20);
    let summary = "the run is finished: 2 566 400 samples in 10 min 45 s, 3 979 a second; its ranks waited 14 % of that time; \
                   `spdl-ctl audit --run train` checks its receipt";
    assert_eq!(lines[2], summary);
}

#[test]
fn a_frame_fits_every_terminal() {
    let ranks: Vec<Value> = (0..40).map(|number| limited(number, 0.2, "store_latency")).collect();
    let workers: Vec<Value> = (0..9).map(|number| worker(&format!("a-node-with-a-long-name-{number}"))).collect();
    let mut view = view(&[with_verdict(session(2, &ranks), &"word ".repeat(90))], &workers);
    view.take(Report { status: Err("no answer ".repeat(9)), at: Instant::now() });
    for (width, height) in [(80, 24), (200, 50), (40, 12), (7, 3), (1, 1)] {
        let (help, all_ranks) = (KeyCode::Char('?'), KeyCode::Char('a'));
        for key in [help, KeyCode::Esc, all_ranks, KeyCode::PageDown, KeyCode::PageDown, KeyCode::Up] {
            shown(&mut view, width, height);
            view.press(key);
        }
    }
}

#[test]
fn of_many_ranks_those_that_wait_most_are_shown_and_all_of_them_on_request() {
    let ranks: Vec<Value> = (0..100).map(|number| limited(number, f64::from(number) / 100.0, "cpu")).collect();
    let mut view = view(&[session(2, &ranks)], &[worker("node-0")]);
    let few = shown(&mut view, 80, 24);
    assert!(line(&few, "99  alive").contains("99 %") && line(&few, "decode").contains('█'), "{few:#?}");
    assert!(
        line(&few, "and ").ends_with("ranks that wait less")
            && !few.iter().any(|line| line.starts_with("     0  alive"))
    );
    view.press(KeyCode::Char('a'));
    assert!(line(&shown(&mut view, 80, 24), "0  alive").contains(" 0 %"));
    (0..20).for_each(|_| {
        shown(&mut view, 80, 24);
        view.press(KeyCode::PageDown);
    });
    let end = shown(&mut view, 80, 24);
    assert!(line(&end, "99  alive").contains("99 %") && line(&end, "decode").contains('█'), "{end:#?}");
    view.press(KeyCode::Down);
    assert_eq!(shown(&mut view, 80, 24), end, "there is nothing further down");
}

#[test]
fn a_coordinator_that_does_not_answer_is_said_and_the_view_goes_on() {
    let mut view = TopView::new(None, Glyphs::of_locale(""));
    assert_eq!(shown(&mut view, 80, 5)[0], "asking the coordinator");
    let refused = || Report { status: Err("connection refused".to_owned()), at: Instant::now() };
    view.take(refused());
    assert_eq!(shown(&mut view, 80, 5)[0], "the coordinator does not answer: connection refused");
    let good = || Report { status: Ok(status(&[], &[worker("node-0")])), at: Instant::now() };
    view.take(good());
    view.take(refused());
    let later = Instant::now() + Duration::from_secs(70);
    let lines = shown_at(&mut view, 80, 9, later);
    assert_eq!(lines[1], "the coordinator does not answer for 1 min 10 s; what follows is from then:");
    assert!(line(&lines, "worker node-0").contains("ready"));
    view.take(good());
    assert!(!shown(&mut view, 80, 9).iter().any(|line| line.contains("does not answer")));
}

#[test]
fn a_session_that_was_chosen_stays_shown() {
    let sessions = |numbers: &[u64]| -> Vec<Value> {
        numbers.iter().map(|number| session(*number, &[rank(0, 0.0), rank(1, 0.0)])).collect()
    };
    let mut view = view(&sessions(&[2, 3, 5]), &[]);
    let title = |view: &mut TopView| shown(view, 80, 24)[1][..9].to_owned();
    assert_eq!(title(&mut view), "session 5", "the newest");
    view.press(KeyCode::Tab);
    assert_eq!(title(&mut view), "session 2");
    view.take(Report { status: Ok(status(&sessions(&[2, 3, 5, 6]), &[])), at: Instant::now() });
    assert_eq!(title(&mut view), "session 2");
    view.press(KeyCode::Left);
    assert_eq!(title(&mut view), "session 6");
    view.take(Report { status: Ok(status(&sessions(&[2]), &[])), at: Instant::now() });
    assert_eq!(title(&mut view), "session 2", "the other one is gone");
    assert!(view.has_session(2) && !view.has_session(9));
}

#[test]
fn waits_become_points_with_each_heartbeat() {
    let mut view = TopView::new(None, Glyphs::of_locale("C.UTF-8"));
    for (uptime_ms, waited_ms) in
        [(10_000, 0), (10_500, 0), (12_000, 1_000), (13_000, 2_000), (13_000, 2_000), (2_000, 0)]
    {
        let mut rank = rank(0, 0.0);
        rank["waited_ms"] = waited_ms.into();
        let mut status = status(&[session(2, &[rank])], &[]);
        status.uptime_ms = uptime_ms;
        view.take(Report { status: Ok(status), at: Instant::now() });
    }
    let parts: Vec<f64> = view.waits.of(2, 0).collect();
    assert_eq!(parts, [0.0, 0.0, 1.0 / 1.5, 1.0, 0.0], "none for a heartbeat that is known, and a restart begins anew");
}

#[test]
fn names_of_others_do_not_reach_the_terminal_as_commands() {
    let mut session = with_verdict(session(2, &[rank(0, 0.5)]), "shard `a\u{1b}]0;owned\u{7}.tar` is slow");
    session["job"] = "train\u{1b}[2J".into();
    let lines = shown(&mut view(&[session], &[worker("node\u{1b}[31m")]), 100, 24).join("\n");
    assert!(lines.contains("`a?]0;owned?.tar`") && lines.contains("train?[2J") && !lines.contains('\u{1b}'), "{lines}");
}
