//! A trainer's steps with a loader, compared with the same steps on one batch that is already on the device.

use std::time::Instant;

use serde_json::json;
use spdl_gpu::{Device, DeviceBatch, DeviceOptions, NormaliseColumn};

use crate::{
    bandwidth::median,
    busy::{Burn, THREADS},
    checks::{TIMEOUT, words},
    feed::{FeedConfig, Refill},
    raw::{Mark, TrainerContext, TrainerStream},
    report::{StepReport, StepResult},
    steps::StepArgs,
};

/// The most words that the kernel for a step reads.
const STEP_WORDS: usize = 1024 * THREADS;
/// The highest ratio of the two steps that reaches the target.
const TARGET: f64 = 1.02;

/// Measures steps of `args.step_ms`, with pictures that the device normalises if `normalise` is given.
///
/// # Errors
/// Returns the device's error.
pub fn step(args: &StepArgs, normalise: Option<NormaliseColumn>) -> StepResult {
    let (device, trainer) = args.open()?;
    let step_ms = if args.quick { 0.001 } else { args.step_ms };
    let (cached_ms, loader_ms) = measure(&device, &trainer, args.feed(200), normalise, step_ms, args.rounds())?;
    let ratio = loader_ms / cached_ms;
    let text = format!("{loader_ms:.3} ms with the loader, {cached_ms:.3} ms cached: {ratio:.3} (at most {TARGET})");
    let figures = [("loader_ms", loader_ms), ("cached_ms", cached_ms), ("ratio", ratio)];
    let report = StepReport::measured(ratio <= TARGET, text);
    Ok(figures.into_iter().fold(report, |report, (name, value)| report.figure(name, json!(value))))
}

/// Runs a trainer's steps: a kernel that begins with the batch's pixels, on the trainer's stream.
struct TrainerSteps<'a> {
    trainer: &'a TrainerContext,
    burn: &'a Burn<'a>,
    stream: TrainerStream,
    last: Option<Mark>,
}

impl<'a> TrainerSteps<'a> {
    fn new(trainer: &'a TrainerContext, burn: &'a Burn<'a>) -> Self {
        Self { trainer, burn, stream: trainer.stream(), last: None }
    }

    /// Queues a step, and waits for the previous one: a trainer is one step ahead of its device.
    fn step(&mut self, pixels: u64) {
        self.burn.put_after_read(self.stream, pixels);
        if let Some(last) = self.last.replace(self.trainer.mark(self.stream)) {
            last.wait();
        }
    }

    fn end(self) {
        self.trainer.end(self.stream);
    }
}

/// Returns the address of a batch's pixels, and their bytes.
fn pixels(batch: &DeviceBatch) -> Result<(u64, usize), String> {
    let image = batch.column("image").map_err(|error| error.to_string())?.values();
    Ok((image.address() as u64, image.bytes()))
}

/// Measures steps on one cached batch and steps with a loader, alternately; returns the milliseconds of both. Each step
/// takes about `step_ms`, which must be longer than a copy: otherwise the bus is the limit, and not the loader.
fn measure(
    device: &Device,
    trainer: &TrainerContext,
    config: FeedConfig,
    normalise: Option<NormaliseColumn>,
    step_ms: f64,
    rounds: usize,
) -> Result<(f64, f64), String> {
    let config = FeedConfig { refill: Refill::Once, ..config };
    let options = DeviceOptions { normalise: normalise.into_iter().collect(), ..DeviceOptions::default() };
    let (mut loader, _slab) = config.start(device, options.clone(), TIMEOUT).map_err(words)?;
    let cached = loader.next_batch().map_err(words)?.ok_or("no batch")?;
    drop(loader);
    cached.synchronise().map_err(words)?;
    let (address, bytes) = pixels(&cached)?;
    let burn = Burn::new(trainer, ((bytes / 4).min(STEP_WORDS) / THREADS) as u32, step_ms);
    let (mut of_cached, mut of_loader) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut steps = TrainerSteps::new(trainer, &burn);
        steps.step(address);
        let start = Instant::now();
        for _ in 0..config.batches {
            steps.step(address);
        }
        trainer.synchronise(steps.stream);
        of_cached.push(start.elapsed().as_secs_f64() * 1e3 / config.batches as f64);
        steps.end();
        of_loader.push(with_loader(device, trainer, config, options.clone(), &burn)?);
    }
    Ok((median(of_cached), median(of_loader)))
}

/// Returns the milliseconds of a step with a loader.
fn with_loader(
    device: &Device,
    trainer: &TrainerContext,
    config: FeedConfig,
    options: DeviceOptions,
    burn: &Burn<'_>,
) -> Result<f64, String> {
    // The first batches are not timed, because pages are locked meanwhile.
    let first = u64::from(config.slots) + 2;
    let config = FeedConfig { batches: config.batches + first, ..config };
    let (mut loader, _slab) = config.start(device, options, TIMEOUT).map_err(words)?;
    let mut steps = TrainerSteps::new(trainer, burn);
    let mut start = Instant::now();
    let mut count = 0;
    while let Some(batch) = loader.next_batch().map_err(words)? {
        batch.wait_on(steps.stream.handle()).map_err(words)?;
        steps.step(pixels(&batch)?.0);
        count += 1;
        if count == first {
            trainer.synchronise(steps.stream);
            start = Instant::now();
        }
    }
    trainer.synchronise(steps.stream);
    let ms = start.elapsed().as_secs_f64() * 1e3 / (count - first) as f64;
    drop(loader);
    steps.end();
    Ok(ms)
}
