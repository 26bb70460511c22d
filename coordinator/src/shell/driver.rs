//! Drives the core: passes it the time, forwards its changes to the writer in order, prints its log lines.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use spdl_control::{
    coordinator::{
        Answer, ClusterNote, ConnectionId, CoordinatorConfig, CoordinatorCore, Durability, Durable, Effect, EventPage,
        HistoryPage, HistoryQuery, LogLevel, NearestThenLeastLoaded, RequestPeer, Status,
    },
    messages::{FromCoordinator, Refusal, ToCoordinator},
};
use spdl_job::Job;

use super::{
    dataset::{DatasetChecks, DatasetLimits},
    writer::{StateWriter, Written},
};
use crate::{error_text, state::StateStore};

/// How long the answer to a worker's heartbeat waits until the changes it confirms are durable. A worker without an
/// answer for three seconds reconnects, and a worker whose connection is closed counts as dead.
const HEARTBEAT_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// What the core does with a job whose dataset was read.
type HandleJob = fn(&mut CoordinatorCore, u64, Result<Job, Refusal>) -> FromCoordinator;

/// The core with its writer, clock and dataset checks, while this coordinator leads. Shared by all tasks.
pub(crate) struct Driver {
    core: Mutex<CoordinatorCore>,
    writer: StateWriter,
    durability: Mutex<Durability>,
    started: Instant,
    /// The time of the wall clock at `started`.
    leads_since: SystemTime,
    datasets: DatasetChecks,
}

impl Driver {
    /// Starts from `durable`, which must be the content of `store`.
    pub(crate) fn start(
        config: CoordinatorConfig,
        limits: DatasetLimits,
        durable: Durable,
        store: Box<dyn StateStore>,
    ) -> Arc<Self> {
        let core = CoordinatorCore::new(config, Box::new(NearestThenLeastLoaded), durable, 0);
        Arc::new(Self {
            core: Mutex::new(core),
            durability: Mutex::new(Durability::new(store.is_shared())),
            writer: StateWriter::start(store),
            started: Instant::now(),
            leads_since: SystemTime::now(),
            datasets: DatasetChecks::new(limits),
        })
    }

    /// Answers a request once its changes are durable, or refuses it (see [`Durability`]).
    pub(crate) async fn request(&self, peer: &RequestPeer, request: ToCoordinator) -> FromCoordinator {
        let timeout =
            if matches!(request, ToCoordinator::WorkerHeartbeat(_)) { HEARTBEAT_ANSWER_TIMEOUT } else { Duration::MAX };
        // One lock of the core covers both calls: no other request comes between the terms and the answer.
        let (asked, mut written) = self.act(|core, now_ms| {
            let terms = self.durability.lock().terms(core, now_ms, &request, self.writer.problem())?;
            Ok((terms, core.handle_request(now_ms, peer, request)))
        });
        let (terms, answer) = match asked {
            Ok(asked) => asked,
            Err(refusal) => return FromCoordinator::Refused(refusal),
        };
        if terms.waits && written.is_none() {
            written = Some(self.writer.write(Vec::new()));
        }
        let reply = match answer {
            Answer::CreateJob { toml, origin } => {
                return self.submitted(peer, &toml, &origin, CoordinatorCore::handle_job).await;
            }
            Answer::ReplaceJob { toml, origin } => {
                return self.submitted(peer, &toml, &origin, CoordinatorCore::handle_replacement).await;
            }
            Answer::Clock => {
                return FromCoordinator::Clock(u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX));
            }
            Answer::Classes { job, first } => {
                let classes = self.datasets.classes(&peer.name, &job, first).await;
                return classes.unwrap_or_else(FromCoordinator::Refused);
            }
            Answer::Reply(reply) => reply,
        };
        let written = wait_for(written, timeout).await;
        self.durability.lock().answer(&terms, written, reply)
    }

    /// Creates or replaces the job that a peer submitted, and logs why it was refused.
    async fn submitted(&self, peer: &RequestPeer, toml: &str, origin: &str, handle: HandleJob) -> FromCoordinator {
        let reply = self.handle_file(&format!("the {} `{}`", peer.role, peer.name), toml, origin, handle).await;
        if let FromCoordinator::Refused(refusal) = &reply {
            tracing::warn!("{} `{}` submitted a job: {refusal}", peer.role, peer.name);
        }
        reply
    }

    /// Creates a job from the text of a job file of `submitter`.
    pub(crate) async fn create_job(&self, submitter: &str, toml: &str, origin: &str) -> FromCoordinator {
        self.handle_file(submitter, toml, origin, CoordinatorCore::handle_job).await
    }

    async fn handle_file(&self, submitter: &str, toml: &str, origin: &str, handle: HandleJob) -> FromCoordinator {
        let job: Result<Job, Refusal> = self.datasets.freeze(submitter, toml, origin).await;
        if let (Ok(_), Some(cause)) = (&job, self.writer.problem()) {
            return FromCoordinator::Refused(Refusal::Unwritable { cause });
        }
        let (reply, written) = self.act(|core, now_ms| handle(core, now_ms, job));
        match wait(Some(written.unwrap_or_else(|| self.writer.write(Vec::new())))).await {
            Ok(()) => reply,
            Err(cause) => FromCoordinator::Refused(Refusal::Unwritable { cause }),
        }
    }

    /// Sets or clears the problem that the status shows for a file of the jobs directory.
    pub(crate) fn set_problem(&self, origin: &str, problem: Option<String>) {
        self.act(|core, _| core.set_problem(origin, problem));
    }

    pub(crate) fn closed(&self, connection: ConnectionId) {
        self.act(|core, now_ms| core.handle_closed(now_ms, connection));
    }

    pub(crate) fn tick(&self) {
        self.act(|core, now_ms| core.handle_tick(now_ms));
    }

    /// Writes all changes that are not durable yet, as before a stop.
    pub(crate) async fn flush(&self) {
        let ((), written) = self.act(|core, _| core.flush());
        let _ = wait(written).await;
    }

    pub(crate) fn status(&self) -> Status {
        self.look(CoordinatorCore::status)
    }

    pub(crate) fn history(&self, query: &HistoryQuery) -> HistoryPage {
        self.look(|core| core.history(query))
    }

    pub(crate) fn events(&self, after: u64) -> EventPage {
        self.look(|core| core.events(after))
    }

    /// Returns when this coordinator began to lead, in milliseconds since 1970.
    pub(crate) fn leads_since_unix_ms(&self) -> u64 {
        self.leads_since.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }

    /// Reads from the core at the current time, to which the ages in the result refer.
    fn look<R>(&self, read: impl FnOnce(&CoordinatorCore) -> R) -> R {
        self.act(|core, now_ms| {
            core.handle_tick(now_ms);
            read(core)
        })
        .0
    }

    /// Returns why changes cannot be made durable at the moment, or `None` if they can.
    pub(crate) fn state_problem(&self) -> Option<String> {
        self.writer.problem()
    }

    /// Passes an event to the core and carries out its effects. The changes reach the writer before the core is
    /// unlocked, so they are written in order.
    fn act<R>(&self, event: impl FnOnce(&mut CoordinatorCore, u64) -> R) -> (R, Option<Written>) {
        let mut core = self.core.lock();
        let result = event(&mut core, self.started.elapsed().as_millis() as u64);
        let mut changes = Vec::new();
        while let Some(effect) = core.poll_effect() {
            match effect {
                Effect::Persist(change) => changes.push(change),
                Effect::Log(note) => log(&note),
            }
        }
        let written = (!changes.is_empty()).then(|| self.writer.write(changes));
        (result, written)
    }
}

async fn wait(written: Option<Written>) -> Result<(), String> {
    wait_for(written, Duration::MAX).await
}

async fn wait_for(written: Option<Written>, timeout: Duration) -> Result<(), String> {
    let Some(written) = written else { return Ok(()) };
    match tokio::time::timeout(timeout, written).await {
        Ok(written) => written.unwrap_or_else(|error| Err(error_text(&error))),
        Err(_) => Err(format!("the state was not written within {} ms", timeout.as_millis())),
    }
}

fn log(note: &ClusterNote) {
    match note.level() {
        LogLevel::Debug => tracing::debug!("{note}"),
        LogLevel::Info => tracing::info!("{note}"),
        LogLevel::Warn => tracing::warn!("{note}"),
        LogLevel::Error => tracing::error!("{note}"),
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Condvar;
    use spdl_control::{
        coordinator::{Change, MemoryState, Role, testing},
        messages::WorkerHeartbeat,
    };

    use super::*;
    use crate::state::StateStoreError;

    #[derive(Clone, Copy, Default, PartialEq)]
    enum WriteMode {
        #[default]
        Writes,
        Refuses,
        Hangs,
    }

    /// A state whose disk can refuse writes or hang.
    #[derive(Clone, Default)]
    struct Fragile {
        state: Arc<Mutex<MemoryState>>,
        disk: Arc<(Mutex<WriteMode>, Condvar)>,
    }

    impl Fragile {
        fn set(&self, disk: WriteMode) {
            *self.disk.0.lock() = disk;
            self.disk.1.notify_all();
        }

        fn bad_samples(&self) -> usize {
            self.state.lock().load().unwrap().bad_samples.len()
        }
    }

    impl StateStore for Fragile {
        fn load(&self) -> Result<Durable, StateStoreError> {
            self.state.lock().load()
        }

        fn apply(&mut self, changes: &[Change]) -> Result<(), StateStoreError> {
            let mut disk = self.disk.0.lock();
            self.disk.1.wait_while(&mut disk, |disk| *disk == WriteMode::Hangs);
            if *disk == WriteMode::Refuses {
                let source = std::io::Error::other("disk full").into();
                return Err(StateStoreError::Io { path: "state".into(), action: "written", source });
            }
            StateStore::apply(&mut *self.state.lock(), changes)
        }
    }

    async fn heartbeat(driver: &Driver, bad: &[u64]) -> FromCoordinator {
        let peer = RequestPeer { connection: ConnectionId(1), role: Role::Worker, name: "w".to_owned() };
        let bad_samples = bad.iter().map(|sample| testing::bad_sample(*sample)).collect();
        let heartbeat = WorkerHeartbeat { bad_samples, ..testing::worker(1, "a") };
        driver.request(&peer, ToCoordinator::WorkerHeartbeat(heartbeat)).await
    }

    fn is_refused(reply: &FromCoordinator, why: &str) -> bool {
        matches!(reply, FromCoordinator::Refused(Refusal::Unwritable { cause }) if cause.contains(why))
    }

    fn start(store: &Fragile) -> Arc<Driver> {
        let driver = Driver::start(
            CoordinatorConfig::default(),
            DatasetLimits::default(),
            Durable::default(),
            Box::new(store.clone()),
        );
        driver.act(|core, now_ms| core.handle_job(now_ms, Ok(testing::job("j"))));
        driver
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_bad_sample_that_could_not_be_written_is_not_acknowledged_until_it_is() {
        let store = Fragile::default();
        let driver = start(&store);
        assert!(matches!(heartbeat(&driver, &[1]).await, FromCoordinator::WorkerAcknowledged { .. }));
        store.set(WriteMode::Refuses);
        assert!(is_refused(&heartbeat(&driver, &[2]).await, "disk full"));
        assert!(is_refused(&heartbeat(&driver, &[2]).await, "disk full"), "it is known by now, and still not durable");
        assert!(
            matches!(heartbeat(&driver, &[]).await, FromCoordinator::WorkerAcknowledged { .. }),
            "a heartbeat without news is heard"
        );
        assert_eq!(store.bad_samples(), 1);
        store.set(WriteMode::Writes);
        // The writer retries after a short pause.
        while !matches!(heartbeat(&driver, &[2]).await, FromCoordinator::WorkerAcknowledged { .. }) {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.bad_samples(), 2);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_worker_with_bad_samples_is_answered_while_the_disk_hangs() {
        let store = Fragile::default();
        let driver = start(&store);
        store.set(WriteMode::Hangs);
        assert!(is_refused(&heartbeat(&driver, &[2]).await, "not written within 1000 ms"));
        store.set(WriteMode::Writes);
        assert!(matches!(heartbeat(&driver, &[2]).await, FromCoordinator::WorkerAcknowledged { .. }));
        assert_eq!(store.bad_samples(), 1);
    }
}
