//! The processes that call functions. Each process serves one job: a function can set something for its whole process,
//! such as torch's default type or a module's global, which must not change the samples of other jobs.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Instant,
};

use parking_lot::Mutex;
use spdl_accounting::{StageCounters, UnitGroup, UnitState};
use spdl_job::Job;
use spdl_types::Fingerprint;

use super::{
    Function, Lease, TransformError, TransformSettings, output::OutputLimit, process::PoolProcess, source::SourceCheck,
};

/// Processes of all jobs for each decoding thread. At most one of a thread's processes works at a time; with two, two
/// jobs never end each other's. When raised, more jobs with functions keep their processes, and their memory; when
/// lowered, jobs that alternate start their processes again.
const PROCESSES_PER_THREAD: usize = 2;

/// The pool of Python processes, which are started when they are first needed.
#[derive(Debug)]
pub(crate) struct Transforms {
    /// The worker's name.
    pub(super) worker: String,
    /// `None` if functions may not be called.
    pub(super) settings: Option<TransformSettings>,
    pool: Mutex<Pool>,
    pub(super) stage: Arc<StageCounters>,
}

/// The key by which a job's processes are distinguished from those of other jobs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobKey {
    name: String,
    fingerprint: Fingerprint,
}

#[derive(Debug)]
struct Pool {
    jobs: BTreeMap<JobKey, PooledJob>,
    /// The idle processes of all jobs, the last used at the end.
    idle: Vec<PoolMember>,
    /// A process that has imported functions to find their sources. The first job takes it, so that they are not
    /// imported again. No function has been called in it.
    spare: Option<PoolMember>,
    /// Cloned for each process, so that its clones count the processes.
    place: Arc<()>,
    max_processes: usize,
}

/// A job that has leases.
#[derive(Debug)]
struct PooledJob {
    leases: usize,
    limit: Arc<OutputLimit>,
}

/// A process of the pool, as a unit of the stage.
#[derive(Debug)]
pub(super) struct PoolMember {
    pub(super) process: PoolProcess,
    unit: UnitGroup,
    /// `None` until a job has taken it.
    job: Option<JobKey>,
    _place: Arc<()>,
}

impl PoolMember {
    /// Lets the process work, as a busy unit.
    pub(super) fn work<T>(&mut self, work: impl FnOnce(&mut PoolProcess) -> T) -> T {
        self.unit.shift(1, UnitState::Idle, UnitState::Busy, Instant::now());
        let result = work(&mut self.process);
        self.unit.shift(1, UnitState::Busy, UnitState::Idle, Instant::now());
        result
    }
}

impl Transforms {
    /// Creates an empty pool of a worker with `threads` decoding threads. `stage` counts the calls, whose time is also
    /// part of decoding.
    pub(crate) fn new(
        worker: &str,
        settings: Option<TransformSettings>,
        stage: Arc<StageCounters>,
        threads: usize,
    ) -> Arc<Self> {
        let pool = Pool {
            jobs: BTreeMap::new(),
            idle: Vec::new(),
            spare: None,
            place: Arc::default(),
            max_processes: PROCESSES_PER_THREAD * threads,
        };
        Arc::new(Self { worker: worker.to_owned(), settings, pool: Mutex::new(pool), stage })
    }

    /// Checks that the interpreter can call functions. Blocks until it has started.
    pub(crate) fn check(&self) -> Result<(), TransformError> {
        match &self.settings {
            Some(settings) => PoolProcess::start(settings, OutputLimit::new("")).map(drop),
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
        let key = JobKey { name: job.name.clone(), fingerprint: job.fingerprint() };
        let functions = functions.into_iter().map(|(_, function)| function).collect();
        let sources = SourceCheck::new(&self.worker, &job.name);
        let limit = self.add_lease(&key);
        Ok(Some(Lease::new(self.clone(), settings.clone(), (key, limit), functions, sources)))
    }

    /// Counts a lease of a job. Returns the limit of what the job's functions print.
    fn add_lease(&self, key: &JobKey) -> Arc<OutputLimit> {
        let mut pool = self.pool.lock();
        let new = || PooledJob { leases: 0, limit: OutputLimit::new(&key.name) };
        let job = pool.jobs.entry(key.clone()).or_insert_with(new);
        job.leases += 1;
        job.limit.clone()
    }

    /// Takes a lease off a job. With the last one its processes end, so that later ones import the modules again.
    pub(super) fn end_lease(&self, key: &JobKey) {
        let mut pool = self.pool.lock();
        let Entry::Occupied(mut job) = pool.jobs.entry(key.clone()) else { return };
        job.get_mut().leases -= 1;
        if job.get().leases > 0 {
            return;
        }
        job.remove();
        let ended: Vec<PoolMember> = pool.idle.extract_if(.., |member| member.job.as_ref() == Some(key)).collect();
        // The lock is released first, so that other jobs need not wait until the processes have ended.
        drop(pool);
        drop(ended);
    }

    /// Starts a process of a job. At the maximum number of processes, the longest idle ends, whatever
    /// its job.
    pub(super) fn start(
        &self,
        settings: &TransformSettings,
        job: Option<JobKey>,
        limit: Arc<OutputLimit>,
    ) -> Result<PoolMember, TransformError> {
        let mut pool = self.pool.lock();
        // The pool itself holds one of the references.
        let is_full = Arc::strong_count(&pool.place) > pool.max_processes;
        let ended = (is_full && !pool.idle.is_empty()).then(|| pool.idle.remove(0));
        let place = pool.place.clone();
        drop(pool);
        if let Some(ended) = ended {
            tracing::debug!(
                job = ended.job.as_ref().map(|job| &job.name),
                "ending an idle process, so that another job gets one"
            );
            drop(ended);
        }
        let process = PoolProcess::start(settings, limit)?;
        Ok(PoolMember { process, unit: self.stage.units().group(1, Instant::now()), job, _place: place })
    }

    /// Returns an idle process of a job that fits, if there is one.
    pub(super) fn take_idle(&self, job: &JobKey, fits: impl Fn(&PoolProcess) -> bool) -> Option<PoolMember> {
        let mut pool = self.pool.lock();
        let is_one = |member: &PoolMember| member.job.as_ref() == Some(job) && fits(&member.process);
        if let Some(number) = pool.idle.iter().rposition(is_one) {
            return Some(pool.idle.remove(number));
        }
        let spare = pool.spare.take_if(|spare| fits(&spare.process))?;
        Some(PoolMember { job: Some(job.clone()), ..spare })
    }

    pub(super) fn give_back(&self, member: PoolMember) {
        let mut pool = self.pool.lock();
        if member.job.is_some() {
            pool.idle.push(member);
        } else {
            pool.spare = Some(member);
        }
    }
}
