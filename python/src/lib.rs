//! The native half of the Python package `spdl_cluster`: loaders, batches and their memory. The public API, in
//! `python/spdl_cluster`, is built on it.

mod batch;
mod batch_memory;
mod datasets;
mod dev_cluster;
mod device;
mod diagnosis;
mod dlpack;
mod errors;
mod frames;
mod held_batches;
mod job;
mod load_pages;
mod loader;
mod log;
mod open;
mod pictures;
mod pipeline;
mod tensor_view;
mod values;

#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::batch::{DlpackColumn, NativeBatch};
    #[pymodule_export]
    use crate::datasets::{
        NativeDataset, NativeWriter, image_folder, index, merge_parts, pack, pack_tokens, sheet_png, suggest,
    };
    #[pymodule_export]
    use crate::dev_cluster::dev_cluster;
    #[pymodule_export]
    use crate::diagnosis::{DiagnosisPrediction, DiagnosisTerm, NativeDiagnosis};
    #[pymodule_export]
    use crate::frames::frame_child;
    #[pymodule_export]
    use crate::job::job_text;
    #[pymodule_export]
    use crate::loader::NativeLoader;
    #[pymodule_export]
    use crate::log::{set_log_level, start_log, stop_log};
    #[pymodule_export]
    use crate::open::function_process;
    #[pymodule_export]
    use crate::pictures::pack_pictures;
    #[pymodule_export]
    use crate::pipeline::{ArrayTransform, LoopTasks, NativeArray, NativeOp, NativePipeline, Reply};
    #[pymodule_export]
    use crate::values::{ColumnType, LoaderFacts, LoaderStart, PipelineStageStats, SlabMemory, StreamPosition};

    /// The version of the package.
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "as Python has it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    #[allow(clippy::unnecessary_wraps, reason = "as PyO3 has it")]
    fn loaded(_module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        crate::load_pages::give_back();
        Ok(())
    }
}
