//! The sequential model: applies the stages to one item after another.

use std::collections::HashMap;

use spdl_types::mix::splitmix64;

use super::{
    ops::{OpSpec, Policy},
    stages::{Case, Kind, Spec, branch_of, fold},
};

#[derive(Default)]
pub(crate) struct Model {
    lists: HashMap<usize, Vec<u64>>,
    failures: HashMap<usize, u64>,
    /// Whether failures stop the model, or are only counted: where results leave in any order, any may come first.
    stops: bool,
    fatal_failures: u64,
}

/// What stages make of some items, up to a failure: the name of the stage that failed.
#[derive(Default)]
struct Made {
    values: Vec<u64>,
    failed: Option<String>,
}

impl Made {
    fn of(values: Vec<u64>) -> Self {
        Self { values, failed: None }
    }

    /// Adds what comes next, unless a failure came before it.
    fn then(&mut self, next: Self) {
        self.values.extend(next.values);
        self.failed = next.failed;
    }
}

impl Model {
    /// Returns the results of the items that the sources gave, and the stage that fails in the end.
    pub(crate) fn run(case: &Case, taken: [usize; 2]) -> (Vec<u64>, Option<String>) {
        let mut model = Self { stops: case.is_ordered, ..Self::default() };
        let mut made = Made::default();
        for (source, count) in taken.into_iter().take(case.sources).enumerate() {
            for number in case.numbers(source, count) {
                if made.failed.is_none() && case.panics_at == Some(number) {
                    model.fatal_failures += 1;
                    made.failed = model.stops.then(|| "source".to_owned());
                    break;
                }
                if made.failed.is_none() {
                    made.then(model.apply(&case.stages, Made::of(vec![splitmix64(number)])));
                }
            }
        }
        if made.failed.is_none() {
            made.then(model.flush(&case.stages));
        }
        let any = (model.fatal_failures > 0).then(|| "any".to_owned());
        (made.values, made.failed.or(any))
    }

    /// Passes on what the lists have left.
    fn flush(&mut self, stages: &[Spec]) -> Made {
        let mut made = Made::default();
        for (at, spec) in stages.iter().enumerate() {
            let rest = self.rest(spec);
            made.then(self.apply(&stages[at + 1..], rest));
            if made.failed.is_some() {
                break;
            }
        }
        made
    }

    fn rest(&mut self, spec: &Spec) -> Made {
        let list = self.lists.remove(&spec.id).unwrap_or_default();
        match &spec.kind {
            Kind::Regroup { full: false, .. } => Made::of(list),
            Kind::Fold { full: false, .. } if !list.is_empty() => Made::of(vec![fold(&list)]),
            Kind::Route { branches, .. } => {
                let mut made = Made::default();
                for branch in branches {
                    if made.failed.is_none() {
                        made.then(self.flush(branch));
                    }
                }
                made
            }
            _ => Made::default(),
        }
    }

    fn apply(&mut self, stages: &[Spec], items: Made) -> Made {
        stages.iter().fold(items, |items, spec| {
            let mut made = Made::default();
            for value in items.values {
                made.then(self.stage(spec, value));
                if made.failed.is_some() {
                    return made;
                }
            }
            made.failed = items.failed;
            made
        })
    }

    fn stage(&mut self, spec: &Spec, value: u64) -> Made {
        match &spec.kind {
            Kind::Op(op) => self.op(spec, *op, value),
            Kind::Regroup { count, .. } | Kind::Fold { count, .. } => {
                let list = self.lists.entry(spec.id).or_default();
                list.push(value);
                if list.len() < *count {
                    return Made::default();
                }
                let list = std::mem::take(list);
                Made::of(if matches!(spec.kind, Kind::Fold { .. }) { vec![fold(&list)] } else { list })
            }
            Kind::Route { salt, branches, .. } => {
                self.apply(&branches[branch_of(value, *salt, branches.len())], Made::of(vec![value]))
            }
        }
    }

    fn op(&mut self, spec: &Spec, op: OpSpec, value: u64) -> Made {
        if op.fails(value) {
            return self.fail(spec, op);
        }
        let mut made = Made::default();
        for result in 0..op.result_count(value) {
            let value = op.value(value, result);
            let is_failure = op.results.is_some() && op.fails(value);
            made.then(if is_failure { self.fail(spec, op) } else { Made::of(vec![value]) });
            if made.failed.is_some() {
                break;
            }
        }
        made
    }

    fn fail(&mut self, spec: &Spec, op: OpSpec) -> Made {
        let failures = self.failures.entry(spec.id).or_default();
        *failures += 1;
        if op.policy == Policy::Fail || op.max_failures.is_some_and(|max| *failures > max) {
            self.fatal_failures += 1;
            return Made { values: Vec::new(), failed: self.stops.then(|| spec.name()) };
        }
        Made::default()
    }
}
