//! Finds out what limits a rank, for its trainer.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::{BoxFuture, FutureExt};
use spdl_insight::{Diagnosis, Measured};
use spdl_job::Job;
use tokio::task::AbortHandle;

use crate::ClientError;

/// A future with the measurements of a rank and of the worker that serves it; `None` while there is no history of some
/// seconds.
type Measuring = BoxFuture<'static, Result<Option<Measured>, ClientError>>;

/// Finds out what limits a rank, also while its loader waits. The measurements come from the coordinator or, for a
/// pipeline in this process, from the pipeline. Cheap to clone.
#[derive(Clone)]
pub struct Diagnoser(Arc<dyn Fn() -> Measuring + Send + Sync>);

impl fmt::Debug for Diagnoser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Diagnoser").finish_non_exhaustive()
    }
}

impl Default for Diagnoser {
    /// Creates a diagnoser without measurements, which always returns `None`.
    fn default() -> Self {
        Self::new(|| async { Ok(None) })
    }
}

impl Diagnoser {
    /// Creates a diagnoser that gets its measurements from `measure`.
    pub fn new<F>(measure: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Option<Measured>, ClientError>> + Send + 'static,
    {
        Self(Arc::new(move || measure().boxed()))
    }

    /// Diagnoses the last seconds; `None` while there is no history of some seconds.
    ///
    /// # Errors
    /// [`ClientError::Undiagnosed`] if no coordinator answers.
    pub async fn diagnose(&self) -> Result<Option<Diagnosis>, ClientError> {
        Ok((self.0)().await?.map(Diagnosis::from))
    }
}

/// The task that logs verdicts; it ends when this value is dropped, with its loader.
#[derive(Debug)]
pub(crate) struct RunningLog(AbortHandle);

impl Drop for RunningLog {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl RunningLog {
    /// Logs the verdict after each `every`. Needs a tokio runtime.
    pub(crate) fn start(diagnoser: Diagnoser, job: &Job, every: Duration) -> Self {
        let job = job.name.clone();
        let task = async move {
            let mut ticks = tokio::time::interval(every);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                tracing::info!("{}", line(&job, diagnoser.diagnose().await));
            }
        };
        Self(tokio::spawn(task).abort_handle())
    }
}

/// Returns one line about what a loader of `job` does.
fn line(job: &str, found: Result<Option<Diagnosis>, ClientError>) -> String {
    match found {
        Ok(Some(found)) => format!("job `{job}`: {:.0} samples/s; {}", found.samples_per_s(), found.verdict()),
        Ok(None) => format!("job `{job}`: nothing was measured yet"),
        Err(error) => format!("job `{job}`: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use spdl_insight::{RankWindow, diagnose};

    use super::*;

    #[test]
    fn a_line_names_the_job_its_rate_and_the_limit() {
        let rank = RankWindow { rank: 3, seconds: 5.0, samples: 640, ..RankWindow::default() };
        let found = diagnose(rank, None::<Arc<spdl_insight::WorkerWindow>>);
        assert_eq!(line("a", Ok(Some(found))), "job `a`: 128 samples/s; rank 3 has no home: no worker serves it");
        assert_eq!(line("a", Ok(None)), "job `a`: nothing was measured yet");
        let error = ClientError::Undiagnosed { cause: "no coordinator answers".to_owned() };
        assert_eq!(line("a", Err(error)), "job `a`: what limits the rank is not known: no coordinator answers");
    }
}
