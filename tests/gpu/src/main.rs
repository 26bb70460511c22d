//! Runs all checks and measurements on a GPU: prints a table, and one line of JSON at the end.

use std::process::ExitCode;

use clap::Parser;
use serde_json::{Value, json};
use spdl_core::job::DType;
use spdl_gpu::{Device, DeviceError};
use spdl_gpu_tests::{
    checks,
    feed::{FeedConfig, Refill, SlotMemory},
    measurements,
    raw::TrainerContext,
};

/// Checks copies and the kernel, and measures bandwidth and overlap on a GPU.
#[derive(Parser)]
struct CheckArgs {
    /// The device.
    #[arg(long, default_value = "cuda:0")]
    device: String,
    /// Uses few and small batches: for a device that is not a GPU. The measurements then mean nothing.
    #[arg(long)]
    quick: bool,
    /// Samples of a batch, each of 224 x 224 pixels.
    #[arg(long, default_value_t = 256)]
    batch: u32,
    /// Rounds of each measurement; the result is the median.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds of a step.
    #[arg(long, default_value_t = 5.0)]
    step_ms: f64,
    /// Fails also if a measurement misses its target, and not only if a check fails.
    #[arg(long)]
    strict: bool,
}

/// The result of one check or measurement.
struct CheckResult {
    name: &'static str,
    result: Result<String, String>,
    /// Whether the measurement reaches its target.
    is_reached: bool,
}

fn main() -> ExitCode {
    let args = CheckArgs::parse();
    let device = match Device::open(&args.device) {
        Ok(device) => device,
        Err(error @ (DeviceError::DriverMissing { .. } | DeviceError::Index { .. })) => {
            println!("skipped: {error}");
            println!("{}", json!({ "skipped": error.to_string() }));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ordinal = args.device.strip_prefix("cuda:").and_then(|text| text.parse().ok()).unwrap_or(0);
    let trainer = TrainerContext::new(ordinal);
    println!("{}, driver {}", trainer.name, trainer.driver_version.map_or("unknown".into(), |v| v.to_string()));
    let (rows, figures) = run(&args, &device, &trainer);
    let mut is_right = true;
    for CheckResult { name, result, is_reached } in &rows {
        is_right &= result.is_ok() && (*is_reached || !args.strict);
        let mark = match (result, is_reached) {
            (Err(_), _) => "WRONG",
            (Ok(_), false) => "below",
            (Ok(_), true) => "ok",
        };
        println!("{mark:<6} {name:<34} {}", result.as_ref().unwrap_or_else(|error| error));
    }
    println!(
        "{}",
        json!({ "device": trainer.name, "driver": trainer.driver_version, "right": is_right, "figures": figures })
    );
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(args: &CheckArgs, device: &Device, trainer: &TrainerContext) -> (Vec<CheckResult>, Value) {
    let (size, samples, batches) = if args.quick { ([16, 16], 4, 4) } else { ([224, 224], args.batch, 200) };
    let config = FeedConfig { size, samples, batches, slots: 6, slab: SlotMemory::Shared, refill: Refill::Always };
    let small = FeedConfig { size: [61, 67], samples: 16, batches: 4, ..config };
    let small = if args.quick { FeedConfig { size: [6, 5], batches: 2, ..small } } else { small };
    let mut rows = Vec::new();
    let mut right = |name, result: Result<String, String>| rows.push(CheckResult { name, result, is_reached: true });
    for (name, slab) in
        [("copies from shared memory", SlotMemory::Shared), ("copies from own memory", SlotMemory::Private)]
    {
        let few = FeedConfig { batches: config.batches.min(20), ..config };
        let result = checks::copies(device, checks::of_slab(few, slab));
        right(name, result.map(|count| format!("{count} batches, every byte")));
    }
    let result = checks::kernel(device, small);
    right(
        "kernel against double precision",
        result.map(|worst| format!("at most {worst:.3} units of the last place off")),
    );
    let result = checks::torn(device, trainer, config);
    right("no torn batch under load", result.map(|count| format!("{count} batches, 2 buffers")));
    let mut figures = json!({});
    let mut figure = |name, result: Result<(String, bool), String>| {
        let is_reached = result.as_ref().is_ok_and(|(_, is_reached)| *is_reached);
        rows.push(CheckResult { name, result: result.map(|(text, _)| text), is_reached });
    };
    let rounds = if args.quick { 1 } else { args.rounds };
    let result = measurements::bandwidth(device, trainer, config, rounds).map(|(copy, processor)| {
        let ratio = copy.loader_gb_s / copy.bare_gb_s;
        figures["batch_bytes"] = json!(copy.batch_bytes);
        figures["bare_gb_s"] = json!(copy.bare_gb_s);
        figures["loader_gb_s"] = json!(copy.loader_gb_s);
        figures["bandwidth_ratio"] = json!(ratio);
        figures["bytes_by_processor"] = json!(processor.bytes_by_processor);
        figures["processor_ms_per_batch"] = json!(processor.processor_ms);
        let (loader, bare) = (copy.loader_gb_s, copy.bare_gb_s);
        let copied = format!("{loader:.2} GB/s, bare {bare:.2} GB/s: {ratio:.3} (at least 0.95)");
        let by_processor = format!(
            "{} of {} bytes, {:.3} ms of the processor",
            processor.bytes_by_processor, copy.batch_bytes, processor.processor_ms
        );
        ((copied, ratio >= 0.95), (by_processor, true))
    });
    let (copied, by_processor) = match result {
        Ok((copied, by_processor)) => (Ok(copied), Ok(by_processor)),
        Err(error) => (Err(error.clone()), Err(error)),
    };
    figure("bandwidth of the last copy", copied);
    figure("a batch through the processor", by_processor);
    let case = checks::cases().find(|case| case.dtype == DType::Bf16);
    let step_ms = if args.quick { 0.001 } else { args.step_ms };
    for (name, key, normalise) in
        [("step with loader", "step", None), ("step with loader and kernel", "step_with_kernel", case)]
    {
        let result = measurements::overlap(device, trainer, config, normalise, step_ms, rounds).map(|steps| {
            let ratio = steps.loader_ms / steps.cached_ms;
            figures[key] = json!({ "cached_ms": steps.cached_ms, "loader_ms": steps.loader_ms, "ratio": ratio });
            let (loader, cached) = (steps.loader_ms, steps.cached_ms);
            (format!("{loader:.3} ms, cached {cached:.3} ms: {ratio:.3} (at most 1.02)"), ratio <= 1.02)
        });
        figure(name, result);
    }
    (rows, figures)
}
