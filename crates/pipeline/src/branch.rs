//! Branches: stages that items are dealt to and whose results are merged again, and sources that are merged. None of these
//! stages has an operation, so they need no threads: see `aggregate.rs`.

use std::sync::Arc;

use crate::{
    assembly::{Assembly, ServedBy},
    builder::{PipelineBuilder, Stages},
    engine::{Engine, Locked, ThreadStage},
    error::{BuildError, PipelineError},
    link::{Link, OutputOrder, TakenMessage, pass_on},
    numbers::{Dealt, Reads, StageKind},
    op::Op,
    pipeline_state::PipelineState,
    sync::{Mutex, lock},
};

type Branch<T, U> = Box<dyn FnOnce(Stages<T>) -> Stages<U> + Send>;

/// The branches that [`Stages::route`] routes items to, numbered from 0.
pub struct Branches<T, U> {
    branches: Vec<Branch<T, U>>,
    order: OutputOrder,
}

impl<T, U> Default for Branches<T, U> {
    fn default() -> Self {
        Self { branches: Vec::new(), order: OutputOrder::default() }
    }
}

impl<T: Send + 'static, U: Send + 'static> Branches<T, U> {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a branch of the stages that `branch` adds; it may add none.
    #[must_use]
    pub fn branch(mut self, branch: impl FnOnce(Stages<T>) -> Stages<U> + Send + 'static) -> Self {
        self.branches.push(Box::new(branch));
        self
    }

    /// Sets the order in which the results of the branches are merged. Default: the order of the items that they are
    /// made of; a list, or the rest of one, comes at the place of its last item, or at the end. All stages of the
    /// branches must keep that order.
    #[must_use]
    pub fn order(mut self, order: OutputOrder) -> Self {
        self.order = order;
        self
    }
}

impl PipelineBuilder {
    /// Takes items from several pipelines, each with a source of its own, as they become available. Pipelines that have
    /// items at the same time take turns.
    #[must_use]
    pub fn merge<T: Send + 'static>(self, name: &str, pipelines: impl IntoIterator<Item = Stages<T>>) -> Stages<T> {
        let (name, pipelines) = (name.to_owned(), pipelines.into_iter().collect::<Vec<_>>());
        Stages::new(move |assembly| {
            let inputs: Vec<_> = pipelines.into_iter().map(|stages| (stages.assemble)(assembly)).collect();
            add_merge(assembly, &name, inputs, Reads::Any)
        })
    }
}

impl<T: Send + 'static> Stages<T> {
    /// Routes each item to one of several branches, and merges their results. `op` returns the number of the branch with the
    /// item, as [`Op::router`] does; a number that no branch has fails the pipeline.
    #[must_use]
    pub fn route<V: Send + 'static, U: Send + 'static>(
        self,
        name: &str,
        op: Op<T, (usize, V)>,
        concurrency: usize,
        branches: Branches<V, U>,
    ) -> Stages<U> {
        let name = name.to_owned();
        self.pipe(&name, op, concurrency).then(move |assembly, input| {
            let Branches { branches, order } = branches;
            let reads = if order == OutputOrder::Input { Reads::Dealt } else { Reads::Any };
            assembly.check_branch(&name, order);
            let deal_name = format!("{name}-deal");
            let deal = assembly.stage(&deal_name, StageKind::Deal, 1, 1, &[input.id]);
            let outputs: Vec<_> = branches.iter().map(|_| assembly.link(deal, OutputOrder::Input)).collect();
            let step = BranchRouter { name: name.clone(), input, outputs: outputs.clone(), held: Mutex::new(None) };
            assembly.serve_by_thread(ServedBy::Neighbours, step);
            let results = branches.into_iter().zip(outputs);
            let results = results.map(|(branch, link)| add_branch(assembly, &name, order, branch, link)).collect();
            if order == OutputOrder::Input {
                assembly.stages[deal].merge = Some(assembly.stages.len());
            }
            add_merge(assembly, &format!("{name}-merge"), results, reads)
        })
    }
}

/// Adds the stages of a branch behind `link`.
fn add_branch<T: Send + 'static, U: Send + 'static>(
    assembly: &mut Assembly,
    name: &str,
    order: OutputOrder,
    branch: Branch<T, U>,
    link: Arc<Link<T>>,
) -> Arc<Link<U>> {
    let around = assembly.branch.clone();
    if order == OutputOrder::Input {
        assembly.branch = Some(name.to_owned());
    }
    let output = (branch(Stages::new(move |_| link)).assemble)(assembly);
    assembly.branch = around;
    output
}

fn add_merge<T: Send + 'static>(
    assembly: &mut Assembly,
    name: &str,
    inputs: Vec<Arc<Link<T>>>,
    reads: Reads,
) -> Arc<Link<T>> {
    if inputs.is_empty() {
        assembly.fail(BuildError::NothingToMerge { stage: name.to_owned() });
    }
    let ids: Vec<usize> = inputs.iter().map(|input| input.id).collect();
    let stage = assembly.stage(name, StageKind::Inline, 1, 1, &ids);
    assembly.stages[stage].reads = reads;
    let output = assembly.link(stage, OutputOrder::Input);
    assembly.serve_by_thread(ServedBy::Neighbours, Merge { inputs, output: output.clone() });
    output
}

/// Deals each item to the branch whose number comes with it. It holds the item while that branch has no room.
struct BranchRouter<T> {
    name: String,
    input: Arc<Link<(usize, T)>>,
    outputs: Vec<Arc<Link<T>>>,
    held: Mutex<Option<(usize, TakenMessage<T>)>>,
}

impl<T: Send + 'static> ThreadStage for BranchRouter<T> {
    fn step<'e>(&self, _: &'e Engine, stage: usize, mut state: Locked<'e>) -> Locked<'e> {
        if let Some((branch, held)) = lock(&self.held).take() {
            let numbers = state.change(stage);
            (numbers.open, numbers.parked, numbers.target) = (0, 0, None);
            self.deal(stage, &mut state, branch, held);
            return state;
        }
        let TakenMessage { message, is_last } = self.input.take(&mut state);
        // A message without an item goes to the first branch, and waits for room there like any other.
        let (branch, message) = match message {
            Ok((branch, item)) if branch < self.outputs.len() => (branch, Ok(item)),
            Ok((branch, item)) => {
                state.discarded.push(Box::new(item));
                (0, Err(self.no_branch(branch).into()))
            }
            Err(none) => (0, Err(none)),
        };
        let taken = TakenMessage { message, is_last };
        let link = self.outputs[branch].id;
        if state.link_has_room(link) {
            self.deal(stage, &mut state, branch, taken);
        } else {
            *lock(&self.held) = Some((branch, taken));
            let numbers = state.change(stage);
            (numbers.open, numbers.parked, numbers.target) = (1, 1, Some(link));
        }
        state
    }
}

impl<T> BranchRouter<T> {
    fn deal(
        &self,
        stage: usize,
        state: &mut PipelineState,
        branch: usize,
        TakenMessage { message, is_last }: TakenMessage<T>,
    ) {
        let merge = state.stages[stage].merge;
        if let Some(merge) = merge {
            state.change(merge).dealt.push_back(Dealt { branch, is_last });
        }
        pass_on(stage, state, &self.outputs[branch], merge.is_some(), message);
    }

    fn no_branch(&self, branch: usize) -> PipelineError {
        let count = self.outputs.len();
        let text =
            format!("the number of an item's branch is {branch}; it must be below {count}, the number of branches");
        PipelineError::Failed { stage: self.name.clone(), source: text.into() }
    }
}

/// Merges the results of branches, or of pipelines.
struct Merge<T> {
    inputs: Vec<Arc<Link<T>>>,
    output: Arc<Link<T>>,
}

impl<T: Send> ThreadStage for Merge<T> {
    fn step<'e>(&self, _: &'e Engine, stage: usize, mut state: Locked<'e>) -> Locked<'e> {
        let input = state.next_input(stage);
        let TakenMessage { message, is_last } = self.inputs[input].take(&mut state);
        let ended = if is_last { state.change(stage).dealt.pop_front() } else { None };
        pass_on(stage, &mut state, &self.output, ended.is_some_and(|dealt| dealt.is_last), message);
        state
    }
}
