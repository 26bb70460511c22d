//! Measurements on a GPU: the bandwidth of the copy to the device compared with a bare copy, steps with a loader
//! compared with steps without, and the part of a batch that the CPU touches.

use std::time::Instant;

use spdl_core::layout::{Entry, Header};
use spdl_gpu::{Device, DeviceBatch, DeviceError, DeviceOptions, NormaliseColumn};

use crate::{
    checks::TIMEOUT,
    feed::{FeedConfig, Refill},
    raw::{Mark, TrainerContext, TrainerStream},
};

/// The bandwidth of copies to the device.
#[derive(Clone, Copy, Debug)]
pub struct Bandwidth {
    /// Bytes of a batch.
    pub batch_bytes: usize,
    /// The bandwidth of bare asynchronous copies, back to back, from page-locked memory, in 10^9 bytes per second.
    pub bare_gb_s: f64,
    /// The bandwidth of a loader's batches, whose slots are always full, in 10^9 bytes per second.
    pub loader_gb_s: f64,
}

/// The times of a trainer's steps.
#[derive(Clone, Copy, Debug)]
pub struct Overlap {
    /// Milliseconds of a step on one batch that is already on the device.
    pub cached_ms: f64,
    /// Milliseconds of a step on a loader's batches.
    pub loader_ms: f64,
}

/// The part of a batch that the CPU touches.
#[derive(Clone, Copy, Debug)]
pub struct Processor {
    /// Bytes of a batch that the client reads and writes: header and entries, but no column.
    pub bytes_by_processor: usize,
    /// CPU time of the whole process for a batch, in milliseconds.
    pub processor_ms: f64,
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

/// Measures bare copies and a loader's copies alternately, in `rounds` rounds of `config.batches` batches.
///
/// The device's error.
pub fn bandwidth(
    device: &Device,
    trainer: &TrainerContext,
    config: FeedConfig,
    rounds: usize,
) -> Result<(Bandwidth, Processor), String> {
    let config = FeedConfig { refill: Refill::Once, ..config };
    let (mut bare, mut loader, mut processor) = (Vec::new(), Vec::new(), Vec::new());
    let mut batch_bytes = 0;
    for _ in 0..rounds {
        let (bytes, gb_s, processor_ms) = of_loader(device, trainer, config)?;
        batch_bytes = bytes;
        loader.push(gb_s);
        processor.push(processor_ms);
        bare.push(of_bare_copies(trainer, bytes, config.batches));
    }
    let bytes_by_processor = size_of::<Header>() + config.samples as usize * size_of::<Entry>();
    Ok((
        Bandwidth { batch_bytes, bare_gb_s: median(bare), loader_gb_s: median(loader) },
        Processor { bytes_by_processor, processor_ms: median(processor) },
    ))
}

/// Measures bare copies, alternately between two buffers on each side.
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

/// Measures a loader. Each batch is dropped as soon as a stream of the trainer's waits for it. The batches of the first
/// two rounds of slots are not timed, because their pages are locked and filled meanwhile.
fn of_loader(device: &Device, trainer: &TrainerContext, config: FeedConfig) -> Result<(usize, f64, f64), String> {
    let stream = trainer.stream();
    let config = FeedConfig { batches: config.batches + u64::from(config.slots) * 2, ..config };
    let words = |error: DeviceError| error.to_string();
    let (mut loader, _slab) = config.start(device, DeviceOptions::default(), TIMEOUT).map_err(words)?;
    let (mut start, mut bytes, mut count) = (None, 0, 0u64);
    while let Some(batch) = loader.next_batch().map_err(words)? {
        batch.wait_on(stream.handle()).map_err(|error| error.to_string())?;
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

/// The most words that the kernel for a step reads.
const STEP_WORDS: usize = 1024 * THREADS;
/// The threads of a block of this kernel.
const THREADS: usize = 256;

/// Runs a trainer's steps: a kernel that begins with the batch's pixels, on the trainer's stream.
struct TrainerSteps<'a> {
    trainer: &'a TrainerContext,
    stream: TrainerStream,
    out: u64,
    blocks: u32,
    rounds: u64,
    last: Option<Mark>,
}

impl<'a> TrainerSteps<'a> {
    /// Makes steps that read as many words of a batch's pixels as the kernel needs, or as there are.
    fn new(trainer: &'a TrainerContext, pixel_bytes: usize, rounds: u64) -> Self {
        let blocks = (pixel_bytes / 4).min(STEP_WORDS) / THREADS;
        let out = trainer.allocate(blocks * THREADS * 4);
        Self { trainer, stream: trainer.stream(), out, blocks: blocks as u32, rounds, last: None }
    }

    /// Enqueues a step on the stream, and waits for the previous one: a trainer is one step ahead of its device.
    fn step(&mut self, pixels: u64) {
        self.trainer.burn(self.stream, self.blocks, pixels, self.rounds, self.out);
        if let Some(last) = self.last.replace(self.trainer.mark(self.stream)) {
            last.wait();
        }
    }

    fn end(self) {
        self.trainer.end(self.stream);
        self.trainer.free(self.out);
    }
}

/// Returns the address of a batch's pixels, and their bytes.
fn pixels(batch: &DeviceBatch) -> Result<(u64, usize), String> {
    let image = batch.column("image").map_err(|error| error.to_string())?.values();
    Ok((image.address() as u64, image.bytes()))
}

/// Measures steps on one cached batch and steps with a loader, alternately. Each step takes about `step_ms`, which must
/// be longer than a copy: otherwise the bus is the limit, and not the loader.
///
/// The device's error.
pub fn overlap(
    device: &Device,
    trainer: &TrainerContext,
    config: FeedConfig,
    normalise: Option<NormaliseColumn>,
    step_ms: f64,
    repeats: usize,
) -> Result<Overlap, String> {
    let config = FeedConfig { refill: Refill::Once, ..config };
    let words = |error: DeviceError| error.to_string();
    let options = DeviceOptions { normalise: normalise.into_iter().collect(), ..DeviceOptions::default() };
    let (mut loader, _slab) = config.start(device, options.clone(), TIMEOUT).map_err(words)?;
    let cached = loader.next_batch().map_err(words)?.ok_or("no batch")?;
    drop(loader);
    cached.synchronise().map_err(|error| error.to_string())?;
    let (address, bytes) = pixels(&cached)?;
    let rounds = rounds_for(trainer, address, bytes, step_ms);
    let (mut of_cached, mut of_loader) = (Vec::new(), Vec::new());
    for _ in 0..repeats {
        let mut steps = TrainerSteps::new(trainer, bytes, rounds);
        steps.step(address);
        let start = Instant::now();
        for _ in 0..config.batches {
            steps.step(address);
        }
        trainer.synchronise(steps.stream);
        of_cached.push(start.elapsed().as_secs_f64() * 1e3 / config.batches as f64);
        steps.end();
        of_loader.push(steps_with_loader(device, trainer, config, options.clone(), bytes, rounds)?);
    }
    Ok(Overlap { cached_ms: median(of_cached), loader_ms: median(of_loader) })
}

fn steps_with_loader(
    device: &Device,
    trainer: &TrainerContext,
    config: FeedConfig,
    options: DeviceOptions,
    bytes: usize,
    rounds: u64,
) -> Result<f64, String> {
    let words = |error: DeviceError| error.to_string();
    // The first batches are not timed, because pages are locked meanwhile.
    let first = u64::from(config.slots) + 2;
    let config = FeedConfig { batches: config.batches + first, ..config };
    let (mut loader, _slab) = config.start(device, options, TIMEOUT).map_err(words)?;
    let mut steps = TrainerSteps::new(trainer, bytes, rounds);
    let mut start = Instant::now();
    let mut count = 0;
    while let Some(batch) = loader.next_batch().map_err(words)? {
        batch.wait_on(steps.stream.handle()).map_err(|error| error.to_string())?;
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

/// Returns the rounds of arithmetic that keep the device busy for about `step_ms`.
fn rounds_for(trainer: &TrainerContext, pixels: u64, bytes: usize, step_ms: f64) -> u64 {
    let mut rounds = 16;
    loop {
        let mut steps = TrainerSteps::new(trainer, bytes, rounds);
        steps.step(pixels);
        trainer.synchronise(steps.stream);
        let start = Instant::now();
        steps.step(pixels);
        trainer.synchronise(steps.stream);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        steps.end();
        if ms >= step_ms / 4.0 || rounds > 1 << 40 {
            return ((rounds as f64 * step_ms / ms) as u64).max(1);
        }
        rounds *= 4;
    }
}
