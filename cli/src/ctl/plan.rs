//! `spdl-ctl plan`: shows the order of the samples, and its cost in cache and downloads.

use std::process::ExitCode;

use serde::Serialize;
use spdl_job::SampleCostFile;
use spdl_order::{BatchParams, ItemKind, OrderParams, Step};
use spdl_types::Position;

use super::{
    CtlError, CtlResult,
    costs::{CostTally, Costs, NodeRanks},
    dealt::StepDealer,
    job_file::{self, JobFileArg, OpenJob},
    output::outln,
    plan_balance::{BalanceReport, SpreadTally, parse_cost},
    plan_classes::ClassesReport,
    plan_sequences::SequenceReport,
    record_names::{RecordName, RecordNames, SampleNames},
    report,
};

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
    /// What a sample costs the trainer, in place of the job's `cost`: `tokens`, `tokens^2`, `pixels`, `seconds`, `{ linear = 12288, quadratic = 1 }`
    /// or `{ field = "length" }`. Adds how even steps are, with and without it.
    #[arg(long, value_name = "COST", value_parser = parse_cost)]
    cost: Option<SampleCostFile>,
    /// Prints the sample ids: one JSON object for each step and rank.
    #[arg(long)]
    ids: bool,
    /// With --ids: adds the shard and the key of each sample's record. Reads the indexes of these shards.
    #[arg(long, requires = "ids")]
    keys: bool,
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
    /// With `--keys`: the record of each sample.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) records: Vec<RecordName>,
    /// With `--keys`, for sequences: the records of the documents that each sample has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) documents: Vec<Vec<RecordName>>,
    /// In a trace: the position of each sample in the stream, as `[epoch, offset]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) positions: Vec<[u64; 2]>,
    /// In a trace: how long the trainer waited for the batch; for the first batch, joining included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waited_ms: Option<u64>,
}

/// The output of `plan --json`.
#[derive(Debug, Serialize)]
struct PlanReport {
    lanes: u32,
    window: u64,
    #[serde(flatten)]
    costs: Costs,
    /// For a job with `sequence` of one dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequences: Option<SequenceReport>,
    /// For a job with `sequence` of several sources: each of them, once through.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    packed_sources: Vec<SequenceReport>,
    /// For views with `sampling`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    classes: Vec<ClassesReport>,
    /// For a job with `cost`.
    #[serde(skip_serializing_if = "Option::is_none")]
    balance: Option<BalanceReport>,
}

/// Runs `plan`.
pub(crate) fn run(args: &PlanArgs) -> CtlResult {
    super::runtime()?.block_on(plan(args))
}

async fn plan(args: &PlanArgs) -> CtlResult {
    let mut file = job_file::read(&args.job.job)?;
    file.cost = args.cost.clone().or(file.cost);
    let open = job_file::open_file(file).await?;
    let batches = open.batches(args.global_batch);
    let ranks = ranks(args.rank, args.world, &batches)?;
    open.plan.check(&batches)?;
    check_start(&open, args, &batches)?;
    if args.ids {
        print_ids(&open, args, &batches, ranks).await?;
    } else {
        let nodes = NodeRanks { ranks: 0..args.world, ranks_per_node: args.ranks_per_node };
        let (mut tally, mut spreads) = (CostTally::new(nodes), SpreadTally::default());
        let mut dealer = StepDealer::new(&open, args.world);
        for step in steps(&open, args, &batches) {
            if tally.is_full() {
                break;
            }
            let dealt = dealer.deal(&step).await?;
            tally.add(&dealt);
            dealt.spread().iter().for_each(|spread| spreads.add(spread));
            dealer.padding(&step).into_iter().for_each(|padding| spreads.add_padding(padding));
        }
        let (costs, balance) = (tally.costs(&open.datasets.block_bytes()), spreads.report(&open.job, args.world));
        let OrderParams { lanes, window, .. } = open.job.order;
        if args.json {
            let (mut packed_sources, classes) = (SequenceReport::of(&open), ClassesReport::of(&open));
            let sequences = packed_sources.pop_if(|_| open.job.sources.is_empty());
            report::json(&PlanReport { lanes, window, costs, sequences, packed_sources, classes, balance })?;
        } else {
            print_costs(&open, &costs)?;
            balance.iter().try_for_each(BalanceReport::print)?;
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

async fn print_ids(
    open: &OpenJob,
    args: &PlanArgs,
    batches: &BatchParams,
    ranks: std::ops::Range<u32>,
) -> Result<(), CtlError> {
    let (mut dealer, mut items) = (StepDealer::new(open, args.world), Vec::new());
    let mut names = if args.keys { Some(RecordNames::new(&open.job, open.datasets.clone())?) } else { None };
    for step in steps(open, args, batches) {
        let dealt = dealer.deal(&step).await?;
        for rank in ranks.clone() {
            dealt.rank_items(rank, &mut items);
            if items.is_empty() {
                // The rank has no share of the epoch's short last batch.
                continue;
            }
            let samples = items.iter().filter(|item| item.kind != ItemKind::Invalid);
            let samples: Vec<_> = samples.map(|item| (item.at, item.located.id)).collect();
            let (mut records, mut documents) = (Vec::new(), Vec::new());
            if let Some(names) = &mut names {
                for (at, id) in &samples {
                    match names.of(*at, *id).await? {
                        SampleNames::Record(record) => records.push(record),
                        SampleNames::Documents(of_sample) => documents.push(of_sample),
                    }
                }
            }
            let ids = samples.iter().map(|(_, id)| id.0).collect();
            let (epoch, offset) = (step.from.epoch, step.from.offset);
            let line =
                StepLine { epoch, offset, rank, ids, records, documents, positions: Vec::new(), waited_ms: None };
            report::json(&line)?;
        }
    }
    Ok(())
}

fn print_costs(open: &OpenJob, costs: &Costs) -> Result<(), CtlError> {
    let Costs { steps, samples, nodes, .. } = costs;
    let OrderParams { lanes, window, .. } = open.job.order;
    let [one, many] = report::sample_words(&open.job);
    outln!(
        "job `{}`: {} in {}",
        open.job.name,
        report::count(open.plan.samples(), one, many),
        report::count(open.datasets.block_count(), "block", "blocks"),
    )?;
    if let Some(view) = &open.job.view {
        let all = report::count(open.datasets.first().manifest.samples(), "sample", "samples");
        let kept = open.samples().kept().map_or(open.plan.samples(), |kept| kept.len());
        outln!("the view keeps {} of {all}; samples = \"{view}\"", report::grouped(kept))?;
    }
    if let Some(sizes) = open.job.cost.and_then(|cost| cost.measured?.sizes) {
        outln!("samples are measured; sizes = \"{sizes}\"")?;
    }
    for (what, text) in report::source_texts(&open.job) {
        outln!("{what} {text}")?;
    }
    ClassesReport::of(open).iter().try_for_each(ClassesReport::print)?;
    SequenceReport::of(open).iter().try_for_each(SequenceReport::print)?;
    outln!(
        "looked at {}, {}, {}; {}, windows of {window}",
        report::count(*steps, "step", "steps"),
        report::count(*samples, one, many),
        report::count((*nodes).into(), "node", "nodes"),
        report::count(lanes.into(), "lane", "lanes"),
    )?;
    outln!("blocks alive at once      {} per node", costs.blocks_alive_max)?;
    outln!("cache needed              {} per node", report::bytes(costs.cache_bytes_per_node))?;
    outln!("downloads / dataset       {:.3}", costs.downloads_per_dataset)?;
    outln!("same-block samples        {:.1} per batch of a rank", costs.same_block_samples_per_batch)
}
