//! The user's functions in Python: a pool of processes that call them, one for each decoding thread that is calling
//! one.
//!
//! A decoding thread waits while its process works, so that the two use one core of the budget. Samples with a function
//! need no path of their own.

mod error;
mod function;
mod process;
mod source;

#[cfg(test)]
mod tests;

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::Serialize;
use spdl_core::job::Job;
use spdl_ops::CallKey;
use spdl_pipeline::stats::{StageCounters, UnitGroup, UnitState};

pub use error::{FoundSource, TransformError};
pub(crate) use function::Function;
use process::{CallError, Called, PoolProcess};
use source::SourceCheck;
pub use source::{UnknownSource, find_sources};

/// How often a sample is tried if the process dies on it.
const MAX_TRIES: u32 = 2;

/// The settings for calling functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransformSettings {
    /// The interpreter: a path, or a name that is searched on `PATH`. It needs numpy. Default: `python3`.
    pub python: PathBuf,
    /// The interpreter's module search path. Default: its usual one and the working directory.
    pub path: Option<Vec<String>>,
    /// Limit for one call of a function. Default: 30 s. When raised, a function that hangs delays its batch for longer,
    /// and a trainer may run into its own timeout first; when lowered, samples become bad because a node is busy.
    pub timeout: Duration,
    /// The program whose functions are named as those of `__main__`. Default: none, as in a worker process.
    pub program: Option<Program>,
}

/// A Python program, described as `multiprocessing.spawn.prepare` expects it: it is imported under another name than
/// `__main__`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// The place of its code.
    #[serde(flatten)]
    pub code: ProgramCode,
    /// Its arguments.
    pub sys_argv: Vec<String>,
}

/// The place of a program's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum ProgramCode {
    /// A file, as in `python train.py`.
    #[serde(rename = "init_main_from_path")]
    File(String),
    /// A module, as in `python -m train`.
    #[serde(rename = "init_main_from_name")]
    Module(String),
}

impl Default for TransformSettings {
    fn default() -> Self {
        Self { python: "python3".into(), path: None, timeout: Duration::from_secs(30), program: None }
    }
}

/// The pool of Python processes, which are started when they are first needed.
#[derive(Debug)]
pub(crate) struct Transforms {
    /// The worker's name.
    worker: String,
    /// `None` if functions may not be called.
    settings: Option<TransformSettings>,
    pool: Mutex<Pool>,
    stage: Arc<StageCounters>,
}

#[derive(Debug, Default)]
struct Pool {
    leases: usize,
    idle: Vec<PoolMember>,
}

/// A process of the pool, as a unit of the stage.
#[derive(Debug)]
struct PoolMember {
    process: PoolProcess,
    unit: UnitGroup,
}

impl PoolMember {
    /// Lets the process work, as a busy unit.
    fn work<T>(&mut self, work: impl FnOnce(&mut PoolProcess) -> T) -> T {
        self.unit.shift(1, UnitState::Idle, UnitState::Busy, Instant::now());
        let result = work(&mut self.process);
        self.unit.shift(1, UnitState::Busy, UnitState::Idle, Instant::now());
        result
    }
}

impl Transforms {
    /// Creates an empty pool of a worker. `stage` counts the calls, whose time is also part of decoding.
    pub(crate) fn new(worker: &str, settings: Option<TransformSettings>, stage: Arc<StageCounters>) -> Arc<Self> {
        Arc::new(Self { worker: worker.to_owned(), settings, pool: Mutex::default(), stage })
    }

    /// Checks that the interpreter can call functions. Blocks until it has started.
    pub(crate) fn check(&self) -> Result<(), TransformError> {
        match &self.settings {
            Some(settings) => PoolProcess::start(settings).map(drop),
            None => Ok(()),
        }
    }

    /// Returns a lease to call the functions of `job`; `None` if it has none.
    pub(crate) fn lease(self: &Arc<Self>, job: &Job) -> Result<Option<Lease>, TransformError> {
        let functions = Function::all(job);
        let Some((column, first)) = functions.first() else { return Ok(None) };
        let Some(settings) = &self.settings else {
            let (column, function) = ((*column).to_owned(), first.name.clone());
            return Err(TransformError::Forbidden { job: job.name.clone(), column, function });
        };
        self.pool.lock().leases += 1;
        let functions = functions.into_iter().map(|(_, function)| function).collect();
        let sources = SourceCheck::new(&self.worker, &job.name);
        let (transforms, settings) = (self.clone(), settings.clone());
        Ok(Some(Lease { transforms, settings, functions, sources, failure: OnceLock::new() }))
    }

    fn start(&self, settings: &TransformSettings) -> Result<PoolMember, TransformError> {
        let process = PoolProcess::start(settings)?;
        Ok(PoolMember { process, unit: self.stage.units().group(1, Instant::now()) })
    }

    fn give_back(&self, member: PoolMember) {
        self.pool.lock().idle.push(member);
    }
}

/// The permission of one feed to call its job's functions. When the last lease is dropped, the processes end, so that
/// later processes import the modules again.
#[derive(Debug)]
pub(crate) struct Lease {
    transforms: Arc<Transforms>,
    settings: TransformSettings,
    functions: Vec<Function>,
    sources: SourceCheck,
    /// Why no function of the job can be called any longer.
    failure: OnceLock<TransformError>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut pool = self.transforms.pool.lock();
        pool.leases -= 1;
        let ended = if pool.leases == 0 { std::mem::take(&mut pool.idle) } else { Vec::new() };
        drop(pool);
        drop(ended);
    }
}

impl Lease {
    /// Imports all functions of the job, in one process. Blocks. Must run on a long-lived thread, because the processes
    /// end with the thread that started them.
    pub(crate) fn load(&self) -> Result<(), TransformError> {
        tracing::debug!(functions = self.functions.len(), "importing the job's functions");
        self.functions.iter().try_for_each(|function| {
            let (member, _) = self.loaded(function, true)?;
            self.transforms.give_back(member);
            Ok(())
        })
    }

    /// Returns whether the job has the digests of all its functions, so that every worker calls the same ones.
    pub(crate) fn has_digests(&self) -> bool {
        self.functions.iter().all(|function| function.source.is_some())
    }

    /// Returns why no function of the job can be called any longer, if one of them is another than it was.
    pub(crate) fn failure(&self) -> Option<&TransformError> {
        self.failure.get()
    }

    /// Calls a function. `input` writes the argument of a number and returns its size; `output` reads the returned value of a
    /// number. Blocks. If the process dies, `input` is called again for the next try. Returns the error of `input`, or the error that
    /// `bad` makes of the failure's description.
    pub(crate) fn call<E>(
        &self,
        function: &Function,
        key: CallKey,
        mut input: impl FnMut(usize, &mut [u8]) -> Result<usize, E>,
        mut output: impl FnMut(usize, &[u8]),
        bad: impl FnOnce(String) -> E,
    ) -> Result<(), E> {
        let (stage, timeout) = (&self.transforms.stage, self.settings.timeout);
        let mut tries = 0;
        loop {
            tries += 1;
            // After one that was lost comes a new one: what ended the first may be about to end others.
            let how = match self.loaded(function, tries == 1) {
                Ok((mut member, number)) => {
                    let called =
                        member.work(|process| process.call((number, function), key, timeout, &mut input, &mut output));
                    match called {
                        Ok(Called { took, bytes }) => {
                            stage.item(took, bytes);
                            self.transforms.give_back(member);
                            return Ok(());
                        }
                        Err(CallError::Input(error)) => {
                            self.transforms.give_back(member);
                            return Err(error);
                        }
                        Err(CallError::Failed(problem)) => {
                            stage.failure();
                            self.transforms.give_back(member);
                            return Err(bad(problem));
                        }
                        Err(CallError::Slow) => {
                            stage.failure();
                            return Err(bad(format!("ran for more than {timeout:?} and was killed")));
                        }
                        Err(CallError::Lost(how)) => how,
                    }
                }
                Err(error @ (TransformError::Load { .. } | TransformError::Memory { .. })) => error.to_string(),
                Err(error) => {
                    let problem = format!("cannot be called: {error}");
                    if error.is_of_source() {
                        // The first one is as good as any other.
                        let _ = self.failure.set(error);
                    }
                    return Err(bad(problem));
                }
            };
            stage.failure();
            tracing::warn!(function = function.name, how, tries, "a process that calls functions is lost");
            if tries == MAX_TRIES {
                return Err(bad(format!("lost its process {MAX_TRIES} times: {how}")));
            }
        }
    }

    /// Returns a process that has loaded a function from the right source, and the function's number in it. `may_be_idle`: whether
    /// it may be one of the pool.
    fn loaded(&self, function: &Function, may_be_idle: bool) -> Result<(PoolMember, u32), TransformError> {
        loop {
            let idle = if may_be_idle { self.idle(function) } else { None };
            let is_new = idle.is_none();
            let mut member = idle.map_or_else(|| self.transforms.start(&self.settings), Ok)?;
            let (number, source) = member.work(|process| process.load(function, &self.settings))?;
            match self.sources.check(function, source) {
                Ok(()) => return Ok((member, number)),
                // A process that has imported an earlier version is of use for jobs of that version.
                Err(error) => {
                    self.transforms.give_back(member);
                    if is_new {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Returns an idle process that is still alive and has not imported another source of a function, if there is one.
    fn idle(&self, function: &Function) -> Option<PoolMember> {
        let expected = self.sources.expected(function);
        loop {
            let mut pool = self.transforms.pool.lock();
            let fits = |member: &PoolMember| {
                expected.is_none_or(|expected| !member.process.has_other(&function.name, expected))
            };
            let number = pool.idle.iter().rposition(fits)?;
            let mut member = pool.idle.remove(number);
            drop(pool);
            if !member.process.has_ended() {
                return Some(member);
            }
        }
    }
}
