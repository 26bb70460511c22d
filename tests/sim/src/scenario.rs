//! The constants of a seed: the job, the cluster, the speed of everything and the faults that may occur.

use std::{collections::BTreeSet, num::NonZeroU32};

use spdl_control::{client::AllowedTransports, coordinator::CoordinatorConfig};
use spdl_job::{BadSamples, Column, ColumnKind, IntColumn, Job, testing};
use spdl_order::{
    BalancedBatch, BlendStage, EpochEnd, Item, Located, OrderParams, Plan, RedactedSamples, Redaction, Step,
};
use spdl_types::{DType, Fingerprint, SampleId, mix::splitmix64};

use crate::{
    dice::Dice,
    faults::Fault,
    sizes::size_of,
    sources::{blend, plan_of, some_weights},
};

/// The largest number of launches during the calm phase, and the time that each may take besides its batches.
const CALM_LAUNCHES: u64 = 4;
const CALM_US: u64 = 300_000_000;
/// The factor by which a slow fill takes longer.
pub(crate) const SLOW_FILL: u64 = 10;

/// How a failed trainer is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restarts {
    /// All ranks restart, with or without a saved state.
    Together,
    /// Only the failed rank restarts, with its original arguments.
    Alone,
}

/// A job and the dataset that it reads.
#[derive(Clone, Debug)]
pub(crate) struct JobDataset {
    pub(crate) job: Job,
    pub(crate) plan: Plan,
    /// The number of samples of each block.
    blocks: Vec<u32>,
    /// Where the blocks of each source begin, if the job blends some.
    sources: Vec<usize>,
    /// The samples whose bytes do not decode.
    pub(crate) bad: BTreeSet<u64>,
}

impl JobDataset {
    /// Returns whether the samples of a global batch are dealt to ranks by what they cost. As such jobs are of sequences, they have no
    /// sources, and are not redacted.
    pub(crate) const fn is_balanced(&self) -> bool {
        self.job.seed.is_multiple_of(4) && self.sources.is_empty()
    }

    /// Returns the entries that a rank gets in a step.
    pub(crate) fn rank_items(&self, step: &Step, rank: u32, world: u32) -> Vec<Item> {
        if !self.is_balanced() {
            let mut items = Vec::new();
            self.plan.rank_items(step, rank, world, &mut items);
            return items;
        }
        let items = self.plan.step_items(step);
        let costs: Vec<u64> = items.iter().map(|item| size_of(item.located.id).into()).collect();
        let within = NonZeroU32::new((self.job.seed / 4 % 4) as u32);
        BalancedBatch::new(items, &costs, world, within).rank_items(rank).copied().collect()
    }

    /// Returns the number of samples of a block, which is its size in caches.
    pub(crate) fn block_samples(&self, block: u32) -> u64 {
        self.blocks[block as usize].into()
    }

    /// Returns the bytes of a block in the store.
    pub(crate) fn stored_block(&self, block: u32) -> u64 {
        splitmix64(self.job.dataset_fingerprint.0 as u64 ^ splitmix64(block.into()))
    }

    /// Returns the bytes of a sample among those of its block.
    pub(crate) fn stored_sample(block: u64, index: u32) -> u64 {
        splitmix64(block ^ splitmix64(index.into()))
    }

    /// Returns the digest of the columns that are decoded from a sample's bytes: random operations are keyed by seed and epoch.
    pub(crate) fn content(stored: u64, seed: u64, epoch: u64) -> u64 {
        splitmix64(stored ^ splitmix64(seed ^ splitmix64(epoch)))
    }

    /// Returns the digest of the columns that a sample must have.
    pub(crate) fn content_of(&self, epoch: u64, located: &Located) -> u64 {
        let stored = Self::stored_sample(self.stored_block(located.block), located.index);
        Self::content(stored, self.job.seed, epoch)
    }

    /// Returns the dataset of the job with these stages and redactions in place of its own.
    fn with_changes(&self, stages: Vec<BlendStage>, redactions: Vec<Redaction>) -> Self {
        let job = Job { stages, redactions, ..self.job.clone() };
        let (blocks, sources) = (self.blocks.clone(), self.sources.clone());
        Self { plan: plan_of(&job, &blocks, &sources), job, blocks, sources, bad: self.bad.clone() }
    }

    /// Returns whether the job fails once all its bad samples have been found.
    pub(crate) fn fails(&self) -> bool {
        let bad = self.bad.len() as f64;
        let is_strict = self.job.bad_samples == BadSamples::Fail && !self.bad.is_empty();
        is_strict || bad > self.job.max_bad_fraction * self.job.samples as f64
    }
}

/// The role of a worker where workers help each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HelpRole {
    pub(crate) is_helper: bool,
    pub(crate) is_helper_only: bool,
    pub(crate) is_helped: bool,
    pub(crate) cores: f64,
}

/// Whether there are helpers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Help {
    No,
    /// Some workers help each other.
    Some,
    /// One worker with many cores, and more homes than it may help.
    Crowd,
}

/// The constants of a seed.
#[derive(Debug)]
pub(crate) struct Scenario {
    /// The first job is in the coordinators' jobs directory; the others are submitted.
    pub(crate) jobs: Vec<JobDataset>,
    /// The jobs with other stages or redactions, which the admin has asked for, or which others took the place of.
    pub(crate) versions: Vec<JobDataset>,
    /// Whether the admin has asked for changes of jobs.
    pub(crate) asks_for_changes: bool,
    /// The runs that train at the same time: the index of the job, and the run's name.
    pub(crate) runs: Vec<(usize, String)>,
    /// The number of hosts with a worker each; ranks are spread over them. Coordinators have hosts of their own.
    pub(crate) workers: usize,
    pub(crate) coordinators: usize,
    /// Whether the state is in etcd instead of a file.
    pub(crate) has_etcd: bool,
    /// The time of a leader's lease, in seconds.
    pub(crate) lease_s: u64,
    /// Whether a standby reports the leader's address.
    pub(crate) advertises: bool,
    pub(crate) max_world: u32,
    /// The number of ranks that a worker serves at one time: enough for a launch, but not always for the remaining
    /// ranks of the previous launch as well.
    pub(crate) max_ranks: usize,
    /// The percentage of ranks for which a worker has no memory.
    pub(crate) refused_percent: u64,
    pub(crate) slots: u32,
    /// The number of batches that the trainer keeps while it takes the next.
    pub(crate) trainer_keeps: usize,
    /// Whether a rank takes a batch only after all ranks have taken the previous one.
    pub(crate) is_lockstep: bool,
    pub(crate) restarts: Restarts,
    /// Whether the launcher gives its launches ids. A launcher that restarts ranks alone must do so, because the other
    /// ranks are alive.
    pub(crate) has_launch_ids: bool,
    /// Whether the client reports QUIC batches to its core as they arrive instead of in order.
    pub(crate) is_unordered: bool,
    pub(crate) transports: AllowedTransports,
    pub(crate) config: CoordinatorConfig,
    pub(crate) step_us: u64,
    pub(crate) fill_us: u64,
    pub(crate) disk_us: u64,
    /// The role of each worker in help; empty if there are no helpers.
    pub(crate) help: Vec<HelpRole>,
    /// The number of samples that each worker's cache has room for.
    pub(crate) cache_samples: u64,
    /// Whether the sessions of a worker share decoded samples.
    pub(crate) shares_samples: bool,
    /// The drift of clocks, in parts per thousand.
    pub(crate) drift: u64,
    /// The length of the fault phase, the mean gap between faults, and their kinds.
    pub(crate) chaos_us: u64,
    pub(crate) fault_gap_us: u64,
    pub(crate) faults: Vec<Fault>,
}

impl Scenario {
    pub(crate) fn new(dice: &mut Dice) -> Self {
        let help = dice.pick(&[Help::No, Help::No, Help::No, Help::No, Help::Some]);
        let help = if help == Help::Some && dice.percent(20) { Help::Crowd } else { help };
        let has_several = dice.percent(20) || help == Help::Crowd;
        let jobs = if has_several { dice.pick(&[1, 2, 2]) } else { 1 };
        let mut jobs: Vec<JobDataset> = (0..jobs).map(|number| dataset(number, help, None, dice)).collect();
        if let [first, second] = jobs.as_mut_slice()
            && dice.percent(50)
        {
            *second = dataset(1, help, Some(first), dice);
        }
        let runs = if has_several { dice.pick(&[2, 2, 3]) } else { 1 };
        let runs: Vec<(usize, String)> = (0..runs)
            .map(|run| match run % jobs.len() {
                job if run < jobs.len() => (job, jobs[job].job.name.clone()),
                job => (job, format!("run-{run}")),
            })
            .collect();
        let workers = match help {
            Help::No => dice.pick(&[1, 2, 2, 3, 3, 4]),
            Help::Some => dice.pick(&[2, 3, 3, 4]),
            Help::Crowd => 7,
        };
        let roles = if help == Help::No { Vec::new() } else { help_roles(workers, help, dice) };
        let has_etcd = dice.percent(25);
        let coordinators = if has_etcd { dice.pick(&[1, 2, 2, 3]) } else { 1 };
        let slots = dice.within(2, 4) as u32;
        let has_stages = jobs.iter().any(|dataset| !dataset.sources.is_empty());
        let is_chosen = |fault: &Fault, dice: &mut Dice| {
            let concerns_helpers = help != Help::No && matches!(fault, Fault::KillWorker | Fault::LeaveWorker);
            let concerns_sources = has_stages && matches!(fault, Fault::ChangeWeights | Fault::Redact);
            dice.percent(if concerns_helpers || concerns_sources { 70 } else { 40 })
        };
        let mut faults: Vec<Fault> = Fault::ALL.iter().copied().filter(|fault| is_chosen(fault, dice)).collect();
        faults.retain(|fault| fault.can_be(has_etcd, jobs.len(), has_stages));
        if faults.is_empty() {
            faults.push(Fault::KillWorker);
        }
        let restarts = if dice.percent(75) { Restarts::Together } else { Restarts::Alone };
        let max_world = dice.pick(&[1, 2, 3, 4, 4]);
        let liveness_ms = dice.pick(&[5_000, 5_000, 2_000]);
        Self {
            workers,
            coordinators,
            has_etcd,
            lease_s: dice.pick(&[2, 5]),
            advertises: dice.percent(70),
            max_world,
            max_ranks: max_world as usize * runs.len() + dice.pick(&[0, 1, 100]),
            jobs,
            versions: Vec::new(),
            asks_for_changes: false,
            runs,
            refused_percent: dice.pick(&[0, 0, 10]),
            slots,
            trainer_keeps: dice.index(2),
            is_lockstep: dice.percent(60),
            restarts,
            has_launch_ids: restarts == Restarts::Alone || dice.percent(50),
            is_unordered: dice.percent(30),
            transports: dice.pick(&[
                AllowedTransports::Auto,
                AllowedTransports::Auto,
                AllowedTransports::Auto,
                AllowedTransports::Quic,
            ]),
            config: CoordinatorConfig { liveness_ms, ..CoordinatorConfig::default() },
            // Ranks of a home that is to be helped wait for batches, for longer than it takes to notice that.
            step_us: dice.pick(if help == Help::No { &[5_000, 50_000, 300_000, 1_000_000] } else { &[5_000, 50_000] }),
            fill_us: dice.pick(if help == Help::No { &[5_000, 50_000, 300_000] } else { &[300_000, 1_000_000] }),
            help: roles,
            cache_samples: dice.pick(&[0, 20, 50, 1_000]),
            shares_samples: dice.percent(80),
            disk_us: dice.pick(&[200, 5_000, 200_000]),
            drift: dice.pick(&[0, 10, 100]),
            chaos_us: dice.within(if help == Help::No { 5 } else { 30 }, 60) * 1_000_000,
            fault_gap_us: dice.pick(&[300_000, 1_000_000, 3_000_000]),
            faults,
        }
    }

    /// Returns the dataset of the job with that name.
    pub(crate) fn dataset(&self, name: &str) -> &JobDataset {
        self.jobs.iter().find(|dataset| dataset.job.name == name).expect("there are no other jobs")
    }

    /// Returns the dataset of the job of a session, with the stages and redactions that the session has.
    pub(crate) fn dataset_of(&self, job: &Job) -> &JobDataset {
        self.known(job).expect("there are no other jobs")
    }

    fn known(&self, job: &Job) -> Option<&JobDataset> {
        let changes = |job: &Job| (job.stages.clone(), job.redactions.clone());
        let is_it = |dataset: &&JobDataset| dataset.job.name == job.name && changes(&dataset.job) == changes(job);
        self.jobs.iter().chain(&self.versions).find(is_it)
    }

    /// Notes a version of a job that a process has got.
    pub(crate) fn note(&mut self, job: &Job) {
        if self.known(job).is_none() {
            let version = self.dataset(&job.name).with_changes(job.stages.clone(), job.redactions.clone());
            self.versions.push(version);
        }
    }

    /// Takes a version of a job that is in the durable state for the job itself.
    pub(crate) fn take(&mut self, job: &Job) {
        self.note(job);
        let changes = |job: &Job| (job.stages.clone(), job.redactions.clone());
        let is_it = |dataset: &JobDataset| dataset.job.name == job.name && changes(&dataset.job) == changes(job);
        let of_name = self.jobs.iter().position(|dataset| dataset.job.name == job.name);
        if let (Some(of_name), Some(version)) = (of_name, self.versions.iter().position(is_it)) {
            self.take_version(of_name, version);
        }
    }

    /// Returns other weights for the sources of a job, if it has sources.
    pub(crate) fn some_weights(&self, job: usize, dice: &mut Dice) -> Option<Vec<u32>> {
        let sources = self.jobs[job].sources.len();
        (sources > 0).then(|| some_weights(sources, dice))
    }

    /// Returns some samples of a job to redact: single ones, or those of a whole block.
    pub(crate) fn some_samples(&self, job: usize, dice: &mut Dice) -> RedactedSamples {
        let blocks = &self.jobs[job].blocks;
        let all: u64 = blocks.iter().map(|samples| u64::from(*samples)).sum();
        let ids: Vec<u64> = if dice.percent(30) {
            let block = dice.index(blocks.len());
            let first: u64 = blocks[..block].iter().map(|samples| u64::from(*samples)).sum();
            (first..first + u64::from(blocks[block])).collect()
        } else {
            (0..dice.within(1, 4)).map(|_| dice.bits() % all).collect()
        };
        RedactedSamples::new(ids.into_iter().map(SampleId).collect())
    }

    /// Asks for other stages of a job that has sources: those that begin at a sample or later are replaced. Returns the number of the
    /// version; `None` if there can be none, as the stream ends before.
    pub(crate) fn change_stages(&mut self, job: usize, from: u64, dice: &mut Dice) -> Option<usize> {
        let dataset = &self.jobs[job];
        if dataset.sources.is_empty() {
            return None;
        }
        let changed = dataset.job.with_weights(from, &some_weights(dataset.sources.len(), dice)).ok()?;
        let version = dataset.with_changes(changed.stages, dataset.job.redactions.clone());
        self.versions.push(version);
        Some(self.versions.len() - 1)
    }

    /// Takes a version for the job itself, which other launches have from now on.
    pub(crate) fn take_version(&mut self, job: usize, version: usize) {
        let version = self.versions[version].clone();
        self.versions.push(std::mem::replace(&mut self.jobs[job], version));
    }

    /// Returns whether there are helpers.
    pub(crate) fn has_help(&self) -> bool {
        !self.help.is_empty()
    }

    /// Returns the role of a worker in help, if there are helpers.
    pub(crate) fn help_role(&self, worker: usize) -> Option<&HelpRole> {
        self.help.get(worker)
    }

    /// Returns the latest time at which everything must be done: a number of launches from the beginning to the end,
    /// with every batch as slow as it can be. Progress of the launches is checked separately.
    pub(crate) fn end_us(&self) -> u64 {
        let steps = |job: &Job| job.epochs * (job.samples / u64::from(job.global_batch.min(self.max_world)) + 2);
        let steps: u64 = self.runs.iter().map(|(job, _)| steps(&self.jobs[*job].job)).max().unwrap_or(0);
        let step_us = (self.step_us + SLOW_FILL * self.fill_us) * 11 / 10;
        self.chaos_us + 2 * self.fault_gap_us + CALM_LAUNCHES * (CALM_US + steps * step_us)
    }

    /// Returns the global batch of a launch, if it differs from the job's.
    pub(crate) fn other_batch(&self, dice: &mut Dice) -> Option<u32> {
        dice.percent(40).then(|| dice.within(u64::from(self.max_world), 16) as u32)
    }
}

/// Returns the roles of all workers. The first takes ranks.
fn help_roles(workers: usize, help: Help, dice: &mut Dice) -> Vec<HelpRole> {
    let crowd = |worker: usize| match worker + 1 == workers {
        true => HelpRole { is_helper: true, is_helper_only: true, is_helped: false, cores: 64.0 },
        false => HelpRole { is_helper: false, is_helper_only: false, is_helped: true, cores: 0.5 },
    };
    let mut any = |worker: usize| {
        let is_helper = worker + 1 == workers || dice.percent(60);
        HelpRole {
            is_helper,
            is_helper_only: is_helper && worker > 0 && dice.percent(30),
            is_helped: dice.percent(85),
            cores: dice.pick(&[0.5, 1.0, 4.0]),
        }
    };
    (0..workers).map(|worker| if help == Help::Crowd { crowd(worker) } else { any(worker) }).collect()
}

/// Returns a job with a dataset of its own, or with that of another job.
fn dataset(number: usize, help: Help, same: Option<&JobDataset>, dice: &mut Dice) -> JobDataset {
    let (fewest, smallest) = if help == Help::No { (4, 1) } else { (16, 8) };
    let blocks: Vec<u32> = (0..dice.within(fewest, 24)).map(|_| dice.within(smallest, 16) as u32).collect();
    let blocks = if blocks.iter().sum::<u32>() < 20 { vec![8; 5] } else { blocks };
    let blocks = same.map_or(blocks, |same| same.blocks.clone());
    let samples: u64 = blocks.iter().map(|block| u64::from(*block)).sum();
    let global_batch = dice.within(4, 16) as u32;
    let lanes = dice.pick(&[1, 2, 3, 4]);
    let order = OrderParams {
        version: 1,
        lanes,
        window: dice.within(1, samples / u64::from(lanes)),
        shuffle: dice.percent(90),
    };
    let seed = dice.bits();
    let bad: BTreeSet<u64> = if dice.percent(50) {
        (0..dice.within(1, 4)).map(|_| dice.bits() % samples).collect()
    } else {
        BTreeSet::new()
    };
    let bad = same.map_or(bad, |same| same.bad.clone());
    let dataset_fingerprint = same.map_or(Fingerprint(1 + number as u128), |same| same.job.dataset_fingerprint);
    // A source of few samples may have no good substitute.
    let is_blend = bad.is_empty() && blocks.len() > 1 && dice.percent(50);
    // Most jobs tolerate all of their bad samples.
    let fails = !bad.is_empty() && dice.percent(12);
    let allowed = dice.index(bad.len().max(1)) as f64 / samples as f64;
    let policies = match fails && dice.percent(50) {
        true => [BadSamples::Fail; 3],
        false => [BadSamples::Substitute, BadSamples::Substitute, BadSamples::Mask],
    };
    let columns = vec![Column::new("label", "cls", ColumnKind::Int(IntColumn), DType::I64)];
    let job = Job {
        name: format!("train{number}"),
        dataset_fingerprint,
        seed,
        epochs: dice.within(1, 3),
        epoch_end: dice.pick(&[
            EpochEnd::Drop,
            EpochEnd::Pad,
            EpochEnd::Continuous,
            EpochEnd::Exact,
            EpochEnd::Partial,
        ]),
        bad_samples: dice.pick(&policies),
        max_bad_fraction: if fails { allowed } else { 1.0 },
        order,
        ..testing::job(samples, global_batch, columns)
    };
    if !is_blend {
        let ends_early = dice.percent(25);
        let ends = (samples * (job.epochs - 1) + 20, samples * job.epochs);
        let total_samples = ends_early.then(|| dice.within(ends.0, ends.1));
        let job = Job { total_samples, ..job };
        return JobDataset { plan: plan_of(&job, &blocks, &[]), job, blocks, sources: Vec::new(), bad };
    }
    let mut sources = vec![0, 1 + dice.index(blocks.len() - 1)];
    if dice.percent(40) {
        sources.push(1 + dice.index(blocks.len() - 1));
    }
    sources.sort_unstable();
    sources.dedup();
    let job = blend(job, &blocks, &sources, dice);
    JobDataset { plan: plan_of(&job, &blocks, &sources), job, blocks, sources, bad }
}
