//! The loader of one rank as a Python class: opens it, waits for its batches, and checks for signals meanwhile.

use std::{
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use pyo3::prelude::*;
use spdl_client::{BlockingDiagnoser, ClientError, State};
use spdl_gpu::{BatchPlacement, DeviceError};
use spdl_types::Position;

use crate::{
    batch::NativeBatch,
    device::{DeviceOptionsFields, OpenDevice},
    diagnosis::NativeDiagnosis,
    errors::{self, ErrorKind},
    frames,
    held_batches::HeldBatches,
    job,
    open::{self, AnyLoader, BatchSource, ClusterOptions, LaunchOptions, LoaderConfig, ProcessOptions, ReceivedBatch},
    values::{LoaderFacts, LoaderStart, ProgramFields, StreamPosition},
};

/// The loader of one rank: its batches, in order. It is opened at the first use, so that a state can be set before.
#[pyclass(frozen, module = "spdl_cluster._native")]
pub(crate) struct NativeLoader {
    config: LoaderConfig,
    /// A Python callable that returns a `RankOfWorld`; called when the loader is opened.
    ranks: Py<PyAny>,
    process: u32,
    /// Lock it only while detached from Python: the thread that holds it may wait for Python.
    phase: Mutex<OpenPhase>,
    held_batches: Mutex<HeldBatches>,
    /// Finds out what limits the open loader, while another thread has the lock of `phase`.
    diagnoser: Mutex<Option<BlockingDiagnoser>>,
    /// The number of batches to give again and again, 0 if none.
    repeats: AtomicU32,
    /// The dataset's classes, once they are known.
    classes: OnceLock<Option<Arc<[String]>>>,
}

enum OpenPhase {
    /// Not opened yet, with the state to start from.
    Ahead(Option<State>),
    Open(Box<dyn AnyLoader>),
    Closed,
}

impl Drop for NativeLoader {
    fn drop(&mut self) {
        let phase = std::mem::replace(self.phase.get_mut(), OpenPhase::Closed);
        if self.process == std::process::id() {
            // Closing takes a while, in which other Python threads can run.
            Python::attach(|py| {
                let _ = self.config.end_calls(py);
                py.detach(|| drop(phase));
            });
        } else {
            // The threads that it would wait for exist only in the parent.
            std::mem::forget(phase);
        }
    }
}

impl NativeLoader {
    fn new(config: LoaderConfig, ranks: Py<PyAny>) -> Self {
        let process = std::process::id();
        let phase = Mutex::new(OpenPhase::Ahead(None));
        Self {
            config,
            ranks,
            process,
            phase,
            held_batches: Mutex::default(),
            diagnoser: Mutex::default(),
            repeats: AtomicU32::new(0),
            classes: OnceLock::new(),
        }
    }

    /// Fails in a forked child, whose copy of the loader has no threads, and in a function that the loader waits for.
    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.process == std::process::id() {
            return self.config.check_calls(py);
        }
        let problem = format!(
            "this loader belongs to process {}; process {} was forked from it and cannot use it",
            self.process,
            std::process::id()
        );
        Err(ErrorKind::Forked.error(py, &problem, Some("make the loader in the process that uses it, after the fork")))
    }

    /// Opens the loader if needed and calls `with` with it, detached from Python, so that it may wait.
    fn with_open<T: Send>(
        &self,
        py: Python<'_>,
        with: impl FnOnce(&mut dyn AnyLoader) -> PyResult<T> + Send,
    ) -> PyResult<T> {
        self.check_process(py)?;
        py.detach(|| {
            let mut phase = self.phase.lock();
            if let OpenPhase::Ahead(state) = &*phase {
                let ranks = Python::attach(|py| self.ranks.call0(py)?.extract(py))?;
                let mut loader = self.config.open(ranks, *state, || Python::attach(|py| py.check_signals()))?;
                self.repeat(&mut *loader)?;
                if let Some(classes) = loader.classes() {
                    self.classes.get_or_init(|| Some(classes));
                }
                *self.diagnoser.lock() = Some(loader.diagnoser());
                *phase = OpenPhase::Open(loader);
            }
            match &mut *phase {
                OpenPhase::Open(loader) => with(&mut **loader),
                _ => Err(Python::attach(|py| errors::of_client(py, &ClientError::Closed, ""))),
            }
        })
    }

    /// Has an open loader give its next batches again and again, if it was asked to.
    fn repeat(&self, loader: &mut dyn AnyLoader) -> PyResult<()> {
        match self.repeats.load(Ordering::Relaxed) {
            0 => Ok(()),
            count => {
                loader.repeat_batches(count).map_err(|error| Python::attach(|py| errors::of_client(py, &error, "")))
            }
        }
    }

    /// Runs Python's signal handlers, and warns a caller that holds every slot.
    fn check(&self, waiting_since: Instant) -> PyResult<()> {
        let warning = self.held_batches.lock().warning(waiting_since);
        Python::attach(|py| {
            py.check_signals()?;
            self.config.call_functions(py)?;
            let Some(text) = warning else { return Ok(()) };
            let text = std::ffi::CString::new(text).expect("no byte of it is zero");
            PyErr::warn(py, &ErrorKind::SlotsExhausted.class(py)?.into_any(), &text, 2)
        })
    }

    fn share(&self, received: ReceivedBatch) -> NativeBatch {
        let ReceivedBatch { memory, ends_epoch, sequences } = received;
        let shared = self.held_batches.lock().hold(memory, self.config.buffers());
        NativeBatch::new(Arc::new(shared), ends_epoch, sequences)
    }
}

#[pymethods]
impl NativeLoader {
    /// Makes the loader of a rank that a cluster serves. `ranks()` returns rank and world when the loader is opened.
    /// Settings that are `None` come from the `SPDL_*` variables or have their defaults.
    #[staticmethod]
    #[pyo3(signature = (ranks, *, job, run, start, takeover, launch, epochs, endless, coordinators, certs, transport, slots, timeout, member, socket, node, global_batch, log_every, device, device_options))]
    #[allow(clippy::too_many_arguments, reason = "named in Python, and all are optional there")]
    fn connect(
        py: Python<'_>,
        ranks: Py<PyAny>,
        job: Option<String>,
        run: Option<String>,
        start: Option<String>,
        takeover: Option<bool>,
        launch: Option<String>,
        epochs: Option<u64>,
        endless: bool,
        coordinators: Option<String>,
        certs: Option<PathBuf>,
        transport: Option<String>,
        slots: Option<u32>,
        timeout: Option<f64>,
        member: Option<(u32, u32)>,
        socket: Option<String>,
        node: Option<String>,
        global_batch: Option<u32>,
        log_every: Option<f64>,
        device: &str,
        device_options: DeviceOptionsFields,
    ) -> PyResult<Self> {
        let timeout = open::seconds(py, "timeout", timeout)?;
        let log_every = open::seconds(py, "log_every", log_every)?;
        let launch = LaunchOptions { run, start, takeover, id: launch, epochs, member, is_endless: endless };
        let options =
            ClusterOptions { job, launch, coordinators, certs, transport, slots, timeout, socket, node, global_batch };
        let (job, source) = options.source().map_err(|error| errors::of_client(py, &error, ""))?;
        let target = OpenDevice::open(py, device, device_options)?;
        Ok(Self::new(LoaderConfig { job, source, target, log_every, here: None }, ranks))
    }

    /// Makes the loader of a rank whose pipeline runs in this process. `ranks()` returns rank and world when the loader
    /// is opened. `sharers` processes share the node's default budget of cores.
    #[staticmethod]
    #[pyo3(signature = (job, ranks, *, start, epochs, endless, slots, timeout, global_batch, seed, sharers, cores, memory_bytes, cache_dir, cache_bytes, requests, read_ahead, transform_timeout, program, here, log_every, device, device_options))]
    #[allow(clippy::too_many_arguments, reason = "named in Python, and all are optional there")]
    fn local(
        job: &Bound<'_, PyAny>,
        ranks: Py<PyAny>,
        start: Option<String>,
        epochs: Option<u64>,
        endless: bool,
        slots: Option<u32>,
        timeout: Option<f64>,
        global_batch: Option<u32>,
        seed: Option<u64>,
        sharers: u32,
        cores: Option<f64>,
        memory_bytes: Option<u64>,
        cache_dir: Option<PathBuf>,
        cache_bytes: Option<u64>,
        requests: Option<u32>,
        read_ahead: Option<u32>,
        transform_timeout: Option<f64>,
        program: Option<ProgramFields>,
        here: Option<Py<PyAny>>,
        log_every: Option<f64>,
        device: &str,
        device_options: DeviceOptionsFields,
    ) -> PyResult<Self> {
        let py = job.py();
        let timeout = open::seconds(py, "timeout", timeout)?;
        let log_every = open::seconds(py, "log_every", log_every)?;
        let transform_timeout = open::seconds(py, "transform_timeout", transform_timeout)?;
        let transforms =
            open::transforms(py, transform_timeout, program, here.as_ref().map(|here| here.clone_ref(py)))?;
        let tuning = open::tuning(py, requests, read_ahead)?;
        let disk = open::disk(py, cache_dir, cache_bytes)?;
        let options = ProcessOptions {
            start,
            epochs,
            is_endless: endless,
            slots,
            timeout,
            global_batch,
            seed,
            sharers,
            cores,
            memory_bytes,
            disk,
            tuning,
            transforms,
            frames: frames::access(py)?,
        };
        let source = options.source(job::read(job)?);
        let (job, source) = source.map_err(|error| errors::of_client(py, &error, ""))?;
        let target = OpenDevice::open(py, device, device_options)?;
        Ok(Self::new(LoaderConfig { job, source, target, log_every, here }, ranks))
    }

    /// Returns the next batch and waits for it up to the timeout; `None` when all epochs are delivered.
    fn next(&self, py: Python<'_>) -> PyResult<Option<NativeBatch>> {
        let since = Instant::now();
        let taken = self.with_open(py, |loader| {
            let taken = loader.next(self.config.every(), &mut || self.check(since))?;
            Ok(taken.map(|batch| batch.map(|batch| self.share(batch))))
        })?;
        taken.map_err(|error| {
            let held_batches = self.held_batches.lock();
            let note = match (&error, held_batches.is_all()) {
                // The error of a loader on a device already contains this note.
                (DeviceError::Client(ClientError::Timeout { .. }), true) if self.config.target.is_none() => {
                    format!("; the caller keeps all {} batches that there are slots for", held_batches.slots())
                }
                _ => String::new(),
            };
            errors::of_device(py, &error, &note)
        })
    }

    /// Goes to a position of the stream.
    fn go_to(&self, py: Python<'_>, epoch: u64, offset: u64) -> PyResult<()> {
        let went = self.with_open(py, |loader| Ok(loader.go_to(Position::new(epoch, offset))))?;
        went.map_err(|error| errors::of_device(py, &error, ""))
    }

    /// Has the loader give its next `count` batches again and again. Opens nothing: a loader that is not open yet does so when it is
    /// opened.
    fn repeat_batches(&self, py: Python<'_>, count: u32) -> PyResult<()> {
        self.check_process(py)?;
        py.detach(|| match &mut *self.phase.lock() {
            OpenPhase::Open(loader) => loader.repeat_batches(count),
            OpenPhase::Ahead(_) => Ok(()),
            OpenPhase::Closed => Err(ClientError::Closed),
        })
        .map_err(|error| errors::of_client(py, &error, ""))?;
        self.repeats.store(count, Ordering::Relaxed);
        Ok(())
    }

    /// Takes `count` batches, drops them without making Python objects of them, and returns the nanoseconds that it
    /// took. For benchmarks: the cost of a batch without Python's share.
    fn drain(&self, py: Python<'_>, count: u32) -> PyResult<u64> {
        let taken = self.with_open(py, |loader| {
            let since = Instant::now();
            for _ in 0..count {
                if let Err(error) = loader.next(self.config.every(), &mut || self.check(since))? {
                    return Ok(Err(error));
                }
            }
            Ok(Ok(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)))
        })?;
        taken.map_err(|error| errors::of_device(py, &error, ""))
    }

    /// Returns the position after the last batch that was delivered, and the job it belongs to, as one line of JSON.
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        self.check_process(py)?;
        let ahead = py.detach(|| match &*self.phase.lock() {
            OpenPhase::Ahead(state) => *state,
            _ => None,
        });
        match ahead {
            Some(state) => Ok(state.to_string()),
            None => self.with_open(py, |loader| Ok(loader.state().to_string())),
        }
    }

    /// Continues from a state. A cluster's loader whose session has other ranks too must not be open yet.
    fn load_state(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        self.check_process(py)?;
        let state: State = state.parse().map_err(|error| errors::of_client(py, &ClientError::State(error), ""))?;
        let old = py.detach(|| {
            let mut phase = self.phase.lock();
            match &*phase {
                OpenPhase::Open(loader) if loader.state() == state => Ok(None),
                OpenPhase::Open(loader)
                    if matches!(self.config.source, BatchSource::Cluster { .. }) && loader.world() > 1 =>
                {
                    Err(format!("the loader has joined its session at {} already", loader.position()))
                }
                OpenPhase::Closed => Err("the loader is closed".to_owned()),
                _ => {
                    self.diagnoser.lock().take();
                    Ok(Some(std::mem::replace(&mut *phase, OpenPhase::Ahead(Some(state)))))
                }
            }
        });
        let hint = "load the state before the loader is first used, or give it as `state=` when it is made";
        let old = old.map_err(|problem| ErrorKind::State.error(py, &problem, Some(hint)))?;
        py.detach(|| drop(old));
        Ok(())
    }

    /// Returns where the loader started, and why.
    #[getter]
    fn start(&self, py: Python<'_>) -> PyResult<LoaderStart> {
        self.with_open(py, |loader| Ok(loader.started().into()))
    }

    /// Returns the run's name: for a pipeline in this process, the job's name.
    #[getter]
    fn run(&self) -> &str {
        self.config.run()
    }

    /// Returns the position after the last batch that was delivered.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<StreamPosition> {
        self.with_open(py, |loader| Ok(loader.position().into()))
    }

    /// Returns the epoch that the next batch starts in.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.with_open(py, |loader| Ok(loader.epoch()))
    }

    /// Returns the receipt of what was delivered, 32 hexadecimal digits.
    #[getter]
    fn receipt(&self, py: Python<'_>) -> PyResult<String> {
        self.with_open(py, |loader| Ok(loader.receipt().to_string()))
    }

    /// Returns the steps from the position to the end of the last epoch.
    #[getter]
    fn steps_left(&self, py: Python<'_>) -> PyResult<u64> {
        self.with_open(py, |loader| Ok(loader.steps_left()))
    }

    /// Returns the loader's statistics so far, as one line of JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        let stats = self.with_open(py, |loader| Ok(loader.stats()))?;
        Ok(serde_json::to_string(&stats).expect("plain data serialises"))
    }

    /// Returns what the loader came to so far, as one line of JSON: the report that `spdl-ctl compare` reads.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        let diagnoser = self.with_open(py, |loader| Ok(loader.diagnoser()))?;
        // A report without what limits the rank is one, too.
        let found = py.detach(|| diagnoser.diagnose()).ok().flatten();
        let report = self.with_open(py, |loader| Ok(loader.report(self.config.run(), found.as_ref())))?;
        Ok(serde_json::to_string(&report).expect("plain data serialises"))
    }

    /// Returns what limits the rank; `None` while there is no history of some seconds. Does not wait for another thread
    /// that waits for a batch.
    fn diagnose(&self, py: Python<'_>) -> PyResult<Option<NativeDiagnosis>> {
        self.check_process(py)?;
        let known = self.diagnoser.lock().clone();
        let diagnoser = known.map_or_else(|| self.with_open(py, |loader| Ok(loader.diagnoser())), Ok)?;
        let found = py.detach(|| diagnoser.diagnose()).map_err(|error| errors::of_client(py, &error, ""))?;
        Ok(found.map(NativeDiagnosis::from))
    }

    /// Returns the facts about the loader, with the epochs and steps of the job as it is now.
    #[getter]
    fn facts(&self, py: Python<'_>) -> PyResult<LoaderFacts> {
        self.with_open(py, |loader| Ok(self.config.facts(loader)))
    }

    /// Returns the names of the job's classes, in the order of their numbers; `None` if there are none. Opens nothing: a loader in this
    /// process that is not open yet reads the dataset's manifest, and one of a cluster asks the coordinator.
    #[getter]
    fn classes(&self, py: Python<'_>) -> PyResult<Option<Vec<String>>> {
        self.check_process(py)?;
        if self.classes.get().is_none() {
            let read = self.config.source.classes(py)?;
            self.classes.get_or_init(|| read);
        }
        Ok(self.classes.get().and_then(Option::as_ref).map(|classes| classes.to_vec()))
    }

    /// Returns whether a column has numbers of these classes.
    #[getter]
    fn has_class_numbers(&self) -> bool {
        matches!(&self.config.source, BatchSource::Process(builder) if builder.has_class_numbers())
    }

    /// Returns the device that batches are on: `cpu` or `cuda:N`.
    #[getter]
    fn device(&self) -> String {
        self.config.target.as_ref().map_or(BatchPlacement::Host, |target| target.device.placement()).to_string()
    }

    /// Returns the name of the job that the loader was made for. Opens nothing.
    #[getter]
    fn job_name(&self) -> &str {
        &self.config.job
    }

    /// Describes the loader's position, or why it has none. Opens nothing and waits for nothing.
    #[getter]
    fn position_text(&self, py: Python<'_>) -> String {
        py.detach(|| match self.phase.try_lock().as_deref() {
            Some(OpenPhase::Ahead(None)) => "not opened".to_owned(),
            Some(OpenPhase::Ahead(Some(state))) => format!("not opened, to go on at {}", state.position()),
            Some(OpenPhase::Open(loader)) => format!("at {}", loader.position()),
            Some(OpenPhase::Closed) => "closed".to_owned(),
            None => "in use".to_owned(),
        })
    }

    /// Closes the loader, within a second or two. Batches that were delivered stay valid.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.check_process(py)?;
        self.config.end_calls(py)?;
        py.detach(|| {
            let mut phase = self.phase.lock();
            self.diagnoser.lock().take();
            let old = std::mem::replace(&mut *phase, OpenPhase::Closed);
            drop(phase);
            drop(old);
        });
        Ok(())
    }

    /// Whether another process made the loader, and this one was forked from it.
    #[getter]
    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Whether the loader was closed.
    #[getter]
    fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.config.check_calls(py)?;
        Ok(py.detach(|| matches!(&*self.phase.lock(), OpenPhase::Closed)))
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        let problem = "a loader cannot be pickled: it has connections, threads and shared memory of this process";
        let hint = "create a loader there with the same arguments; `state_dict()` carries its position over";
        Err(ErrorKind::System.error(py, problem, Some(hint)))
    }
}
