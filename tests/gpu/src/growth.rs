//! Batches that become larger while training, on a device that is nearly full and busy.

use std::{
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::Duration,
};

use spdl_gpu::DeviceOptions;

use crate::{
    checks::{TIMEOUT, compare_with, words},
    feed::{FeedConfig, TextLengths},
    report::{StepReport, StepResult},
    steps::StepArgs,
};

/// The least share of the device's memory that the trainer takes.
const TAKEN: f64 = 0.95;
/// The largest number of the largest batches that fit into the memory that the trainer leaves. It is too few for the
/// loader to give all buffers their largest size at the start, so the buffers grow.
const LEFT_BATCHES: u64 = 8;
/// How long the loader may take for its batches. Then the blocked stream, for which it must not wait, goes on.
const BLOCKED_TIMEOUT: Duration = Duration::from_secs(20);

/// Checks that batches grow in mid-training, without memory to spare, and without a wait for the trainer's streams. One
/// stream of the trainer is blocked meanwhile, as by a collective operation that waits for other ranks.
///
/// # Errors
/// Returns the loader's error, the first batch that is wrong, or that the loader waited for the device.
pub fn step(args: &StepArgs) -> StepResult {
    let (device, trainer) = args.open()?;
    let most = if args.quick { 16 << 10 } else { 128 << 10 };
    let config = FeedConfig { texts: TextLengths::Growing(most), batches: 30, ..args.feed(30) };
    let (free_bytes, total_bytes) = device.memory().map_err(words)?.unwrap_or_default();
    let [height, width] = config.size.map(u64::from);
    let largest = u64::from(config.samples) * (height * width * 3 + u64::from(most));
    let left_bytes = ((total_bytes as f64 * (1.0 - TAKEN)) as u64).min(LEFT_BATCHES * largest);
    let taken_bytes = free_bytes.saturating_sub(left_bytes);
    let taken = trainer.allocate(taken_bytes.max(1) as usize);
    let (mut loader, _slab) = config.start(&device, DeviceOptions::default(), TIMEOUT).map_err(words)?;
    let mut batch_bytes = Vec::new();
    let mut take = |count: u64| {
        for _ in 0..count {
            let batch = loader.next_batch().map_err(words)?.ok_or("no batch")?;
            compare_with(&batch, |id| config.text(id))?;
            batch_bytes.push(batch.header().used_bytes);
        }
        Ok::<_, String>(())
    };
    // During these batches, the slots are page-locked, too.
    let first = u64::from(config.slots) + 1;
    take(first)?;
    let stream = trainer.stream();
    let blocked = trainer.block(stream);
    let (finished, is_finished) = channel();
    let watching = thread::spawn(move || {
        let was_late = is_finished.recv_timeout(BLOCKED_TIMEOUT) == Err(RecvTimeoutError::Timeout);
        drop(blocked);
        was_late
    });
    let taken_all = take(config.batches - first);
    let _ = finished.send(());
    let was_late = watching.join().map_err(|_| "the thread that watches panics")?;
    taken_all?;
    if was_late {
        return Err(format!("the loader waited for a stream of the trainer's: no end after {BLOCKED_TIMEOUT:?}"));
    }
    let (smallest, largest) = (batch_bytes[0], batch_bytes[batch_bytes.len() - 1]);
    drop(loader);
    trainer.end(stream);
    trainer.free(taken);
    Ok(StepReport::ok(format!(
        "{} batches from {smallest} to {largest} bytes with {left_bytes} bytes left, every byte, without a wait for a blocked stream",
        config.batches
    ))
    .figure("smallest_batch_bytes", smallest)
    .figure("largest_batch_bytes", largest)
    .figure("left_bytes", left_bytes)
    .figure("total_bytes", total_bytes))
}
