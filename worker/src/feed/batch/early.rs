//! Samples that are decoded before their batch has a slot, where a few take many times as long as most. The plan knows them in advance;
//! a batch that began a slow one only when it gets its slot would be late. While a slow one is decoded that nobody knew of, the trainer
//! lives on what was decoded ahead, so that is as many samples as the threads decode in that time, whatever the slots hold.

use std::{
    collections::BTreeMap,
    mem::take,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use smallvec::smallvec;
use spdl_accounting::nanoseconds;
use spdl_types::Position;
use tokio::{sync::oneshot, task::JoinSet};

use super::{
    buffer::EarlySample,
    decode::decode_sample,
    records::{self, FetchedGroup},
    sample::{BatchSample, SampleGroup},
    shared_videos::SharedVideos,
};
use crate::feed::{journal::Suspicion, open::Feed, room::SampleReservation, scheduler::DecodePermitRequest};

/// A planned batch, some samples of which may begin.
#[derive(Clone, Copy)]
pub(super) struct EarlyBatch<'b> {
    /// Number of the newest batch that has a slot.
    pub(super) now: u64,
    /// Number of this batch.
    pub(super) sequence: u64,
    /// Whether its turn comes while the threads could have a slow sample.
    pub(super) is_near: bool,
    pub(super) entries: usize,
    pub(super) groups: &'b [SampleGroup],
}

/// So many samples ask for one permit: each request that waits is looked at whenever one is granted.
const PERMIT_SAMPLES: usize = 8;

/// The samples of one batch that are decoded early.
#[derive(Debug)]
pub(super) struct EarlySamples {
    /// Position of the batch.
    at: Position,
    /// Numbers of the groups of samples whose bytes had not come when they were last looked at.
    unseen: Vec<usize>,
    /// Numbers of the groups of which only the slow samples have begun.
    seen: Vec<usize>,
    /// By entry, the samples that are to be decoded, or are.
    samples: BTreeMap<u32, PendingSample>,
    /// The tasks that wait for permits. Dropping them ends that.
    tasks: JoinSet<()>,
}

/// A sample that is to be decoded early, or is.
#[derive(Debug)]
struct PendingSample {
    /// Whether a thread has begun the sample, or its batch has taken it back: set by whichever comes first.
    is_taken: Arc<AtomicBool>,
    decoded: oneshot::Receiver<EarlySample>,
}

impl EarlySamples {
    /// Creates the samples of a batch that has so many groups of them.
    pub(super) fn new(at: Position, groups: usize) -> Self {
        Self { at, unseen: (0..groups).collect(), seen: Vec::new(), samples: BTreeMap::new(), tasks: JoinSet::new() }
    }

    /// Begins samples of a planned batch, as far as their bytes have come and there is memory for them: the slow ones at once, as if they
    /// were of batch number `now`; all others only if the batch `is_near`, as those of number `sequence`.
    pub(super) fn begin(&mut self, feed: &Arc<Feed>, batch: EarlyBatch<'_>) {
        let Some(bytes) = feed.early_bytes else { return };
        let EarlyBatch { now, sequence, is_near, entries, groups } = batch;
        let (mut unseen, mut seen) = (take(&mut self.unseen), take(&mut self.seen));
        if is_near {
            unseen.append(&mut seen);
        }
        let mut usual = Vec::new();
        for nth in unseen {
            let Ok(fetched) = records::in_memory(feed, groups[nth].clone()) else {
                self.unseen.push(nth);
                continue;
            };
            for sample in fetched.samples() {
                let is_slow = feed.slow.lock().is_slow(sample.id, sample.bytes);
                // What is mixed with a sample lies beside the slot anyway.
                let is_free = (sample.entry as usize) < entries && !self.samples.contains_key(&sample.entry);
                if is_free && (is_slow || is_near) && feed.suspicion(sample.id) == Suspicion::None {
                    let work = self.prepare(feed, *sample, bytes);
                    if is_slow {
                        self.decode(feed, now, work.into_iter().collect());
                    } else {
                        usual.extend(work);
                    }
                }
            }
            if !is_near {
                seen.push(nth);
            }
        }
        self.seen = seen;
        while !usual.is_empty() {
            let rest = usual.split_off(usual.len().min(PERMIT_SAMPLES));
            self.decode(feed, sequence, std::mem::replace(&mut usual, rest));
        }
    }

    /// Returns what a thread needs to decode a sample; `None` if its bytes have gone, or there is no memory for it.
    fn prepare(
        &mut self,
        feed: &Feed,
        sample: BatchSample,
        (fixed_bytes, has_ragged): (usize, bool),
    ) -> Option<EarlyWork> {
        let group = records::in_memory(feed, smallvec![sample]).ok()?;
        // What its ragged values take is known once they are decoded.
        let expected_bytes = fixed_bytes as u64 + if has_ragged { sample.bytes } else { 0 };
        let memory = feed.memory.slots.reserve_early(expected_bytes)?;
        let (is_taken, (done, decoded)) = (Arc::<AtomicBool>::default(), oneshot::channel());
        self.samples.insert(sample.entry, PendingSample { is_taken: is_taken.clone(), decoded });
        Some(EarlyWork { group, fixed_bytes, memory, is_taken, done })
    }

    /// Has samples decoded as if they were of batch number `sequence`.
    fn decode(&mut self, feed: &Arc<Feed>, sequence: u64, samples: Vec<EarlyWork>) {
        if !samples.is_empty() {
            let (progress, session) = (feed.progress.clone(), feed.session.id);
            let request = DecodePermitRequest { progress, sequence, session, at: self.at };
            self.tasks.spawn(decode_early(feed.clone(), request, samples));
        }
    }

    /// Takes the sample of an entry, if it has begun; `None` in the end if it could not be decoded. One that has not begun is taken back:
    /// its batch decodes it with the others.
    pub(super) fn take(
        &mut self,
        entry: u32,
    ) -> Option<impl Future<Output = Option<EarlySample>> + Send + 'static + use<>> {
        let PendingSample { is_taken, decoded } = self.samples.remove(&entry)?;
        let has_begun = is_taken.swap(true, Relaxed);
        has_begun.then_some(async move { decoded.await.ok() })
    }
}

/// What a thread needs to decode a sample.
struct EarlyWork {
    /// The sample, alone.
    group: FetchedGroup,
    /// Its bytes in columns of one shape.
    fixed_bytes: usize,
    memory: SampleReservation,
    is_taken: Arc<AtomicBool>,
    done: oneshot::Sender<EarlySample>,
}

/// Has samples decoded once the scheduler grants a permit.
async fn decode_early(feed: Arc<Feed>, request: DecodePermitRequest, samples: Vec<EarlyWork>) {
    let at = request.at;
    let permit = Arc::new(feed.decoding.scheduler.take(request, samples.len()).await);
    for work in samples {
        let (of_sample, permit) = (feed.clone(), permit.clone());
        feed.decoding.pool.spawn(move || {
            decode_beside(&of_sample, at, work);
            permit.finish(1);
        });
    }
}

/// Decodes a sample into memory of its own on the calling decoding thread, unless its batch has taken it back. A sample that cannot be
/// decoded is left to its batch, which decides what happens to it.
fn decode_beside(feed: &Feed, at: Position, work: EarlyWork) {
    let EarlyWork { group, fixed_bytes, memory, is_taken, done } = work;
    if feed.progress.is_cancelled() || is_taken.swap(true, Relaxed) {
        return;
    }
    let sample = &group.samples()[0];
    let decoding = &feed.decoding;
    let mut thread = decoding.threads.begin(decoding.thread_index(), feed.batch_id(at));
    thread.pause_if_due();
    let (mut early, videos) = (EarlySample::new(&feed.layout, fixed_bytes, memory), SharedVideos::default());
    let decoded = early.write(&feed.layout, |place| decode_sample(feed, (&group, &videos), sample, place, None));
    decoding.journal.mark(decoding.thread_index(), None);
    let took = thread.end_item();
    if let Ok(read_bytes) = decoded {
        decoding.stages.decode.item(took, read_bytes);
        feed.slow.lock().note(sample.id, sample.bytes, nanoseconds(took));
        // The batch is gone if nobody waits for it.
        let _ = early.settled().map(|early| done.send(early));
    }
}
