//! The steps of the program: what each shows, what it needs, and its share of the time.

use spdl_gpu::{Device, NormaliseColumn};
use spdl_types::DType;

use crate::{
    bandwidth, checks, contexts, environment, faults,
    feed::{FeedConfig, Refill, SlotMemory},
    graphs, growth, kernel, launches, overlap, processes,
    raw::{CaptureMode, TrainerContext},
    report::{StepReport, StepResult},
    torn::{self, StreamCase},
};

/// How large the batches of all steps are, and how much is measured.
#[derive(clap::Args, Clone, Debug)]
pub struct StepArgs {
    /// The device, as `cuda:N`.
    #[arg(long, default_value = "cuda:0")]
    pub device: String,
    /// Uses few and small batches: for a device that is not a GPU. The measurements then mean nothing.
    #[arg(long)]
    pub quick: bool,
    /// Samples of a batch, each of 224 x 224 pixels, where a step does not measure several sizes.
    #[arg(long, default_value_t = 256)]
    pub batch: u32,
    /// Rounds of each measurement; the result is the median.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Milliseconds of a trainer's step.
    #[arg(long, default_value_t = 5.0)]
    pub step_ms: f64,
}

impl StepArgs {
    /// Returns the options that give a step's process the same arguments.
    #[must_use]
    pub fn to_options(&self) -> Vec<String> {
        let mut options = vec!["--device".into(), self.device.clone()];
        options.extend(self.quick.then(|| "--quick".into()));
        options.extend(["--batch".into(), self.batch.to_string(), "--rounds".into(), self.rounds.to_string()]);
        options.extend(["--step-ms".into(), self.step_ms.to_string()]);
        options
    }

    /// Opens the device for the loader and for the trainer.
    ///
    /// # Errors
    /// Returns the reason why the loader cannot open it.
    pub fn open(&self) -> Result<(Device, TrainerContext), String> {
        let device = Device::open(&self.device).map_err(checks::words)?;
        let ordinal = self.device.strip_prefix("cuda:").and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok((device, TrainerContext::new(ordinal)))
    }

    /// Returns batches of the usual size, `batches` of them.
    #[must_use]
    pub fn feed(&self, batches: u64) -> FeedConfig {
        let (size, samples) = if self.quick { ([16, 16], 4) } else { ([224, 224], self.batch) };
        let batches = if self.quick { batches.min(8) } else { batches };
        FeedConfig {
            size,
            samples,
            batches,
            slots: 6,
            slab: SlotMemory::Shared,
            refill: Refill::Always,
            ..FeedConfig::default()
        }
    }

    /// Returns few batches of small pictures with odd sides.
    #[must_use]
    pub fn small_feed(&self) -> FeedConfig {
        let (size, samples, batches) = if self.quick { ([6, 5], 4, 2) } else { ([61, 67], 16, 4) };
        FeedConfig { size, samples, batches, ..self.feed(batches) }
    }

    /// Returns the number of rounds of a measurement.
    #[must_use]
    pub const fn rounds(&self) -> usize {
        if self.quick { 1 } else { self.rounds }
    }
}

/// A step: a check or a measurement that runs as a process of its own.
#[derive(Clone, Copy, Debug)]
pub struct GpuStep {
    /// Its name on the command line and in the table.
    pub name: &'static str,
    /// The weight of its share of the time, relative to the other steps.
    pub weight: u32,
    /// The program that runs it.
    pub kind: StepKind,
}

/// The program that runs a step.
#[derive(Clone, Copy, Debug)]
pub enum StepKind {
    /// This program.
    Native(fn(&StepArgs) -> StepResult),
    /// `torch_check.py`, with the Python package.
    Python,
    /// NVIDIA's compute-sanitizer, over the step of this name.
    Sanitizer(&'static str),
}

const fn native(name: &'static str, weight: u32, run: fn(&StepArgs) -> StepResult) -> GpuStep {
    GpuStep { name, weight, kind: StepKind::Native(run) }
}

const fn python(name: &'static str, weight: u32) -> GpuStep {
    GpuStep { name, weight, kind: StepKind::Python }
}

/// All steps, in the order in which they run. The first that loads the kernels finds the driver's cache empty, and the
/// second finds them there.
pub const STEPS: &[GpuStep] = &[
    native("environment", 2, environment::describe),
    native("ptx-cold", 3, kernel::load),
    native("ptx-warm", 2, kernel::load),
    native("copies-shared", 3, |args| copies(args, SlotMemory::Shared)),
    native("copies-private", 3, |args| copies(args, SlotMemory::Private)),
    native("kernel", 4, |args| {
        let (device, _trainer) = args.open()?;
        let worst = checks::kernel(&device, args.small_feed())?;
        let words = format!(
            "against double precision, {} cases: at most {worst:.3} units of the last place off",
            checks::cases().count()
        );
        Ok(StepReport::ok(words).figure("units_of_last_place", worst))
    }),
    native("torn-side", 4, |args| torn::step(args, StreamCase::Side)),
    native("torn-default", 4, |args| torn::step(args, StreamCase::Default)),
    native("torn-per-thread", 4, |args| torn::step(args, StreamCase::PerThread)),
    native("graph-global", 3, |args| graphs::train(args, CaptureMode::Global)),
    native("graph-thread-local", 3, |args| graphs::train(args, CaptureMode::ThreadLocal)),
    native("capture-drop", 3, graphs::drop_inside),
    native("capture-wait", 3, graphs::wait_inside),
    native("fork", 4, processes::fork),
    native("second-context", 2, contexts::second_context),
    native("bandwidth-16", 5, |args| bandwidth::step(args, 16)),
    native("bandwidth-64", 5, |args| bandwidth::step(args, 64)),
    native("bandwidth-256", 5, |args| bandwidth::step(args, 256)),
    native("bandwidth-1024", 6, |args| bandwidth::step(args, 1024)),
    native("overlap", 6, |args| overlap::step(args, None)),
    native("overlap-kernel", 6, |args| overlap::step(args, bf16())),
    native("launch-latency", 5, launches::step),
    // Needs more than the time after which it reports that the loader waits for the trainer.
    native("growth", 12, growth::step),
    native("trap", 2, faults::trap),
    native("exit", 2, faults::exit_with_batches),
    native("interrupt", 3, processes::interrupt),
    python("torch-equality", 5),
    python("torch-normalised", 5),
    python("torch-device-names", 4),
    python("torch-torn-side", 4),
    python("torch-torn-default", 4),
    python("torch-torn-per-thread", 4),
    python("torch-graph-global", 4),
    python("torch-graph-thread-local", 4),
    python("torch-exit", 4),
    python("torch-interrupt", 4),
    python("dlpack-torch", 4),
    python("dlpack-cupy", 4),
    python("dlpack-jax", 5),
    GpuStep { name: "compute-sanitizer", weight: 12, kind: StepKind::Sanitizer("kernel") },
];

/// Returns the step of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static GpuStep> {
    STEPS.iter().find(|step| step.name == name)
}

/// Returns a normalisation to bf16, the usual one.
fn bf16() -> Option<NormaliseColumn> {
    checks::cases().find(|case| case.dtype == DType::Bf16)
}

fn copies(args: &StepArgs, slab: SlotMemory) -> StepResult {
    let (device, trainer) = args.open()?;
    let config = FeedConfig { slab, ..args.feed(20) };
    let count = checks::copies_from_locked(&device, &trainer, config)?;
    Ok(StepReport::ok(format!("{count} batches, every byte; all {} slots are page-locked", config.slots)))
}
