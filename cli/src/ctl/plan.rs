//! `spdl-ctl plan`: shows the order of the samples, and its cost in cache and downloads.

use std::{collections::HashMap, process::ExitCode};

use serde::Serialize;
use spdl_core::{
    Position,
    order::{BatchParams, ItemKind, Step},
};

use super::{
    CtlError, Outcome,
    job_file::{self, JobFileArg, OpenJob},
    output::outln,
    report,
};

/// The most samples that the statistics without `--ids` are computed from.
const MOST_SAMPLES: u64 = 20_000_000;

/// Arguments of `plan`.
#[derive(Debug, clap::Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    job: JobFileArg,
    /// Number of ranks.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    world: u32,
    /// With --ids: shows only this rank.
    #[arg(long)]
    rank: Option<u32>,
    /// Epoch to start in.
    #[arg(long, default_value_t = 0)]
    epoch: u64,
    /// Offset to start from, in samples of the epoch.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Number of steps to show; to the end of the epoch when not given.
    #[arg(long)]
    steps: Option<u64>,
    /// Samples of a step over all ranks; the job's when not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    global_batch: Option<u32>,
    /// Number of ranks that share a node and its cache.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_node: u32,
    /// Prints the sample ids: one JSON object for each step and rank.
    #[arg(long)]
    ids: bool,
    /// Prints the statistics as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// One line of `plan --ids`, and of the trace that `pull --trace` writes.
#[derive(Debug, Serialize, serde::Deserialize)]
pub(crate) struct StepLine {
    pub(crate) epoch: u64,
    pub(crate) offset: u64,
    pub(crate) rank: u32,
    pub(crate) ids: Vec<u64>,
    /// In a trace: the position of each sample in the stream, as `[epoch, offset]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) positions: Vec<[u64; 2]>,
    /// In a trace: how long the trainer waited for the batch; for the first batch, joining included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waited_ms: Option<u64>,
}

/// The cost of a plan.
#[derive(Debug, Default, Serialize)]
struct Costs {
    steps: u64,
    samples: u64,
    lanes: u32,
    window: u64,
    nodes: u32,
    blocks_alive_max: u64,
    cache_bytes_per_node: u64,
    downloads_per_dataset: f64,
    same_block_samples_per_batch: f64,
}

/// Runs `plan`.
pub(crate) fn run(args: &PlanArgs) -> Outcome {
    let open = super::runtime()?.block_on(job_file::open(&args.job.job))?;
    let batches = open.batches(args.global_batch);
    let ranks = ranks(args.rank, args.world, &batches)?;
    open.plan.check(&batches)?;
    check_start(&open, args, &batches)?;
    if args.ids {
        print_ids(&open, args, &batches, ranks)?;
    } else {
        let costs = costs(&open, args, &batches);
        if args.json {
            report::json(&costs)?;
        } else {
            print_costs(&open, &costs)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses a start without a step to show: costs of zero would look like a result.
fn check_start(open: &OpenJob, args: &PlanArgs, batches: &BatchParams) -> Result<(), CtlError> {
    let (epochs, samples) = (batches.epochs, open.plan.samples());
    let beyond = |flag, value: u64, problem| Err(CtlError::Beyond { flag, value, problem });
    if args.epoch >= epochs {
        let problem = format!("beyond the job's epochs, which are {epochs}: the last is {}", epochs - 1);
        return beyond("--epoch", args.epoch, problem);
    }
    if args.from >= samples {
        return beyond("--from", args.from, format!("beyond the {samples} samples of an epoch"));
    }
    if steps(open, args, batches).next().is_none() {
        let problem = format!(
            "too near to the end of epoch {}: its last {} samples do not fill a batch of {}",
            args.epoch,
            samples - args.from,
            batches.global_batch
        );
        return beyond("--from", args.from, problem);
    }
    Ok(())
}

/// Returns the selected ranks, after checking them against the world and the batch.
pub(crate) fn ranks(rank: Option<u32>, world: u32, batches: &BatchParams) -> Result<std::ops::Range<u32>, CtlError> {
    if world > batches.global_batch {
        return Err(CtlError::WorldTooLarge { world, global_batch: batches.global_batch });
    }
    match rank {
        None => Ok(0..world),
        Some(rank) if rank < world => Ok(rank..rank + 1),
        Some(rank) => Err(CtlError::RankOutOfRange { rank, world }),
    }
}

/// Iterates over `--steps` steps, or without `--steps` over the steps to the end of the first epoch.
fn steps<'a>(open: &'a OpenJob, args: &PlanArgs, batches: &BatchParams) -> impl Iterator<Item = Step> + 'a {
    let (first_epoch, limit) = (args.epoch, args.steps);
    open.plan
        .steps(Position::new(args.epoch, args.from), batches)
        .take_while(move |step| limit.is_some() || step.from.epoch == first_epoch)
        .take(limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)))
}

fn print_ids(
    open: &OpenJob,
    args: &PlanArgs,
    batches: &BatchParams,
    ranks: std::ops::Range<u32>,
) -> Result<(), CtlError> {
    let mut items = Vec::new();
    for step in steps(open, args, batches) {
        for rank in ranks.clone() {
            open.plan.rank_items(&step, rank, args.world, &mut items);
            let ids = items.iter().filter(|item| item.kind != ItemKind::Invalid).map(|item| item.located.id.0);
            let (epoch, offset) = (step.from.epoch, step.from.offset);
            let line = StepLine { epoch, offset, rank, ids: ids.collect(), positions: Vec::new(), waited_ms: None };
            report::json(&line)?;
        }
    }
    Ok(())
}

/// Computes the costs: each node fetches a block at its first use on the node and keeps it until its last use.
fn costs(open: &OpenJob, args: &PlanArgs, batches: &BatchParams) -> Costs {
    let order = open.job.order;
    let nodes = args.world.div_ceil(args.ranks_per_node);
    let mut costs = Costs { lanes: order.lanes, window: order.window, nodes, ..Costs::default() };
    let mut uses: HashMap<(u32, u32), (u64, u64)> = HashMap::new();
    let (mut rank_batches, mut same_block) = (0u64, 0u64);
    let mut items = Vec::new();
    let mut blocks: Vec<u32> = Vec::new();
    for step in steps(open, args, batches) {
        if costs.samples >= MOST_SAMPLES {
            break;
        }
        for rank in 0..args.world {
            open.plan.rank_items(&step, rank, args.world, &mut items);
            blocks.clear();
            blocks.extend(items.iter().filter(|item| item.kind != ItemKind::Invalid).map(|item| item.located.block));
            costs.samples += blocks.len() as u64;
            for block in &blocks {
                let span = uses.entry((rank / args.ranks_per_node, *block)).or_insert((costs.steps, costs.steps));
                span.1 = costs.steps;
            }
            blocks.sort_unstable();
            let shared = blocks.chunk_by(|a, b| a == b).filter(|run| run.len() > 1).map(<[u32]>::len).sum::<usize>();
            same_block += shared as u64;
            rank_batches += 1;
        }
        costs.steps += 1;
    }
    let block_bytes = |block: u32| open.manifest.block(block).bytes;
    let downloads: u64 = uses.keys().map(|(_, block)| block_bytes(*block)).sum();
    let dataset: u64 = (0..open.manifest.block_count()).map(block_bytes).sum();
    costs.downloads_per_dataset = downloads as f64 / dataset.max(1) as f64;
    costs.same_block_samples_per_batch = same_block as f64 / rank_batches.max(1) as f64;
    for node in 0..nodes {
        let mut changes: Vec<(u64, bool, u64)> = Vec::new();
        for ((_, block), (first, last)) in uses.iter().filter(|((of, _), _)| *of == node) {
            changes.push((*first, true, block_bytes(*block)));
            changes.push((*last + 1, false, block_bytes(*block)));
        }
        // Within a step, blocks are dropped before others are fetched: `false` sorts before `true`.
        changes.sort_unstable();
        let (mut alive, mut bytes) = (0u64, 0u64);
        for (_, begins, size) in changes {
            if begins {
                alive += 1;
                bytes += size;
            } else {
                alive -= 1;
                bytes -= size;
            }
            costs.blocks_alive_max = costs.blocks_alive_max.max(alive);
            costs.cache_bytes_per_node = costs.cache_bytes_per_node.max(bytes);
        }
    }
    costs
}

fn print_costs(open: &OpenJob, costs: &Costs) -> Result<(), CtlError> {
    let Costs { steps, samples, lanes, window, nodes, .. } = costs;
    outln!(
        "job `{}`: {} in {}",
        open.job.name,
        report::count(open.plan.samples(), "sample", "samples"),
        report::count(open.manifest.block_count().into(), "block", "blocks"),
    )?;
    outln!(
        "looked at {}, {}, {}; {}, windows of {window}",
        report::count(*steps, "step", "steps"),
        report::count(*samples, "sample", "samples"),
        report::count((*nodes).into(), "node", "nodes"),
        report::count((*lanes).into(), "lane", "lanes"),
    )?;
    outln!("blocks alive at once      {} per node", costs.blocks_alive_max)?;
    outln!("cache needed              {} per node", report::bytes(costs.cache_bytes_per_node))?;
    outln!("downloads / dataset       {:.3}", costs.downloads_per_dataset)?;
    outln!("same-block samples        {:.1} per batch of a rank", costs.same_block_samples_per_batch)
}
