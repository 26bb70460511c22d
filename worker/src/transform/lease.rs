//! The calls of one job's functions.

use std::sync::{Arc, OnceLock};

use spdl_functions::CallKey;

use super::{
    Function, TransformError, TransformSettings, Transforms,
    output::OutputLimit,
    pool::{JobKey, PoolMember},
    process::{CallError, Called, PoolProcess},
    source::SourceCheck,
};

/// How often a sample is tried if the process dies on it.
const MAX_TRIES: u32 = 2;

/// The permission of one feed to call its job's functions. When the last lease of a job is dropped, its processes end.
#[derive(Debug)]
pub(crate) struct Lease {
    transforms: Arc<Transforms>,
    settings: TransformSettings,
    /// The job, and the limit of what its functions print.
    job: (JobKey, Arc<OutputLimit>),
    functions: Vec<Function>,
    sources: SourceCheck,
    /// Why no function of the job can be called any longer.
    failure: OnceLock<TransformError>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.transforms.end_lease(&self.job.0);
    }
}

impl Lease {
    pub(super) const fn new(
        transforms: Arc<Transforms>,
        settings: TransformSettings,
        job: (JobKey, Arc<OutputLimit>),
        functions: Vec<Function>,
        sources: SourceCheck,
    ) -> Self {
        Self { transforms, settings, job, functions, sources, failure: OnceLock::new() }
    }

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

    /// Returns the error if a process has imported another version of one of the functions, so that none of them can be
    /// called any longer.
    pub(crate) fn failure(&self) -> Option<&TransformError> {
        self.failure.get()
    }

    /// Calls a function, and blocks until it has returned. `input` writes the argument with a number and returns its
    /// size; `output` reads the returned value with a number. If the process dies, `input` is called again for the next
    /// try. Returns the error of `input`, or the error that `bad` makes of the failure's description.
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
            // After a lost process a new one is started: whatever ended the first may be about to end the idle ones.
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
                        // The program has closed the loader, and nothing waits for the sample.
                        Err(CallError::Lost(how)) if self.settings.here.is_some() => return Err(bad(how)),
                        Err(CallError::Lost(how)) => how,
                    }
                }
                Err(error @ (TransformError::Load { .. } | TransformError::Memory { .. })) => error.to_string(),
                Err(error) => {
                    let problem = format!("cannot be called: {error}");
                    if error.is_of_source() {
                        // If a failure is set already, it is kept: the first one is as good as any other.
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

    /// Returns a process that has loaded a function from the right source, and the function's number in it. If
    /// `may_be_idle`, it may be an idle process of the pool.
    fn loaded(&self, function: &Function, may_be_idle: bool) -> Result<(PoolMember, u32), TransformError> {
        loop {
            let idle = if may_be_idle { self.idle(function) } else { None };
            let is_new = idle.is_none();
            let (job, limit) = &self.job;
            let start = || self.transforms.start(&self.settings, Some(job.clone()), limit.clone());
            let mut member = idle.map_or_else(start, Ok)?;
            let (number, source) = member.work(|process| process.load(function, &self.settings))?;
            match self.sources.check(function, source) {
                Ok(()) => return Ok((member, number)),
                // A process that has imported an earlier version can still serve runs of that version.
                Err(error) => {
                    self.transforms.give_back(member);
                    if is_new {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Returns an idle process of the job that is still alive and has not imported another source of a function, if there is one.
    fn idle(&self, function: &Function) -> Option<PoolMember> {
        let expected = self.sources.expected(function);
        let fits = |process: &PoolProcess| expected.is_none_or(|expected| !process.has_other(&function.name, expected));
        loop {
            let member = self.transforms.take_idle(&self.job.0, fits)?;
            if !member.process.has_ended() {
                return Some(member);
            }
        }
    }
}
