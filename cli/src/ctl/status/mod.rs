//! `spdl-ctl status`: shows the state of a running cluster in lines of at most 100 characters.

mod progress;

use std::process::ExitCode;

use spdl_control::{
    coordinator::{JobStatus, RankStatus, RunStatus, SessionStatus, Status, WorkerStatus},
    help::HelpStats,
    messages::{FromCoordinator, ToCoordinator},
    peers::PeerStats,
};
use spdl_insight::{
    StoreStats,
    rates::{StageRate, WINDOWS_MS},
    tuning::{Tunable, TunedValue},
};
use spdl_types::{Position, Stage, StageStats};

use super::{
    CtlError, CtlResult,
    coordinator::Connection,
    output::outln,
    report,
    table::{Alignment, Table, wrapped},
    tally::transport_name,
};

pub(crate) use progress::{SampleWords, fill, first_steps, progress, source_text, sources, summary};

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    connection: Connection,
    /// Prints the whole status as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// Gets the cluster's status from the coordinator: its JSON text, and the text parsed.
pub(crate) async fn ask(connection: &Connection) -> Result<(String, Status), CtlError> {
    read(connection.ask(&ToCoordinator::Status).await?)
}

/// Reads the reply to a request for the status: its JSON text, and the text parsed.
pub(crate) fn read(reply: FromCoordinator) -> Result<(String, Status), CtlError> {
    let FromCoordinator::Status(text) = reply else { return Err(CtlError::Reply { request: "status" }) };
    let status = serde_json::from_str(&text).map_err(|_| CtlError::Reply { request: "status" })?;
    Ok((text, status))
}

/// Runs `status`; with `details`, also shows stages, stores and sessions that are over.
pub(crate) fn run(args: &StatusArgs, details: bool) -> CtlResult {
    let (text, status) = super::runtime()?.block_on(ask(&args.connection))?;
    if args.json {
        outln!("{text}")?;
    } else {
        for line in lines(&status, details) {
            outln!("{line}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The header of the table.
const HEADER: [(&str, Alignment); 5] = [
    ("", Alignment::Left),
    ("STATE", Alignment::Left),
    ("POSITION", Alignment::Right),
    ("SAMPLES/S", Alignment::Right),
    ("WAITING", Alignment::Right),
];

/// A row of the table.
struct StatusRow {
    cells: [String; 5],
}

impl StatusRow {
    fn new(name: String, state: &str) -> Self {
        let cells = [name, state.to_owned(), String::new(), String::new(), String::new()];
        Self { cells }
    }

    fn at(mut self, position: Position) -> Self {
        self.cells[2] = position.to_string();
        self
    }

    /// Sets the samples per second, `-` where unknown.
    fn rate(mut self, per_s: Option<f64>) -> Self {
        self.cells[3] = per_s.map_or_else(|| "-".to_owned(), |rate| report::grouped(rate.round() as u64));
        self
    }

    /// Sets the fraction of time spent waiting, `-` where unknown.
    fn waiting(mut self, part: Option<f64>) -> Self {
        self.cells[4] = part.map_or_else(|| "-".to_owned(), |part| format!("{:.0} %", 100.0 * part));
        self
    }

    /// Adds the row to the table, with `rest` as its last, unaligned cell.
    fn push(self, table: &mut Table<5>, rest: String) {
        table.push(self.cells, rest);
    }
}

/// Formats the status for people.
fn lines(status: &Status, details: bool) -> Vec<String> {
    let count = |number: usize, one: &str, many: &str| report::count(number as u64, one, many);
    let mut lines = vec![format!(
        "coordinator {}, up {}: {}, {}",
        status.version,
        report::duration_s(status.uptime_ms / 1_000),
        count(status.jobs.len(), "job", "jobs"),
        count(status.workers.len(), "worker", "workers"),
    )];
    let steps = first_steps(status);
    let is_empty = status.jobs.is_empty() && status.workers.is_empty() && status.job_problems.is_empty();
    if is_empty {
        append(&mut lines, steps);
        return lines;
    }
    // Rates are of samples unless all jobs have sequences.
    let words = SampleWords::of(status.jobs.iter().find(|job| job.sequence.is_none()).or(status.jobs.first()));
    let mut header = HEADER;
    header[3].0 = words.header();
    let mut table = Table::new(header, "");
    let mut notes = Vec::new();
    for problem in &status.job_problems {
        notes.push(format!("job file `{}`: {}", problem.origin, problem.problem));
    }
    for job in &status.jobs {
        job_rows(status, job, details, &mut table, &mut notes);
    }
    for worker in &status.workers {
        worker_rows(worker, details, !words.are_sequences(), &mut table);
        for rank in &worker.ranks {
            if let Some(stall) = &rank.stall {
                notes.push(format!("rank {} of session {}: {stall}", rank.rank, rank.session));
            }
        }
    }
    append(&mut lines, table.lines());
    append(&mut lines, notes.iter().flat_map(|note| wrapped(note)).collect());
    append(&mut lines, steps);
    lines
}

/// Appends a paragraph, if it has lines, behind an empty line.
fn append(lines: &mut Vec<String>, paragraph: Vec<String>) {
    if !paragraph.is_empty() {
        lines.push(String::new());
        lines.extend(paragraph);
    }
}

pub(crate) fn is_live(session: &SessionStatus) -> bool {
    session.ranks.iter().any(|rank| rank.is_alive)
}

/// Returns the state of a job in one word.
pub(crate) fn state(status: &Status, job: &JobStatus) -> &'static str {
    match job {
        JobStatus { failed: Some(_), .. } => "FAILED",
        _ if status.sessions.iter().any(|session| session.job == job.name && is_live(session)) => "running",
        _ if !job.runs.is_empty() && job.runs.iter().all(|run| run.is_finished) => "done",
        _ => "idle",
    }
}

/// Returns the state of a run in one word.
pub(crate) fn run_state(job: &JobStatus, run: &RunStatus) -> &'static str {
    match run {
        _ if job.failed.is_some() => "FAILED",
        run if run.holder.is_some() => "running",
        run if run.is_finished => "done",
        _ => "idle",
    }
}

fn job_rows(status: &Status, job: &JobStatus, details: bool, table: &mut Table<5>, notes: &mut Vec<String>) {
    let sessions: Vec<&SessionStatus> =
        status.sessions.iter().filter(|session| session.job == job.name && (details || is_live(session))).collect();
    let words = SampleWords::of(Some(job));
    let mut rest = format!("{} of {}", report::count(job.epochs, "epoch", "epochs"), words.count(job.samples));
    if job.bad_sample_count > 0 {
        rest.push_str(&format!(", {}", words.bad(job.bad_sample_count)));
    }
    StatusRow::new(format!("job {}", job.name), state(status, job)).at(job.acknowledged).push(table, rest);
    for said in [fill(job), sources(job)].into_iter().flatten() {
        notes.push(format!("job `{}`: {said}", job.name));
    }
    if let Some(failure) = &job.failed {
        notes.push(format!("job `{}` has failed: {failure}", job.name));
    }
    let shown = if details { job.bad_sample_list.len() } else { job.bad_sample_list.len().min(3) };
    for bad in &job.bad_sample_list[..shown] {
        let of_source = bad.source.as_ref().map_or_else(String::new, |source| format!(", source `{source}`"));
        notes.push(format!(
            "{} {} of `{}`{of_source} (`{}`, `{}`): {}",
            words.bad[0], bad.sample, job.name, bad.shard, bad.key, bad.cause
        ));
    }
    let more = job.bad_sample_count.saturating_sub(shown as u64);
    if more > 0 && shown > 0 {
        notes.push(format!(
            "and {} more {} of `{}`",
            report::grouped(more),
            words.bad[usize::from(more > 1)],
            job.name
        ));
    }
    for session in sessions.iter().filter(|session| is_live(session)) {
        notes.push(format!("session {}: {}", session.session, progress(session, words)));
        if let Some(verdict) = &session.verdict {
            notes.push(format!("session {}: {verdict}", session.session));
        }
    }
    // What a job came to is of interest while no rank trains with it.
    let is_over = !status.sessions.iter().any(|session| session.job == job.name && is_live(session));
    let ended = status.sessions.iter().filter(|session| session.job == job.name && is_over);
    for session in ended.filter(|session| details || job.session == Some(session.session)) {
        if let Some(summary) = summary(session, words) {
            notes.push(format!("session {}: {summary}", session.session));
        }
    }
    for session in sessions.iter().filter(|session| session.run == job.name) {
        session_rows(session, is_live(session), table);
    }
    for run in job.runs.iter().filter(|run| run.name != job.name) {
        let mut sessions = sessions.iter().filter(|session| session.run == run.name).peekable();
        if sessions.peek().is_none() {
            continue;
        }
        let epochs = report::count(run.epochs, "epoch", "epochs");
        StatusRow::new(format!("  run {}", run.name), run_state(job, run)).at(run.acknowledged).push(table, epochs);
        sessions.for_each(|session| session_rows(session, is_live(session), table));
    }
}

fn session_rows(session: &SessionStatus, is_live: bool, table: &mut Table<5>) {
    let state = match session.superseded_by {
        Some(_) => "superseded",
        None if is_live => "running",
        None => "over",
    };
    let most_waiting = session.ranks.iter().filter(|rank| rank.is_alive).filter_map(|rank| rank.waiting);
    let joined = session.ranks.len();
    let ranks = if joined == session.world as usize {
        report::count(session.world.into(), "rank", "ranks")
    } else {
        format!("{joined} of {}", report::count(session.world.into(), "rank", "ranks"))
    };
    StatusRow::new(format!("  session {}", session.session), state)
        .at(session.acknowledged)
        .rate(session.progress.samples_per_s)
        .waiting(most_waiting.reduce(f64::max))
        .push(table, format!("{ranks}, from {}", session.start));
    for rank in &session.ranks {
        let state = match rank {
            RankStatus { left: true, .. } => "left",
            RankStatus { is_alive: true, .. } => "alive",
            _ => "silent",
        };
        let home = rank.home.as_deref().map_or_else(
            || "no home".to_owned(),
            |home| format!("home {home} ({})", rank.transport.map_or("-", transport_name)),
        );
        let share = rank.job_samples_per_s.map(|rate| rate / f64::from(session.world.max(1)));
        StatusRow::new(format!("    rank {}", rank.rank), state)
            .at(rank.position)
            .rate(share.filter(|_| rank.is_alive))
            .waiting(rank.waiting.filter(|_| rank.is_alive))
            .push(table, home);
    }
}

/// Adds the rows of a worker. What it decodes are samples, or documents where samples are sequences of several.
fn worker_rows(worker: &WorkerStatus, details: bool, counts_samples: bool, table: &mut Table<5>) {
    let state = if worker.draining { "draining" } else { "ready" };
    let rate = |stage: &Stage| recent(worker).iter().find(|rate| rate.stage == *stage);
    let decode = rate(&Stage::Decode);
    let cores = decode
        .map_or_else(|| cores(worker.cores), |decode| format!("{:.1} of {} decode", decode.busy, cores(worker.cores)));
    let ranks = report::count(worker.ranks.len() as u64, "rank", "ranks");
    let mut row = StatusRow::new(format!("worker {}", worker.name), state);
    if counts_samples {
        row = row.rate(decode.map(|stage| stage.items_per_s));
    }
    row.push(table, format!("{ranks}, {cores}, node {}", worker.node));
    if !details {
        return;
    }
    let place =
        worker.socket.as_ref().map_or_else(|| worker.quic.clone(), |socket| format!("{}, {socket}", worker.quic));
    StatusRow::new("  address".to_owned(), "").push(table, place);
    for stage in &worker.stages {
        stage_rows(stage, rate(&stage.stage), table);
    }
    let StoreStats { requests, retries, drips, hedges, hedge_wins, wrong_bytes, cache_faults, .. } = worker.store;
    let mut rest = report::count(requests, "request", "requests");
    for (number, text) in [
        (retries, report::count(retries, "retry", "retries")),
        (drips, report::count(drips, "answer that dripped", "answers that dripped")),
        (hedges, format!("{} ({hedge_wins} won)", report::count(hedges, "hedge", "hedges"))),
        (wrong_bytes, report::count(wrong_bytes, "wrong answer", "wrong answers")),
        (cache_faults, report::count(cache_faults, "cache fault", "cache faults")),
    ] {
        if number > 0 {
            rest.push_str(&format!(", {text}"));
        }
    }
    StatusRow::new("  store".to_owned(), "").push(table, rest);
    let PeerStats { received_blocks, sent_blocks, failures, late, .. } = worker.peers.unwrap_or_default();
    let mut rest = format!("{} received, {sent_blocks} sent", report::count(received_blocks, "block", "blocks"));
    for (number, what) in [(failures, "failed"), (late, "late")] {
        if number > 0 {
            rest.push_str(&format!(", {} {what}", report::count(number, "request", "requests")));
        }
    }
    StatusRow::new("  peers".to_owned(), "").push(table, rest);
    let HelpStats { received_samples, made_samples, returned_samples } = worker.help.unwrap_or_default().stats;
    if received_samples + made_samples + returned_samples > 0 || !worker.helpers.is_empty() {
        let mut rest =
            format!("{} received, {made_samples} made", report::count(received_samples, "sample", "samples"));
        if returned_samples > 0 {
            rest.push_str(&format!(", {returned_samples} returned"));
        }
        if !worker.helpers.is_empty() {
            rest.push_str(&format!("; from {}", worker.helpers.join(", ")));
        }
        StatusRow::new("  help".to_owned(), "").push(table, rest);
    }
    let tuned: Vec<String> = worker.tuned.iter().map(tuned_value).collect();
    StatusRow::new("  tuned".to_owned(), "").push(table, tuned.join(", "));
}

/// Formats a value with its unit, briefly, because all values have to fit into a line.
fn tuned_value(TunedValue { value, current, is_pinned }: &TunedValue) -> String {
    let shown = match value {
        Tunable::Requests => report::count((*current).into(), "request", "requests"),
        Tunable::ReadAhead => report::count((*current).into(), "step ahead", "steps ahead"),
    };
    if *is_pinned { format!("{shown} pinned") } else { shown }
}

/// The window that is shown.
const SHOWN_WINDOW_MS: u64 = WINDOWS_MS[1];

/// Returns what the stages of a worker did in the last ten seconds.
pub(crate) fn recent(worker: &WorkerStatus) -> &[StageRate] {
    let shown = worker.windows.iter().find(|window| window.window_ms == SHOWN_WINDOW_MS);
    shown.map_or(&[], |window| &window.stages)
}

/// Adds the rows of a stage: its number of units and the shares of their time, and below that the rest.
fn stage_rows(stage: &StageStats, rate: Option<&StageRate>, table: &mut Table<5>) {
    let units = report::count(stage.units, "unit", "units");
    let shares = rate.map_or_else(String::new, shares);
    StatusRow::new(format!("  {}", stage.stage), &units).rate(rate.map(|rate| rate.items_per_s)).push(table, shares);
    let mut rest = format!("p99 {:.1} ms", stage.p99_ns as f64 / 1e6);
    if let Some(rate) = rate.filter(|rate| rate.bytes_per_s > 0.0) {
        rest.push_str(&format!(", {}/s", report::bytes(rate.bytes_per_s as u64)));
    }
    if stage.failures > 0 {
        rest.push_str(&format!(", {}", report::count(stage.failures, "failure", "failures")));
    }
    StatusRow::new(String::new(), "").push(table, rest);
}

/// Returns the shares of the time of a stage's units in percent, without those that are nothing.
pub(crate) fn shares(rate: &StageRate) -> String {
    let share = |(time, name): (f64, &str)| {
        let percent = (100.0 * time / rate.units().max(f64::MIN_POSITIVE)).round();
        (percent > 0.0).then(|| format!("{percent} % {name}"))
    };
    let times =
        [(rate.busy, "busy"), (rate.input_wait, "input"), (rate.output_wait, "output"), (rate.throttled, "throttled")];
    times.into_iter().filter_map(share).collect::<Vec<_>>().join(", ")
}

/// Formats a number of cores.
pub(crate) fn cores(number: f64) -> String {
    if number == 1.0 { "1 core".to_owned() } else { format!("{number} cores") }
}

#[cfg(test)]
pub(crate) mod tests;
