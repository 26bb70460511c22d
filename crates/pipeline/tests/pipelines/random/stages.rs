//! Random pipelines: their sources, stages and branches, and what the consumer does.

use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use spdl_pipeline::{Branches, Op, OutputOrder, Pipeline, Stages};
use spdl_types::mix::splitmix64;

use super::{Dice, Item, ops::OpSpec};

/// Most stages with branches around a stage.
const DEEPEST: usize = 2;

#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// A number of its own.
    pub(crate) id: usize,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Op(OpSpec),
    /// Collects items and takes the lists apart again.
    Regroup {
        count: usize,
        full: bool,
    },
    /// Collects items and makes one of each list.
    Fold {
        count: usize,
        full: bool,
    },
    /// Routes items to branches.
    Route {
        salt: u64,
        order: OutputOrder,
        branches: Vec<Vec<Spec>>,
    },
}

/// What the consumer does after it has taken some items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    TakeAll,
    Drop(usize),
    Stop(usize),
    Drain(usize),
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) items: u64,
    /// The item at which the source panics.
    pub(crate) panics_at: Option<u64>,
    pub(crate) is_stream: bool,
    /// Number of sources, which take turns with the items.
    pub(crate) sources: usize,
    pub(crate) stages: Vec<Spec>,
    pub(crate) buffer: usize,
    pub(crate) threads: usize,
    pub(crate) end: End,
    pub(crate) changes_concurrency: bool,
    /// Whether the results come in the order of the items.
    pub(crate) is_ordered: bool,
    next_id: usize,
}

/// Where stages are drawn.
#[derive(Clone, Copy)]
struct Scope {
    depth: usize,
    /// Whether the items come in order.
    is_ordered: bool,
    keeps_order: bool,
}

impl Case {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut dice = Dice(splitmix64(seed));
        let taken = dice.below(40) as usize;
        let end = match dice.below(8) {
            0 => End::Drop(taken),
            1 => End::Stop(taken),
            2 | 3 => End::Drain(taken),
            _ => End::TakeAll,
        };
        let sources = if dice.one_in(6) { 2 } else { 1 };
        let mut case = Self {
            seed,
            items: dice.below(150),
            panics_at: dice.one_in(12).then(|| dice.below(150)),
            is_stream: dice.one_in(3),
            sources,
            stages: Vec::new(),
            buffer: 1 + dice.below(4) as usize,
            threads: 1 + dice.below(3) as usize,
            end,
            changes_concurrency: false,
            is_ordered: sources == 1,
            next_id: 0,
        };
        let count = 1 + dice.below(6);
        let mut scope = Scope { depth: 0, is_ordered: case.is_ordered, keeps_order: false };
        case.stages = case.draw_stages(&mut dice, &mut scope, count);
        case.changes_concurrency = dice.one_in(3) && !case.ops().iter().any(|(_, op)| op.max_failures.is_some());
        case
    }

    fn draw_stages(&mut self, dice: &mut Dice, scope: &mut Scope, count: u64) -> Vec<Spec> {
        (0..count).map(|_| self.draw_stage(dice, scope)).collect()
    }

    fn draw_stage(&mut self, dice: &mut Dice, scope: &mut Scope) -> Spec {
        let id = self.next_id;
        self.next_id += 1;
        let kind = match dice.below(12) {
            0..3 => {
                // What lies in a list depends on the order of the items.
                let (count, full) = (1 + dice.below(6) as usize, scope.is_ordered && dice.one_in(2));
                let folds = scope.is_ordered && dice.one_in(2);
                if folds { Kind::Fold { count, full } } else { Kind::Regroup { count, full } }
            }
            3 if scope.depth < DEEPEST => {
                let has_order = scope.keeps_order || dice.one_in(2);
                let order = if has_order { OutputOrder::Input } else { OutputOrder::Completion };
                let inner = Scope { depth: scope.depth + 1, keeps_order: has_order, ..*scope };
                let branches = 1 + dice.below(3);
                let mut branch = || {
                    let count = dice.below(3);
                    self.draw_stages(dice, &mut inner.clone(), count)
                };
                let branches = (0..branches).map(|_| branch()).collect();
                self.set_order(scope, order);
                Kind::Route { salt: splitmix64(id as u64), order, branches }
            }
            _ => {
                let op = OpSpec::draw(dice, scope.is_ordered, scope.keeps_order);
                self.set_order(scope, op.order);
                Kind::Op(op)
            }
        };
        Spec { id, kind }
    }

    fn set_order(&mut self, scope: &mut Scope, order: OutputOrder) {
        scope.is_ordered &= order == OutputOrder::Input;
        self.is_ordered &= order == OutputOrder::Input;
    }

    /// Returns all operations, with the names of their stages.
    pub(crate) fn ops(&self) -> Vec<(String, OpSpec)> {
        fn find(stages: &[Spec], found: &mut Vec<(String, OpSpec)>) {
            for spec in stages {
                match &spec.kind {
                    Kind::Op(op) => found.push((spec.name(), *op)),
                    Kind::Route { branches, .. } => branches.iter().for_each(|branch| find(branch, found)),
                    Kind::Regroup { .. } | Kind::Fold { .. } => {}
                }
            }
        }
        let mut found = Vec::new();
        find(&self.stages, &mut found);
        found
    }

    /// Returns the most items that can be in the pipeline if all its stages give one item for one: on each link what may
    /// wait, and what is in progress before it.
    pub(crate) fn bound(&self) -> Option<usize> {
        // The links around the stage that merges two sources have room for two each, the second source is one more.
        let mut bound = if self.sources == 1 { 1 + self.buffer } else { 6 + self.buffer };
        for stage in &self.stages {
            match stage.kind {
                Kind::Op(OpSpec { results: None, concurrency, .. }) => {
                    bound += 2 * if self.changes_concurrency { 8.max(concurrency) } else { concurrency };
                }
                _ => return None,
            }
        }
        Some(bound)
    }

    pub(crate) fn build(&self, live: &Arc<()>, taken: &Arc<[AtomicUsize; 2]>) -> Pipeline<Item> {
        let source = |source| {
            let (panics_at, live, taken) = (self.panics_at, live.clone(), taken.clone());
            let items = self.numbers(source, usize::MAX).into_iter().map(move |number| {
                if panics_at == Some(number) {
                    resume_unwind(Box::new("the source ends here"));
                }
                taken[source].fetch_add(1, SeqCst);
                Item { value: splitmix64(number), live: live.clone() }
            });
            if self.is_stream {
                Pipeline::builder().source_stream(futures::stream::iter(items))
            } else {
                Pipeline::builder().source(items)
            }
        };
        let stages =
            if self.sources == 1 { source(0) } else { Pipeline::builder().merge("sources", (0..2).map(source)) };
        add(stages, &self.stages).sink(self.buffer).build(self.threads).unwrap()
    }

    /// Returns the numbers of the first `count` items of a source.
    pub(crate) fn numbers(&self, source: usize, count: usize) -> Vec<u64> {
        (source as u64..self.items).step_by(self.sources).take(count).collect()
    }
}

impl Spec {
    pub(crate) fn name(&self) -> String {
        format!("stage-{}", self.id)
    }
}

fn add(stages: Stages<Item>, specs: &[Spec]) -> Stages<Item> {
    specs.iter().fold(stages, |stages, spec| {
        let name = spec.name();
        let lists = |stages: Stages<Item>, count, full| {
            if full { stages.aggregate_full(count) } else { stages.aggregate(count) }
        };
        match spec.kind.clone() {
            Kind::Op(op) => stages.pipe(&name, op.op(), op.concurrency),
            Kind::Regroup { count, full } => lists(stages, count, full).disaggregate(),
            Kind::Fold { count, full } => {
                let fold = Op::cpu(|list: Vec<Item>| {
                    let values: Vec<u64> = list.iter().map(|item| item.value).collect();
                    Ok::<_, String>(Item { value: fold(&values), live: list[0].live.clone() })
                });
                lists(stages, count, full).pipe(&name, fold, 1)
            }
            Kind::Route { salt, order, branches } => {
                let count = branches.len();
                let router = Op::router(move |item: &Item| branch_of(item.value, salt, count));
                let empty = Branches::new().order(order);
                let branches =
                    branches.into_iter().fold(empty, |all, branch| all.branch(move |stages| add(stages, &branch)));
                stages.route(&name, router, 2, branches)
            }
        }
    })
}

pub(crate) fn branch_of(value: u64, salt: u64, count: usize) -> usize {
    (splitmix64(value ^ salt) % count as u64) as usize
}

pub(crate) fn fold(values: &[u64]) -> u64 {
    values.iter().fold(0, |sum, value| splitmix64(sum ^ value))
}
