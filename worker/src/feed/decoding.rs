//! What decodes: the threads and their order, the memory that they take, and what is known of the samples that they decode.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use spdl_feed::{BadLedger, SlowSamples};
use spdl_frames::{FrameCounts, FrameDecoders};
use spdl_functions::FunctionRegistry;
use spdl_job::{Job, JobFile};
use spdl_types::{BatchId, Fingerprint, SampleId};
use tokio::sync::oneshot;
use tracing::Span;

use super::{
    FeedError,
    at_work::SamplesAtWork,
    journal::{InDecoding, Journal, Suspicion},
    scheduler::{DecodeScheduler, NearestToStarving},
    stages::{DecodeThreads, FeedStages},
};
use crate::{
    NoFramesError,
    budget::Budget,
    decode::{DecodeMemory, Decoder, DecoderError, PictureCounts},
    rust_functions::{RustFunctionError, RustFunctions},
    transform::{Lease, TransformError, TransformSettings, Transforms},
};

/// What decoding calls beside its own code.
pub(super) struct CalledPrograms {
    /// How Python functions of jobs are called, if they are.
    pub(super) transforms: Option<TransformSettings>,
    /// The functions in Rust that jobs can call.
    pub(super) functions: FunctionRegistry,
    /// What decodes frames of videos, if anything does.
    pub(super) frames: Option<Arc<FrameDecoders>>,
}

/// The decoding of a process, for all its ranks and for other workers.
#[derive(Debug)]
pub(crate) struct SampleDecoding {
    /// Name of the worker.
    pub(super) name: String,
    pub(crate) pool: rayon::ThreadPool,
    pub(crate) scheduler: Arc<DecodeScheduler>,
    pub(crate) threads: DecodeThreads,
    pub(crate) stages: Arc<FeedStages>,
    pub(crate) memory: Arc<DecodeMemory>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) bad: Mutex<BadLedger>,
    /// The sample that each thread works on.
    pub(super) at_work: Arc<SamplesAtWork>,
    /// Which samples of each job take long, as long as a rank has the job.
    slow: Mutex<HashMap<Fingerprint, Weak<Mutex<SlowSamples>>>>,
    pub(crate) pictures: Arc<PictureCounts>,
    pub(crate) transforms: Arc<Transforms>,
    functions: FunctionRegistry,
    pub(super) frames: Option<Arc<FrameDecoders>>,
}

impl SampleDecoding {
    /// Starts the threads of the worker called `name`, within `budget`. Calls `lend` with the bytes that decoding takes beyond its
    /// own.
    pub(super) fn new(
        name: &str,
        budget: &Budget,
        stages: &Arc<FeedStages>,
        CalledPrograms { transforms, functions, frames }: CalledPrograms,
        journal: Option<&Path>,
        lend: Box<dyn Fn(u64) + Send + Sync>,
    ) -> Result<Arc<Self>, FeedError> {
        let threads = budget.threads().get();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|thread| format!("spdl-decode-{thread}"))
            // The batch of the panicked thread fails with an error; the others go on.
            .panic_handler(|_| tracing::error!("a decoding thread panicked"))
            .build()
            .map_err(|error| FeedError::Threads { cause: error.to_string() })?;
        Ok(Arc::new(Self {
            name: name.to_owned(),
            pool,
            scheduler: DecodeScheduler::new(NearestToStarving, 2 * threads),
            threads: DecodeThreads::new(&stages.decode, budget),
            stages: stages.clone(),
            memory: Arc::new(DecodeMemory::new(budget.decode_limits(), lend)),
            journal: Arc::new(journal.map(|path| open_journal(path, budget)).unwrap_or_default()),
            bad: Mutex::default(),
            at_work: Arc::new(SamplesAtWork::new(threads)),
            slow: Mutex::default(),
            pictures: Arc::default(),
            transforms: Transforms::new(name, transforms, stages.transform.clone(), threads),
            functions,
            frames,
        }))
    }

    /// Returns the number of the calling decoding thread.
    pub(super) fn thread_index(&self) -> usize {
        self.pool.current_thread_index().expect("a decoding thread")
    }

    /// Returns what is known of the samples of a job that take long, which all of its ranks share.
    pub(super) fn slow_samples(&self, job: Fingerprint) -> Arc<Mutex<SlowSamples>> {
        let mut slow = self.slow.lock();
        slow.retain(|_, samples| samples.strong_count() > 0);
        let known = slow.get(&job).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let samples = Arc::default();
            slow.insert(job, Arc::downgrade(&samples));
            samples
        })
    }

    /// Returns the decoder of a job, without its functions.
    pub(crate) fn decoder<'c>(
        &self,
        job: &Job,
        classes: impl IntoIterator<Item = &'c str>,
    ) -> Result<Decoder, DecoderError> {
        let decoder = Decoder::new(job, classes)?;
        let decoder = decoder.with_counts(self.pictures.clone()).with_memory(self.memory.clone());
        Ok(decoder.with_frames(self.frames.clone()))
    }

    /// Prepares the job's functions in Rust. Blocks, and may read files.
    pub(crate) fn rust_functions(&self, job: &Job) -> Result<RustFunctions, RustFunctionError> {
        RustFunctions::prepare(job, &self.functions, &self.name)
    }

    /// Returns what was decoded of videos.
    pub(crate) fn frame_counts(&self) -> FrameCounts {
        self.frames.as_deref().map(FrameDecoders::counts).unwrap_or_default()
    }

    /// Checks that the job's videos can be decoded, if it has any. Blocks.
    pub(crate) fn check_frames(&self, job: &Job) -> Result<(), NoFramesError> {
        NoFramesError::check(job, self.frames.as_deref(), &self.name)
    }

    /// Returns the lease of the processes that call the job's functions in Python, if it has any.
    pub(crate) fn lease(&self, job: &Job) -> Result<Option<Arc<Lease>>, TransformError> {
        Ok(self.transforms.lease(job)?.map(Arc::new))
    }

    /// Runs `work` on a decoding thread; returns `None` if it panics, which is logged.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = oneshot::channel();
        let span = Span::current();
        self.pool.spawn(move || {
            // The receiver is gone if the caller was dropped.
            let _ = done.send(span.in_scope(work));
        });
        result.await.ok()
    }

    /// Sets the missing digests of a job's Python functions, as far as their sources can be found here.
    pub(super) async fn find_sources(&self, mut file: JobFile) -> JobFile {
        if file.sources().all(|(_, digest)| digest.is_some()) {
            return file;
        }
        let (transforms, mut known) = (self.transforms.clone(), file.clone());
        let found = self.run(move || {
            for unknown in transforms.find_sources(&mut known) {
                tracing::debug!(%unknown, "the job does not fix the source of a function");
            }
            known
        });
        found.await.unwrap_or(file)
    }

    /// Decodes a sample of a job for another worker's `batch` on the calling decoding thread, with `decode`, from `bytes` bytes.
    /// Returns whether it was decoded; it is not if this process, or one before it, may have died of it.
    pub(crate) fn decode_for_other(
        &self,
        sample: (Fingerprint, SampleId),
        batch: BatchId,
        bytes: usize,
        decode: impl FnOnce() -> bool,
    ) -> bool {
        let thread = self.thread_index();
        let unit = InDecoding::sample(sample.0, sample.1);
        if self.journal.suspicion(unit) != Suspicion::None {
            return false;
        }
        let mut busy = self.threads.begin(thread, batch);
        busy.pause_if_due();
        self.journal.mark(thread, Some(unit));
        let is_decoded = decode();
        self.journal.mark(thread, None);
        let took = busy.end_item();
        if is_decoded {
            self.stages.decode.item(took, bytes as u64);
        } else {
            self.stages.decode.failure();
        }
        is_decoded
    }
}

/// Opens the journal. If it cannot be opened, logs a warning and goes on without one.
fn open_journal(path: &Path, budget: &Budget) -> Journal {
    // A record does not count for another budget or version, as the sample may do no harm there.
    let circumstances = format!("{} {}", env!("CARGO_PKG_VERSION"), budget.memory_bytes);
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| Journal::open(path, &circumstances)).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), %error, "samples that end the worker will not be recognised");
        Journal::default()
    })
}
