//! A worker with a function of its own, which jobs call as `own_worker::noise@1`.

use std::process::ExitCode;

use serde::Deserialize;
use spdl_functions::{Draw, FunctionProblem, FunctionRegistry, FunctionSetup, Returned, SampleFunction, Taken};

/// Adds noise to a picture, and returns its brightness beside it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Noise {
    amplitude: u32,
}

impl SampleFunction for Noise {
    const NAME: &'static str = "own_worker::noise";
    const VERSION: u32 = 1;

    fn prepare(setup: &FunctionSetup) -> Result<Self, FunctionProblem> {
        setup.arguments()
    }

    fn call(&self, taken: &Taken<'_>, returned: &mut Returned<'_>, draw: &mut Draw) -> Result<(), FunctionProblem> {
        let pixels = taken.value("image")?.elements::<u8>()?;
        let noisy = pixels.iter().map(|pixel| pixel.saturating_add(draw.below(self.amplitude) as u8));
        returned.put("image", &noisy.collect::<Vec<u8>>())?;
        let sum: u64 = pixels.iter().map(|pixel| u64::from(*pixel)).sum();
        returned.put("brightness", &[sum as f32 / pixels.len() as f32])
    }
}

fn main() -> ExitCode {
    spdl_worker::main(FunctionRegistry::new().with::<Noise>())
}
