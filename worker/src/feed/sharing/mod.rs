//! Shares decoded samples between the feeds of this process: this module has the kept samples and their memory.
//! [`SharingCore`] decides which feed keeps which samples for which others.
//!
//! A process whose feeds have nothing in common pays one load of a flag for each sample.

mod memory;

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use smallvec::SmallVec;
use spdl_accounting::thread_cpu_ns;
use spdl_feed::{Allowed, Decoded, PartWork, SampleDraw, SampleWork, SharingCore, SharingCounts, SharingId};
use spdl_job::{
    Job, SampleContent,
    layout::{Layout, Place},
};
use spdl_types::SessionId;
use tokio::sync::oneshot;

use self::memory::{SharedBuffer, SharedMemory};
use super::room::SlotMemory;
use crate::decode::FieldTarget;

/// Kept samples take at most one part in this many of the memory for slots and cached blocks.
const PART: u64 = 8;
/// The most samples that a rank announces ahead.
const MAX_AHEAD: u64 = 16_384;
/// A sample is assumed to have at least this many bytes.
const LEAST_SAMPLE_BYTES: u64 = 1 << 10;
/// How often samples that are kept for idle ranks are given up.
const SWEEP_MS: u64 = 1_000;
/// A rank waits for a sample that another rank decodes for as long as four samples take, and this much longer.
const WAIT: Duration = Duration::from_millis(100);

/// Whether the feeds of a process share decoded samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SampleSharing {
    /// They do, where it pays.
    #[default]
    On,
    /// Each decodes its own samples.
    Off,
}

/// The kept values of a part of a sample, one column after another.
#[derive(Debug)]
struct KeptPart {
    values: SharedBuffer,
    ends: SmallVec<[usize; 1]>,
}

type Core = SharingCore<Arc<KeptPart>, oneshot::Sender<()>>;

/// The samples that the feeds of a process share.
#[derive(Debug)]
pub(crate) struct Sharing {
    setting: SampleSharing,
    started: Instant,
    core: Mutex<Core>,
    /// For each feed a flag: whether a feed of another session has columns in common with it.
    met: Mutex<Vec<(SharingId, Weak<AtomicBool>)>>,
    memory: Arc<SharedMemory>,
    swept_ms: AtomicU64,
}

/// What a process has shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharingStats {
    /// Samples.
    pub samples: SharingCounts,
    /// Samples that were not kept because there was no room.
    pub refused: u64,
    /// Bytes that are kept.
    pub bytes: u64,
}

impl Sharing {
    /// Creates the place for shared samples, within the memory of slots and cached blocks, which is `pool_bytes`.
    pub(super) fn new(setting: SampleSharing, slots: Arc<SlotMemory>, pool_bytes: u64) -> Arc<Self> {
        let memory = SharedMemory::new(slots, pool_bytes / PART);
        let (core, met, swept_ms) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { setting, started: Instant::now(), core, met, memory, swept_ms })
    }

    /// Lets the feed of a rank share samples of `job`.
    pub(super) fn join(self: &Arc<Self>, session: SessionId, job: &Job, layout: &Layout) -> Option<SharingMember> {
        if self.setting == SampleSharing::Off {
            return None;
        }
        let SampleContent { source, parts } = job.sample_content();
        let (names, parts): (Vec<_>, Vec<_>) = parts.into_iter().map(|part| (part.fingerprint, part.columns)).unzip();
        let id = self.core.lock().join(session, source, names, self.now_ms());
        let is_met = Arc::<AtomicBool>::default();
        self.met.lock().push((id, Arc::downgrade(&is_met)));
        self.tell();
        let fixed_bytes = |place: &Place| match place {
            Place::Fixed { sample_bytes, .. } => *sample_bytes as u64,
            Place::Ragged { .. } => 0,
        };
        let sample_bytes: u64 = layout.columns().iter().map(|column| fixed_bytes(&column.place)).sum();
        let ahead = (self.memory.max_bytes / sample_bytes.max(LEAST_SAMPLE_BYTES)).min(MAX_AHEAD);
        Some(SharingMember { sharing: self.clone(), id, parts, is_met, ahead })
    }

    /// Gives up all kept samples if slots need their memory.
    pub(super) fn make_room(&self) {
        if self.memory.slots.is_short() {
            let released = self.core.lock().release_all();
            drop(released);
            self.memory.give_back();
        }
    }

    pub(crate) fn stats(&self) -> SharingStats {
        let (samples, refused) = (self.core.lock().counts(), self.memory.refused.load(Relaxed));
        SharingStats { samples, refused, bytes: self.memory.kept_bytes() }
    }

    /// Updates the flags of all feeds.
    fn tell(&self) {
        let mut met = self.met.lock();
        let mut any_is_met = false;
        met.retain(|(id, flag)| match flag.upgrade() {
            Some(flag) => {
                let is_met = self.core.lock().is_met(*id);
                flag.store(is_met, Relaxed);
                any_is_met |= is_met;
                true
            }
            None => false,
        });
        self.memory.set_use(any_is_met);
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn sweep(&self, now_ms: u64) {
        let swept_ms = self.swept_ms.load(Relaxed);
        let is_due = now_ms >= swept_ms + SWEEP_MS;
        if is_due && self.swept_ms.compare_exchange(swept_ms, now_ms, Relaxed, Relaxed).is_ok() {
            let released = self.core.lock().sweep(now_ms);
            drop(released);
            self.memory.sweep();
            self.make_room();
        }
    }
}

/// The feed of a rank among those that share. Dropping it leaves them.
#[derive(Debug)]
pub(super) struct SharingMember {
    sharing: Arc<Sharing>,
    id: SharingId,
    /// The columns of each part.
    parts: Vec<Vec<usize>>,
    is_met: Arc<AtomicBool>,
    /// How many samples to announce ahead.
    pub(super) ahead: u64,
}

/// All of a sample, as it is kept.
#[derive(Debug)]
pub(super) struct KeptSample(Vec<Arc<KeptPart>>);

/// What a feed does about a sample.
pub(super) enum SampleAction<'m> {
    Take(KeptSample),
    Decode(SharedDecode<'m>),
    Wait,
}

/// A sample that a feed decodes, some of it for others.
pub(super) struct SharedDecode<'m> {
    member: &'m SharingMember,
    draw: SampleDraw,
    work: Vec<PartWork<Arc<KeptPart>>>,
    started: Instant,
    kept: Vec<(usize, Arc<KeptPart>)>,
    decoded: Decoded,
}

impl Drop for SharingMember {
    fn drop(&mut self) {
        let released = self.sharing.core.lock().leave(self.id);
        drop(released);
        self.sharing.tell();
    }
}

impl SharingMember {
    /// Returns whether a feed of another session has columns in common with this one.
    pub(super) fn is_met(&self) -> bool {
        self.is_met.load(Relaxed)
    }

    /// Gives up kept samples as soon as slots need their memory, and after a second those that are kept for idle ranks.
    /// A feed that reaches no samples would give up nothing otherwise.
    pub(super) async fn sweep(&self) {
        tokio::select! {
            () = self.sharing.memory.slots.becomes_short() => self.sharing.make_room(),
            () = tokio::time::sleep(Duration::from_millis(SWEEP_MS)) => self.sharing.sweep(self.sharing.now_ms()),
        }
    }

    /// Announces samples that the feed decodes soon.
    pub(super) fn announce(&self, draws: impl IntoIterator<Item = SampleDraw>) {
        self.sharing.core.lock().announce(self.id, draws);
    }

    /// Notes that the feed decodes a sample on its own, which it may have announced.
    pub(super) fn skip(&self, draw: SampleDraw) {
        let released = self.sharing.core.lock().skip(self.id, draw);
        drop(released);
    }

    /// Returns how the feed gets the sample that it has come to: it takes, decodes or awaits it.
    pub(super) fn begin(&self, draw: SampleDraw, may_wait: bool) -> SampleAction<'_> {
        let now_ms = self.sharing.now_ms();
        self.sharing.sweep(now_ms);
        let memory = &self.sharing.memory;
        let may_keep = memory.may_keep();
        if !may_keep {
            memory.refused.fetch_add(1, Relaxed);
        }
        let allowed = Allowed { may_wait: may_wait && may_keep, may_keep };
        match self.sharing.core.lock().begin(self.id, draw, allowed, now_ms) {
            SampleWork::Take(values) => SampleAction::Take(KeptSample(values)),
            SampleWork::Wait => SampleAction::Wait,
            SampleWork::Decode(work) => {
                let (started, kept, decoded) = (Instant::now(), Vec::new(), Decoded::default());
                SampleAction::Decode(SharedDecode { member: self, draw, work, started, kept, decoded })
            }
        }
    }

    /// Returns a sample if all of its parts are kept.
    pub(super) fn kept(&self, draw: SampleDraw) -> Option<KeptSample> {
        if !self.is_kept(draw, false) {
            return None;
        }
        match self.begin(draw, true) {
            SampleAction::Take(kept) => Some(kept),
            // It was given up meanwhile; the feed comes to it again.
            SampleAction::Decode(SharedDecode { .. }) | SampleAction::Wait => None,
        }
    }

    /// Returns whether all of a sample is kept; with `or_soon`, also if the rest is being decoded.
    pub(super) fn is_kept(&self, draw: SampleDraw, or_soon: bool) -> bool {
        self.sharing.core.lock().is_kept(self.id, draw, or_soon)
    }

    /// Copies a sample to its place.
    pub(super) fn take(&self, draw: SampleDraw, KeptSample(values): &KeptSample, targets: &mut [FieldTarget<'_>]) {
        let before_ns = thread_cpu_ns();
        for (value, columns) in values.iter().zip(&self.parts) {
            value.copy_to(columns, targets);
        }
        let took_ns = thread_cpu_ns().saturating_sub(before_ns);
        let released = self.sharing.core.lock().taken(self.id, draw, took_ns);
        drop(released);
    }

    /// Keeps the parts that other feeds want of a sample that another worker has decoded.
    pub(super) fn offer(&self, draw: SampleDraw, targets: &[FieldTarget<'_>]) {
        let wanted = self.sharing.core.lock().wanted_parts(self.id, draw, self.sharing.now_ms());
        let (kept, keep_ns) = self.copies(wanted, targets);
        let decoded = Decoded { took_ns: 0, in_part: false, keep_ns };
        let released = self.sharing.core.lock().finish(self.id, draw, kept, decoded);
        drop(released);
    }

    /// Waits until no other feed is decoding a sample, and returns true; returns false if that takes too long.
    pub(super) async fn wait(&self, draw: SampleDraw) -> bool {
        let (waiter, woken) = oneshot::channel();
        let limit = {
            let mut core = self.sharing.core.lock();
            if core.wait(self.id, draw, waiter).is_some() {
                return true;
            }
            WAIT + 4 * Duration::from_nanos(core.decode_ns(self.id))
        };
        // The sender is dropped once the sample is decoded or given up.
        tokio::time::timeout(limit, woken).await.is_ok()
    }

    /// Copies the parts of a sample for which there is room. Also returns the CPU time that this took, in nanoseconds:
    /// real time would count waits for a core as a cost of copying.
    fn copies(
        &self,
        parts: impl IntoIterator<Item = usize>,
        targets: &[FieldTarget<'_>],
    ) -> (Vec<(usize, Arc<KeptPart>)>, u64) {
        let before_ns = thread_cpu_ns();
        let copies = parts.into_iter().filter_map(|part| Some((part, self.copy(part, targets)?))).collect();
        (copies, thread_cpu_ns().saturating_sub(before_ns))
    }

    /// Copies a part of a sample, if there is room.
    fn copy(&self, part: usize, targets: &[FieldTarget<'_>]) -> Option<Arc<KeptPart>> {
        let value = |column: &usize| -> &[u8] {
            match &targets[*column] {
                FieldTarget::Fixed(bytes) => bytes,
                FieldTarget::Ragged(value) => value,
            }
        };
        let columns = &self.parts[part];
        let mut values = self.sharing.memory.take(columns.iter().map(|column| value(column).len()).sum())?;
        let ends = columns.iter().map(|column| {
            values.extend_from_slice(value(column));
            values.len()
        });
        let ends = ends.collect();
        Some(Arc::new(KeptPart { values, ends }))
    }
}

impl KeptPart {
    fn copy_to(&self, columns: &[usize], targets: &mut [FieldTarget<'_>]) {
        let mut start = 0;
        for (end, column) in self.ends.iter().zip(columns) {
            let value = &self.values[start..*end];
            start = *end;
            match &mut targets[*column] {
                FieldTarget::Fixed(place) => place.copy_from_slice(value),
                // A copy, as what is kept may be given up before the batch is filled.
                FieldTarget::Ragged(place) => **place = Bytes::copy_from_slice(value),
            }
        }
    }
}

impl SharedDecode<'_> {
    /// Copies the parts that are kept already. Returns for each column whether it has its value.
    pub(super) fn take(&mut self, targets: &mut [FieldTarget<'_>]) -> SmallVec<[bool; 8]> {
        let mut taken = SmallVec::from_elem(false, targets.len());
        for (work, columns) in self.work.iter().zip(&self.member.parts) {
            let PartWork::Take(value) = work else { continue };
            value.copy_to(columns, targets);
            columns.iter().for_each(|column| taken[*column] = true);
            self.decoded.in_part = true;
        }
        taken
    }

    /// Keeps the parts of a decoded sample that other feeds want.
    pub(super) fn keep(&mut self, targets: &[FieldTarget<'_>]) {
        self.decoded.took_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        let wanted = (0..).zip(&self.work).filter(|(_, work)| matches!(work, PartWork::DecodeAndKeep));
        (self.kept, self.decoded.keep_ns) = self.member.copies(wanted.map(|(part, _)| part), targets);
    }
}

impl Drop for SharedDecode<'_> {
    fn drop(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        let released = self.member.sharing.core.lock().finish(self.member.id, self.draw, kept, self.decoded);
        drop(released);
    }
}
