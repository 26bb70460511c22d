//! Plain values that cross between Python and Rust: each field by its name.

use std::time::Duration;

use pyo3::prelude::*;
use spdl_client::Started;
use spdl_control::messages::StartReason;
use spdl_types::{Position, StageStats};

/// A position in the job's stream.
#[pyclass(frozen, get_all, module = "spdl_cluster._native")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamPosition {
    epoch: u64,
    offset: u64,
}

impl From<Position> for StreamPosition {
    fn from(Position { epoch, offset }: Position) -> Self {
        Self { epoch, offset }
    }
}

/// Where a loader started, and why there.
#[pyclass(frozen, get_all, module = "spdl_cluster._native")]
#[derive(Clone, Debug)]
pub(crate) struct LoaderStart {
    position: StreamPosition,
    /// `beginning`, `resume` or `given`.
    how: &'static str,
    /// The reason in words.
    reason: String,
}

impl From<Started> for LoaderStart {
    fn from(started: Started) -> Self {
        let how = match started.reason {
            StartReason::Beginning => "beginning",
            StartReason::Resumed { .. } => "resume",
            StartReason::Given => "given",
        };
        Self { position: started.position.into(), how, reason: started.to_string() }
    }
}

/// What does not change during a loader's life, but for the end of the stream, which other weights of sources can move.
#[pyclass(frozen, get_all, module = "spdl_cluster._native")]
#[derive(Clone, Debug)]
pub(crate) struct LoaderFacts {
    /// The job's name.
    pub(crate) job: String,
    /// Samples of an epoch, over all ranks.
    pub(crate) samples: u64,
    /// The epochs in which steps start.
    pub(crate) epochs: u64,
    pub(crate) global_batch: u32,
    /// Steps of an epoch; of the longest one if epochs share a batch.
    pub(crate) steps: u64,
    /// Whether every sample comes, in the dataset's order.
    pub(crate) is_evaluation: bool,
    /// Whether each epoch has every sample, in the dataset's order.
    pub(crate) is_in_order: bool,
    /// The policy at the end of an epoch, as a job names it.
    pub(crate) epoch_end: &'static str,
    /// The tokens of a sequence, if samples are sequences.
    pub(crate) seq_len: Option<u32>,
    /// The name of each source of the job, its first id, and the id after its last; none if the job has one dataset.
    pub(crate) sources: Vec<(String, u64, u64)>,
    pub(crate) columns: Vec<ColumnType>,
}

/// The name of a column, its kind and the type of its elements.
#[pyclass(frozen, get_all, module = "spdl_cluster._native")]
#[derive(Clone, Debug)]
pub(crate) struct ColumnType {
    pub(crate) name: String,
    /// The kind, as `decode` in a job names it.
    pub(crate) kind: &'static str,
    pub(crate) dtype: &'static str,
}

/// The memory that all batches of a loader lie in.
#[pyclass(frozen, get_all, module = "spdl_cluster._native")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlabMemory {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

/// `RankOfWorld` of `spdl_cluster.environment`.
#[derive(Clone, Copy, Debug, FromPyObject)]
pub(crate) struct RankOfWorld {
    pub(crate) rank: u32,
    pub(crate) world: u32,
}

/// `Program` of `spdl_cluster.functions`.
#[derive(Clone, Debug, FromPyObject)]
pub(crate) struct ProgramFields {
    pub(crate) is_module: bool,
    pub(crate) code: String,
    pub(crate) sys_argv: Vec<String>,
}

/// What a stage of a pipeline in this process has done.
#[pyclass(frozen, get_all, module = "spdl_cluster._native")]
#[derive(Clone, Debug)]
pub(crate) struct PipelineStageStats {
    pub(crate) name: String,
    items: u64,
    failures: u64,
    /// Seconds of work, summed over the stage's units of concurrency; then those of waiting.
    busy_s: f64,
    input_wait_s: f64,
    output_wait_s: f64,
    /// Percentiles of the time for an item, in seconds.
    p50_s: f64,
    p99_s: f64,
    /// Items that wait in front of the stage.
    queued: u64,
}

impl PipelineStageStats {
    pub(crate) fn new(stats: &StageStats) -> Self {
        let seconds = |ns| Duration::from_nanos(ns).as_secs_f64();
        Self {
            name: stats.stage.to_string(),
            items: stats.items,
            failures: stats.failures,
            busy_s: seconds(stats.busy_ns),
            input_wait_s: seconds(stats.input_wait_ns),
            output_wait_s: seconds(stats.output_wait_ns),
            p50_s: seconds(stats.p50_ns),
            p99_s: seconds(stats.p99_ns),
            queued: stats.queue_depth,
        }
    }
}
