//! Streams on which a batch cannot be used: those of another context or another device.

use spdl_gpu::{Device, DeviceError, DeviceOptions};

use crate::{
    checks::{TIMEOUT, compare, words},
    raw::TrainerContext,
    report::{StepReport, StepResult},
    steps::StepArgs,
};

/// Checks that `wait_on` refuses a stream of a second context, and one of another device where there is one, and that
/// the loader goes on.
///
/// # Errors
/// Returns which stream was accepted, or the first batch that is wrong.
pub fn second_context(args: &StepArgs) -> StepResult {
    let (device, trainer) = args.open()?;
    let (mut loader, _slab) = args.feed(20).start(&device, DeviceOptions::default(), TIMEOUT).map_err(words)?;
    let batch = loader.next_batch().map_err(words)?.ok_or("no batch")?;
    let second = trainer.second_context();
    let mut refusals = vec![refusal("a stream of a second context", batch.wait_on(second.stream.handle()))?];
    if Device::count_cuda().map_err(words)? > 1 {
        let other = u32::from(args.device == "cuda:0");
        // Opened so that the driver initialises the device. The trainer's context becomes current, and later this
        // thread's again.
        let _device = Device::cuda(other).map_err(words)?;
        let others = TrainerContext::new(other);
        let stream = others.stream();
        refusals.push(refusal("a stream of another device", batch.wait_on(stream.handle()))?);
        others.end(stream);
    }
    compare(&batch)?;
    drop(batch);
    let mut count = 1;
    while let Some(batch) = loader.next_batch().map_err(words)? {
        compare(&batch)?;
        count += 1;
    }
    Ok(StepReport::ok(format!("refused {}, and then {count} batches, every byte: {}", refusals.len(), refusals[0])))
}

/// Returns the text of the error that refused a stream.
fn refusal(what: &str, result: Result<(), DeviceError>) -> Result<String, String> {
    match result {
        Ok(()) => Err(format!("`wait_on` accepted {what}")),
        Err(error @ DeviceError::Lost { .. }) => Err(format!("{what} made the device unusable: {error}")),
        Err(error) => Ok(error.to_string()),
    }
}
