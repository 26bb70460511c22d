//! What the feed of a rank consists of, and how it is opened: its memory at once, its dataset and decoder later.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use parking_lot::Mutex;
use spdl_accounting::UnitState;
use spdl_control::{help::HelpJob, messages::Session};
use spdl_feed::SlowSamples;
use spdl_job::layout::Layout;
use spdl_order::Plan;
use spdl_types::{BatchId, Fingerprint, Position, SampleId};
use spdl_wire::slab::Slab;
use tokio::sync::mpsc;
use tracing::Span;

use super::{
    FeedError,
    batch::{BatchThreads, EarlySample, Mixer, PartReads},
    dataset::{DatasetSequences, FeedDatasets, SizedSamples, SoundDatasets},
    decoding::SampleDecoding,
    journal::{InDecoding, Suspicion},
    memory::RankMemory,
    progress::FeedProgress,
    resources::Resources,
    room::{RankRoom, SlabReservation},
    sharing::SharingMember,
};
use crate::{
    decode::Decoder,
    fetch::Fetcher,
    help::{ColumnSizes, Helpers, LentJob},
};

/// The kind of memory that the slots lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlabKind {
    /// A sealed memfd, which another process can map.
    Shared,
    /// Private memory of this process.
    Private,
}

/// The parameters of a [`RankFeed`](super::RankFeed).
#[derive(Clone, Debug)]
pub struct FeedRequest {
    /// The session that the rank belongs to.
    pub session: Session,
    /// The rank, from 0.
    pub rank: u32,
    /// The position at which the first batch starts.
    pub from: Position,
    /// Number of slots; 0 means [`DEFAULT_SLOTS`](super::DEFAULT_SLOTS). The feed gets fewer if memory is short.
    pub slots: u32,
    /// The kind of memory of the slots.
    pub slab: SlabKind,
}

/// The work that a feed does for each batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeedWork {
    /// Everything.
    All,
    /// Its bytes are fetched; all entries are zero.
    Fetch,
}

/// The data that all batches of one rank share.
pub(super) struct Feed {
    pub(super) decoding: Arc<SampleDecoding>,
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) memory: Arc<RankMemory>,
    pub(super) helpers: Arc<Helpers>,
    pub(super) session: Session,
    pub(super) job_fingerprint: Fingerprint,
    pub(super) rank: u32,
    pub(super) layout: Arc<Layout>,
    pub(super) datasets: FeedDatasets,
    /// The datasets whose recordings operations take.
    pub(super) sounds: SoundDatasets,
    pub(super) plan: Plan,
    /// The sequences that samples are, if the job packs documents.
    pub(super) sequences: Option<Arc<DatasetSequences>>,
    /// Deals samples to ranks, if the job measures them.
    pub(super) sized: Option<Arc<SizedSamples>>,
    pub(super) decoder: Decoder,
    /// How samples are mixed, if they are.
    pub(super) mixer: Option<Mixer>,
    /// Fields of a record that the columns may read.
    pub(super) fields: Vec<String>,
    pub(super) progress: Arc<FeedProgress>,
    /// Whether any sample was decoded.
    pub(super) has_good: AtomicBool,
    pub(super) work: FeedWork,
    /// The job as helpers need it; `None` if samples are not lent.
    pub(super) lent: Option<LentJob>,
    /// Shares decoded samples with feeds of other sessions; `None` if it does not.
    pub(super) sharing: Option<SharingMember>,
    /// Which samples of the job take long.
    pub(super) slow: Arc<Mutex<SlowSamples>>,
    /// The bytes of a sample in columns of one shape, and whether it has others, if samples that take long are decoded before their batch
    /// has a slot.
    pub(super) early_bytes: Option<(usize, bool)>,
    pub(super) parts: PartReads,
}

impl Feed {
    /// Returns the name of the rank's batch at this position.
    pub(super) const fn batch_id(&self, from: Position) -> BatchId {
        BatchId { session: self.session.id, rank: self.rank, from }
    }

    /// Returns the decoding threads at work on the rank's batch at this position.
    pub(super) fn threads(&self, from: Position) -> BatchThreads<'_> {
        let Self { decoding, progress, .. } = self;
        BatchThreads { decoding, progress, batch: self.batch_id(from), span: Span::current() }
    }

    /// Runs `work` on a thread that may block.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, FeedError> {
        let span = Span::current();
        let done = tokio::task::spawn_blocking(move || span.in_scope(work)).await;
        done.map_err(|_| FeedError::Panicked { job: self.session.job.name.clone() })
    }

    /// Runs `work` on a decoding thread.
    pub(super) async fn on_decoding_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, FeedError> {
        let done = self.decoding.run(work).await;
        done.ok_or_else(|| FeedError::Panicked { job: self.session.job.name.clone() })
    }

    /// Returns the rank's membership in sample sharing; `None` if no other session has any of its columns.
    pub(super) fn shared(&self) -> Option<&SharingMember> {
        self.sharing.as_ref().filter(|member| member.is_met())
    }

    /// Returns the key of a sample in the journal.
    pub(super) const fn unit(&self, sample: SampleId) -> InDecoding {
        InDecoding::sample(self.job_fingerprint, sample)
    }

    /// Returns whether a sample may have ended the worker.
    pub(super) fn suspicion(&self, sample: SampleId) -> Suspicion {
        self.decoding.journal.suspicion(self.unit(sample))
    }
}

/// A feed with its memory, before it is opened.
pub(super) struct ReservedFeed {
    pub(super) resources: Arc<Resources>,
    pub(super) session: Session,
    pub(super) rank: u32,
    pub(super) slab: Slab,
    /// The room for ragged values; `None` if there are none.
    pub(super) room: Option<RankRoom>,
    pub(super) layout: Arc<Layout>,
    pub(super) progress: Arc<FeedProgress>,
    pub(super) work: FeedWork,
}

impl ReservedFeed {
    /// Reserves the memory of a feed. Also returns the reservation, which the consumer keeps, and what receives the numbers of slots that
    /// are given back.
    pub(super) fn new(
        resources: &Arc<Resources>,
        request: FeedRequest,
        work: FeedWork,
    ) -> Result<(Self, SlabReservation, mpsc::UnboundedReceiver<u32>), FeedError> {
        let FeedRequest { session, rank, from, slots, slab: kind } = request;
        let job = || session.job.name.clone();
        let checked = session.check(rank);
        checked.map_err(|error| FeedError::Session { job: job(), rank, problem: error.to_string() })?;
        let layout = Arc::new(session.layout());
        let reserved = resources.memory.reserve(&session, rank, from, slots, &layout);
        resources.sharing.make_room();
        let reservation = reserved?;
        let make = if kind == SlabKind::Shared { Slab::shared } else { Slab::private };
        let slab = make(reservation.slots, layout.slot_bytes());
        let slab = slab.map_err(|source| FeedError::Slab { job: job(), rank, source: Arc::new(source) })?;
        resources.tuning.start();
        let (progress, freed) = FeedProgress::new(Instant::now(), slab.slots(), resources.stages.clone());
        let room = reservation.room(&layout, &slab);
        let (resources, progress) = (resources.clone(), Arc::new(progress));
        Ok((Self { resources, session, rank, slab, room, layout, progress, work }, reservation, freed))
    }

    /// Opens the feed as a unit of the stage `open`.
    pub(super) async fn open_counted(&self) -> Result<Feed, FeedError> {
        let (stage, started) = (&self.resources.stages.open, Instant::now());
        let unit = stage.units().group(1, started);
        unit.shift(1, UnitState::Idle, UnitState::Busy, started);
        let opened = self.open().await;
        match &opened {
            Ok(_) => stage.item(started.elapsed(), 0),
            Err(_) => stage.failure(),
        }
        opened
    }

    pub(super) async fn open(&self) -> Result<Feed, FeedError> {
        let Self { resources, session, rank, layout, progress, .. } = self;
        let Resources { decoding, fetcher, memory, helpers, .. } = &**resources;
        let opened = resources.datasets.open(&session.job).await?;
        let sounds = resources.datasets.open_sounds(&session.job).await?;
        let planned = opened.plan(&session.job).await?;
        let (plan, sequences) = (planned.plan.clone(), planned.sequences.clone());
        // Sources have the same classes, if the job has numbers of them.
        let manifest = opened.first().manifest();
        let order = |source| FeedError::Order { job: session.job.name.clone(), source: Arc::new(source) };
        plan.check(&session.batches()).map_err(order)?;
        let mut decoder = decoding.decoder(&session.job, manifest.classes())?;
        let mut has_digests = true;
        if self.work == FeedWork::All {
            let panicked = || FeedError::Panicked { job: session.job.name.clone() };
            let (preparing, job) = (decoding.clone(), session.job.clone());
            let prepare = move || (preparing.check_frames(&job), preparing.rust_functions(&job));
            let (checked, functions) = decoding.run(prepare).await.ok_or_else(panicked)?;
            checked?;
            let functions = functions?;
            // The functions in Python are imported, so that an import error is reported before any batch.
            let lease = decoding.lease(&session.job)?;
            if let Some(loading) = lease.clone() {
                decoding.run(move || loading.load()).await.ok_or_else(panicked)??;
            }
            // Without digests, a helper or another job may have other functions of the same names.
            has_digests = lease.as_ref().is_none_or(|lease| lease.has_digests());
            decoder = decoder.with_functions(lease, functions);
        }
        let job_fingerprint = session.job.fingerprint();
        let fields: Vec<String> = decoder.field_names().map(str::to_owned).collect();
        // A sequence is copied from documents in less time than it takes to send one.
        // A helper gets one record of a sample, none of those around it, and no recording of another dataset.
        let has_series = decoder.series_fields().next().is_some() || decoder.wanted_series().next().is_some();
        let is_of_one = !has_series && sounds.is_empty();
        let lent = (has_digests && helpers.is_started() && sequences.is_none() && is_of_one).then(|| {
            let (job, manifest, names) = (session.job.clone(), manifest.clone(), session.job.needs_classes());
            let classes = move || manifest.classes().filter(|_| names).map(str::to_owned).collect();
            let describe = Box::new(move || HelpJob { job: job.clone(), classes: classes() });
            LentJob { fingerprint: job_fingerprint, sizes: ColumnSizes::new(&session.job.columns, layout), describe }
        });
        // Numbers that formats have at hand, and tokens, are copied as fast as shared samples would be.
        let is_copied = decoder.takes_only_numbers() || sequences.is_some();
        let may_share = self.work == FeedWork::All && has_digests && !is_copied;
        let sharing = may_share.then(|| resources.sharing.join(session.id, &session.job, layout)).flatten();
        // Frames of videos are decoded for all samples of a batch together.
        let may_be_early =
            self.work == FeedWork::All && !is_copied && is_of_one && decoder.frame_choices().next().is_none();
        let early_bytes = may_be_early.then(|| EarlySample::bytes_of(layout));
        let has_parts = |field: &String| decoder.reads_video(field) || decoder.reads_sound_parts(field);
        let cache = resources.cache_stats();
        let cached_epochs = if cache.dataset_bytes <= cache.limit_bytes { session.job.epochs } else { 0 };
        let parts = PartReads::new(resources.reads_parts, fields.iter().any(has_parts), cached_epochs);
        Ok(Feed {
            decoding: decoding.clone(),
            fetcher: fetcher.clone(),
            memory: memory.clone(),
            helpers: helpers.clone(),
            lent,
            sharing,
            slow: decoding.slow_samples(job_fingerprint),
            early_bytes,
            session: session.clone(),
            job_fingerprint,
            rank: *rank,
            layout: layout.clone(),
            datasets: FeedDatasets::new(&opened, &fields, session.id, (&planned, &fetcher.peers)),
            sounds,
            plan,
            sequences,
            sized: planned.sized.clone(),
            fields,
            decoder,
            mixer: Mixer::new(&session.job),
            progress: progress.clone(),
            has_good: AtomicBool::new(false),
            work: self.work,
            parts,
        })
    }
}
