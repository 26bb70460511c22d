//! The task that keeps a rank's slots filled: it carries out the effects of [`FeedCore`].

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use spdl_accounting::UnitState;
use spdl_control::{help::HelpJob, messages::Session};
use spdl_feed::{FeedCore, FeedEffect};
use spdl_job::layout::Layout;
use spdl_order::Plan;
use spdl_types::{BatchId, Fingerprint, Position};
use spdl_wire::slab::Slab;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{Instrument, Span};

use super::{
    FeedError, FeedEvent, FeedView, Resources,
    batch::{BatchPlace, FilledBatch, Mixer, PartReads, PlannedBatches, fill, shared},
    dataset::DatasetView,
    progress::{FeedPhase, FeedProgress},
    room::RankRoom,
    sharing::SharingMember,
};
use crate::{
    decode::Decoder,
    fetch::BlockSource,
    help::{ColumnSizes, LentJob},
    rust_functions::RustFunctions,
    transform::Lease,
};

/// The data that all batches of one rank share.
pub(super) struct Feed {
    pub(super) resources: Arc<Resources>,
    pub(super) session: Session,
    pub(super) job_fingerprint: Fingerprint,
    pub(super) rank: u32,
    pub(super) layout: Arc<Layout>,
    pub(super) dataset: DatasetView,
    pub(super) plan: Plan,
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
    pub(super) parts: PartReads,
}

/// The work that a feed does for each batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeedWork {
    /// Everything.
    All,
    /// Its bytes are fetched; all entries are zero.
    Fetch,
}

impl Feed {
    /// Returns the name of the rank's batch at this position.
    pub(super) const fn batch_id(&self, from: Position) -> BatchId {
        BatchId { session: self.session.id, rank: self.rank, from }
    }
}

/// The task, with what it needs to open its [`Feed`].
pub(super) struct FeedDriver {
    pub(super) resources: Arc<Resources>,
    pub(super) session: Session,
    pub(super) rank: u32,
    pub(super) slab: Slab,
    /// The room for ragged values; `None` if there are none.
    pub(super) room: Option<RankRoom>,
    pub(super) layout: Arc<Layout>,
    pub(super) progress: Arc<FeedProgress>,
    pub(super) events: mpsc::UnboundedSender<Result<FeedEvent, FeedError>>,
    pub(super) work: FeedWork,
}

impl FeedDriver {
    /// Returns a handle that reports the state of the rank.
    pub(super) fn view(&self) -> FeedView {
        FeedView::new(&self.resources, &self.session, self.rank, self.slab.slots(), self.progress.clone())
    }

    pub(super) async fn run(self, from: Position, freed: mpsc::UnboundedReceiver<u32>) {
        let result = self.feed(from, freed).await;
        self.progress.enter(FeedPhase::Over);
        // The receiver is gone if the feed was dropped.
        let _ = self.events.send(result);
    }

    /// Carries out the core's effects until the end of the stream.
    async fn feed(&self, from: Position, mut freed: mpsc::UnboundedReceiver<u32>) -> Result<FeedEvent, FeedError> {
        let feed = Arc::new(self.open_counted().await?);
        // The phase changes before the first request for a block: a rank that waits for that request does not wait for
        // its dataset to be opened.
        self.progress.enter(FeedPhase::Filling);
        let mut read_ahead = self.resources.tuning.read_ahead();
        let steps = *read_ahead.borrow_and_update();
        let mut core = FeedCore::new(feed.session.steps_of(feed.rank), from, self.slab.slots(), steps);
        // Other workers can ask for the blocks as long as this lives.
        let blocks: Arc<dyn BlockSource> = Arc::new(feed.dataset.clone());
        if let Some((session, dataset)) = feed.dataset.shared_as() {
            self.resources.fetcher.peers().add_source(session, dataset, &blocks);
        }
        let mut planned = PlannedBatches::new(feed.clone());
        let mut filling = FuturesUnordered::new();
        let mut done = BTreeMap::new();
        // Sends the number of the first batch that is not filled. A batch with ragged values counts as filled only once
        // all batches before it are: until then they can take its room.
        let (turn, next) = watch::channel(0);
        loop {
            while let Some(effect) = core.poll_effect() {
                match effect {
                    FeedEffect::Prepare(step) => planned.prepare(step),
                    FeedEffect::Fill { sequence, slot, step } => {
                        let room = self.room.as_ref().map(|room| room.begin(sequence, slot, &self.layout));
                        let slot = self.slab.try_take(slot).expect("a slot that the core has filled is free");
                        let batch = planned.take(step);
                        let span = batch.span().clone();
                        let place = BatchPlace { slot, room, turn: next.clone() };
                        let filled = fill(feed.clone(), sequence, batch, place).instrument(span);
                        filling.push(filled.map(move |filled| (sequence, filled)));
                    }
                    FeedEffect::HandOver { sequence, .. } => {
                        self.publish(sequence, done.remove(&sequence).expect("all batches that were sent are done")?);
                    }
                    FeedEffect::Fail { sequence } => {
                        let failed: Result<FilledBatch, _> = done.remove(&sequence).expect("what failed is done");
                        return Err(failed.expect_err("the core has reported the failure"));
                    }
                    FeedEffect::End { sequence, position } => return Ok(FeedEvent::End { sequence, position }),
                }
            }
            self.progress.enter(if core.is_filling() { FeedPhase::Filling } else { FeedPhase::NoSlot });
            tokio::select! {
                Some((sequence, filled)) = filling.next() => {
                    if filled.is_ok() { core.handle_filled(sequence) } else { core.handle_failed(sequence) }
                    done.insert(sequence, filled);
                    turn.send_replace(core.next_hand_over());
                }
                Some(slot) = freed.recv() => {
                    if let Some(room) = &self.room {
                        room.free(&self.slab, slot);
                    }
                    assert!(core.handle_freed(slot), "slot {slot} was freed and not lent");
                }
                Ok(()) = read_ahead.changed() => core.set_read_ahead(*read_ahead.borrow_and_update()),
                Some(()) = sweep(&feed) => {}
            }
        }
    }

    fn publish(&self, sequence: u64, FilledBatch { slot, room, used_bytes, batch }: FilledBatch) {
        let slot = slot.publish();
        if let Some(room) = room {
            room.hand_over();
        }
        self.progress.publish(slot, batch, used_bytes);
        let _ = self.events.send(Ok(FeedEvent::Filled { sequence, slot, used_bytes }));
    }

    /// Opens the feed as a unit of the stage `open`.
    async fn open_counted(&self) -> Result<Feed, FeedError> {
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
        let dataset = resources.datasets.open(&session.job).await?;
        let plan = dataset.plan(&session.job).await?;
        let order = |source| FeedError::Order { job: session.job.name.clone(), source: Arc::new(source) };
        plan.check(&session.batches()).map_err(order)?;
        let mut decoder = Decoder::new(&session.job, dataset.manifest().classes())?
            .with_counts(resources.pictures.clone())
            .with_memory(resources.decode_memory.clone());
        let mut has_digests = true;
        if self.work == FeedWork::All {
            let functions = self.prepare_functions().await?;
            let lease = self.load_functions().await?;
            // Without digests, a helper or another job may have other functions of the same names.
            has_digests = lease.as_ref().is_none_or(|lease| lease.has_digests());
            decoder = decoder.with_functions(lease, functions);
        }
        let fields: Vec<String> = decoder.field_names().map(str::to_owned).collect();
        let lent = (has_digests && resources.helpers.is_started()).then(|| {
            let (job, manifest, names) = (session.job.clone(), dataset.manifest().clone(), session.job.needs_classes());
            let classes = move || manifest.classes().filter(|_| names).map(str::to_owned).collect();
            let describe = Box::new(move || HelpJob { job: job.clone(), classes: classes() });
            LentJob {
                fingerprint: session.job.fingerprint(),
                sizes: ColumnSizes::new(&session.job.columns, layout),
                describe,
            }
        });
        // Numbers that formats have at hand are copied as fast as shared samples would be.
        let may_share = self.work == FeedWork::All && has_digests && !decoder.takes_only_numbers();
        let sharing = may_share.then(|| resources.sharing.join(session.id, &session.job, layout)).flatten();
        Ok(Feed {
            lent,
            sharing,
            resources: resources.clone(),
            session: session.clone(),
            job_fingerprint: session.job.fingerprint(),
            rank: *rank,
            layout: layout.clone(),
            dataset: DatasetView::new(dataset, &fields).shared(session.id, &plan, resources.fetcher.peers()),
            plan,
            fields,
            decoder,
            mixer: Mixer::new(&session.job),
            progress: progress.clone(),
            has_good: AtomicBool::new(false),
            work: self.work,
            parts: PartReads::new(resources.reads_parts),
        })
    }

    /// Prepares the job's functions in Rust, on a decoding thread: they may read files.
    async fn prepare_functions(&self) -> Result<RustFunctions, FeedError> {
        let (done, prepared) = oneshot::channel();
        let (resources, job, span) = (self.resources.clone(), self.session.job.clone(), Span::current());
        self.resources.pool.spawn(move || {
            // The receiver is gone if the feed was dropped.
            let _ = done.send(span.in_scope(|| RustFunctions::prepare(&job, &resources.functions, &resources.name)));
        });
        let prepared = prepared.await.map_err(|_| FeedError::Panicked { job: self.session.job.name.clone() })?;
        Ok(prepared?)
    }

    /// Imports the job's functions in Python, so that an import error is reported before any batch.
    async fn load_functions(&self) -> Result<Option<Arc<Lease>>, FeedError> {
        let Some(lease) = self.resources.transforms.lease(&self.session.job)?.map(Arc::new) else { return Ok(None) };
        let (done, loaded) = oneshot::channel();
        let (loading, span) = (lease.clone(), Span::current());
        self.resources.pool.spawn(move || {
            // The receiver is gone if the feed was dropped.
            let _ = done.send(span.in_scope(|| loading.load()));
        });
        loaded.await.map_err(|_| FeedError::Panicked { job: self.session.job.name.clone() })??;
        Ok(Some(lease))
    }
}

/// Sweeps the shared samples once; returns `None` if this rank shares nothing.
async fn sweep(feed: &Feed) -> Option<()> {
    shared(feed)?.sweep().await;
    Some(())
}
