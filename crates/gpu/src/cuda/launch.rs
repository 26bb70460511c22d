//! Launches the kernel that normalises pictures.
#![allow(unsafe_code)]

use super::{
    driver::{Argument, Kernel, Stream},
    kernel::BLOCK,
};
use crate::DeviceError;

/// Queues the kernel on `stream` for `entries` samples, with `rows` blocks for each. The addresses in the arguments
/// must lie in one device buffer, which stays in use until the stream has passed the kernel.
pub(super) fn normalise(
    stream: &Stream,
    kernel: &Kernel,
    entries: usize,
    rows: u32,
    mut arguments: [Argument; 8],
) -> Result<(), DeviceError> {
    let entries = u32::try_from(entries).expect("a header counts entries in 32 bits");
    if entries == 0 {
        return Ok(());
    }
    // SAFETY: number and sizes of the arguments are those in `normalise.ptx`. It reads whole samples of the column and
    // the table, and writes as many elements, all within the buffer and the table, which the loader keeps allocated.
    unsafe { stream.launch(kernel, [entries, rows], BLOCK, &mut arguments) }
}
