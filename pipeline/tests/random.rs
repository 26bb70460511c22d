//! Random pipelines against a sequential model: any composition, order, failure, retry, bound, stop, drain and drop. Nothing is
//! lost, nothing comes twice, nothing hangs, the queues stay bounded, and nothing is left behind.
//!
//! Each run draws new seeds; `SPDL_PIPELINE_SEED` repeats those from one on, and `SPDL_PIPELINE_COUNT` sets their number.

use std::{
    collections::HashMap,
    env,
    hash::{BuildHasher, RandomState},
    panic::resume_unwind,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use spdl_core::mix::{GAMMA, splitmix64};
use spdl_pipeline::{Op, OutputOrder, Pipeline, PipelineError, Stages};

/// Limit for one pipeline, far longer than any takes.
const LONG: Duration = Duration::from_secs(120);
const COUNT: u64 = 1000;

/// A source of random numbers: SplitMix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        let number = splitmix64(self.0) % limit;
        self.0 = self.0.wrapping_add(GAMMA);
        number
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// An item that can be counted while it lives.
#[derive(Clone)]
struct Item {
    value: u64,
    live: Arc<()>,
}

/// How a stage treats failed items.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Policy {
    Fail,
    Skip,
    Replace,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Threads {
    Cpu,
    Blocking,
    Asynchronous,
}

/// An operation, whose effect depends on the item alone.
#[derive(Clone, Copy, Debug)]
struct OpSpec {
    salt: u64,
    threads: Threads,
    concurrency: usize,
    order: OutputOrder,
    /// One item in so many fails; 0 for none.
    fails_one_in: u64,
    /// The attempts that fail.
    failing_attempts: u32,
    retries: u32,
    policy: Policy,
    max_failures: Option<u64>,
    /// For operations that make many items of one, the limit of their number.
    results: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Spec {
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
}

/// What the consumer does after it has taken some items.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    TakeAll,
    Drop(usize),
    Stop(usize),
    Drain(usize),
}

#[derive(Clone, Debug)]
struct Case {
    seed: u64,
    items: u64,
    /// The item at which the source panics.
    panics_at: Option<u64>,
    is_stream: bool,
    stages: Vec<Spec>,
    buffer: usize,
    threads: usize,
    end: End,
    changes_concurrency: bool,
}

impl OpSpec {
    fn draw(dice: &mut Dice, is_ordered: bool) -> Self {
        let results = dice.one_in(4).then(|| dice.below(5));
        let threads = [Threads::Cpu, Threads::Blocking, Threads::Asynchronous][dice.below(3) as usize];
        let threads = if results.is_some() && threads == Threads::Asynchronous { Threads::Cpu } else { threads };
        let concurrency = 1 + dice.below(6) as usize;
        let order = if dice.one_in(3) { OutputOrder::Completion } else { OutputOrder::Input };
        let policy = match dice.below(8) {
            0 => Policy::Fail,
            1..=4 => Policy::Skip,
            _ => Policy::Replace,
        };
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
            failing_attempts: 1 + dice.below(3) as u32,
            retries: dice.below(3) as u32,
            policy,
            max_failures: has_limit.then(|| dice.below(20)),
            results,
        }
    }

    fn value(&self, value: u64, result: u64) -> u64 {
        splitmix64(value ^ self.salt).wrapping_add(result.wrapping_mul(GAMMA))
    }

    fn fails(&self, value: u64) -> bool {
        self.fails_one_in > 0 && splitmix64(value.wrapping_add(self.salt)).is_multiple_of(self.fails_one_in)
    }

    fn result_count(&self, value: u64) -> u64 {
        self.results.map_or(1, |limit| if limit == 0 { 0 } else { splitmix64(value ^ !self.salt) % (limit + 1) })
    }

    /// Calls the operation: one result, as far as that goes; every second failure is a panic.
    fn call(&self, item: &Item, attempts: &Mutex<HashMap<u64, u32>>) -> Result<(), String> {
        if item.value.is_multiple_of(3) {
            thread::yield_now();
        }
        if !self.fails(item.value) {
            return Ok(());
        }
        let mut attempts = attempts.lock().unwrap();
        let attempt = attempts.entry(item.value).or_default();
        *attempt += 1;
        if *attempt > self.failing_attempts {
            return Ok(());
        }
        drop(attempts);
        if item.value.is_multiple_of(2) {
            resume_unwind(Box::new(item.value.to_string()))
        }
        Err(item.value.to_string())
    }

    fn op(self) -> Op<Item, Item> {
        let attempts = Arc::new(Mutex::new(HashMap::new()));
        let one = {
            let attempts = attempts.clone();
            move |item: Item| {
                self.call(&item, &attempts)?;
                Ok::<_, String>(Item { value: self.value(item.value, 0), ..item })
            }
        };
        let many = move |item: Item| {
            self.call(&item, &attempts)?;
            let count = self.result_count(item.value);
            Ok::<_, String>((0..count).map(move |result| {
                let value = self.value(item.value, result);
                if self.fails(value) { Err(value.to_string()) } else { Ok(Item { value, live: item.live.clone() }) }
            }))
        };
        let op = match (self.results, self.threads) {
            (Some(_), Threads::Blocking) => Op::blocking_many(many),
            (Some(_), _) => Op::cpu_many(many),
            (None, Threads::Cpu) => Op::cpu(one),
            (None, Threads::Blocking) => Op::blocking(one),
            (None, Threads::Asynchronous) => {
                let one = Arc::new(one);
                Op::asynchronous(move |item: Item| {
                    let one = one.clone();
                    async move {
                        if item.value.is_multiple_of(3) {
                            tokio::task::yield_now().await;
                        }
                        one(item)
                    }
                })
            }
        };
        let op = op.order(self.order).retry(self.retries);
        let op = if let Some(max) = self.max_failures { op.max_failures(max) } else { op };
        match self.policy {
            Policy::Fail => op,
            Policy::Skip => op.skip_failures(),
            Policy::Replace => op.replace_failures(move |error| {
                let value = match error {
                    PipelineError::Failed { source, .. } => source.to_string(),
                    PipelineError::Panicked { message, .. } => message.clone(),
                    other => panic!("{other}"),
                };
                Item { value: self.replacement(value.parse().unwrap()), live: Arc::default() }
            }),
        }
    }

    fn replacement(&self, failed: u64) -> u64 {
        splitmix64(failed.wrapping_mul(3) ^ self.salt)
    }
}

impl Case {
    fn draw(seed: u64) -> Self {
        let mut dice = Dice(splitmix64(seed));
        let mut is_ordered = true;
        let stages: Vec<Spec> = (0..1 + dice.below(6))
            .map(|_| {
                if dice.one_in(4) {
                    // What lies in a list depends on the order of the items.
                    let (count, full) = (1 + dice.below(6) as usize, is_ordered && dice.one_in(2));
                    let folds = is_ordered && dice.one_in(2);
                    return if folds { Spec::Fold { count, full } } else { Spec::Regroup { count, full } };
                }
                let op = OpSpec::draw(&mut dice, is_ordered);
                is_ordered &= op.order == OutputOrder::Input;
                Spec::Op(op)
            })
            .collect();
        let has_limit = |stage: &Spec| matches!(stage, Spec::Op(op) if op.max_failures.is_some());
        let changes_concurrency = dice.one_in(3) && !stages.iter().any(has_limit);
        let items = dice.below(150);
        let taken = dice.below(40) as usize;
        let end = match dice.below(8) {
            0 => End::Drop(taken),
            1 => End::Stop(taken),
            2 | 3 => End::Drain(taken),
            _ => End::TakeAll,
        };
        Self {
            seed,
            items,
            panics_at: dice.one_in(12).then(|| dice.below(150)),
            is_stream: dice.one_in(3),
            stages,
            buffer: 1 + dice.below(4) as usize,
            threads: 1 + dice.below(3) as usize,
            end,
            changes_concurrency,
        }
    }

    fn is_ordered(&self) -> bool {
        !self.stages.iter().any(|stage| matches!(stage, Spec::Op(op) if op.order == OutputOrder::Completion))
    }

    /// Returns the most items that can be in the pipeline if all its stages give one item for one: on each link what may
    /// wait, and what is in progress before it.
    fn bound(&self) -> Option<usize> {
        let mut bound = 1 + self.buffer;
        for stage in &self.stages {
            match stage {
                Spec::Op(OpSpec { results: None, concurrency, .. }) => {
                    bound += 2 * if self.changes_concurrency { 8.max(*concurrency) } else { *concurrency };
                }
                _ => return None,
            }
        }
        Some(bound)
    }

    fn build(&self, live: &Arc<()>, taken: &Arc<AtomicUsize>) -> Pipeline<Item> {
        let (panics_at, live, taken) = (self.panics_at, live.clone(), taken.clone());
        let items = (0..self.items).map(move |number| {
            if panics_at == Some(number) {
                resume_unwind(Box::new("the source ends here"));
            }
            taken.fetch_add(1, SeqCst);
            Item { value: splitmix64(number), live: live.clone() }
        });
        let mut stages: Stages<Item> = if self.is_stream {
            Pipeline::builder().source_stream(futures::stream::iter(items))
        } else {
            Pipeline::builder().source(items)
        };
        for (at, stage) in self.stages.iter().enumerate() {
            let name = format!("stage-{at}");
            let lists = |stages: Stages<Item>, count, full| {
                if full { stages.aggregate_full(count) } else { stages.aggregate(count) }
            };
            stages = match *stage {
                Spec::Op(op) => stages.pipe(&name, op.op(), op.concurrency),
                Spec::Regroup { count, full } => lists(stages, count, full).disaggregate(),
                Spec::Fold { count, full } => {
                    let fold = Op::cpu(|list: Vec<Item>| {
                        let values: Vec<u64> = list.iter().map(|item| item.value).collect();
                        Ok::<_, String>(Item { value: fold(&values), live: list[0].live.clone() })
                    });
                    lists(stages, count, full).pipe(&name, fold, 1)
                }
            };
        }
        stages.sink(self.buffer).build(self.threads).unwrap()
    }
}

fn fold(values: &[u64]) -> u64 {
    values.iter().fold(0, |sum, value| splitmix64(sum ^ value))
}

/// Applies the stages to one item after another.
struct Model<'c> {
    case: &'c Case,
    lists: Vec<Vec<u64>>,
    failures: Vec<u64>,
    results: Vec<u64>,
    /// Whether failures stop the model, or are only counted: where results leave in any order, any may come first.
    stops: bool,
    fatal_failures: u64,
}

/// The name of the stage that failed.
struct Failed(String);

impl<'c> Model<'c> {
    /// Returns the results of the first `count` items of the source, and the stage that fails in the end.
    fn run(case: &'c Case, count: u64) -> (Vec<u64>, Option<String>) {
        let stages = case.stages.len();
        let mut model = Model {
            case,
            lists: vec![Vec::new(); stages],
            failures: vec![0; stages],
            results: Vec::new(),
            stops: case.is_ordered(),
            fatal_failures: 0,
        };
        let failed = model.push_all(count).err().map(|failed| failed.0);
        let any = (model.fatal_failures > 0).then(|| "any".to_owned());
        (model.results, failed.or(any))
    }

    fn push_all(&mut self, count: u64) -> Result<(), Failed> {
        for number in 0..count {
            if self.case.panics_at == Some(number) {
                self.fatal_failures += 1;
                if self.stops {
                    return Err(Failed("source".to_owned()));
                }
                break;
            }
            self.push(0, splitmix64(number))?;
        }
        for stage in 0..self.case.stages.len() {
            let list = std::mem::take(&mut self.lists[stage]);
            match self.case.stages[stage] {
                Spec::Regroup { full: false, .. } => list.into_iter().try_for_each(|v| self.push(stage + 1, v))?,
                Spec::Fold { full: false, .. } if !list.is_empty() => self.push(stage + 1, fold(&list))?,
                _ => {}
            }
        }
        Ok(())
    }

    fn push(&mut self, stage: usize, value: u64) -> Result<(), Failed> {
        let Some(spec) = self.case.stages.get(stage) else {
            self.results.push(value);
            return Ok(());
        };
        match *spec {
            Spec::Regroup { count, .. } | Spec::Fold { count, .. } => {
                self.lists[stage].push(value);
                if self.lists[stage].len() < count {
                    return Ok(());
                }
                let list = std::mem::take(&mut self.lists[stage]);
                if matches!(spec, Spec::Fold { .. }) {
                    return self.push(stage + 1, fold(&list));
                }
                list.into_iter().try_for_each(|value| self.push(stage + 1, value))
            }
            Spec::Op(op) => {
                if op.fails(value) && op.retries < op.failing_attempts {
                    return self.fail(stage, op, value);
                }
                for result in 0..op.result_count(value) {
                    let value = op.value(value, result);
                    if op.results.is_some() && op.fails(value) {
                        self.fail(stage, op, value)?;
                    } else {
                        self.push(stage + 1, value)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn fail(&mut self, stage: usize, op: OpSpec, value: u64) -> Result<(), Failed> {
        self.failures[stage] += 1;
        let is_fatal = op.policy == Policy::Fail || op.max_failures.is_some_and(|max| self.failures[stage] > max);
        if is_fatal {
            self.fatal_failures += 1;
            return if self.stops { Err(Failed(format!("stage-{stage}"))) } else { Ok(()) };
        }
        if op.policy == Policy::Replace { self.push(stage + 1, op.replacement(value)) } else { Ok(()) }
    }
}

/// Runs a case and compares it with the model.
fn check(case: &Case) {
    let (live, taken) = (Arc::new(()), Arc::new(AtomicUsize::new(0)));
    let pipeline = case.build(&live, &taken);
    let mut dice = Dice(!case.seed);
    let (mut results, mut error) = (Vec::new(), None);
    let limit = match case.end {
        End::TakeAll => usize::MAX,
        End::Drop(count) | End::Stop(count) | End::Drain(count) => count,
    };
    let mut items = pipeline.iter(LONG);
    let mut has_drained = false;
    loop {
        if results.len() >= limit && !has_drained {
            if !matches!(case.end, End::Drain(_)) {
                break;
            }
            pipeline.drain();
            has_drained = true;
        }
        // The source may take one more before the item that is taken next is counted.
        let in_pipeline = taken.load(SeqCst) - results.len().min(taken.load(SeqCst));
        let skips = case
            .stages
            .iter()
            .any(|stage| matches!(stage, Spec::Op(op) if op.policy == Policy::Skip && op.fails_one_in > 0));
        if let Some(bound) = case.bound().filter(|_| !skips) {
            assert!(in_pipeline <= bound, "{in_pipeline} items in a pipeline for {bound}");
        }
        match items.next() {
            Some(Ok(item)) => results.push(item.value),
            Some(Err(failed)) => {
                assert!(!failed.is_retryable(), "hangs: {failed}");
                error = Some(failed);
                assert!(items.next().is_none(), "nothing comes after an error");
                break;
            }
            None => break,
        }
        if dice.one_in(4) {
            thread::yield_now();
        }
        let at = dice.below(case.stages.len() as u64) as usize;
        if case.changes_concurrency && dice.one_in(10) && matches!(case.stages[at], Spec::Op(_)) {
            pipeline.set_concurrency(&format!("stage-{at}"), 1 + dice.below(8) as usize).unwrap();
        }
    }
    let from_source = if has_drained { taken.load(SeqCst) as u64 } else { case.items };
    compare(case, &results, error, from_source, case.end == End::TakeAll || has_drained);
    if matches!(case.end, End::Drop(_)) {
        drop(pipeline);
        // Its threads let go of the items by themselves; if they do not, this runs into the limit.
        while Arc::strong_count(&live) > 1 {
            thread::yield_now();
        }
    } else {
        pipeline.stop();
        assert_eq!(Arc::strong_count(&live), 1, "an item is left behind");
    }
}

fn compare(case: &Case, results: &[u64], error: Option<PipelineError>, from_source: u64, is_complete: bool) {
    let (expected, failed) = Model::run(case, from_source);
    // A source that is drained in front of its panic does not panic.
    if case.is_ordered() {
        assert!(expected.starts_with(results), "the results are not the first of {}", expected.len());
    } else {
        let mut left = HashMap::<u64, usize>::new();
        expected.iter().for_each(|value| *left.entry(*value).or_default() += 1);
        for value in results {
            let count = left.get_mut(value).filter(|count| **count > 0).expect("a result comes twice or from nowhere");
            *count -= 1;
        }
    }
    match error {
        Some(error) => {
            let stage = match &error {
                PipelineError::Failed { stage, .. }
                | PipelineError::Panicked { stage, .. }
                | PipelineError::TooManyFailures { stage, .. } => stage.clone(),
                other => panic!("{other}"),
            };
            // A drained source may have panicked before it was asked to stop.
            let source_panicked = stage == "source" && case.panics_at == Some(from_source);
            if case.is_ordered() && !source_panicked {
                assert_eq!(Some(stage), failed);
                assert_eq!(results.len(), expected.len(), "the error comes behind all that came before it");
            } else {
                assert!(failed.is_some() || source_panicked, "`{error}` for no reason");
            }
        }
        None if is_complete => {
            assert_eq!(failed, None, "a failure is lost");
            assert_eq!(results.len(), expected.len(), "results are lost");
        }
        None => {}
    }
}

#[test]
fn random_pipelines_do_what_the_model_does() {
    let number = |name| env::var(name).ok().map(|value: String| value.parse().expect("a number"));
    let first: u64 = number("SPDL_PIPELINE_SEED").unwrap_or_else(|| RandomState::new().hash_one(0));
    let count = number("SPDL_PIPELINE_COUNT").unwrap_or(COUNT);
    println!("again: SPDL_PIPELINE_SEED={first}");
    for seed in (0..count).map(|number| first.wrapping_add(number)) {
        let case = Case::draw(seed);
        let (done, is_done) = mpsc::channel();
        let run = {
            let case = case.clone();
            thread::spawn(move || {
                let result = std::panic::catch_unwind(|| check(&case));
                let _ = done.send(());
                result
            })
        };
        let again = format!("SPDL_PIPELINE_SEED={seed} SPDL_PIPELINE_COUNT=1 shows it again: {case:?}");
        assert!(is_done.recv_timeout(2 * LONG).is_ok(), "hangs; {again}");
        assert!(run.join().unwrap().is_ok(), "{again}");
    }
}
