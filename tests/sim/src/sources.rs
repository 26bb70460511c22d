//! Jobs that blend sources: their weights, stages, and how often each may come.

use spdl_job::{Job, JobSource};
use spdl_order::{BlendSource, BlendStage, Plan, WhenDone, blend_weights};

use crate::{dice::Dice, sizes::bucketed};

/// A source that ends the stream gives at least so many samples before: more than the batches of all launches have.
const LEAST_GIVEN: u64 = 32;

/// Returns the blocks of each source.
fn source_blocks<'b>(blocks: &'b [u32], sources: &'b [usize]) -> impl Iterator<Item = &'b [u32]> {
    let ends = sources.iter().skip(1).copied().chain([blocks.len()]);
    sources.iter().zip(ends).map(|(from, end)| &blocks[*from..end])
}

/// Returns a job that blends its dataset's blocks from these on as sources, with stages. Some may come only so often.
pub(crate) fn blend(job: Job, blocks: &[u32], sources: &[usize], dice: &mut Dice) -> Job {
    let weights = some_weights(sources.len(), dice);
    let all = source_blocks(blocks, sources).zip(weights).enumerate();
    let all = all.map(|(number, (blocks, weight))| {
        let samples: u64 = blocks.iter().map(|block| u64::from(*block)).sum();
        let lanes = dice.within(1, samples.min(4)) as u32;
        JobSource {
            name: format!("source{number}"),
            dataset: format!("data{number}"),
            dataset_fingerprint: job.dataset_fingerprint,
            view: None,
            samples,
            ids: samples,
            weight,
            lanes,
            window: dice.within(1, samples),
            max_epochs: None,
            when_done: None,
            packed: None,
        }
    });
    let all: Vec<JobSource> = all.collect();
    let samples = dice.within(job.samples.div_ceil(2).max(20), 2 * job.samples);
    let mut stages: Vec<BlendStage> = Vec::new();
    for _ in 0..dice.index(3) {
        let from = stages.last().map_or(0, |stage| stage.from) + dice.within(1, samples);
        stages.push(BlendStage { from, weights: some_weights(sources.len(), dice) });
    }
    let job = Job { dataset: String::new(), sources: all, stages, samples, ..job };
    if dice.percent(70) { limited(job, dice) } else { job }
}

/// Returns the job in which some sources may come only so often. If the stream would end before a stage, it has none.
fn limited(mut job: Job, dice: &mut Dice) -> Job {
    for source in &mut job.sources {
        if dice.percent(80) {
            let most = LEAST_GIVEN.div_ceil(source.samples) + dice.within(0, 2);
            source.max_epochs = Some(most as u32);
            source.when_done =
                Some(dice.pick(&[WhenDone::Stop, WhenDone::Reweight, WhenDone::Reweight, WhenDone::Repeat]));
        }
    }
    job.clone().with_limits().unwrap_or_else(|_| {
        let job = Job { stages: Vec::new(), ..job };
        job.with_limits().expect("without stages, none begins after the end")
    })
}

/// Returns weights of which none is 0.
pub(crate) fn some_weights(sources: usize, dice: &mut Dice) -> Vec<u32> {
    let shares: Vec<f64> = (0..sources).map(|_| dice.within(1, 9) as f64).collect();
    blend_weights(&shares)
}

/// Returns the stream of a job whose dataset has these blocks.
pub(crate) fn plan_of(job: &Job, blocks: &[u32], sources: &[usize]) -> Plan {
    let redacting = |plan: Plan| plan.redacting(&job.redactions).expect("few samples are redacted");
    if sources.is_empty() {
        let plan = Plan::new(blocks, job.seed, job.order).expect("these parameters make a stream");
        return redacting(bucketed(plan, job));
    }
    let of_source = |(block_samples, source): (_, &JobSource)| BlendSource {
        block_samples,
        view: None,
        weight: source.weight,
        order: source.order(job.order),
    };
    let all: Vec<_> = source_blocks(blocks, sources).zip(&job.sources).map(of_source).collect();
    redacting(Plan::of_sources(&all, &job.stages, job.samples, job.seed).expect("these parameters make a stream"))
}
