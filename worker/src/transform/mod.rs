//! Functions of the user's in Python: a pool of processes that call them, one for each decoding thread that is at it.
//!
//! A decoding thread waits while its process works, so that the two are one core of the budget, and a sample with a
//! function goes the way of every other sample.

mod error;
mod function;
mod process;

#[cfg(test)]
mod tests;

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::Serialize;
use spdl_shard::job::Job;
use spdl_wire::messages::StageStats;

pub use error::TransformError;
pub(crate) use function::Function;
pub(crate) use process::CallKey;
use process::{CallError, Process};

use crate::stats::Stage;

/// How often a sample is given to a process that dies of it.
const MAX_TRIES: u32 = 2;

/// How functions are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransformSettings {
    /// The interpreter: a path, or a name that is looked for on `PATH`. It needs numpy. Default `python3`.
    pub python: PathBuf,
    /// Where it looks for modules; by default where it does anyway, and in the working directory.
    pub path: Option<Vec<String>>,
    /// How long a function may take for one sample. Default 30 s. Raised, a function that hangs holds a batch up for
    /// longer, and a trainer may run into its own timeout first; lowered, samples are bad because a node is busy.
    pub timeout: Duration,
    /// The program whose functions are named as those of `__main__`. Default none, as of a worker.
    pub program: Option<Program>,
}

/// A Python program, described as `multiprocessing.spawn.prepare` takes it: it is imported under another name than `__main__`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Where its code is.
    #[serde(flatten)]
    pub code: ProgramCode,
    /// Its arguments.
    pub sys_argv: Vec<String>,
}

/// Where a program's code is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum ProgramCode {
    /// In a file, as of `python train.py`.
    #[serde(rename = "init_main_from_path")]
    File(String),
    /// In a module, as of `python -m train`.
    #[serde(rename = "init_main_from_name")]
    Module(String),
}

impl Default for TransformSettings {
    fn default() -> Self {
        Self { python: "python3".into(), path: None, timeout: Duration::from_secs(30), program: None }
    }
}

/// The processes, started when they are first needed.
#[derive(Debug)]
pub(crate) struct Transforms {
    /// `None`: no function may be called.
    settings: Option<TransformSettings>,
    pool: Mutex<Pool>,
    stage: Stage,
}

#[derive(Debug, Default)]
struct Pool {
    leases: usize,
    idle: Vec<Process>,
}

impl Transforms {
    pub(crate) fn new(settings: Option<TransformSettings>) -> Arc<Self> {
        Arc::new(Self { settings, pool: Mutex::default(), stage: Stage::new("transform") })
    }

    /// Figures of the calls, which are a part of the decoding; `None` where there were none.
    pub(crate) fn stats(&self) -> Option<StageStats> {
        Some(self.stage.stats()).filter(|stats| stats.items > 0 || stats.failures > 0)
    }

    /// Whether the interpreter can do it. Blocks for as long as it takes to start.
    pub(crate) fn check(&self) -> Result<(), TransformError> {
        match &self.settings {
            Some(settings) => Process::start(settings).map(drop),
            None => Ok(()),
        }
    }

    /// The right to call the functions of `job`; `None` when it has none.
    pub(crate) fn lease(self: &Arc<Self>, job: &Job) -> Result<Option<Lease>, TransformError> {
        let functions: Vec<_> = job.columns.iter().filter_map(Function::of).collect();
        let Some(column) = job.columns.iter().find(|column| column.transform().is_some()) else { return Ok(None) };
        let Some(settings) = &self.settings else {
            let function = functions[0].name.clone();
            return Err(TransformError::Forbidden { job: job.name.clone(), column: column.name.clone(), function });
        };
        self.pool.lock().leases += 1;
        Ok(Some(Lease { transforms: self.clone(), settings: settings.clone(), functions }))
    }
}

/// The right of one job to call its functions. With the last one the processes go, so that the next import is of what is there
/// then.
#[derive(Debug)]
pub(crate) struct Lease {
    transforms: Arc<Transforms>,
    settings: TransformSettings,
    functions: Vec<Function>,
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
    /// Imports all functions of the job, in one process. Blocks; on a thread that lasts, because the processes end with the
    /// thread that started them.
    pub(crate) fn load(&self) -> Result<(), TransformError> {
        let mut process = self.idle().map_or_else(|| Process::start(&self.settings), Ok)?;
        for function in &self.functions {
            process.load(function, &self.settings)?;
        }
        self.give_back(process);
        Ok(())
    }

    /// Calls a function with what `input` writes, whose bytes it gives, and shows `output` what it returned. Blocks; `input`
    /// is asked again where a process died. The error is that of `input`, or what `bad` makes of what became of the call.
    pub(crate) fn call<E>(
        &self,
        function: &Function,
        key: CallKey,
        mut input: impl FnMut(&mut [u8]) -> Result<usize, E>,
        mut output: impl FnMut(&[u8]),
        bad: impl FnOnce(String) -> E,
    ) -> Result<(), E> {
        let mut idle = self.idle();
        let mut tries = 0;
        loop {
            let mut process = match idle.take().map_or_else(|| Process::start(&self.settings), Ok) {
                Ok(process) => process,
                Err(error) => return Err(bad(format!("cannot be called: {error}"))),
            };
            tries += 1;
            let started = Instant::now();
            let stage = &self.transforms.stage;
            let how = match process.call(function, key, &self.settings, &mut input, &mut output) {
                Ok(took) => {
                    stage.item(took, function.takes.bytes as u64);
                    self.give_back(process);
                    return Ok(());
                }
                Err(CallError::Input(error)) => {
                    self.give_back(process);
                    return Err(error);
                }
                Err(CallError::Failed(problem)) => {
                    stage.failure(started.elapsed());
                    self.give_back(process);
                    return Err(bad(problem));
                }
                Err(CallError::Slow) => {
                    stage.failure(started.elapsed());
                    return Err(bad(format!("ran for more than {:?} and was killed", self.settings.timeout)));
                }
                Err(CallError::Unloadable(error)) => error.to_string(),
                Err(CallError::Lost(how)) => how,
            };
            stage.failure(started.elapsed());
            tracing::warn!(function = function.name, how, tries, "a process that calls functions is lost");
            if tries == MAX_TRIES {
                return Err(bad(format!("lost its process {MAX_TRIES} times: {how}")));
            }
        }
    }

    /// A process that waits for work, where there is one that lives.
    fn idle(&self) -> Option<Process> {
        loop {
            let mut process = self.transforms.pool.lock().idle.pop()?;
            if !process.has_ended() {
                return Some(process);
            }
        }
    }

    fn give_back(&self, process: Process) {
        self.transforms.pool.lock().idle.push(process);
    }
}
