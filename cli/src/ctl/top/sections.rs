//! The parts of a frame: the cluster, a session and its ranks, and the workers with their stages.

use ratatui::{style::Style, text::Line};
use spdl_control::coordinator::{RankStatus, SessionStatus, Status, WorkerStatus};
use spdl_insight::{Limit, rates::StageRate};
use spdl_types::Stage;

use super::{
    style::{self, Glyphs, span},
    waits::WaitHistory,
};
use crate::ctl::{
    report::{bytes, count, duration_s, rounded},
    status::{SampleWords, cores, fill, is_live, progress, recent, shares, sources, summary},
    tally::transport_name,
};

/// Width of the longest bar and of the longest sparkline, in characters.
const MAX_BAR: usize = 40;
const MAX_SPARK: usize = 60;
/// Width of a name in a table, in characters.
const NAME_WIDTH: usize = 16;

/// Which ranks are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShownRanks {
    All,
    /// The ranks that wait most, if not all have room.
    Most,
}

/// Describes the cluster in a line.
pub(super) fn cluster(status: &Status) -> String {
    format!(
        "coordinator {}, up {}: {}, {}",
        status.version,
        duration_s(status.uptime_ms / 1_000),
        count(status.jobs.len() as u64, "job", "jobs"),
        count(status.workers.len() as u64, "worker", "workers"),
    )
}

/// Lists the problems of the cluster.
pub(super) fn problems(status: &Status, width: usize) -> Vec<Line<'static>> {
    let failed = status.jobs.iter().filter_map(|job| Some((&job.name, job.failed.as_ref()?)));
    let failed = failed.map(|(name, failure)| format!("job `{name}` has failed: {failure}"));
    let files = status.job_problems.iter().map(|problem| format!("job file `{}`: {}", problem.origin, problem.problem));
    failed.chain(files).flat_map(|text| paragraph(style::ALARM, &text, width)).collect()
}

/// Describes a session, and what limits it.
pub(super) fn session(status: &Status, session: &SessionStatus, width: usize) -> Vec<Line<'static>> {
    let SessionStatus { session: id, job, run, world, acknowledged, .. } = session;
    let alive = session.ranks.iter().filter(|rank| rank.is_alive).count();
    let state = match session.superseded_by {
        Some(by) => format!("superseded by session {by}"),
        None if alive > 0 => "running".to_owned(),
        None => "over".to_owned(),
    };
    let run = if run == job { String::new() } else { format!(", run `{run}`") };
    let rate = session.progress.samples_per_s;
    let known = status.jobs.iter().find(|known| known.name == *job);
    let words = words(status, session);
    let rate = rate.map_or_else(String::new, |rate| format!(", {}", words.rate(rate)));
    let bad = known.map_or(0, |job| job.bad_sample_count);
    let bad = if bad > 0 { format!(", {}", words.bad(bad)) } else { String::new() };
    let ranks = count((*world).into(), "rank", "ranks");
    let text = format!("session {id} of job `{job}`{run}: {state}, {alive} of {ranks}, at {acknowledged}{rate}{bad}");
    let mut lines = paragraph(style::STRONG, &text, width);
    let progress = if is_live(session) { Some(progress(session, words)) } else { summary(session, words) };
    let held = [known.and_then(fill), known.and_then(sources)];
    for text in held.iter().flatten().chain(&progress).chain(&session.verdict) {
        lines.extend(paragraph(style::PLAIN, text, width));
    }
    for stall in stalls(status, session) {
        lines.extend(paragraph(style::ALARM, &stall, width));
    }
    lines
}

/// Returns what the samples of a session are called.
fn words(status: &Status, session: &SessionStatus) -> SampleWords {
    SampleWords::of(status.jobs.iter().find(|job| job.name == session.job))
}

/// Describes what ranks are waiting for that stand still while their trainers wait.
fn stalls<'a>(status: &'a Status, session: &'a SessionStatus) -> impl Iterator<Item = String> + 'a {
    let waits = |number| {
        session.ranks.iter().any(|rank| rank.rank == number && rank.is_alive && waiting(rank) >= ALARMING_WAIT)
    };
    let served = status.workers.iter().flat_map(|worker| &worker.ranks);
    let of_session = served.filter(move |served| served.session == session.session && waits(served.rank));
    let long = of_session.filter_map(|served| Some((served.rank, served.stall.as_ref()?)));
    let long = long.filter(|(_, stall)| stall.waited_ms >= STANDSTILL_MS && stall.stage != Stage::HandOver);
    long.map(|(rank, stall)| format!("rank {rank}: {stall}"))
}

/// A wait of this length is a standstill, in milliseconds.
const STANDSTILL_MS: u64 = 3_000;

/// Returns the table of a session's ranks, in at most `most` lines, but at least those of a few ranks. If not all have
/// room, those that wait most are shown.
pub(super) fn ranks(
    status: &Status,
    session: &SessionStatus,
    waits: &WaitHistory,
    glyphs: &Glyphs,
    width: usize,
    most: usize,
) -> Vec<Line<'static>> {
    let header = format!(
        "{:>6}  {:<6}  {:>10}  {:<15}  {:<NAME_WIDTH$}  {:>7}",
        "RANK",
        "STATE",
        words(status, session).header(),
        "LIMIT",
        "HOME",
        "WAITING"
    );
    let spark_width = width.saturating_sub(header.chars().count() + 1).min(MAX_SPARK);
    let mut lines = vec![span(style::FAINT, header).into()];
    let mut ranks: Vec<&RankStatus> = session.ranks.iter().collect();
    let all = ranks.len();
    if all + 1 > most {
        ranks.sort_by(|a, b| b.waiting.unwrap_or(0.0).total_cmp(&a.waiting.unwrap_or(0.0)));
        ranks.truncate(most.saturating_sub(2).max(MIN_RANKS));
    }
    let left_out = all - ranks.len();
    lines.extend(ranks.into_iter().map(|rank| rank_row(session, rank, waits, glyphs, spark_width)));
    if left_out > 0 {
        let text = format!("        and {} that wait less", count(left_out as u64, "rank", "ranks"));
        lines.push(span(style::FAINT, text).into());
    }
    lines
}

/// The fewest ranks that are shown.
const MIN_RANKS: usize = 3;

fn rank_row(
    session: &SessionStatus,
    rank: &RankStatus,
    waits: &WaitHistory,
    glyphs: &Glyphs,
    spark: usize,
) -> Line<'static> {
    let state = match rank {
        RankStatus { left: true, .. } => "left",
        RankStatus { is_alive: true, .. } => "alive",
        _ => "silent",
    };
    let share = rank.job_samples_per_s.filter(|_| rank.is_alive).map(|rate| rate / f64::from(session.world.max(1)));
    let limit = rank.diagnosis.as_ref().and_then(|diagnosis| diagnosis.limit);
    let home = match (&rank.home, rank.transport) {
        (Some(home), Some(transport)) => format!("{home} ({})", transport_name(transport)),
        (Some(home), None) => home.clone(),
        (None, _) => "no home".to_owned(),
    };
    let waiting = rank.waiting.filter(|_| rank.is_alive);
    let cells = format!(
        "{:>6}  {state:<6}  {:>10}  {:<15}  {}  ",
        rank.rank,
        share.map_or_else(|| "-".to_owned(), rounded),
        limit.map_or("-", Limit::name),
        column(&home, NAME_WIDTH),
    );
    let waiting_style = match waiting {
        Some(part) if part >= ALARMING_WAIT => style::ALARM,
        _ => style::PLAIN,
    };
    let percent = waiting.map_or_else(|| "-".to_owned(), |part| format!("{:.0} %", 100.0 * part));
    Line::from_iter([
        span(if rank.is_alive { style::PLAIN } else { style::FAINT }, cells),
        span(waiting_style, format!("{percent:>7} ")),
        span(style::THROTTLED, glyphs.sparkline(waits.of(session.session, rank.rank), spark)),
    ])
}

/// From this fraction of its time on, a trainer's wait is shown as an alarm.
const ALARMING_WAIT: f64 = 0.1;

/// Describes the workers, those that serve the session first, with their stages; the stage that limits one of the
/// session's ranks is marked.
pub(super) fn workers(
    status: &Status,
    session: Option<&SessionStatus>,
    glyphs: &Glyphs,
    width: usize,
) -> Vec<Line<'static>> {
    let serves = |worker: &WorkerStatus| {
        let ranks = session.filter(|session| is_live(session)).into_iter().flat_map(|session| &session.ranks);
        ranks
            .filter(|rank| rank.home_worker.as_ref() == Some(&worker.worker))
            .max_by(|a, b| waiting(a).total_cmp(&waiting(b)))
    };
    let mut workers: Vec<_> = status.workers.iter().map(|worker| (serves(worker), worker)).collect();
    workers.sort_by_key(|(rank, worker)| (rank.is_none(), &worker.name));
    let mut lines = Vec::new();
    for (rank, worker) in workers {
        let limit = rank.and_then(|rank| rank.diagnosis.as_ref()?.limit).and_then(stage_of);
        lines.push(worker_line(worker));
        let used = recent(worker).iter().filter(|rate| rate.units() > 0.0);
        lines.extend(used.map(|rate| stage_row(rate, limit.as_ref() == Some(&rate.stage), glyphs, width)));
    }
    lines
}

fn waiting(rank: &RankStatus) -> f64 {
    rank.waiting.unwrap_or(0.0)
}

fn worker_line(worker: &WorkerStatus) -> Line<'static> {
    let state = if worker.draining { "draining" } else { "ready" };
    let ranks = count(worker.ranks.len() as u64, "rank", "ranks");
    let text = format!(": {state}, {ranks}, {}, node {}", cores(worker.cores), worker.node);
    Line::from_iter([span(style::STRONG, format!("worker {}", worker.name)), span(style::PLAIN, text)])
}

fn stage_row(rate: &StageRate, is_limit: bool, glyphs: &Glyphs, width: usize) -> Line<'static> {
    let name = format!("  {} ", column(rate.stage.name(), 9));
    let per_s = match rate.bytes_per_s {
        0.0 => format!("{}/s", rounded(rate.items_per_s)),
        bytes_per_s => format!("{}/s  {}/s", rounded(rate.items_per_s), bytes(bytes_per_s as u64)),
    };
    let text = format!(" {per_s:<22}  {}", shares(rate));
    // The mark stays in view on a narrow terminal.
    let mark = format!(" {:<8}", if is_limit { glyphs.limit } else { "" });
    let bar_width = (width / 4).min(MAX_BAR);
    let name = span(if is_limit { style::ALARM } else { style::PLAIN }, &name);
    let bar = glyphs.bar(rate, bar_width);
    std::iter::once(name).chain(bar).chain([span(style::ALARM, &mark), span(style::PLAIN, text)]).collect()
}

/// Returns the stage in which a limit shows.
fn stage_of(limit: Limit) -> Option<Stage> {
    match limit {
        Limit::Cpu | Limit::BadSamples | Limit::UnevenSamples => Some(Stage::Decode),
        Limit::Function => Some(Stage::Transform),
        Limit::StoreLatency | Limit::StoreBandwidth | Limit::StoreErrors | Limit::SlowObject | Limit::ColdCache => {
            Some(Stage::Fetch)
        }
        Limit::Network => Some(Stage::Send),
        Limit::HandOver => Some(Stage::HandOver),
        // None of the worker's.
        Limit::Trainer | Limit::NoWorker | Limit::Silent | Limit::Superseded => None,
    }
}

/// Cuts a text to a column of `width` characters, or fills it up.
fn column(text: &str, width: usize) -> String {
    let cut: String = text.chars().take(width).collect();
    format!("{cut:<width$}")
}

pub(super) fn paragraph(style: Style, text: &str, width: usize) -> Vec<Line<'static>> {
    wrapped(text, width).into_iter().map(|line| span(style, line).into()).collect()
}

/// Wraps a text into lines of at most `width` characters; a longer word is cut.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        while !word.is_empty() {
            let line = lines.last_mut().expect("there is a line");
            let used = line.chars().count();
            let gap = usize::from(used > 0);
            if used + gap + word.len() <= width {
                line.extend(std::iter::repeat_n(' ', gap).chain(word.drain(..)));
            } else if used == 0 {
                line.extend(word.drain(..width));
            } else {
                lines.push(String::new());
            }
        }
    }
    lines
}
