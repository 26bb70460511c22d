//! How long the trainer's launches take while the loader page-locks a slab.

use std::{thread, time::Instant};

use serde_json::json;
use spdl_gpu::DeviceOptions;

use crate::{
    checks::{TIMEOUT, words},
    feed::{FeedConfig, Refill},
    raw::TrainerContext,
    report::{StepReport, StepResult},
    steps::StepArgs,
};

/// The size of the slab.
const SLAB_BYTES: u64 = 4 << 30;
/// The launches before the loader starts.
const LAUNCHES_BEFORE: usize = 5000;

/// Measures launches of a short kernel, first alone, and then while each slot of a slab is filled and page-locked.
///
/// # Errors
/// Returns the loader's error.
pub fn step(args: &StepArgs) -> StepResult {
    let (device, trainer) = args.open()?;
    let config = FeedConfig { refill: Refill::Once, ..args.feed(1) };
    let pixel_bytes = u64::from(config.size[0]) * u64::from(config.size[1]) * 3 * u64::from(config.samples);
    let slots = if args.quick { 8 } else { (SLAB_BYTES / pixel_bytes).clamp(2, 4096) };
    let config = FeedConfig { slots: slots as u32, batches: slots, ..config };
    let mut launcher = Launcher::new(&trainer);
    launcher.launch();
    let before = (0..if args.quick { 50 } else { LAUNCHES_BEFORE }).map(|_| launcher.launch()).collect();
    let (mut loader, slab) = config.start(&device, DeviceOptions::default(), TIMEOUT).map_err(words)?;
    let start = Instant::now();
    let taking = thread::spawn(move || {
        let mut count = 0u64;
        while let Some(batch) = loader.next_batch().map_err(words)? {
            drop(batch);
            count += 1;
        }
        Ok::<_, String>(count)
    });
    let mut during = vec![launcher.launch()];
    while !taking.is_finished() {
        during.push(launcher.launch());
    }
    let seconds = start.elapsed().as_secs_f64();
    let count = taking.join().map_err(|_| "the thread that takes batches panics")??;
    if count != slots {
        return Err(format!("{count} of {slots} batches came"));
    }
    let (before, during) = (Latencies::of(before), Latencies::of(during));
    let gib = slab.bytes() as f64 / f64::from(1 << 30);
    let text = format!("while {gib:.2} GiB were page-locked in {seconds:.2} s: {during}; before: {before}");
    Ok(StepReport::ok(text)
        .figure("slab_bytes", slab.bytes())
        .figure("seconds", seconds)
        .figure("before_us", json!(before.to_array()))
        .figure("during_us", json!(during.to_array())))
}

/// Launches the shortest kernel on a stream of its own.
struct Launcher<'a> {
    trainer: &'a TrainerContext,
    stream: crate::raw::TrainerStream,
    memory: u64,
}

impl<'a> Launcher<'a> {
    fn new(trainer: &'a TrainerContext) -> Self {
        Self { trainer, stream: trainer.stream(), memory: trainer.allocate(crate::busy::THREADS * 4) }
    }

    /// Returns the microseconds from the launch until the kernel is done.
    fn launch(&mut self) -> f64 {
        let start = Instant::now();
        self.trainer.burn(self.stream, 1, self.memory, 1, self.memory);
        self.trainer.synchronise(self.stream);
        start.elapsed().as_secs_f64() * 1e6
    }
}

impl Drop for Launcher<'_> {
    fn drop(&mut self) {
        self.trainer.end(self.stream);
        self.trainer.free(self.memory);
    }
}

/// The median, the 99th percentile and the maximum of times, in microseconds.
struct Latencies {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Latencies {
    /// There is at least one time.
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let last = times.len() - 1;
        Self { p50: times[last / 2], p99: times[last * 99 / 100], max: times[last] }
    }

    const fn to_array(&self) -> [f64; 3] {
        [self.p50, self.p99, self.max]
    }
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "p50 {:.1}, p99 {:.1}, max {:.1} µs", self.p50, self.p99, self.max)
    }
}
