//! What runs a pipeline: threads and tasks that lock the state, choose a step, and take it with the state unlocked.
//!
//! A change of the state wakes a thread of each crew that can then take a step, unless one is awake and looks for a step. A
//! thread that finds a step does the same before it takes it. So as long as a step is possible, a thread is on the way to it.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Poll, Waker},
    time::{Duration, Instant},
};

use futures::future::BoxFuture;

use crate::{
    op::Spawner,
    pipeline_state::PipelineState,
    sync::{Condvar, Mutex, MutexGuard, lock, thread},
};

pub(crate) type Locked<'e> = MutexGuard<'e, PipelineState>;

/// How often a thread or task without work looks again before it sleeps. Waking a thread that sleeps takes several microseconds, in which a
/// quick operation has its next item.
const LOOKS_BEFORE_SLEEP: usize = if cfg!(shuttle) { 1 } else { 16 };

/// A running pipeline, shared by its threads and tasks.
pub(crate) struct Engine {
    state: Mutex<PipelineState>,
    /// For each crew, what its threads wait for.
    signals: Vec<Condvar>,
    /// The stages from source to sink.
    stages: Vec<StageExecutor>,
}

/// What takes the steps of a stage.
pub(crate) enum StageExecutor {
    /// A thread; for an inline stage, a thread of one of its neighbours.
    Thread(Box<dyn ThreadStage>),
    /// Tasks on the event loop.
    Task(Arc<dyn Task>),
    /// The consumer.
    Consumer,
}

/// What a task does before it looks for a step again.
enum Pause {
    None,
    /// It lets others run and looks again.
    Search,
    /// It waits to be woken.
    Sleep,
}

/// A stage whose steps are taken by threads.
pub(crate) trait ThreadStage: Send + Sync {
    /// Takes a step of the stage, which is runnable, and returns with the state locked as on entry.
    fn step<'e>(&self, engine: &'e Engine, stage: usize, state: Locked<'e>) -> Locked<'e>;
}

/// A stage whose steps are taken by tasks.
pub(crate) trait Task: Send + Sync {
    /// Returns what runs the tasks; `None` for the pipeline's event loop.
    fn spawner(&self) -> Option<&Spawner> {
        None
    }

    /// Returns task number `number` of the stage.
    fn task(self: Arc<Self>, engine: Arc<Engine>, stage: usize, number: usize) -> BoxFuture<'static, ()>;
}

impl Engine {
    pub(crate) fn new(state: PipelineState, stages: Vec<StageExecutor>) -> Arc<Self> {
        let signals = state.crews.iter().map(|_| Condvar::new()).collect();
        Arc::new(Self { state: Mutex::new(state), signals, stages })
    }

    /// Locks the state.
    pub(crate) fn lock(&self) -> Locked<'_> {
        self.lock_at(Instant::now())
    }

    /// Locks the state at a time that the caller has just read.
    pub(crate) fn lock_at(&self, now: Instant) -> Locked<'_> {
        let mut state = lock(&self.state);
        // Another thread may have read the clock later and come first.
        state.now = state.now.max(now);
        state
    }

    /// Unlocks the state, and wakes the threads and tasks that can take a step.
    pub(crate) fn release(&self, mut state: Locked<'_>) {
        self.wake(&mut state);
        if !state.discarded.is_empty() {
            let discarded = std::mem::take(&mut state.discarded);
            drop(state);
            // A panic while an item is dropped is ignored: the item is not needed any more.
            discarded.into_iter().for_each(|item| drop(catch_unwind(AssertUnwindSafe(|| drop(item)))));
        }
    }

    /// Runs the stages without an operation, and ends what can end, after a change of the state.
    pub(crate) fn settle<'e>(&'e self, mut state: Locked<'e>) -> Locked<'e> {
        loop {
            while let Some(stage) = state.inline.iter().copied().find(|stage| state.is_runnable(*stage)) {
                if let StageExecutor::Thread(inline) = &self.stages[stage] {
                    state = inline.step(self, stage, state);
                }
            }
            if !state.finish_stages() {
                return state;
            }
        }
    }

    fn wake(&self, state: &mut PipelineState) {
        for crew in 0..state.crews.len() {
            if state.has_ended {
                self.signals[crew].notify_all();
                state.crews[crew].wakers.iter_mut().filter_map(Option::take).for_each(Waker::wake);
            } else if state.needs_waking(crew) {
                let waiting = &mut state.crews[crew];
                waiting.woken += 1;
                match waiting.wakers.iter_mut().find_map(Option::take) {
                    Some(waker) => {
                        waiting.waiting -= 1;
                        waker.wake();
                    }
                    None => self.signals[crew].notify_one(),
                }
            }
        }
    }

    /// Takes the steps of a crew until the pipeline ends.
    pub(crate) fn work(&self, crew: usize) {
        let mut state = self.lock();
        loop {
            match state.runnable_in(crew) {
                _ if state.has_ended => return self.release(state),
                Some(stage) => {
                    let StageExecutor::Thread(worker) = &self.stages[stage] else {
                        unreachable!("threads serve such stages")
                    };
                    state = worker.step(self, stage, state);
                }
                None => state = self.wait(crew, state, None).0,
            }
        }
    }

    /// Waits until a step of the crew may be possible or the pipeline ends, but no longer than until `deadline`. Also
    /// returns whether the deadline has passed.
    pub(crate) fn wait<'e>(
        &'e self,
        crew: usize,
        mut state: Locked<'e>,
        deadline: Option<Instant>,
    ) -> (Locked<'e>, bool) {
        let is_over = |state: &PipelineState| state.has_ended || state.runnable_in(crew).is_some();
        if state.crews[crew].searching == 0 {
            state.crews[crew].searching += 1;
            for _ in 0..LOOKS_BEFORE_SLEEP {
                self.release(state);
                thread::yield_now();
                state = self.lock();
                if is_over(&state) {
                    break;
                }
            }
            state.crews[crew].searching -= 1;
        }
        self.wake(&mut state);
        let mut has_timed_out = false;
        state.crews[crew].waiting += 1;
        while !is_over(&state) && !has_timed_out {
            state = match deadline {
                None => self.signals[crew].wait(state).expect("no code that may panic runs under this lock"),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    has_timed_out = left.is_zero();
                    let waited = self.signals[crew].wait_timeout(state, left);
                    waited.expect("no code that may panic runs under this lock").0
                }
            };
            // This thread counts as woken even if it was not: to wake one thread too many does no harm.
            state.crews[crew].woken = state.crews[crew].woken.saturating_sub(1);
        }
        state.crews[crew].waiting -= 1;
        state.now = state.now.max(Instant::now());
        (state, has_timed_out)
    }

    /// Waits in a task until a step of its stage can be taken. Returns `None` once the pipeline has ended.
    pub(crate) async fn next_step(&self, stage: usize, number: usize) -> Option<Locked<'_>> {
        // A spawner may hold what the next item needs, such as Python's lock.
        let looks = if self.task(stage).is_some_and(|task| task.spawner().is_some()) { 0 } else { LOOKS_BEFORE_SLEEP };
        let (mut pause, mut looks) = (Pause::None, looks);
        poll_fn(|context| {
            let mut state = self.lock();
            match std::mem::replace(&mut pause, Pause::None) {
                Pause::None => {}
                Pause::Search => state.crew_of(stage).searching -= 1,
                Pause::Sleep => state.task_wakes(stage, number),
            }
            if state.has_ended {
                return Poll::Ready(None);
            }
            if state.is_runnable(stage) {
                return Poll::Ready(Some(state));
            }
            if looks > 0 && state.crew_of(stage).searching == 0 {
                (pause, looks) = (Pause::Search, looks - 1);
                state.crew_of(stage).searching += 1;
                self.release(state);
                thread::yield_now();
                context.waker().wake_by_ref();
            } else {
                pause = Pause::Sleep;
                state.task_sleeps(stage, number, context.waker().clone());
                self.release(state);
            }
            Poll::Pending
        })
        .await
    }

    /// Returns the stage if tasks take its steps.
    pub(crate) fn task(&self, stage: usize) -> Option<&Arc<dyn Task>> {
        match &self.stages[stage] {
            StageExecutor::Task(task) => Some(task),
            _ => None,
        }
    }

    pub(crate) fn stage_count(&self) -> usize {
        self.stages.len()
    }

    /// Takes no more items from the sources.
    pub(crate) fn drain(&self) {
        let mut state = self.lock();
        for stage in 0..state.stages.len() {
            if state.stages[stage].inputs.is_empty() {
                state.exhaust(stage);
            }
        }
        let state = self.settle(state);
        self.release(state);
    }

    /// Ends the pipeline at once.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.end();
        self.release(state);
    }
}

/// Returns the deadline after `timeout`; `None` if it is too far away for the clock.
pub(crate) fn deadline_in(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}
