//! Checks that no batch is torn: a trainer's kernel reads each batch completely, although the batch is dropped before
//! the kernel has begun.

use std::thread;

use spdl_gpu::{Device, DeviceBatch, DeviceOptions};

use crate::{
    busy::Burn,
    checks::{TIMEOUT, pixels, words},
    feed::FeedConfig,
    raw::{TrainerContext, TrainerStream},
    report::{StepReport, StepResult},
    steps::StepArgs,
};

/// How long the stream is busy before each sum, so that no sum has begun when its batch is dropped. The control shows
/// that it is long enough, and doubles it where it is not: on a host whose threads wait long for a core.
const BURN_MS: f64 = 20.0;
const MOST_BURN_MS: f64 = 700.0;
/// The batches that the control overwrites.
const CONTROL_BATCHES: u64 = 3;
/// The bytes of a batch that the control overwrites.
const CONTROL_BYTES: usize = 1 << 20;

/// A kind of stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamCase {
    /// One that the trainer has created, which does not wait for the default stream.
    Side,
    /// The default stream of the device.
    Default,
    /// The default stream of the thread. Another thread drops every second batch.
    PerThread,
}

impl StreamCase {
    fn stream(self, trainer: &TrainerContext) -> TrainerStream {
        match self {
            Self::Side => trainer.stream(),
            Self::Default => TrainerStream::DEFAULT,
            Self::PerThread => TrainerStream::PER_THREAD,
        }
    }
}

/// Runs the control, and then the check.
///
/// # Errors
/// Returns the first batch that was torn, or that the control did not tear its batches.
pub fn step(args: &StepArgs, kind: StreamCase) -> StepResult {
    let (device, trainer) = args.open()?;
    let burn_ms = proven_burn_ms(&device, &trainer, args.feed(100), kind)?;
    let whole = check(&device, &trainer, args.feed(100), kind, burn_ms)?;
    let late_ms = Burn::new(&trainer, 1, burn_ms).measure_ms();
    let words = format!(
        "{whole} batches whole, 2 buffers, each sum {late_ms:.0} ms late; the control tore {CONTROL_BATCHES} of {CONTROL_BATCHES}"
    );
    Ok(StepReport::ok(words).figure("burn_ms", burn_ms))
}

/// The sums that a trainer's kernels compute, and those that they must give.
struct Sums<'a> {
    trainer: &'a TrainerContext,
    memory: u64,
    expected: Vec<u64>,
}

impl<'a> Sums<'a> {
    fn new(trainer: &'a TrainerContext, batches: u64) -> Self {
        let memory = trainer.allocate(batches as usize * 8);
        trainer.write(memory, &vec![0; batches as usize]);
        Self { trainer, memory, expected: Vec::new() }
    }

    /// Queues the sum of a batch's pixels on the stream, after the batch's copy and after `burn`. Returns the address of
    /// the pixels, and their bytes.
    fn put(&mut self, batch: &DeviceBatch, stream: TrainerStream, burn: &Burn<'_>) -> Result<(u64, usize), String> {
        let image = batch.column("image").map_err(|error| error.to_string())?.values();
        let (address, bytes) = (image.address() as u64, image.bytes() / 4 * 4);
        batch.wait_on(stream.handle()).map_err(words)?;
        burn.put(stream);
        self.trainer.sum(stream, address, bytes, self.memory + self.expected.len() as u64 * 8);
        Ok((address, bytes))
    }

    /// Adds what the sum of the batch with these pixels must be.
    fn expect(&mut self, pixels: &[u8]) {
        let (words, _) = pixels.as_chunks::<4>();
        self.expected.push(words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum());
    }

    /// Waits for the stream; returns the sums and what they must be.
    fn end(self, stream: TrainerStream) -> Vec<(u64, u64)> {
        self.trainer.synchronise(stream);
        let read = self.trainer.read(self.memory, self.expected.len());
        self.trainer.free(self.memory);
        self.trainer.end(stream);
        read.into_iter().zip(self.expected).collect()
    }
}

/// Checks that, under load and with the fewest buffers, a trainer's kernel on a stream of this kind reads each batch
/// completely, although the batch is dropped before the kernel has begun, and although every slot is overwritten as
/// soon as it is free. Returns how many batches were read.
///
/// # Errors
/// Returns the first batch that was torn.
pub fn check(
    device: &Device,
    trainer: &TrainerContext,
    config: FeedConfig,
    kind: StreamCase,
    burn_ms: f64,
) -> Result<u64, String> {
    let options = DeviceOptions { buffers: 2, ..DeviceOptions::default() };
    let burn = Burn::new(trainer, 1, burn_ms);
    let stream = kind.stream(trainer);
    let mut sums = Sums::new(trainer, config.batches);
    {
        let (mut loader, _slab) = config.start(device, options, TIMEOUT).map_err(words)?;
        while let Some(batch) = loader.next_batch().map_err(words)? {
            let (_, bytes) = sums.put(&batch, stream, &burn)?;
            let pixels = pixels(&batch, bytes / batch.len());
            if kind == StreamCase::PerThread && sums.expected.len() % 2 == 1 {
                thread::spawn(move || drop(batch)).join().map_err(|_| "the thread that drops a batch panics")?;
            } else {
                drop(batch);
            }
            sums.expect(&pixels);
        }
        trainer.synchronise(stream);
    }
    let sums = sums.end(stream);
    match sums.iter().position(|(read, expected)| read != expected) {
        Some(at) => Err(format!("batch {at} was torn: its words add up to {}, not {}", sums[at].0, sums[at].1)),
        None if sums.len() as u64 == config.batches => Ok(config.batches),
        None => Err(format!("{} of {} batches came", sums.len(), config.batches)),
    }
}

/// Proves that [`check`] can fail: returns for how long the stream must be busy before each sum, so that a loader that
/// reuses each buffer at once would tear every batch.
///
/// # Errors
/// Returns that no time is long enough, or the device's error.
pub fn proven_burn_ms(
    device: &Device,
    trainer: &TrainerContext,
    config: FeedConfig,
    kind: StreamCase,
) -> Result<f64, String> {
    let mut burn_ms = BURN_MS;
    while burn_ms < MOST_BURN_MS {
        if control(device, trainer, config, kind, burn_ms)? == CONTROL_BATCHES as usize {
            return Ok(burn_ms);
        }
        burn_ms *= 2.0;
    }
    Err(format!("the control did not tear all {CONTROL_BATCHES} batches: the check could not see a torn batch"))
}

/// Queues the same sums as [`check`], and then overwrites each batch. Returns how many sums saw it.
fn control(
    device: &Device,
    trainer: &TrainerContext,
    config: FeedConfig,
    kind: StreamCase,
    burn_ms: f64,
) -> Result<usize, String> {
    let config = FeedConfig { batches: CONTROL_BATCHES, ..config };
    let burn = Burn::new(trainer, 1, burn_ms);
    let (stream, copies) = (kind.stream(trainer), trainer.stream());
    let garbage = trainer.allocate_host(CONTROL_BYTES);
    let mut sums = Sums::new(trainer, config.batches);
    let (mut loader, _slab) = config.start(device, DeviceOptions::default(), TIMEOUT).map_err(words)?;
    while let Some(batch) = loader.next_batch().map_err(words)? {
        let (address, bytes) = sums.put(&batch, stream, &burn)?;
        // Otherwise the batch's own copy might come after the garbage.
        batch.synchronise().map_err(words)?;
        trainer.copy(copies, address, garbage, bytes.min(CONTROL_BYTES));
        trainer.synchronise(copies);
        sums.expect(&pixels(&batch, bytes / batch.len()));
        trainer.synchronise(stream);
    }
    drop(loader);
    let sums = sums.end(stream);
    trainer.end(copies);
    trainer.free_host(garbage);
    Ok(sums.iter().filter(|(read, expected)| read != expected).count())
}
