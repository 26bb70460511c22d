//! Training with CUDA graphs: captures while the loader copies, and the uses of a batch that a capture forbids.

use spdl_gpu::{DeviceBatch, DeviceError, DeviceOptions};

use crate::{
    checks::{TIMEOUT, compare, pixels, words},
    feed::FeedConfig,
    raw::{CaptureMode, TrainerContext, TrainerGraph, TrainerStream},
    report::{StepReport, StepResult},
    steps::StepArgs,
};

/// Batches that come during a capture.
const INSIDE: u64 = 3;
/// Batches that show, after a capture, that no buffer was lost and no batch is torn.
const AFTER: u64 = 8;
const MODES: [CaptureMode; 2] = [CaptureMode::Global, CaptureMode::ThreadLocal];

/// A trainer's step as a graph: adds the words of a fixed input to a sum.
struct GraphTrainer<'a> {
    trainer: &'a TrainerContext,
    stream: TrainerStream,
    input: u64,
    bytes: usize,
    sum: u64,
}

impl<'a> GraphTrainer<'a> {
    fn new(trainer: &'a TrainerContext, config: FeedConfig) -> Self {
        let bytes = config.size[0] as usize * config.size[1] as usize * 3 * config.samples as usize / 4 * 4;
        let this =
            Self { trainer, stream: trainer.stream(), input: trainer.allocate(bytes), bytes, sum: trainer.allocate(8) };
        trainer.write(this.sum, &[0]);
        // A driver that loads kernels late must not load this one during a capture.
        trainer.sum(this.stream, this.input, 0, this.sum);
        trainer.synchronise(this.stream);
        this
    }

    /// Captures a step, while `inside` runs.
    fn capture(&self, mode: CaptureMode, inside: impl FnOnce() -> Result<(), String>) -> Result<TrainerGraph, String> {
        self.trainer.begin_capture(self.stream, mode);
        self.trainer.sum(self.stream, self.input, self.bytes, self.sum);
        let inside = inside();
        let graph = self.trainer.end_capture(self.stream);
        inside.map_err(|error| format!("during a capture in mode {mode:?}: {error}"))?;
        graph.map_err(|error| format!("in mode {mode:?}: {error}"))
    }

    /// Queues the copy of a batch's pixels to the input, and the graph.
    fn step(&self, batch: &DeviceBatch, graph: &TrainerGraph) -> Result<(), String> {
        let image = batch.column("image").map_err(|error| error.to_string())?.values();
        batch.wait_on(self.stream.handle()).map_err(words)?;
        self.trainer.copy_on_device(self.stream, self.input, image.address() as u64, self.bytes);
        self.trainer.launch_graph(self.stream, graph);
        Ok(())
    }

    /// Waits for all steps, and returns the sum.
    fn end(self) -> u64 {
        self.trainer.end(self.stream);
        let sum = self.trainer.read(self.sum, 1)[0];
        self.trainer.free(self.sum);
        self.trainer.free(self.input);
        sum
    }
}

/// Checks that a loader and a capture do not disturb each other: the loader locks pages and copies its first batches
/// during the capture. Then each batch goes through the graph.
///
/// # Errors
/// Returns the capture's or the loader's error, or that the graph saw other bytes.
pub fn train(args: &StepArgs, mode: CaptureMode) -> StepResult {
    let (device, trainer) = args.open()?;
    let config = args.feed(40);
    let graphs = GraphTrainer::new(&trainer, config);
    let (mut loader, _slab) = config.start(&device, DeviceOptions::default(), TIMEOUT).map_err(words)?;
    let graph = graphs.capture(mode, || {
        for _ in 0..INSIDE {
            drop(loader.next_batch().map_err(words)?.ok_or("no batch")?);
        }
        Ok(())
    })?;
    let (mut count, mut expected) = (0, 0u64);
    while let Some(batch) = loader.next_batch().map_err(words)? {
        graphs.step(&batch, &graph)?;
        let pixels = pixels(&batch, graphs.bytes / batch.len());
        drop(batch);
        let (numbers, _) = pixels.as_chunks::<4>();
        expected = numbers.iter().fold(expected, |sum, number| sum.wrapping_add(u32::from_le_bytes(*number).into()));
        count += 1;
    }
    let sum = graphs.end();
    drop(graph);
    if sum != expected {
        return Err(format!("the words that the graph saw add up to {sum}, not {expected}"));
    }
    Ok(StepReport::ok(format!("{INSIDE} batches during the capture, then {count} through the graph, every byte")))
}

/// Checks that a batch that is dropped during a capture costs neither the capture nor the batch's buffer, and that
/// the graph does not wait for the loader.
///
/// # Errors
/// Returns the capture's or the loader's error, or the first batch that is wrong.
pub fn drop_inside(args: &StepArgs) -> StepResult {
    let (device, trainer) = args.open()?;
    let config = FeedConfig { batches: (INSIDE + AFTER + 1) * MODES.len() as u64, ..args.feed(1) };
    let options = DeviceOptions { buffers: 2, ..DeviceOptions::default() };
    let (mut loader, _slab) = config.start(&device, options, TIMEOUT).map_err(words)?;
    for mode in MODES {
        let graphs = GraphTrainer::new(&trainer, config);
        let batch = loader.next_batch().map_err(words)?.ok_or("no batch")?;
        batch.wait_on(graphs.stream.handle()).map_err(words)?;
        let graph = graphs.capture(mode, || {
            drop(batch);
            for _ in 0..INSIDE {
                drop(loader.next_batch().map_err(words)?.ok_or("no batch")?);
            }
            Ok(())
        })?;
        trainer.launch_graph(graphs.stream, &graph);
        // With two buffers, these come only if the dropped batch's is back.
        let after = (0..AFTER / 2).map(|_| {
            let (one, other) = (loader.next_batch().map_err(words)?, loader.next_batch().map_err(words)?);
            compare(&one.ok_or("no batch")?)?;
            compare(&other.ok_or("no batch")?)
        });
        after.collect::<Result<(), String>>().map_err(|error| format!("after a capture in mode {mode:?}: {error}"))?;
        graphs.end();
        drop(graph);
    }
    Ok(StepReport::ok(format!("in both modes: {INSIDE} batches after the drop, {AFTER} after the capture, 2 buffers")))
}

/// Checks that `wait_on` refuses a stream that captures, in words, and that neither the capture nor the batch is harmed.
///
/// # Errors
/// Returns that the stream was accepted, or what was harmed.
pub fn wait_inside(args: &StepArgs) -> StepResult {
    let (device, trainer) = args.open()?;
    let config = args.feed(4);
    let (mut loader, _slab) = config.start(&device, DeviceOptions::default(), TIMEOUT).map_err(words)?;
    let mut refusal = String::new();
    for mode in MODES {
        let graphs = GraphTrainer::new(&trainer, config);
        let batch = loader.next_batch().map_err(words)?.ok_or("no batch")?;
        let graph = graphs.capture(mode, || match batch.wait_on(graphs.stream.handle()) {
            Ok(()) => Err("`wait_on` accepted a stream that captures".into()),
            Err(error @ DeviceError::Lost { .. }) => Err(words(error)),
            Err(error) => {
                refusal = words(error);
                Ok(())
            }
        })?;
        graphs.step(&batch, &graph)?;
        compare(&batch)?;
        drop(batch);
        graphs.end();
        drop(graph);
    }
    Ok(StepReport::ok(format!("refused in both modes: {refusal}")))
}
