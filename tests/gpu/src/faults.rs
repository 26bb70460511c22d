//! What happens to a loader when the trainer's kernel fails, and when the process ends under it.

use spdl_gpu::{DeviceError, DeviceOptions};

use crate::{
    busy::Burn,
    checks::{TIMEOUT, words},
    feed::FeedConfig,
    report::{StepReport, StepResult},
    steps::StepArgs,
};

/// Milliseconds that the device is busy when the process ends.
const BUSY_MS: f64 = 100.0;

/// Checks that the loader ends with the device's error when a kernel of the trainer traps.
///
/// # Errors
/// Returns what the loader did instead.
pub fn trap(args: &StepArgs) -> StepResult {
    let (device, trainer) = args.open()?;
    let config = FeedConfig { batches: 10_000, ..args.feed(1) };
    let (mut loader, _slab) = config.start(&device, DeviceOptions::default(), TIMEOUT).map_err(words)?;
    drop(loader.next_batch().map_err(words)?);
    trainer.trap(trainer.stream());
    let mut count = 0;
    let error = loop {
        match loader.next_batch() {
            Ok(Some(_)) => count += 1,
            Ok(None) => return Err("the loader came to its end although a kernel had trapped".into()),
            Err(error) => break error,
        }
    };
    if !matches!(error, DeviceError::Lost { .. }) {
        return Err(format!("the error is not that the device is lost: {error}"));
    }
    drop(loader);
    // After the fault, the trainer's stream and module cannot be released.
    std::mem::forget(trainer);
    Ok(StepReport::ok(format!("{count} batches after the trap, then: {}", words(error))))
}

/// Lets the process end while the loader copies, the trainer holds batches, and its stream is busy with them. The
/// runner checks that the process then ends normally.
///
/// # Errors
/// Returns the loader's error.
pub fn exit_with_batches(args: &StepArgs) -> StepResult {
    let (device, trainer) = args.open()?;
    let config = FeedConfig { batches: 10_000, ..args.feed(1) };
    let burn = Burn::new(&trainer, 1, BUSY_MS);
    let stream = trainer.stream();
    let (mut loader, _slab) = config.start(&device, DeviceOptions::default(), TIMEOUT).map_err(words)?;
    let mut batches = Vec::new();
    for _ in 0..2 {
        let batch = loader.next_batch().map_err(words)?.ok_or("no batch")?;
        burn.put(stream);
        batch.wait_on(stream.handle()).map_err(words)?;
        batches.push(batch);
    }
    let held = batches.len();
    // As a program's global variables: alive until the process ends.
    std::mem::forget((batches, loader, burn));
    std::mem::forget(trainer);
    Ok(StepReport::ok(format!("the process ended with {held} batches held and a busy stream")))
}
