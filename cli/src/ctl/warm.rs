//! `spdl-ctl warm`: fills a node's cache on disk with what a job reads first, before a training starts.

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use serde::Serialize;
use spdl_control::messages::Session;
use spdl_insight::tuning::{Setting, TuningSettings};
use spdl_job::Job;
use spdl_types::{Position, SessionId, Stage, size::parse_bytes};
use spdl_worker::{
    budget::{Budget, DiskBudget},
    feed::{Access, DiskCacheState, FeedError, FeedEvent, FeedRequest, RankFeed, Resources, SlabKind},
};

use super::{
    CtlError, CtlResult, interrupt,
    job_file::{self, JobFileArg},
    output::outln,
    progress::samples_bar,
    report,
};
use crate::local::LocalError;

/// How often the command checks whether the folder still has room.
const TICK: Duration = Duration::from_millis(20);
/// How often the command checks whether blocks are written.
const WRITE_TICK: Duration = Duration::from_millis(2);

/// Arguments of `warm`.
#[derive(Debug, clap::Args)]
pub(crate) struct WarmArgs {
    #[command(flatten)]
    job: JobFileArg,
    /// Directory of the cache, as workers of this node have it. They may run meanwhile.
    #[arg(long, env = "SPDL_WORKER_CACHE_DIR", value_name = "DIR")]
    cache_dir: PathBuf,
    /// Maximum size of that directory, as workers of this node have it.
    #[arg(long, env = "SPDL_WORKER_CACHE_BYTES", value_name = "SIZE", default_value = "64GiB", value_parser = parse_bytes)]
    cache_bytes: u64,
    /// Number of ranks of the training.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    world: u32,
    /// Number of ranks on each node.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_node: u32,
    /// Number of this node, from 0; it has the ranks from NODE x RANKS_PER_NODE on.
    #[arg(long, default_value_t = 0)]
    node: u32,
    /// Memory to work with.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_bytes)]
    memory: u64,
    /// Maximum number of requests to stores in flight: 1 to 512, or `auto` to tune it by what is measured.
    #[arg(long, value_name = "N|auto", default_value_t = Setting::Auto)]
    requests: Setting,
    /// Prints what was done as one line of JSON, and no progress.
    #[arg(long)]
    json: bool,
}

/// The result of the command.
#[derive(Debug, Serialize)]
struct Warmed {
    job: String,
    cache_dir: PathBuf,
    /// Samples that this node reads in an epoch, and how many of them, counted from the first, are certainly in the
    /// folder.
    samples: u64,
    warmed_samples: u64,
    /// Bytes that came from the store.
    store_bytes: u64,
    /// Bytes in the folder, and its limit.
    cache_bytes: u64,
    cache_limit_bytes: u64,
    /// Whether the folder has no room for more.
    is_full: bool,
    seconds: f64,
}

/// Runs `warm`.
pub(crate) fn run(args: &WarmArgs) -> CtlResult {
    let warmed = interrupt::run_or_drop(warm(args))?;
    if args.json {
        report::json(&warmed)?;
    } else {
        print(&warmed)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn warm(args: &WarmArgs) -> Result<Warmed, CtlError> {
    let open = job_file::open(&args.job.job).await?;
    // The ranks of a node together read the share of a rank in a world of one rank for each node.
    let nodes = nodes(args)?;
    let tuning = TuningSettings { requests: args.requests, ..TuningSettings::default() };
    let flag = |problem| CtlError::Flag { flag: "--requests", problem };
    tuning.check().map_err(|(_, problem)| flag(problem))?;
    if nodes > open.job.global_batch {
        return Err(CtlError::WorldTooLarge { world: args.world, global_batch: open.job.global_batch });
    }
    let disk = DiskBudget { directory: args.cache_dir.clone(), bytes: args.cache_bytes };
    let budget = Budget { memory_bytes: args.memory, disk: Some(disk), ..Budget::default() };
    let refused = |problem: &str| CtlError::Flag { flag: "--cache-dir", problem: problem.to_owned() };
    budget.check().map_err(|error| refused(&error.to_string()))?;
    let access = Access { stores: open.stores(), tuning, ..Access::default() };
    let resources = Resources::with_access("spdl-ctl warm", budget, access).map_err(feed_error)?;
    let Some(_) = resources.disk_cache() else {
        return Err(refused("it cannot be used as a cache; the warning above has the reason"));
    };
    let begun = Instant::now();
    let job = Job { epochs: 1, ..open.job };
    let samples = share(open.plan.samples(), args.node, nodes);
    let session =
        Session { id: SessionId(0), world: nodes, global_batch: job.global_batch, start: Position::START, job };
    let name = session.job.name.clone();
    let batch = share(u64::from(session.global_batch), args.node, nodes);
    let request = FeedRequest { session, rank: args.node, from: Position::START, slots: 1, slab: SlabKind::Private };
    let bar = samples_bar(args.json, samples, "warming");
    let mut feed = RankFeed::start_fetching(&resources, request).map_err(feed_error)?;
    let mut warmed_samples = 0;
    let take = async {
        loop {
            let event = tokio::time::timeout(TICK, feed.next()).await.ok().transpose().map_err(feed_error)?;
            // A batch is counted when all blocks fetched for it are written. The next blocks are fetched meanwhile.
            let has_room = loop {
                match resources.disk_cache().expect("it was there") {
                    DiskCacheState { is_failing: true, .. } => {
                        return Err(refused("it takes no more blocks; the warning above has the reason"));
                    }
                    DiskCacheState { refused: 1.., .. } => break false,
                    DiskCacheState { to_write: 1.., .. } if event.is_some() => tokio::time::sleep(WRITE_TICK).await,
                    _ => break true,
                }
            };
            match event {
                _ if !has_room => return Ok(()),
                Some(FeedEvent::Filled { slot, .. }) => {
                    feed.free(slot).map_err(feed_error)?;
                    warmed_samples = (warmed_samples + batch).min(samples);
                    bar.set_position(warmed_samples);
                }
                Some(_) => {
                    warmed_samples = samples;
                    return Ok(());
                }
                None => {}
            }
        }
    };
    tokio::select! {
        never = resources.keep_pace() => match never {},
        done = take => done?,
    }
    bar.finish();
    let cache = loop {
        let cache = resources.disk_cache().expect("it was there");
        if cache.to_write == 0 {
            break cache;
        }
        tokio::time::sleep(TICK).await;
    };
    let fetched = resources.stages(Instant::now());
    let fetched = fetched.iter().find(|stats| stats.stage == Stage::Fetch);
    Ok(Warmed {
        job: name,
        cache_dir: args.cache_dir.clone(),
        samples,
        warmed_samples,
        store_bytes: fetched.map_or(0, |fetch| fetch.bytes),
        cache_bytes: cache.used_bytes,
        cache_limit_bytes: cache.limit_bytes,
        is_full: cache.refused > 0,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

/// Returns the number of nodes.
fn nodes(args: &WarmArgs) -> Result<u32, CtlError> {
    let &WarmArgs { world, ranks_per_node, node, .. } = args;
    if !world.is_multiple_of(ranks_per_node) {
        let problem = format!("{ranks_per_node} ranks on each node do not give a world of {world}");
        return Err(CtlError::Flag { flag: "--ranks-per-node", problem });
    }
    let nodes = world / ranks_per_node;
    if node >= nodes {
        return Err(CtlError::Flag { flag: "--node", problem: format!("{node} is not below the {nodes} nodes") });
    }
    Ok(nodes)
}

/// Returns the part of `whole` that a node has.
fn share(whole: u64, node: u32, nodes: u32) -> u64 {
    let end = |node: u32| (u128::from(whole) * u128::from(node) / u128::from(nodes)) as u64;
    end(node + 1) - end(node)
}

fn print(warmed: &Warmed) -> Result<(), CtlError> {
    let Warmed { job, cache_dir, samples, warmed_samples, .. } = warmed;
    let read = report::bytes(warmed.store_bytes);
    let has = format!("{} of {}", report::bytes(warmed.cache_bytes), report::bytes(warmed.cache_limit_bytes));
    outln!("`{}` has {has}; {read} came from the store in {:.1} s", cache_dir.display(), warmed.seconds)?;
    if warmed_samples == samples {
        outln!("all that an epoch of job `{job}` reads on this node is there")
    } else {
        let part = 100.0 * *warmed_samples as f64 / *samples as f64;
        outln!("there is no more room: at least the first {part:.0} % of an epoch of job `{job}` on this node is there")
    }
}

fn feed_error(error: FeedError) -> CtlError {
    LocalError::from(error).into()
}
