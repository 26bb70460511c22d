//! The native half of the Python package `spdl_cluster`: loaders, batches and their memory. The public API, in
//! `python/spdl_cluster`, is built on it.

mod batch;
mod batch_memory;
mod device;
mod dlpack;
mod errors;
mod feed;
mod job;
mod log;
mod open;
mod pictures;

#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::batch::{Batch, Column};
    #[pymodule_export]
    use crate::device::count_cuda_devices;
    #[pymodule_export]
    use crate::feed::Feed;
    #[pymodule_export]
    use crate::log::{set_log_level, start_log, stop_log};
    #[pymodule_export]
    use crate::pictures::pack_pictures;

    /// The version of the package.
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "as Python has it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
