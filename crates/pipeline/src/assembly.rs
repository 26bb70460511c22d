//! The parts of a pipeline while it is put together, from source to sink.

use std::{collections::HashSet, sync::Arc, time::Instant};

use futures::stream::AbortHandle;

use crate::{
    engine::{Engine, StageExecutor, ThreadStage},
    error::BuildError,
    link::{Link, OutputOrder},
    numbers::{Crew, LinkState, StageKind, StageState},
    pipeline_state::PipelineState,
};

/// The parts of a pipeline before it starts.
pub(crate) struct Assembly {
    now: Instant,
    pub(crate) stages: Vec<StageState>,
    links: Vec<LinkState>,
    workers: Vec<StageExecutor>,
    /// What takes the steps of each stage.
    served_by: Vec<ServedBy>,
    /// The handles that end streams while the pipeline waits for them.
    pub(crate) aborts: Vec<AbortHandle>,
    /// The first reason why the pipeline cannot be built.
    problem: Option<BuildError>,
    /// The stage with the branch to which stages are being added, if they have to keep the order of the items.
    pub(crate) branch: Option<String>,
}

/// What takes the steps of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServedBy {
    /// The threads of the pool.
    Pool,
    /// Threads of its own.
    Threads(usize),
    /// Tasks of its own on the event loop.
    Tasks(usize),
    /// The threads of the stages before and behind it.
    Neighbours,
    /// The consumer.
    Consumer,
}

impl Assembly {
    pub(crate) fn new() -> Self {
        Self {
            now: Instant::now(),
            stages: Vec::new(),
            links: Vec::new(),
            workers: Vec::new(),
            served_by: Vec::new(),
            aborts: Vec::new(),
            problem: None,
            branch: None,
        }
    }

    /// Records why the pipeline cannot be built. Only the first reason counts.
    pub(crate) fn fail(&mut self, problem: BuildError) {
        self.problem.get_or_insert(problem);
    }

    /// Checks that a number is not zero.
    pub(crate) fn check(&mut self, what: impl FnOnce() -> String, count: usize) {
        if count == 0 {
            self.fail(BuildError::Zero { what: what() });
        }
    }

    /// Checks that a stage keeps the order of the items if the branch that it is in has to.
    pub(crate) fn check_branch(&mut self, stage: &str, order: OutputOrder) {
        if let (Some(branches), OutputOrder::Completion) = (&self.branch, order) {
            self.fail(BuildError::BranchOrder { stage: stage.to_owned(), branches: branches.clone() });
        }
    }

    /// Returns `name`, with a number if a stage has it already.
    pub(crate) fn unused(&self, name: &str) -> String {
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        let is_unused = |name: &String| self.stages.iter().all(|stage| stage.name != *name);
        names.find(is_unused).expect("there are more numbers than stages")
    }

    /// Adds a stage behind the links `inputs` and returns its number.
    pub(crate) fn stage(&mut self, name: &str, kind: StageKind, limit: usize, depth: usize, inputs: &[usize]) -> usize {
        let number = self.stages.len();
        let mut stage = StageState::new(name.to_owned(), kind, limit, depth, self.now);
        stage.inputs = inputs.to_vec();
        for link in inputs {
            self.links[*link].consumer = number;
        }
        self.stages.push(stage);
        number
    }

    /// Adds the link behind a stage.
    pub(crate) fn link<T>(&mut self, producer: usize, order: OutputOrder) -> Arc<Link<T>> {
        let number = self.links.len();
        self.links.push(LinkState::new(producer));
        self.stages[producer].outputs.push(number);
        Arc::new(Link::new(number, order))
    }

    pub(crate) fn serve(&mut self, by: ServedBy, worker: StageExecutor) {
        self.served_by.push(by);
        self.workers.push(worker);
    }

    pub(crate) fn serve_by_thread(&mut self, by: ServedBy, step: impl ThreadStage + 'static) {
        self.serve(by, StageExecutor::Thread(Box::new(step)));
    }

    /// Returns the engine, whose crews have the given sizes. The sink is the last stage.
    ///
    /// # Errors
    /// The first reason why the pipeline cannot be built.
    pub(crate) fn engine(mut self, threads: usize) -> Result<Arc<Engine>, BuildError> {
        let mut seen = HashSet::new();
        let twice = self.stages.iter().find(|stage| !seen.insert(&stage.name));
        if let Some(stage) = twice.map(|stage| stage.name.clone()) {
            self.fail(BuildError::NameTwice { stage });
        }
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let mut state = PipelineState::new(self.stages, self.links, self.now);
        let mut pool = Crew { size: threads, is_pool: true, ..Crew::default() };
        for (stage, by) in self.served_by.into_iter().enumerate().rev() {
            let crew = |size| Crew { stages: vec![stage], size, ..Crew::default() };
            match by {
                ServedBy::Pool => pool.stages.push(stage),
                ServedBy::Neighbours => state.inline.push(stage),
                ServedBy::Threads(size) | ServedBy::Tasks(size) => state.crews.push(crew(size)),
                ServedBy::Consumer => state.crews.push(crew(0)),
            }
        }
        if !pool.stages.is_empty() {
            state.crews.push(pool);
        }
        Ok(Engine::new(state, self.workers))
    }
}
