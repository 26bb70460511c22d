//! Pipelines that are not one chain: items that are routed to paths, and sources that are merged.

use std::sync::Arc;

use pyo3::prelude::*;
use spdl_pipeline::{Branches, Op, OutputOrder, Pipeline, Stages};

use super::{
    Chain, FailureLimits, LISTS, MERGE, SourceFailure, StageFields,
    calls::{Call, FailureLimit, PythonSource},
    item::{Held, PipelineItem},
    marks::Tracker,
};

/// Name of the stage that merges the sources of a pipeline, without its end.
pub(crate) const SOURCES: &str = "sources";

/// Returns the name of the stage that merges the sources of a pipeline that is itself a source.
fn inner(name: &str, number: usize) -> String {
    format!("{name}-{number}")
}

/// A source as `spdl_cluster.pipeline` describes it: an iterable, or pipelines that are merged.
#[derive(FromPyObject)]
pub(crate) struct SourceFields {
    source: Py<PyAny>,
    pub(crate) is_loader: bool,
    merged: Vec<(SourceFields, Vec<StageFields>)>,
}

impl SourceFields {
    /// Adds the limits of the stages of pipelines that are merged.
    pub(crate) fn add_limits(&self, limits: &mut Vec<(String, Arc<FailureLimit>)>) {
        for (source, stages) in &self.merged {
            source.add_limits(limits);
            add_limits(stages, limits);
        }
    }

    /// Adds the names of the stages that merge sources, without their end.
    pub(crate) fn add_names(&self, name: &str, names: &mut Vec<String>) {
        names.push(name.to_owned());
        for (number, (source, _)) in self.merged.iter().enumerate() {
            source.add_names(&inner(name, number), names);
        }
    }

    /// Returns the stages of the source. If it merges others, the stage `name` does so.
    pub(crate) fn stages(
        self,
        py: Python<'_>,
        name: &str,
        tracker: Option<&Arc<Tracker>>,
        failure: &SourceFailure,
        limits: &FailureLimits,
    ) -> PyResult<Chain> {
        if self.merged.is_empty() {
            let iterator = Held::new(self.source.bind(py).try_iter()?.unbind());
            let source = PythonSource { iterator, tracker: tracker.cloned(), failure: failure.clone() };
            return Ok(Chain::Items(Pipeline::builder().source(source)));
        }
        let merged = self.merged.into_iter().enumerate().map(|(number, (source, stages))| {
            let source = source.stages(py, &inner(name, number), None, failure, limits)?;
            Ok(then_all(source, stages, limits))
        });
        let pipelines = merged.collect::<PyResult<Vec<_>>>()?;
        Ok(Chain::Items(Pipeline::builder().merge(&format!("{name}{MERGE}"), pipelines)))
    }
}

/// Adds the limits of stages, and of those in their paths.
pub(crate) fn add_limits(stages: &[StageFields], limits: &mut Vec<(String, Arc<FailureLimit>)>) {
    for stage in stages {
        limits.push((stage.name.clone(), stage.max_failures.limit()));
        stage.paths.iter().for_each(|path| add_limits(path, limits));
    }
}

/// Adds stages whose last one has to return items.
fn then_all(chain: Chain, stages: Vec<StageFields>, limits: &FailureLimits) -> Stages<PipelineItem> {
    let name = stages.last().map(|stage| format!("{}{LISTS}", stage.name)).unwrap_or_default();
    stages.into_iter().fold(chain, |chain, stage| chain.then(stage, limits)).into_items(&name)
}

/// Adds a stage that routes items to paths.
pub(crate) fn route(
    stages: Stages<PipelineItem>,
    stage: StageFields,
    limit: &Arc<FailureLimit>,
    limits: &FailureLimits,
) -> Stages<PipelineItem> {
    let StageFields { name, op, is_ordered, paths, .. } = stage;
    let order = if is_ordered { OutputOrder::Input } else { OutputOrder::Completion };
    let count = paths.len();
    let call = Call::new(op.expect("a router is a callable"), limit.clone());
    let router = limit.apply(Op::cpu(move |item: PipelineItem| call.route(item, count)));
    let branches = paths.into_iter().fold(Branches::new().order(order), |branches, path| {
        let limits = limits.clone();
        branches.branch(move |stages| then_all(Chain::Items(stages), path, &limits))
    });
    stages.route(&name, router, 1, branches)
}
