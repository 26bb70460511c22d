//! The bandwidth of the copy to the device, compared with a bare copy, and the part of a batch that the CPU touches.

use std::time::Instant;

use spdl_gpu::{Device, DeviceOptions};
use spdl_job::layout::{Entry, Header};

use crate::{
    checks::{TIMEOUT, words},
    feed::{FeedConfig, Refill},
    raw::TrainerContext,
    report::{StepReport, StepResult},
    steps::StepArgs,
};

/// The lowest ratio of the two bandwidths that reaches the target.
const TARGET: f64 = 0.95;
/// The bytes that a round copies: a third of a second at 20 GB/s.
const ROUND_BYTES: u64 = 6 << 30;
/// The fewest batches of a round.
const LEAST_BATCHES: u64 = 24;

/// Measures batches of so many samples.
///
/// # Errors
/// Returns the device's error.
pub fn step(args: &StepArgs, samples: u32) -> StepResult {
    let (device, trainer) = args.open()?;
    let samples = if args.quick { samples / 16 } else { samples };
    let config = FeedConfig { samples, refill: Refill::Once, ..args.feed(LEAST_BATCHES) };
    let pixel_bytes = u64::from(config.size[0]) * u64::from(config.size[1]) * 3 * u64::from(samples);
    let batches = if args.quick { config.batches } else { (ROUND_BYTES / pixel_bytes).max(LEAST_BATCHES) };
    let config = FeedConfig { batches, ..config };
    let (mut bare, mut loader, mut processor) = (Vec::new(), Vec::new(), Vec::new());
    let mut batch_bytes = 0;
    for _ in 0..args.rounds() {
        let (bytes, gb_s, processor_ms) = of_loader(&device, &trainer, config)?;
        batch_bytes = bytes;
        loader.push(gb_s);
        processor.push(processor_ms);
        bare.push(of_bare_copies(&trainer, bytes, config.batches));
    }
    let (bare, loader, processor_ms) = (median(bare), median(loader), median(processor));
    let ratio = loader / bare;
    let by_processor = size_of::<Header>() + samples as usize * size_of::<Entry>();
    let text = format!(
        "{loader:.2} GB/s, bare {bare:.2} GB/s: {ratio:.3} (at least {TARGET}); {by_processor} of {batch_bytes} bytes \
         and {processor_ms:.3} ms by the processor"
    );
    Ok(StepReport::measured(ratio >= TARGET, text)
        .figure("batch_bytes", batch_bytes)
        .figure("bare_gb_s", bare)
        .figure("loader_gb_s", loader)
        .figure("ratio", ratio)
        .figure("bytes_by_processor", by_processor)
        .figure("processor_ms_per_batch", processor_ms))
}

/// Returns the median of the rounds.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the CPU time in seconds that this process has used, including ended threads; in steps of 10 ms, the system's
/// resolution.
fn processor_s() -> f64 {
    const TICKS_PER_S: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may contain anything; user and system time are the 12th and 13th number after it.
    let numbers = stat.rsplit_once(')').map_or("", |(_, numbers)| numbers).split_whitespace();
    numbers.skip(11).take(2).filter_map(|text| text.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_S
}

/// Measures bare copies, alternately between two buffers on each side; returns 10^9 bytes per second.
fn of_bare_copies(trainer: &TrainerContext, bytes: usize, batches: u64) -> f64 {
    let stream = trainer.stream();
    let sides = [0, 1].map(|_| (trainer.allocate_host(bytes), trainer.allocate(bytes)));
    let copy = |count: u64| {
        for (_, (from, to)) in (0..count).zip(sides.iter().cycle()) {
            trainer.copy(stream, *to, *from, bytes);
        }
        trainer.synchronise(stream);
    };
    copy(4);
    let start = Instant::now();
    copy(batches);
    let seconds = start.elapsed().as_secs_f64();
    trainer.end(stream);
    for (from, to) in sides {
        trainer.free_host(from);
        trainer.free(to);
    }
    bytes as f64 * batches as f64 / seconds / 1e9
}

/// Measures a loader whose slots are always full: the bytes of a batch, 10^9 bytes per second, and milliseconds of CPU
/// time per batch. Each batch is dropped as soon as a stream of the trainer's waits for it. The batches of the first
/// two rounds of slots are not timed, because their pages are locked and filled meanwhile.
fn of_loader(device: &Device, trainer: &TrainerContext, config: FeedConfig) -> Result<(usize, f64, f64), String> {
    let stream = trainer.stream();
    let config = FeedConfig { batches: config.batches + u64::from(config.slots) * 2, ..config };
    let (mut loader, _slab) = config.start(device, DeviceOptions::default(), TIMEOUT).map_err(words)?;
    let (mut start, mut bytes, mut count) = (None, 0, 0u64);
    while let Some(batch) = loader.next_batch().map_err(words)? {
        batch.wait_on(stream.handle()).map_err(words)?;
        bytes = batch.header().used_bytes as usize;
        count += u64::from(start.is_some());
        if batch.from().offset >= u64::from(config.slots * 2 - 1) * u64::from(config.samples) && start.is_none() {
            trainer.synchronise(stream);
            start = Some((Instant::now(), processor_s()));
        }
    }
    trainer.synchronise(stream);
    let (start, processor) = start.ok_or("too few batches")?;
    let seconds = start.elapsed().as_secs_f64();
    let processor_ms = (processor_s() - processor) * 1e3 / count as f64;
    drop(loader);
    trainer.end(stream);
    Ok((bytes, bytes as f64 * count as f64 / seconds / 1e9, processor_ms))
}
