//! The audit of a run that a coordinator knows: gets the run's receipts, positions and bad samples from the
//! coordinator, recomputes from the plan what each rank must have received, and compares the two rank by rank.

use std::{collections::HashSet, process::ExitCode};

use serde::Serialize;
use spdl_control::{
    coordinator::{LEDGER_SAMPLES, SessionStatus},
    messages::{FromCoordinator, ToCoordinator},
};
use spdl_job::{BadSamples, Job};
use spdl_order::{BatchParams, Receipt};
use spdl_store::StoreError;
use spdl_types::{Position, SampleId};

use super::{PlannedDelivery, missing};
use crate::ctl::{
    CtlError, CtlResult,
    coordinator::Connection,
    dealt::StepDealer,
    job,
    job_file::{self, OpenJob},
    named_run,
    output::outln,
    report, status,
};

/// What a coordinator knows about a run.
struct KnownBadSamples {
    job: Job,
    run: String,
    epochs: u64,
    /// The sessions since the run's beginning or its last reset; the coordinator forgets the oldest.
    sessions: Vec<SessionStatus>,
    bad: HashSet<SampleId>,
    /// Whether workers may not have reported all bad samples of a run that has just ended.
    is_recent: bool,
    /// What ranks may not have reported.
    missing: Vec<String>,
}

/// The result of the audit.
#[derive(Debug, Serialize)]
struct Verdict {
    job: String,
    run: String,
    epochs: u64,
    bad_samples: u64,
    /// The start of the audited stretch, and the position that all ranks of the newest session have reached.
    from: Position,
    to: Position,
    sessions: Vec<SessionVerdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<String>,
    equal: bool,
    /// What is not known yet, or never will be, because no rank has reported it: a sentence each.
    missing: Vec<String>,
}

/// The result for one session.
#[derive(Debug, Serialize)]
struct SessionVerdict {
    session: u64,
    world: u32,
    global_batch: u32,
    start: Position,
    acknowledged: Position,
    ranks: Vec<RankVerdict>,
}

/// The result for one rank.
#[derive(Debug, Serialize)]
struct RankVerdict {
    rank: u32,
    position: Position,
    samples: u64,
    substituted: u64,
    redacted: u64,
    receipt: Option<Receipt>,
    plan_receipt: Receipt,
    equal: bool,
}

/// Audits a run; `name` is a run, or JOB/RUN, as in [`named_run::find`].
pub(super) async fn audit(name: &str, connection: &Connection, json: bool) -> CtlResult {
    let mut known = ask(name, connection).await?;
    let mut open = job_file::open_frozen(known.job.clone()).await?;
    let mut verdict = compare(&open, &known).await?;
    // A worker reports a bad sample with its next heartbeat, so a rank's receipt may be ahead of the ledger. Many bad samples take several.
    let mut is_awaited = known.is_recent || !verdict.equal;
    while is_awaited {
        missing::wait_for_workers(connection).await?;
        let reported = known.bad.len();
        known = ask(name, connection).await?;
        if !open.job.is_same_as(&known.job) {
            open = job_file::open_frozen(known.job.clone()).await?;
        }
        verdict = compare(&open, &known).await?;
        is_awaited = !verdict.equal && known.bad.len() > reported;
    }
    if json {
        report::json(&verdict)?;
    } else {
        print(&verdict)?;
    }
    Ok(if verdict.equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Gets the run's state from the coordinator: receipts first and bad samples last, so that the bad samples which the
/// receipts cover have been reported.
async fn ask(name: &str, connection: &Connection) -> Result<KnownBadSamples, CtlError> {
    let (_, status) = status::ask(connection).await?;
    let (job, run) = named_run::find(&status, name)?;
    let (name, run, epochs) = (job.name.clone(), run.name.clone(), run.epochs);
    let mut sessions: Vec<SessionStatus> =
        status.sessions.into_iter().filter(|session| session.job == name && session.run == run).collect();
    sessions.sort_by_key(|session| session.session);
    if let Some(reset) = sessions.iter().rposition(|session| session.is_reset) {
        sessions.drain(..=reset);
    }
    let is_possible = |session: &SessionStatus| {
        session.global_batch > 0 && session.ranks.iter().all(|rank| rank.rank < session.world)
    };
    if !sessions.iter().all(is_possible) {
        return Err(CtlError::Reply { request: "status" });
    }
    let bad = bad_samples(&name, connection).await?;
    let job = job::describe(connection, &name).await?;
    let is_recent = missing::is_recent(&sessions, &status.workers);
    let missing = missing::missing(&sessions);
    Ok(KnownBadSamples { job, run, epochs, sessions, bad, is_recent, missing })
}

/// Returns the ids of all bad samples of a job; gets them page by page.
async fn bad_samples(job: &str, connection: &Connection) -> Result<HashSet<SampleId>, CtlError> {
    let mut all = HashSet::new();
    let mut after = None;
    loop {
        let reply = connection.ask(&ToCoordinator::BadSamples { job: job.to_owned(), after }).await?;
        let FromCoordinator::BadSamples { samples, is_last } = reply else {
            return Err(CtlError::Reply { request: "bad samples" });
        };
        // Stop when a page's ids do not ascend: asking for the next page after them would never end.
        let next = samples.last().copied().filter(|last| after.is_none_or(|after| *last > after));
        all.extend(samples);
        match next {
            Some(last) if !is_last => after = Some(last),
            _ => return Ok(all),
        }
    }
}

async fn compare(open: &OpenJob, known: &KnownBadSamples) -> Result<Verdict, StoreError> {
    let mut sessions: Vec<SessionVerdict> = Vec::with_capacity(known.sessions.len());
    for session in &known.sessions {
        sessions.push(compare_session(open, known, session).await?);
    }
    let (from, to, gap) =
        reach(&known.sessions, |session, at| open.plan.step(at, &batches(open, session)).map(|step| step.from));
    let mut difference = sessions.iter().find_map(first_difference).or(gap);
    if let Some(text) = &mut difference
        && known.bad.len() >= LEDGER_SAMPLES
        && open.job.bad_samples == BadSamples::Substitute
    {
        text.push_str("; the ledger of bad samples is full, so substitutes cannot all be recomputed");
    }
    Ok(Verdict {
        job: open.job.name.clone(),
        run: known.run.clone(),
        epochs: known.epochs,
        bad_samples: known.bad.len() as u64,
        from,
        to,
        sessions,
        equal: difference.is_none(),
        difference,
        missing: known.missing.clone(),
    })
}

fn batches(open: &OpenJob, session: &SessionStatus) -> BatchParams {
    BatchParams { epochs: session.epochs, ..open.batches(Some(session.global_batch)) }
}

/// Recomputes, for each rank of a session, the receipt of the plan up to the rank's position, and compares it with the
/// rank's.
async fn compare_session(
    open: &OpenJob,
    known: &KnownBadSamples,
    session: &SessionStatus,
) -> Result<SessionVerdict, StoreError> {
    let batches = batches(open, session);
    let mut planned: Vec<PlannedDelivery> = session.ranks.iter().map(|_| PlannedDelivery::default()).collect();
    let furthest = session.ranks.iter().map(|rank| rank.position).max().unwrap_or(session.start);
    let (mut dealer, mut items) = (StepDealer::new(open, session.world), Vec::new());
    for step in open.plan.steps(session.start, &batches).take_while(|step| step.next <= furthest) {
        let dealt = dealer.deal(&step).await?;
        let reached = session.ranks.iter().zip(&mut planned).filter(|(rank, _)| step.next <= rank.position);
        for (rank, planned) in reached {
            dealt.rank_items(rank.rank, &mut items);
            for item in &items {
                planned.add(open, item, &known.bad);
            }
        }
    }
    let ranks = session.ranks.iter().zip(planned).map(|(rank, planned)| {
        let receipt = rank.receipt.as_ref().and_then(|receipt| receipt.parse().ok());
        RankVerdict {
            rank: rank.rank,
            position: rank.position,
            samples: planned.samples,
            substituted: planned.substituted,
            redacted: planned.redacted,
            receipt,
            plan_receipt: planned.receipt,
            equal: receipt == Some(planned.receipt),
        }
    });
    let ranks = ranks.collect();
    Ok(SessionVerdict {
        session: session.session,
        world: session.world,
        global_batch: session.global_batch,
        start: session.start,
        acknowledged: session.acknowledged,
        ranks,
    })
}

/// Describes the first rank of a session whose receipt is not the plan's.
fn first_difference(session: &SessionVerdict) -> Option<String> {
    let rank = session.ranks.iter().find(|rank| !rank.equal)?;
    let (number, start, position) = (session.session, session.start, rank.position);
    let who = format!("rank {} of session {number}, from {start} to {position}", rank.rank);
    Some(match rank.receipt {
        Some(receipt) => format!("{who}: its receipt is {receipt}, the plan's is {}", rank.plan_receipt),
        None => format!("{who}: its receipt is not known"),
    })
}

/// Returns the positions that the sessions together span, and a description of the first gap between two sessions. It
/// is no gap when a session begins before the end of the session before it: a trainer has gone back to a checkpoint,
/// and the samples from there on are delivered again. `next` returns where a session's next step at or after a position
/// begins; samples that fill no batch are no gap.
fn reach(
    sessions: &[SessionStatus],
    next: impl Fn(&SessionStatus, Position) -> Option<Position>,
) -> (Position, Position, Option<String>) {
    let Some(first) = sessions.first() else { return (Position::START, Position::START, None) };
    let (mut from, mut to) = (first.start, first.acknowledged);
    let mut gap: Option<(Position, String)> = None;
    for pair in sessions.windows(2) {
        let [before, session] = pair else { continue };
        from = from.min(session.start);
        if gap.as_ref().is_some_and(|(end, _)| session.start <= *end) {
            gap = None;
        } else if session.start > to && next(session, to).is_some_and(|next| next < session.start) {
            let text = format!(
                "session {} begins at {}, and all ranks of session {} are only known to have got to {to}: ranks that are killed do \
                 not report their last batches",
                session.session, session.start, before.session
            );
            gap.get_or_insert((to, text));
        }
        to = session.acknowledged;
    }
    (from, to, gap.map(|(_, text)| text))
}

fn print(verdict: &Verdict) -> Result<(), CtlError> {
    let Verdict { job, run, from, to, .. } = verdict;
    let of_run = if run == job { String::new() } else { format!("run `{run}` of ") };
    let epochs = report::count(verdict.epochs, "epoch", "epochs");
    let bad = report::count(verdict.bad_samples, "bad sample", "bad samples");
    outln!("{of_run}job `{job}`: {epochs}, {bad}")?;
    for session in &verdict.sessions {
        let count = |value_of: fn(&RankVerdict) -> u64| report::grouped(session.ranks.iter().map(value_of).sum());
        let joined = session.ranks.len() as u64;
        let ranks = match u64::from(session.world) {
            world if world == joined => report::count(world, "rank", "ranks"),
            world => format!("{joined} of {}", report::count(world, "rank", "ranks")),
        };
        outln!(
            "session {}  {ranks}, {} to {}: {} samples, {} substituted{}",
            session.session,
            session.start,
            session.acknowledged,
            count(|rank| rank.samples),
            count(|rank| rank.substituted),
            super::redacted_text(session.ranks.iter().map(|rank| rank.redacted).sum())
        )?;
    }
    match &verdict.difference {
        Some(difference) => outln!("DIFFERENT: {difference}")?,
        None if verdict.sessions.is_empty() => outln!("equal: nothing was delivered since the run was reset")?,
        None => outln!("equal: every sample from {from} to {to} once")?,
    }
    verdict.missing.iter().try_for_each(|text| outln!("not reported: {text}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Calls [`reach`] with sessions given by start and acknowledged position, in epochs whose samples from offset 90
    /// on fill no batch.
    fn reach_of(sessions: &[(&str, &str)]) -> (String, String, Option<String>) {
        let position = |text: &str| text.parse::<Position>().unwrap();
        let session = |(index, (start, acknowledged)): (usize, &(&str, &str))| -> SessionStatus {
            let session = json!({
                "session": index + 1, "job": "j", "run": "j", "world": 1, "global_batch": 10, "epochs": 3, "start": position(start),
                "reason": "Given", "launch": null, "acknowledged": position(acknowledged), "superseded_by": null,
                "is_reset": false, "ranks": [],
            });
            serde_json::from_value(session).unwrap()
        };
        let sessions: Vec<SessionStatus> = sessions.iter().enumerate().map(session).collect();
        let next = |_: &SessionStatus, at: Position| {
            Some(if at.offset < 90 { at } else { Position::new(at.epoch + 1, 0) }).filter(|next| next.epoch < 3)
        };
        let (from, to, gap) = reach(&sessions, next);
        (from.to_string(), to.to_string(), gap)
    }

    #[test]
    fn sessions_lead_from_the_first_start_to_the_last_position_and_a_gap_between_two_is_named() {
        let whole = |from: &str, to: &str| (from.to_owned(), to.to_owned(), None);
        assert_eq!(reach_of(&[("0:0", "1:20")]), whole("0:0", "1:20"));
        assert_eq!(reach_of(&[("0:0", "1:20"), ("1:20", "2:0")]), whole("0:0", "2:0"));
        assert_eq!(reach_of(&[("0:0", "1:20"), ("0:50", "2:0")]), whole("0:0", "2:0"), "back to a checkpoint");
        assert_eq!(reach_of(&[("0:0", "0:90"), ("1:0", "2:0")]), whole("0:0", "2:0"), "nothing can come between");
        assert_eq!(reach_of(&[("1:0", "2:0"), ("0:0", "0:10")]), whole("0:0", "0:10"), "it began again");
        let gap = Some(
            "session 2 begins at 1:0, and all ranks of session 1 are only known to have got to 0:20: ranks that are killed do not \
             report their last batches"
                .to_owned(),
        );
        assert_eq!(reach_of(&[("0:0", "0:20"), ("1:0", "2:0")]).2, gap);
        assert_eq!(reach_of(&[("0:0", "0:20"), ("1:0", "2:0"), ("1:50", "3:0")]).2, gap);
        assert_eq!(
            reach_of(&[("0:0", "0:20"), ("1:0", "2:0"), ("0:20", "3:0")]),
            whole("0:0", "3:0"),
            "and was filled"
        );
    }
}
