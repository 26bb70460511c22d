//! `spdl-ctl status`: the state of a running cluster.

use std::process::ExitCode;

use spdl_coordinator::core::{JobStatus, RankStatus, SessionStatus, Status, WorkerStatus};
use spdl_wire::messages::{FromCoordinator, StoreFigures, ToCoordinator};

use super::{CtlError, Outcome, coordinator::Connection, tally::transport_name};

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: Connection,
    /// Prints everything as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `status`.
pub(crate) fn run(args: &Args) -> Outcome {
    let reply = super::runtime()?.block_on(args.connection.ask(&ToCoordinator::Status))?;
    let FromCoordinator::Status(text) = reply else { return Err(CtlError::Reply { request: "status" }) };
    if args.json {
        println!("{text}");
    } else {
        let status: Status = serde_json::from_str(&text).map_err(|_| CtlError::Reply { request: "status" })?;
        print(&status);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(status: &Status) {
    println!("coordinator {}, up {:.0} s", status.version, status.uptime_ms as f64 / 1e3);
    for problem in &status.job_problems {
        println!("problem     {}: {}", problem.origin, problem.problem);
    }
    for worker in &status.workers {
        print_worker(worker);
    }
    for job in &status.jobs {
        print_job(job);
        let of_job = |session: &&SessionStatus| session.job == job.name && session.superseded_by.is_none();
        for session in status.sessions.iter().filter(of_job) {
            print_session(session);
        }
    }
}

fn print_worker(worker: &WorkerStatus) {
    let WorkerStatus { name, node, quic, cores, .. } = worker;
    let draining = if worker.draining { ", draining" } else { "" };
    println!("worker `{name}` on node {node}, {quic}, {cores} cores, {} ranks{draining}", worker.ranks.len());
    for stage in &worker.stages {
        let seconds = |ns: u64| ns as f64 / 1e9;
        println!(
            "  stage {:<10} {:>9} items  busy {:>8.1} s  waiting for input {:>8.1} s, for output {:>8.1} s  p50 {:.1} ms  p99 {:.1} ms",
            stage.name,
            stage.items,
            seconds(stage.busy_ns),
            seconds(stage.waiting_for_input_ns),
            seconds(stage.waiting_for_output_ns),
            stage.p50_ns as f64 / 1e6,
            stage.p99_ns as f64 / 1e6,
        );
    }
    let StoreFigures { retries, hedges, hedge_wins, wrong_bytes, cache_faults, .. } = worker.store;
    println!(
        "  stores     {:>9} requests, {retries} retries, {hedges} hedges ({hedge_wins} won), {wrong_bytes} wrong bytes, \
         {cache_faults} faults of the disk cache",
        worker.store.requests
    );
    for (rank, stall) in worker.ranks.iter().filter_map(|rank| rank.stall.as_ref().map(|stall| (rank, stall))) {
        println!("  rank {} of session {}: {stall}", rank.rank, rank.session);
    }
}

fn print_job(job: &JobStatus) {
    let JobStatus { name, samples, global_batch, epochs, acknowledged, .. } = job;
    println!(
        "job `{name}`: {samples} samples, batches of {global_batch}, {epochs} epochs, acknowledged {acknowledged}"
    );
    if let Some(failure) = &job.failed {
        println!("  FAILED: {failure}");
    }
    for bad in &job.bad_sample_list {
        println!("  bad sample {} (`{}`, `{}`): {}", bad.sample, bad.shard, bad.key, bad.cause);
    }
    let unshown = job.bad_sample_count.saturating_sub(job.bad_sample_list.len() as u64);
    if unshown > 0 {
        println!("  and {unshown} more bad samples");
    }
}

fn print_session(session: &SessionStatus) {
    let run = if session.run == session.job { String::new() } else { format!(" of run `{}`", session.run) };
    println!("  session {}{run}: world {}, from {}", session.session, session.world, session.start);
    for rank in &session.ranks {
        let RankStatus { rank: number, position, waited_ms, .. } = rank;
        let state = match rank {
            RankStatus { left: true, .. } => "left",
            RankStatus { is_alive: true, .. } => "alive",
            _ => "silent",
        };
        let home = rank.home.as_deref().unwrap_or("none");
        let transport = rank.transport.map_or("-", transport_name);
        println!(
            "    rank {number}: {state}, at {position}, home {home} ({transport}), waited {:.1} s",
            *waited_ms as f64 / 1e3
        );
    }
}
