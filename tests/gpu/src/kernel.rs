//! Checks that the driver compiles the loader's kernels for this device, and measures how long that takes.

use std::time::Instant;

use spdl_gpu::DeviceOptions;
use spdl_types::DType;

use crate::{
    checks::{self, TIMEOUT, words},
    report::{StepReport, StepResult},
    steps::StepArgs,
};

/// Loads the kernels for elements of two bytes and of four, and takes a batch through each. The driver keeps what it has
/// compiled in the folder `CUDA_CACHE_PATH`; an empty one makes this the cold case.
///
/// # Errors
/// Returns the compiler's log.
pub fn load(args: &StepArgs) -> StepResult {
    let cached_files = std::env::var_os("CUDA_CACHE_PATH").map(|folder| files_in(folder.as_ref()));
    let (device, _trainer) = args.open()?;
    let config = args.small_feed();
    let start = |options| {
        let start = Instant::now();
        let (mut loader, _slab) = config.start(&device, options, TIMEOUT).map_err(words)?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let batch = loader.next_batch().map_err(words)?.ok_or("no batch")?;
        batch.synchronise().map_err(words)?;
        Ok::<_, String>(ms)
    };
    // The first loader of a process also waits for the rest of the driver.
    let without_ms = start(DeviceOptions::default()).and_then(|_| start(DeviceOptions::default()))?;
    let mut loader_ms = Vec::new();
    for dtype in [DType::Bf16, DType::F32] {
        let normalise = checks::cases().filter(|case| case.dtype == dtype).take(1).collect();
        loader_ms.push(start(DeviceOptions { normalise, ..DeviceOptions::default() })?);
    }
    let cache = match cached_files {
        Some(0) => "an empty cache".to_owned(),
        Some(files) => format!("a cache of {files} files"),
        None => "the user's cache".to_owned(),
    };
    let text = format!(
        "with {cache}, a loader starts in {:.1} ms with the kernel for two bytes and {:.1} ms for four, {without_ms:.1} ms \
         without",
        loader_ms[0], loader_ms[1]
    );
    Ok(StepReport::ok(text)
        .figure("cached_files", cached_files)
        .figure("two_byte_kernel_ms", loader_ms[0])
        .figure("four_byte_kernel_ms", loader_ms[1])
        .figure("without_kernel_ms", without_ms))
}

/// Returns the number of files in a folder and the folders in it.
fn files_in(folder: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { files_in(&entry.path()) } else { 1 }).sum()
}
