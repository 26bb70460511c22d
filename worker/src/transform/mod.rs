//! The user's functions in Python: a pool of processes that call them, one for each decoding thread that is calling
//! one. A process calls the functions of one job.
//!
//! A decoding thread waits while its process works, so that the two use one core of the budget. Samples with a function
//! need no path of their own.

mod error;
mod function;
mod lease;
mod output;
mod pool;
mod process;
mod source;

#[cfg(test)]
mod tests;

use std::{fmt, io, os::fd::OwnedFd, path::PathBuf, sync::Arc, time::Duration};

use serde::Serialize;

pub use error::{FoundSource, TransformError};
pub(crate) use function::Function;
pub(crate) use lease::Lease;
pub(crate) use pool::Transforms;
pub use process::PROGRAM;
pub use source::{UnknownSource, find_sources};

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
    /// Calls functions in this process, without an interpreter of their own and without time limits. Default: none, processes
    /// call them.
    pub here: Option<CallsHere>,
}

/// Takes the other end of a socket for each process that there would be, and answers as `process.py` does.
#[derive(Clone)]
pub struct CallsHere(pub Arc<TakeSocket>);

/// A function that takes a socket.
pub type TakeSocket = dyn Fn(OwnedFd) -> io::Result<()> + Send + Sync;

impl fmt::Debug for CallsHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallsHere").finish_non_exhaustive()
    }
}

impl PartialEq for CallsHere {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CallsHere {}

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
        Self { python: "python3".into(), path: None, timeout: Duration::from_secs(30), program: None, here: None }
    }
}
