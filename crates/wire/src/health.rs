//! Remembers the first panic of a server's own tasks, for its probes.

use std::{panic::AssertUnwindSafe, sync::OnceLock};

use futures::FutureExt;

/// Whether a server is healthy. After one of its tasks has panicked it is not, because its state may be wrong and only
/// a restart helps.
#[derive(Debug, Default)]
pub struct Health(OnceLock<String>);

impl Health {
    /// Notes that something panicked, and logs it. The first problem is kept.
    pub fn fail(&self, problem: String) {
        tracing::error!("{problem}: restart this process");
        let _ = self.0.set(problem);
    }

    /// Runs a future to its end. Returns `None` if it panicked, and notes `problem()`.
    pub async fn watch<T>(&self, problem: impl FnOnce() -> String, future: impl Future<Output = T>) -> Option<T> {
        let ended = AssertUnwindSafe(future).catch_unwind().await;
        ended.map_err(|_| self.fail(problem())).ok()
    }

    /// Returns what panicked first, if anything did.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_panic_is_kept_and_a_task_that_ends_is_healthy() {
        let health = Health::default();
        assert_eq!((health.watch(|| "a".to_owned(), async { 7 }).await, health.problem()), (Some(7), None));
        for problem in ["b", "c"] {
            assert_eq!(health.watch(|| problem.to_owned(), async { panic!("on purpose") }).await, None::<()>);
        }
        assert_eq!(health.problem(), Some("b"));
    }
}
