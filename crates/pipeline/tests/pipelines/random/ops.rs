//! Random operations: what a pipe does with an item depends on the item alone.

use std::{
    panic::resume_unwind,
    sync::{Arc, LazyLock},
    thread,
};

use futures::{
    future::FutureObj,
    task::{Spawn, SpawnError},
};
use spdl_pipeline::{Op, OutputOrder};
use spdl_types::mix::{GAMMA, splitmix64};

use super::{Dice, Item};

/// How a stage treats failed items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Policy {
    Fail,
    Skip,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Threads {
    Cpu,
    Blocking,
    Asynchronous,
    /// Asynchronous, on an event loop that is not the pipeline's.
    Elsewhere,
}

struct Elsewhere;

impl Spawn for Elsewhere {
    fn spawn_obj(&self, task: FutureObj<'static, ()>) -> Result<(), SpawnError> {
        static LOOP: LazyLock<tokio::runtime::Runtime> =
            LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap());
        LOOP.spawn(task);
        Ok(())
    }
}

/// An operation, whose effect depends on the item alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpSpec {
    pub(crate) salt: u64,
    pub(crate) threads: Threads,
    pub(crate) concurrency: usize,
    pub(crate) order: OutputOrder,
    /// One item in so many fails; 0 for none.
    pub(crate) fails_one_in: u64,
    pub(crate) policy: Policy,
    pub(crate) max_failures: Option<u64>,
    /// For operations that make many items of one, the limit of their number.
    pub(crate) results: Option<u64>,
    /// For other operations, one item in so many is left out; 0 for none.
    leaves_out_one_in: u64,
}

impl OpSpec {
    /// Draws an operation for items that come in order or not, and that must keep it or not.
    pub(crate) fn draw(dice: &mut Dice, is_ordered: bool, keeps_order: bool) -> Self {
        let results = dice.one_in(4).then(|| dice.below(5));
        let all = [Threads::Cpu, Threads::Blocking, Threads::Asynchronous, Threads::Elsewhere];
        let threads = all[dice.below(if results.is_some() { 2 } else { 4 }) as usize];
        let concurrency = 1 + dice.below(6) as usize;
        let order = if dice.one_in(3) && !keeps_order { OutputOrder::Completion } else { OutputOrder::Input };
        let policy = if dice.one_in(8) { Policy::Fail } else { Policy::Skip };
        let fails_one_in =
            if dice.one_in(2) { 0 } else { 1 + dice.below(if policy == Policy::Fail { 200 } else { 9 }) };
        // Which failure is one too many depends on the order in which operations end.
        let has_limit = is_ordered && order == OutputOrder::Input && concurrency == 1 && dice.one_in(3);
        Self {
            salt: splitmix64(dice.below(u64::MAX)),
            threads,
            concurrency,
            order,
            fails_one_in,
            policy,
            max_failures: has_limit.then(|| dice.below(20)),
            results,
            leaves_out_one_in: if threads != Threads::Blocking && dice.one_in(4) { 1 + dice.below(9) } else { 0 },
        }
    }

    pub(crate) fn value(&self, value: u64, result: u64) -> u64 {
        splitmix64(value ^ self.salt).wrapping_add(result.wrapping_mul(GAMMA))
    }

    pub(crate) fn fails(&self, value: u64) -> bool {
        self.fails_one_in > 0 && splitmix64(value.wrapping_add(self.salt)).is_multiple_of(self.fails_one_in)
    }

    /// Returns whether items may be left out.
    pub(crate) fn leaves_out(&self) -> bool {
        self.leaves_out_one_in > 0 || self.policy == Policy::Skip && self.fails_one_in > 0
    }

    pub(crate) fn result_count(&self, value: u64) -> u64 {
        let number = splitmix64(value ^ !self.salt);
        match (self.results, self.leaves_out_one_in) {
            (Some(limit), _) => number % (limit + 1),
            (None, 0) => 1,
            (None, count) => u64::from(!number.is_multiple_of(count)),
        }
    }

    /// Calls the operation: one result, as far as that goes; every second failure is a panic.
    fn call(&self, value: u64) -> Result<(), String> {
        if value.is_multiple_of(3) {
            thread::yield_now();
        }
        if !self.fails(value) {
            return Ok(());
        }
        if value.is_multiple_of(2) {
            resume_unwind(Box::new(value.to_string()))
        }
        Err(value.to_string())
    }

    pub(crate) fn op(self) -> Op<Item, Item> {
        let one = move |item: Item| {
            self.call(item.value)?;
            let result = Item { value: self.value(item.value, 0), live: item.live };
            Ok::<_, String>((self.result_count(item.value) > 0).then_some(result))
        };
        let many = move |item: Item| {
            self.call(item.value)?;
            let count = self.result_count(item.value);
            Ok::<_, String>((0..count).map(move |result| {
                let value = self.value(item.value, result);
                if self.fails(value) { Err(value.to_string()) } else { Ok(Item { value, live: item.live.clone() }) }
            }))
        };
        let op = match (self.results, self.threads) {
            (Some(_), Threads::Blocking) => Op::blocking_many(many),
            (Some(_), _) => Op::cpu_many(many),
            (None, Threads::Cpu) => Op::cpu_filter_map(one),
            (None, Threads::Blocking) => {
                Op::blocking(move |item| Ok::<_, String>(one(item)?.expect("blocking operations leave no item out")))
            }
            (None, Threads::Asynchronous | Threads::Elsewhere) => {
                let one = Arc::new(one);
                let op = Op::asynchronous_filter_map(move |item: Item| {
                    let one = one.clone();
                    async move {
                        if item.value.is_multiple_of(3) {
                            tokio::task::yield_now().await;
                        }
                        one(item)
                    }
                });
                if self.threads == Threads::Elsewhere { op.spawn_on(Arc::new(Elsewhere)) } else { op }
            }
        };
        let op = op.order(self.order);
        let op = if let Some(max) = self.max_failures { op.max_failures(max) } else { op };
        match self.policy {
            Policy::Fail => op,
            Policy::Skip => op.skip_failures(),
        }
    }
}
