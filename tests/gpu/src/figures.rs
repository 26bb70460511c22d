//! What a GPU gives: bandwidth of the last copy beside a bare one, steps with a loader beside steps without, and
//! what of a batch passes through the processor.

use std::time::Instant;

use spdl_client::device::{Device, DeviceBatch, DeviceOptions, NormaliseColumn};
use spdl_wire::layout::{Entry, Header};

use crate::{
    checks::TIMEOUT,
    feed::{Recipe, Refill},
    raw::{Mark, Trainer, TrainerStream},
};

/// Bandwidth of copies to the device.
#[derive(Clone, Copy, Debug)]
pub struct Bandwidth {
    /// Bytes of a batch.
    pub batch_bytes: usize,
    /// 10^9 bytes per second of bare asynchronous copies, back to back, from page-locked memory.
    pub bare_gb_s: f64,
    /// 10^9 bytes per second of a loader's batches, whose slots are always full.
    pub loader_gb_s: f64,
}

/// Steps of a trainer.
#[derive(Clone, Copy, Debug)]
pub struct Overlap {
    /// Milliseconds of a step on one batch that is on the device already.
    pub cached_ms: f64,
    /// Milliseconds of a step on a loader's batches.
    pub loader_ms: f64,
}

/// What of a batch passes through the processor.
#[derive(Clone, Copy, Debug)]
pub struct Processor {
    /// Bytes of a batch that the client reads and writes: header and entries. No column is among them.
    pub bytes_by_processor: usize,
    /// Milliseconds of the processor that the whole process took for a batch.
    pub processor_ms: f64,
}

/// The best and the median of rounds.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Seconds of the processor that this process has used, ended threads too; in hundredths, as the system counts.
fn processor_s() -> f64 {
    const TICKS_PER_S: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in brackets may hold anything; user and system time are the 12th and 13th number after it.
    let numbers = stat.rsplit_once(')').map_or("", |(_, numbers)| numbers).split_whitespace();
    numbers.skip(11).take(2).filter_map(|text| text.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_S
}

/// Bare copies and a loader's, in turns, `rounds` rounds of `recipe.batches` batches.
///
/// # Errors
/// What the device says.
pub fn bandwidth(
    device: &Device,
    trainer: &Trainer,
    recipe: Recipe,
    rounds: usize,
) -> Result<(Bandwidth, Processor), String> {
    let recipe = Recipe { refill: Refill::Once, ..recipe };
    let (mut bare, mut loader, mut processor) = (Vec::new(), Vec::new(), Vec::new());
    let mut batch_bytes = 0;
    for _ in 0..rounds {
        let (bytes, gb_s, processor_ms) = of_loader(device, trainer, recipe)?;
        batch_bytes = bytes;
        loader.push(gb_s);
        processor.push(processor_ms);
        bare.push(of_bare_copies(trainer, bytes, recipe.batches));
    }
    let bytes_by_processor = size_of::<Header>() + recipe.samples as usize * size_of::<Entry>();
    Ok((
        Bandwidth { batch_bytes, bare_gb_s: median(bare), loader_gb_s: median(loader) },
        Processor { bytes_by_processor, processor_ms: median(processor) },
    ))
}

/// Two buffers on each side, copied in turns.
fn of_bare_copies(trainer: &Trainer, bytes: usize, batches: u64) -> f64 {
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

/// All batches, each dropped as soon as a stream of the trainer's was told to wait for it. The first slots' worth is
/// not timed: their pages are locked and filled meanwhile.
fn of_loader(device: &Device, trainer: &Trainer, recipe: Recipe) -> Result<(usize, f64, f64), String> {
    let stream = trainer.stream();
    let recipe = Recipe { batches: recipe.batches + u64::from(recipe.slots) * 2, ..recipe };
    let words = |error: spdl_client::ClientError| error.to_string();
    let (mut loader, _slab) = recipe.start(device, DeviceOptions::default(), TIMEOUT).map_err(words)?;
    let (mut start, mut bytes, mut count) = (None, 0, 0u64);
    while let Some(batch) = loader.next_batch().map_err(words)? {
        batch.wait_on(stream.handle()).map_err(|error| error.to_string())?;
        bytes = batch.header().used_bytes as usize;
        count += u64::from(start.is_some());
        if batch.from().offset >= u64::from(recipe.slots * 2 - 1) * u64::from(recipe.samples) && start.is_none() {
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

/// Words that the kernel takes that stands for a step, at most.
const STEP_WORDS: usize = 1024 * THREADS;
/// Threads of a block of it.
const THREADS: usize = 256;

/// A trainer's step: a kernel that begins with the batch's pixels, on the trainer's stream.
struct Steps<'a> {
    trainer: &'a Trainer,
    stream: TrainerStream,
    out: u64,
    blocks: u32,
    rounds: u64,
    last: Option<Mark>,
}

impl<'a> Steps<'a> {
    /// With as many words of a batch's pixels as it needs, or as there are.
    fn new(trainer: &'a Trainer, pixel_bytes: usize, rounds: u64) -> Self {
        let blocks = (pixel_bytes / 4).min(STEP_WORDS) / THREADS;
        let out = trainer.allocate(blocks * THREADS * 4);
        Self { trainer, stream: trainer.stream(), out, blocks: blocks as u32, rounds, last: None }
    }

    /// Puts a step on the stream, and waits for the one before: a trainer is one step ahead of its device.
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

/// Where a batch's pixels are, and how many bytes they have.
fn pixels(batch: &DeviceBatch) -> Result<(u64, usize), String> {
    let image = batch.column("image").map_err(|error| error.to_string())?.values();
    Ok((image.address() as u64, image.bytes()))
}

/// Steps on one cached batch, and steps with a loader, in turns. Each takes about `step_ms`, which has to be longer than a
/// copy: else the bus is what limits, and not the loader.
///
/// # Errors
/// What the device says.
pub fn overlap(
    device: &Device,
    trainer: &Trainer,
    recipe: Recipe,
    normalise: Option<NormaliseColumn>,
    step_ms: f64,
    repeats: usize,
) -> Result<Overlap, String> {
    let recipe = Recipe { refill: Refill::Once, ..recipe };
    let words = |error: spdl_client::ClientError| error.to_string();
    let options = DeviceOptions { normalise: normalise.into_iter().collect(), ..DeviceOptions::default() };
    let (mut loader, _slab) = recipe.start(device, options.clone(), TIMEOUT).map_err(words)?;
    let cached = loader.next_batch().map_err(words)?.ok_or("no batch")?;
    drop(loader);
    cached.synchronise().map_err(|error| error.to_string())?;
    let (address, bytes) = pixels(&cached)?;
    let rounds = rounds_for(trainer, address, bytes, step_ms);
    let (mut of_cached, mut of_loader) = (Vec::new(), Vec::new());
    for _ in 0..repeats {
        let mut steps = Steps::new(trainer, bytes, rounds);
        steps.step(address);
        let start = Instant::now();
        for _ in 0..recipe.batches {
            steps.step(address);
        }
        trainer.synchronise(steps.stream);
        of_cached.push(start.elapsed().as_secs_f64() * 1e3 / recipe.batches as f64);
        steps.end();
        of_loader.push(steps_with_loader(device, trainer, recipe, options.clone(), bytes, rounds)?);
    }
    Ok(Overlap { cached_ms: median(of_cached), loader_ms: median(of_loader) })
}

fn steps_with_loader(
    device: &Device,
    trainer: &Trainer,
    recipe: Recipe,
    options: DeviceOptions,
    bytes: usize,
    rounds: u64,
) -> Result<f64, String> {
    let words = |error: spdl_client::ClientError| error.to_string();
    // The first batches are not timed: pages are locked meanwhile.
    let first = u64::from(recipe.slots) + 2;
    let recipe = Recipe { batches: recipe.batches + first, ..recipe };
    let (mut loader, _slab) = recipe.start(device, options, TIMEOUT).map_err(words)?;
    let mut steps = Steps::new(trainer, bytes, rounds);
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

/// Rounds of arithmetic that keep the device busy for about so long.
fn rounds_for(trainer: &Trainer, pixels: u64, bytes: usize, step_ms: f64) -> u64 {
    let mut rounds = 16;
    loop {
        let mut steps = Steps::new(trainer, bytes, rounds);
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
