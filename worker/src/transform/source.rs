//! The digests of functions' sources: found when a job is created, and compared when its functions are called.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use spdl_accounting::StageCounters;
use spdl_job::{JobFile, SourceDigest};
use spdl_types::Stage;

use super::{FoundSource, Function, TransformError, TransformSettings, Transforms, output::OutputLimit};

/// A function whose source is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("function `{function}`: {problem}")]
pub struct UnknownSource {
    /// `package.module:function`.
    pub function: String,
    /// Why it is not known.
    pub problem: String,
}

/// Sets the digests of the sources of a job's Python functions, as far as they are not set. Imports the functions' modules in a
/// Python process, and blocks until that is done. Returns the functions whose source is not found; their digests stay unset.
pub fn find_sources(file: &mut JobFile, settings: &TransformSettings) -> Vec<UnknownSource> {
    let stage = Arc::new(StageCounters::new(Stage::Transform));
    Transforms::new("", Some(settings.clone()), stage, 1).find_sources(file)
}

impl Transforms {
    /// Finds sources as [`find_sources`] does, and keeps the process for the calls of the first job. Must run on a
    /// long-lived thread, because the process ends with the thread that started it.
    pub(crate) fn find_sources(&self, file: &mut JobFile) -> Vec<UnknownSource> {
        let limit = OutputLimit::new(&file.name);
        let mut unset = file.sources().filter(|(_, digest)| digest.is_none()).peekable();
        // What is called in the program itself may change with each run, such as the cell of a notebook.
        let is_wanted = |settings: &&TransformSettings| settings.here.is_none() && unset.peek().is_some();
        let Some(settings) = self.settings.as_ref().filter(is_wanted) else { return Vec::new() };
        let mut started = self.start(settings, None, limit).map_err(|error| error.to_string());
        let mut unknown = Vec::new();
        for (function, digest) in unset {
            let found = match &mut started {
                Ok(member) => member.work(|process| process.source(function)),
                Err(problem) => Err(problem.clone()),
            };
            let found = found.and_then(|found| found.ok_or_else(|| "it is in no file with Python source".to_owned()));
            match found {
                Ok(found) => *digest = Some(found),
                Err(problem) => unknown.push(UnknownSource { function: function.to_owned(), problem }),
            }
        }
        if let Ok(member) = started {
            self.give_back(member);
        }
        unknown
    }
}

/// Checks that all processes that call the functions of a job have imported the same source of each.
#[derive(Debug)]
pub(super) struct SourceCheck {
    worker: String,
    job: String,
    /// The digests that processes of this worker have imported first, by the name of the function.
    first: Mutex<BTreeMap<String, Option<SourceDigest>>>,
}

impl SourceCheck {
    pub(super) fn new(worker: &str, job: &str) -> Self {
        Self { worker: worker.to_owned(), job: job.to_owned(), first: Mutex::default() }
    }

    /// Returns the digest that a process has to have imported; `None` if any is right.
    pub(super) fn expected(&self, function: &Function) -> Option<Option<SourceDigest>> {
        let of_job = function.source.map(Some);
        of_job.or_else(|| self.first.lock().get(&function.name).copied())
    }

    /// Checks the digest that a process has imported.
    ///
    /// # Errors
    /// [`TransformError::SourceDiffers`] if it is not the job's, and [`TransformError::SourceChanged`] if the job has none and another
    /// process has imported another one.
    pub(super) fn check(&self, function: &Function, found: Option<SourceDigest>) -> Result<(), TransformError> {
        let (job, worker, name) = (self.job.clone(), self.worker.clone(), function.name.clone());
        if let Some(expected) = function.source {
            if found == Some(expected) {
                return Ok(());
            }
            let found = Box::new(FoundSource(found));
            return Err(TransformError::SourceDiffers { job, function: name, worker, expected, found });
        }
        let mut first = self.first.lock();
        let before = *first.entry(name.clone()).or_insert_with(|| {
            tracing::info!(
                function = name,
                "the job does not fix the source of its function; here it is {}",
                FoundSource(found)
            );
            found
        });
        if before == found {
            return Ok(());
        }
        let (before, now) = (Box::new(FoundSource(before)), Box::new(FoundSource(found)));
        Err(TransformError::SourceChanged { job, function: name, worker, before, now })
    }
}
