//! The thread that makes changes durable, so that no task waits for a disk while it holds the core.
//!
//! Changes that are queued together are written together. If the disk refuses a write, the changes are kept and retried
//! with back-off; if another coordinator leads, they are dropped.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{
    error_text,
    state::{StateStore, StateStoreError},
};
use spdl_control::coordinator::Change;
use spdl_types::backoff::Backoff;

/// The longest pause before a retry of a failed write.
const MAX_RETRY: Duration = Duration::from_secs(5);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), MAX_RETRY);
/// How long the thread sleeps when there is nothing to do.
const IDLE: Duration = Duration::from_secs(3_600);
/// How long a drop waits for the thread to end. A store that hangs longer is abandoned.
const DROP_TIMEOUT: Duration = Duration::from_millis(400);

/// The outcome of a write: `Err` carries the reason why the changes are not durable yet.
pub(crate) type Written = oneshot::Receiver<Result<(), String>>;

struct WriteRequest {
    changes: Vec<Change>,
    done: oneshot::Sender<Result<(), String>>,
}

/// A handle to the writer thread. Dropping it waits for queued changes, but no longer than `DROP_TIMEOUT`.
pub(crate) struct StateWriter {
    requests: Option<mpsc::Sender<WriteRequest>>,
    /// Closed when the thread has ended.
    ended: Mutex<mpsc::Receiver<()>>,
    problem: Arc<Mutex<Option<String>>>,
}

impl StateWriter {
    pub(crate) fn start(store: Box<dyn StateStore>) -> Self {
        let (requests, inbox) = mpsc::channel();
        let problem = Arc::new(Mutex::new(None));
        let (ends, ended) = mpsc::channel();
        let work = WriteJob { store, pending: Vec::new(), problem: Arc::clone(&problem), backoff: None };
        let panicked = Arc::clone(&problem);
        std::thread::Builder::new()
            .name("spdl-state".to_owned())
            .spawn(move || {
                if catch_unwind(AssertUnwindSafe(|| work.run(&inbox))).is_err() {
                    let text = "the thread that writes the state has panicked: restart this coordinator".to_owned();
                    tracing::error!("{text}");
                    *panicked.lock() = Some(text.clone());
                    for request in inbox {
                        let _ = request.done.send(Err(text.clone()));
                    }
                }
                drop::<mpsc::Sender<()>>(ends);
            })
            .expect("a thread can be started");
        Self { requests: Some(requests), ended: Mutex::new(ended), problem }
    }

    /// Queues changes. They are written in the order of these calls.
    pub(crate) fn write(&self, changes: Vec<Change>) -> Written {
        let (done, written) = oneshot::channel();
        let requests = self.requests.as_ref().expect("the writer runs until it is dropped");
        // The thread receives until the writer is dropped, also after a panic of the store.
        let _ = requests.send(WriteRequest { changes, done });
        written
    }

    /// Returns why the last changes are not durable, or `None` if they are.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }
}

impl Drop for StateWriter {
    fn drop(&mut self) {
        drop(self.requests.take());
        let _ = self.ended.get_mut().recv_timeout(DROP_TIMEOUT);
    }
}

struct WriteJob {
    store: Box<dyn StateStore>,
    /// The changes that could not be written yet.
    pending: Vec<Change>,
    problem: Arc<Mutex<Option<String>>>,
    /// The end of the current pause after a failure, and the number of failures in a row.
    backoff: Option<(Instant, u32)>,
}

impl WriteJob {
    fn run(mut self, inbox: &mpsc::Receiver<WriteRequest>) {
        loop {
            let backoff = self.backoff.map_or(IDLE, |(until, _)| until.saturating_duration_since(Instant::now()));
            let first = match inbox.recv_timeout(backoff) {
                Ok(request) => Some(request),
                Err(mpsc::RecvTimeoutError::Timeout) if self.backoff.is_none() => continue,
                Err(mpsc::RecvTimeoutError::Timeout) => None,
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            };
            let mut waiting = Vec::new();
            for request in first.into_iter().chain(inbox.try_iter()) {
                self.pending.extend(request.changes);
                waiting.push(request.done);
            }
            let result = self.write();
            for done in waiting {
                let _ = done.send(result.clone());
            }
        }
        if !self.pending.is_empty() {
            self.backoff = None;
            let _ = self.write();
        }
    }

    fn write(&mut self) -> Result<(), String> {
        coalesce(&mut self.pending);
        if self.backoff.is_some_and(|(until, _)| Instant::now() < until)
            && let Some(problem) = self.problem.lock().clone()
        {
            return Err(problem);
        }
        match self.store.apply(&self.pending) {
            Ok(()) => {
                self.pending.clear();
                self.backoff = None;
                if self.problem.lock().take().is_some() {
                    tracing::info!("the state is written again");
                }
                Ok(())
            }
            Err(error) => {
                let text = error_text(&error);
                if matches!(error, StateStoreError::LeadershipLost { .. }) {
                    // The new leader continues from the changes that were written; the peers concerned report the rest
                    // to it.
                    self.pending.clear();
                    return Err(text);
                }
                let failures = self.backoff.map_or(0, |(_, failures)| failures).saturating_add(1);
                self.backoff = Some((Instant::now() + BACKOFF.limit(failures), failures));
                if self.problem.lock().replace(text.clone()).is_none() {
                    let most = MAX_RETRY.as_secs();
                    tracing::error!("{text}; it is tried again every {most} s, and nothing new is taken on until then");
                }
                Err(text)
            }
        }
    }
}

/// Drops changes that a later change replaces, so that memory stays bounded while a disk refuses writes for long.
fn coalesce(changes: &mut Vec<Change>) {
    let mut jobs = std::collections::HashSet::new();
    let mut sessions = std::collections::HashSet::new();
    let mut keep: Vec<Change> = Vec::with_capacity(changes.len());
    for change in changes.drain(..).rev() {
        let is_last = match &change {
            Change::PutJob(record) => jobs.insert(record.job.name.clone()),
            Change::PutSession(record) => sessions.insert(record.id),
            Change::PutBadSample(_) | Change::DeleteSession(_) | Change::DeleteJob(_) => true,
        };
        if is_last {
            keep.push(change);
        }
    }
    keep.reverse();
    *changes = keep;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::state::StateStoreError;
    use spdl_control::coordinator::{Durable, JobRecord, MemoryState, testing};

    /// A state in memory that the test can also read, with a disk that can refuse writes.
    #[derive(Clone, Default)]
    struct Flaky(Arc<Mutex<MemoryState>>, Arc<AtomicBool>);

    impl StateStore for Flaky {
        fn load(&self) -> Result<Durable, StateStoreError> {
            self.0.lock().load()
        }

        fn apply(&mut self, changes: &[Change]) -> Result<(), StateStoreError> {
            if self.1.load(Ordering::SeqCst) {
                let source = std::io::Error::other("disk full").into();
                return Err(StateStoreError::Io { path: "state".into(), action: "written", source });
            }
            StateStore::apply(&mut *self.0.lock(), changes)
        }
    }

    fn put(name: &str, failed: Option<&str>) -> Change {
        let job = testing::job(name);
        let failed = failed.map(str::to_owned);
        Change::PutJob(JobRecord { fingerprint: job.fingerprint(), max_bad_fraction_bits: 0, failed, job: job.into() })
    }

    #[test]
    fn a_change_is_durable_when_the_writer_reports_it() {
        let store = Flaky::default();
        let writer = StateWriter::start(Box::new(store.clone()));
        assert_eq!(writer.write(vec![put("a", None)]).blocking_recv(), Ok(Ok(())));
        assert_eq!(store.load().unwrap().jobs.len(), 1);
    }

    #[test]
    fn a_disk_that_refuses_is_reported_and_what_it_refused_is_written_later() {
        let store = Flaky::default();
        store.1.store(true, Ordering::SeqCst);
        let writer = StateWriter::start(Box::new(store.clone()));
        let error = writer.write(vec![put("a", None)]).blocking_recv().unwrap().unwrap_err();
        assert_eq!(error, "state `state` cannot be written: disk full");
        assert_eq!(writer.problem(), Some(error));
        store.1.store(false, Ordering::SeqCst);
        // The writer retries by itself; until then no caller gets a reply that depends on the change.
        while writer.problem().is_some() {
            std::thread::yield_now();
        }
        assert_eq!(store.load().unwrap().jobs.len(), 1);
        assert_eq!(writer.write(vec![put("b", None)]).blocking_recv(), Ok(Ok(())));
        assert_eq!(store.load().unwrap().jobs.len(), 2);
    }

    #[test]
    fn a_store_that_panics_is_reported_to_every_writer() {
        struct Panics;
        impl StateStore for Panics {
            fn load(&self) -> Result<Durable, StateStoreError> {
                Ok(Durable::default())
            }

            fn apply(&mut self, _: &[Change]) -> Result<(), StateStoreError> {
                panic!("its content is invalid")
            }
        }
        let writer = StateWriter::start(Box::new(Panics));
        assert!(writer.write(vec![put("a", None)]).blocking_recv().is_err());
        let error = writer.write(Vec::new()).blocking_recv().unwrap().unwrap_err();
        assert!(error.contains("has panicked"), "{error}");
        assert_eq!(writer.problem(), Some(error));
    }

    #[test]
    fn dropping_the_writer_waits_for_what_it_was_given() {
        let store = Flaky::default();
        let writer = StateWriter::start(Box::new(store.clone()));
        for number in 0..100 {
            drop(writer.write(vec![put(&format!("j{number}"), None)]));
        }
        drop(writer);
        assert_eq!(store.load().unwrap().jobs.len(), 100);
    }

    #[test]
    fn of_changes_that_wait_the_last_of_each_record_is_kept_and_deletions_stay_in_place() {
        let mut changes =
            vec![put("a", None), put("b", None), Change::DeleteJob("a".to_owned()), put("a", Some("why"))];
        let expected = vec![put("b", None), Change::DeleteJob("a".to_owned()), put("a", Some("why"))];
        coalesce(&mut changes);
        assert_eq!(changes, expected);
    }
}
