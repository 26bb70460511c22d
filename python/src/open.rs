//! Opens a loader: over a cluster, or in this process. The settings are kept, so that a state can be set before it is
//! opened.

use std::{
    future::Future,
    io,
    os::fd::{IntoRawFd, OwnedFd},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use pyo3::prelude::*;
use spdl_cli::local;
use spdl_client::{
    Batch, Blocking, BlockingDiagnoser, Builder, Client, ClientError, Loader, RunReport, Settings, Source, StartFrom,
    Started, State, Stats,
};
use spdl_gpu::{DeviceError, LoaderExt, SequenceColumns};
use spdl_insight::{
    Diagnosis,
    tuning::{Setting, TuningSettings},
};
use spdl_job::{ENDLESS_EPOCHS, JobFile};
use spdl_order::Receipt;
use spdl_types::Position;
use spdl_worker::{
    FrameAccess,
    budget::{Budget, DEFAULT_DISK_BYTES, DiskBudget},
    transform::{CallsHere, PROGRAM, Program, ProgramCode, TransformSettings},
};

use crate::{
    batch_memory::BatchMemory,
    datasets::work,
    device::OpenDevice,
    errors::{self, ErrorKind},
    values::{ColumnType, LoaderFacts, ProgramFields, RankOfWorld},
};

/// How often a wait checks for Python's signals: well within the 200 ms after which Ctrl-C feels dead.
pub(crate) const CHECK: Duration = Duration::from_millis(50);

/// Everything that is needed to open a loader: where its batches come from, and where they go.
#[derive(Debug)]
pub(crate) struct LoaderConfig {
    /// The job's name.
    pub(crate) job: String,
    pub(crate) source: BatchSource,
    /// `None` if batches stay in their slots unchanged.
    pub(crate) target: Option<OpenDevice>,
    /// How often a line on the speed and its limit is logged.
    pub(crate) log_every: Option<Duration>,
    /// The object that calls the job's functions in this process, where they are called so.
    pub(crate) here: Option<Py<PyAny>>,
}

/// Where batches come from: workers of a cluster, or a pipeline in this process.
#[derive(Debug)]
pub(crate) enum BatchSource {
    Cluster { builder: Box<Builder>, run: String },
    Process(Box<local::LocalBuilder>),
}

impl BatchSource {
    /// Returns the names of the job's classes, if there are any: reads the dataset's manifest, or asks the coordinator.
    pub(crate) fn classes(&self, py: Python<'_>) -> PyResult<Option<Arc<[String]>>> {
        match self {
            Self::Process(builder) => {
                let builder = builder.clone();
                work::run(py, None, async move |_, _| Ok(builder.classes().await?))
            }
            Self::Cluster { builder, .. } => {
                let asked = py.detach(|| builder.classes_blocking());
                asked.map_err(|error| errors::of_client(py, &error, ""))
            }
        }
    }
}

impl LoaderConfig {
    /// Returns how often a wait handles signals. Where functions are called in this process, it does little else.
    pub(crate) fn every(&self) -> Duration {
        if self.here.is_some() { Duration::ZERO } else { CHECK }
    }

    /// Calls functions of the job for decoding threads that wait for them, if they are called in this process.
    pub(crate) fn call_functions(&self, py: Python<'_>) -> PyResult<()> {
        self.here.as_ref().map_or(Ok(()), |here| here.call_method0(py, "serve").map(drop))
    }

    /// Lets decoding threads that wait for functions go on without them.
    pub(crate) fn end_calls(&self, py: Python<'_>) -> PyResult<()> {
        self.here.as_ref().map_or(Ok(()), |here| here.call_method0(py, "close").map(drop))
    }

    /// Fails within a function that is called in this process: the loader waits for it.
    pub(crate) fn check_calls(&self, py: Python<'_>) -> PyResult<()> {
        let Some(here) = &self.here else { return Ok(()) };
        if !here.getattr(py, "is_serving")?.extract::<bool>(py)? {
            return Ok(());
        }
        let problem = "the loader waits for the function that uses it";
        Err(ErrorKind::System.error(py, problem, Some("use the loader after the batch has come")))
    }

    /// Returns the run's name: for a pipeline in this process, the job's name.
    pub(crate) fn run(&self) -> &str {
        match &self.source {
            BatchSource::Cluster { run, .. } => run,
            BatchSource::Process(_) => &self.job,
        }
    }

    /// Opens the loader of `rank` of `world`, from `state` if there is one. Waits, and calls `check` meanwhile.
    pub(crate) fn open(
        &self,
        RankOfWorld { rank, world }: RankOfWorld,
        state: Option<State>,
        check: impl FnMut() -> PyResult<()>,
    ) -> PyResult<Box<dyn AnyLoader>> {
        match &self.source {
            BatchSource::Cluster { builder, .. } => {
                let builder = (**builder).clone();
                let builder = match state {
                    Some(state) => builder.state(state),
                    None => builder,
                };
                let opened = self.start(builder.threads(), builder.connect(rank, world), check)?;
                opened.map_err(|error| Python::attach(|py| errors::of_device(py, &error, "")))
            }
            BatchSource::Process(builder) => {
                let builder = (**builder).clone().rank(rank, world);
                let builder = match state {
                    Some(state) => builder.state(state),
                    None => builder,
                };
                // Opening a loader in this process has more kinds of errors than a client has: keep the original one.
                let mut refused = None;
                let open = async {
                    builder.open().await.map_err(|error| {
                        refused = Some(error);
                        ClientError::Closed
                    })
                };
                let opened = self.start(1, open, check)?;
                opened.map_err(|error| {
                    Python::attach(|py| match &refused {
                        Some(refused) => errors::of_local(py, refused),
                        None => errors::of_device(py, &error, ""),
                    })
                })
            }
        }
    }

    /// Waits for a loader to open, and adds the copy to the device if there is one.
    fn start<S: Source<Batch = Batch, Error = ClientError>>(
        &self,
        threads: usize,
        open: impl Future<Output = Result<Loader<S>, ClientError>>,
        check: impl FnMut() -> PyResult<()>,
    ) -> PyResult<Result<Box<dyn AnyLoader>, DeviceError>> {
        let open = async {
            let mut loader = open.await?;
            if let Some(every) = self.log_every {
                loader.log_every(every);
            }
            Ok(loader)
        };
        let Some(OpenDevice { device, options }) = &self.target else {
            let opened = Blocking::start_checked(threads, open, CHECK, check)?;
            return Ok(opened.map(|loader| Box::new(loader) as Box<dyn AnyLoader>).map_err(DeviceError::from));
        };
        let open = async { open.await?.on_device(device, options.clone()) };
        let opened = Blocking::start_checked(threads, open, CHECK, check)?;
        Ok(opened.map(|loader| Box::new(loader) as Box<dyn AnyLoader>))
    }

    /// Returns how many batches on a device the caller can hold at once.
    pub(crate) fn buffers(&self) -> u32 {
        self.target.as_ref().map_or(u32::MAX, |target| target.options.buffers)
    }

    /// Returns the facts of an open loader, with the types that columns have on the device.
    pub(crate) fn facts(&self, loader: &dyn AnyLoader) -> LoaderFacts {
        let mut facts = loader.facts();
        for column in &mut facts.columns {
            if let Some(made) = self.target.as_ref().and_then(|target| target.dtype(&column.name)) {
                column.dtype = made.name();
            }
        }
        facts
    }
}

/// A batch as the loader returns it.
pub(crate) struct ReceivedBatch {
    pub(crate) memory: BatchMemory,
    /// Whether the loader's epoch ends with the batch.
    pub(crate) ends_epoch: bool,
    /// The columns of its job that say how long documents are, if its samples are sequences.
    pub(crate) sequences: Option<SequenceColumns>,
}

/// A loader of either source.
pub(crate) trait AnyLoader: Send {
    /// Returns the next batch, or `None` after the last one. Calls `check` after each `every` of waiting.
    fn next(
        &mut self,
        every: Duration,
        check: &mut dyn FnMut() -> PyResult<()>,
    ) -> PyResult<Result<Option<ReceivedBatch>, DeviceError>>;
    fn go_to(&mut self, position: Position) -> Result<(), DeviceError>;
    fn repeat_batches(&mut self, count: u32) -> Result<(), ClientError>;
    fn world(&self) -> u32;
    fn position(&self) -> Position;
    fn state(&self) -> State;
    fn epoch(&self) -> u64;
    fn receipt(&self) -> Receipt;
    fn steps_left(&self) -> u64;
    fn stats(&self) -> Stats;
    fn report(&self, run: &str, found: Option<&Diagnosis>) -> RunReport;
    fn diagnoser(&self) -> BlockingDiagnoser;
    fn started(&self) -> Started;
    fn classes(&self) -> Option<Arc<[String]>>;
    fn facts(&self) -> LoaderFacts;
}

impl<S: Source<Batch: Into<BatchMemory>, Error: Into<DeviceError>>> AnyLoader for Blocking<S> {
    fn next(
        &mut self,
        every: Duration,
        check: &mut dyn FnMut() -> PyResult<()>,
    ) -> PyResult<Result<Option<ReceivedBatch>, DeviceError>> {
        let taken = self.next_checked(every, check)?.map_err(Into::into);
        Ok(taken.map(|batch| {
            batch.map(|batch| {
                let ends_epoch = self.loader().ends_epoch(&batch);
                let sequences = SequenceColumns::of(self.loader().job());
                ReceivedBatch { memory: batch.into(), ends_epoch, sequences }
            })
        }))
    }

    fn go_to(&mut self, position: Position) -> Result<(), DeviceError> {
        Self::go_to(self, position).map_err(Into::into)
    }

    fn repeat_batches(&mut self, count: u32) -> Result<(), ClientError> {
        Self::repeat_batches(self, count)
    }

    fn world(&self) -> u32 {
        self.loader().session().world
    }

    fn position(&self) -> Position {
        self.loader().position()
    }

    fn state(&self) -> State {
        self.loader().state()
    }

    fn epoch(&self) -> u64 {
        self.loader().epoch()
    }

    fn receipt(&self) -> Receipt {
        self.loader().receipt()
    }

    fn steps_left(&self) -> u64 {
        self.loader().steps_left()
    }

    fn stats(&self) -> Stats {
        self.loader().stats()
    }

    fn report(&self, run: &str, found: Option<&Diagnosis>) -> RunReport {
        self.loader().report(run, found)
    }

    fn diagnoser(&self) -> BlockingDiagnoser {
        Self::diagnoser(self)
    }

    fn started(&self) -> Started {
        self.loader().started()
    }

    fn classes(&self) -> Option<Arc<[String]>> {
        self.loader().classes()
    }

    fn facts(&self) -> LoaderFacts {
        let (job, session) = (self.loader().job(), self.loader().session());
        let columns = job.columns.iter().map(|column| ColumnType {
            name: column.name.clone(),
            kind: column.kind.name(),
            dtype: column.dtype.name(),
        });
        LoaderFacts {
            job: job.name.clone(),
            samples: job.samples,
            epochs: self.loader().epochs(),
            global_batch: session.global_batch,
            steps: self.loader().max_steps_per_epoch(),
            is_evaluation: job.is_evaluation(),
            is_in_order: job.is_in_order(),
            epoch_end: job.epoch_end.name(),
            seq_len: job.sequence.as_ref().map(|sequence| sequence.seq_len),
            sources: job.sample_ids().map(|(source, ids)| (source.name.clone(), ids.start, ids.end)).collect(),
            columns: columns.collect(),
        }
    }
}

/// The options of one launch of a trainer.
#[derive(Debug, Default)]
pub(crate) struct LaunchOptions {
    pub(crate) run: Option<String>,
    /// The text of a [`StartFrom`].
    pub(crate) start: Option<String>,
    pub(crate) takeover: Option<bool>,
    /// The id that all ranks of the launch share, also after restarts.
    pub(crate) id: Option<String>,
    pub(crate) epochs: Option<u64>,
    pub(crate) member: Option<(u32, u32)>,
    /// Whether the run is endless if no number of epochs is given.
    pub(crate) is_endless: bool,
}

/// Settings of a cluster's loader. They override the environment.
#[derive(Debug, Default)]
pub(crate) struct ClusterOptions {
    pub(crate) job: Option<String>,
    pub(crate) launch: LaunchOptions,
    pub(crate) coordinators: Option<String>,
    pub(crate) certs: Option<std::path::PathBuf>,
    pub(crate) transport: Option<String>,
    pub(crate) slots: Option<u32>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) socket: Option<String>,
    pub(crate) node: Option<String>,
    pub(crate) global_batch: Option<u32>,
}

impl ClusterOptions {
    /// Returns the job's name and a client of its cluster, after a check of all settings.
    pub(crate) fn source(self) -> Result<(String, BatchSource), ClientError> {
        let mut settings = Settings::from_env()?;
        settings.job = self.job.unwrap_or(settings.job);
        let LaunchOptions { run, start, takeover, id, epochs, member, is_endless } = self.launch;
        settings.run = run.or(settings.run);
        settings.start = start.map_or(Ok(settings.start), |text| text.parse())?;
        settings.takeover = takeover.unwrap_or(settings.takeover);
        settings.launch = id.or(settings.launch);
        settings.member = member.map_or(Ok(settings.member), Settings::place_in_group)?;
        settings.epochs = epochs.or(settings.epochs).or(is_endless.then_some(ENDLESS_EPOCHS));
        settings.coordinators = self.coordinators.unwrap_or(settings.coordinators);
        settings.certs = self.certs.unwrap_or(settings.certs);
        settings.transports =
            self.transport.map_or(Ok(settings.transports), |text| Settings::parse_transports(&text))?;
        settings.slots = self.slots.unwrap_or(settings.slots);
        settings.timeout = self.timeout.unwrap_or(settings.timeout);
        settings.socket = self.socket.or(settings.socket);
        settings.node = self.node.or(settings.node);
        settings.check()?;
        let job = settings.job.clone();
        let run = settings.run.clone().unwrap_or_else(|| job.clone());
        let mut builder = Client::builder().settings(settings);
        if let Some(global_batch) = self.global_batch {
            builder = builder.global_batch(global_batch);
        }
        Ok((job, BatchSource::Cluster { builder: Box::new(builder), run }))
    }
}

/// Settings of a loader in this process.
#[derive(Debug)]
pub(crate) struct ProcessOptions {
    pub(crate) start: Option<String>,
    pub(crate) epochs: Option<u64>,
    /// Whether a training is endless if no number of epochs is given.
    pub(crate) is_endless: bool,
    pub(crate) slots: Option<u32>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) global_batch: Option<u32>,
    /// The job's seed for this run.
    pub(crate) seed: Option<u64>,
    /// Processes that share this node's budget.
    pub(crate) sharers: u32,
    pub(crate) cores: Option<f64>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) disk: Option<DiskBudget>,
    pub(crate) tuning: TuningSettings,
    pub(crate) transforms: TransformSettings,
    pub(crate) frames: FrameAccess,
}

impl ProcessOptions {
    /// Returns the job's name and its pipeline.
    pub(crate) fn source(self, mut job: JobFile) -> Result<(String, BatchSource), ClientError> {
        job.seed = self.seed.unwrap_or(job.seed);
        let name = job.name.clone();
        let mut budget = Budget::default();
        budget.cores = self.cores.unwrap_or(budget.cores / f64::from(self.sharers.max(1)));
        budget.memory_bytes = self.memory_bytes.unwrap_or(budget.memory_bytes);
        budget.disk = self.disk;
        let mut builder = local::builder(job).budget(budget).tuning(self.tuning).transforms(self.transforms);
        builder = builder.frames(self.frames);
        if let Some(start) = self.start {
            builder = builder.start(start.parse::<StartFrom>()?);
        }
        if let Some(epochs) = self.epochs {
            builder = builder.epochs(epochs);
        }
        builder = builder.endless(self.is_endless);
        if let Some(slots) = self.slots {
            builder = builder.slots(slots);
        }
        if let Some(timeout) = self.timeout {
            builder = builder.timeout(timeout);
        }
        if let Some(global_batch) = self.global_batch {
            builder = builder.global_batch(global_batch);
        }
        Ok((name, BatchSource::Process(Box::new(builder))))
    }
}

/// Returns the values that are pinned; the others are tuned.
pub(crate) fn tuning(py: Python<'_>, requests: Option<u32>, read_ahead: Option<u32>) -> PyResult<TuningSettings> {
    let setting = |pinned: Option<u32>| pinned.map_or(Setting::Auto, Setting::Pinned);
    let settings = TuningSettings { requests: setting(requests), read_ahead: setting(read_ahead) };
    settings
        .check()
        .map_err(|(value, problem)| ErrorKind::Setting.error(py, &format!("setting `{value}`: {problem}"), None))?;
    Ok(settings)
}

/// Returns the budget of the disk cache, or `None` without one.
pub(crate) fn disk(py: Python<'_>, directory: Option<PathBuf>, bytes: Option<u64>) -> PyResult<Option<DiskBudget>> {
    if directory.is_none() && bytes.is_some() {
        let problem = "setting `cache_bytes`: it is the size of `cache_dir`: give that folder, too";
        return Err(ErrorKind::Setting.error(py, problem, None));
    }
    Ok(directory.map(|directory| DiskBudget { directory, bytes: bytes.unwrap_or(DEFAULT_DISK_BYTES) }))
}

/// Returns how functions of the job are called: by this interpreter, with the module path of this process.
pub(crate) fn transforms(
    py: Python<'_>,
    timeout: Option<Duration>,
    program: Option<ProgramFields>,
    here: Option<Py<PyAny>>,
) -> PyResult<TransformSettings> {
    let default = TransformSettings::default();
    let sys = py.import("sys")?;
    let entries: Vec<Bound<'_, PyAny>> = sys.getattr("path")?.extract()?;
    let path = entries.iter().filter_map(|entry| entry.extract().ok()).collect();
    let python: Option<String> = sys.getattr("executable")?.extract()?;
    let python = python.filter(|python| !python.is_empty()).map_or(default.python, Into::into);
    let program = program.map(|ProgramFields { is_module, code, sys_argv }| Program {
        code: if is_module { ProgramCode::Module(code) } else { ProgramCode::File(code) },
        sys_argv,
    });
    let timeout = if here.is_some() { Duration::MAX } else { timeout.unwrap_or(default.timeout) };
    let here = here.map(|here| {
        let connect = move |socket: OwnedFd| {
            let connected = Python::attach(|py| here.call_method1(py, "connect", (socket.into_raw_fd(),)).map(drop));
            connected.map_err(|error| io::Error::other(error.to_string()))
        };
        CallsHere(Arc::new(connect))
    });
    Ok(TransformSettings { python, path: Some(path), timeout, program, here })
}

/// Returns the program of processes that call functions, of which the program itself takes parts where it calls them.
#[pyfunction]
pub(crate) const fn function_process() -> &'static str {
    PROGRAM
}

/// Returns a number of seconds as a duration.
pub(crate) fn seconds(py: Python<'_>, name: &str, timeout: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(timeout) = timeout else { return Ok(None) };
    match Duration::try_from_secs_f64(timeout) {
        Ok(duration) if !duration.is_zero() => Ok(Some(duration)),
        _ => Err(ErrorKind::Setting.error(
            py,
            &format!("setting `{name}` is {timeout}, not a number of seconds above 0"),
            None,
        )),
    }
}
