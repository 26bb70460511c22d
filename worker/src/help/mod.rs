//! Help with decoding. A home lends samples of its ranks' batches to helpers, and decodes what comes back late itself; and a
//! worker decodes samples for the homes that ask it.
//!
//! The coordinator decides which helpers a home has. Whether a sample is lent is decided here, when it could be decoded: only
//! if a helper is likely to be faster than the queue in front of this process's own threads.

mod links;
mod pace;
mod serve;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use spdl_control::{
    help::{DecodeRequest, HelpJob, HelpStats, HelperList, StoredField, StoredValue},
    peers::PeerAddress,
};
use spdl_job::{
    Column, ColumnKind,
    layout::{Layout, Place},
};
use spdl_types::{Fingerprint, SampleShape};
use spdl_wire::quic::QuicError;
use tokio::sync::{Notify, futures::Notified};

use self::pace::HelperPace;
pub(crate) use self::{
    links::HelperLinks,
    serve::{HelpedJobs, decode, prepare, refuse},
};

/// A helper that is busy is not asked for this long.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// A helper that was late, or could not be reached, is not asked for this long.
const ASIDE: Duration = Duration::from_secs(10);
/// Maximum number of samples that a helper is asked for at once.
const CHUNK_SAMPLES: usize = 16;

/// Samples that a helper has decoded.
#[derive(Debug)]
pub(crate) struct DecodedSamples {
    /// For each sample the bytes of its ragged columns; `None` for one that did not decode.
    pub(crate) samples: Vec<Option<Vec<u64>>>,
    /// The columns of those that did.
    pub(crate) bytes: Bytes,
}

/// The answer of a helper.
#[derive(Debug)]
pub(crate) enum HelpAnswer {
    Decoded(DecodedSamples),
    Busy,
    /// It cannot decode samples of this job.
    Unable(String),
}

/// The bytes of the columns of a sample.
#[derive(Debug)]
pub(crate) struct ColumnSizes {
    /// Bytes of all fixed columns.
    fixed_bytes: u64,
    /// For each ragged column, in their order, the bytes of a row and the most of a sample.
    ragged: Vec<(u64, u64)>,
    /// For each ragged column of pictures, the bytes of a picture at most, and the most pictures of a sample.
    picture_lists: Vec<(u64, u64)>,
}

impl ColumnSizes {
    /// Returns the sizes of a job's columns, which have this layout.
    pub(crate) fn new(columns: &[Column], layout: &Layout) -> Self {
        let (mut fixed_bytes, mut ragged, mut picture_lists) = (0, Vec::new(), Vec::new());
        for (column, laid) in columns.iter().zip(layout.columns()) {
            if let (ColumnKind::Image(image), None, SampleShape::Rows { max_rows, .. }) =
                (&column.kind, &column.transform, column.shape())
                && let Place::Ragged { row_bytes, max_bytes, .. } = &laid.place
            {
                picture_lists.push(match image.max_pixels() {
                    Some(_) => (*max_bytes as u64, 1),
                    None => (*row_bytes as u64, max_rows.into()),
                });
            }
            match &laid.place {
                Place::Fixed { sample_bytes, .. } => fixed_bytes += *sample_bytes as u64,
                Place::Ragged { row_bytes, max_bytes, .. } => ragged.push((*row_bytes as u64, *max_bytes as u64)),
            }
        }
        Self { fixed_bytes, ragged, picture_lists }
    }

    /// Returns the bytes of the fixed columns, and of all pictures in lists, of a sample with these fields. Other
    /// values of ragged columns are no longer than the fields, or little longer: files of scalable pictures.
    pub(crate) fn bytes_of(&self, fields: &[StoredField]) -> u64 {
        let files = |field: &StoredField| match &field.value {
            StoredValue::List(files) => files.len() as u64,
            StoredValue::File | StoredValue::Array(..) => 1,
        };
        let longest = fields.iter().map(files).max().unwrap_or(0);
        let pictures = self.picture_lists.iter().map(|(bytes, most)| bytes * longest.min(*most));
        self.fixed_bytes + pictures.sum::<u64>()
    }

    /// Returns the bytes that follow a reply with these samples; `None` if it is no reply to a request for `asked` samples.
    fn reply_bytes(&self, asked: usize, samples: &[Option<Vec<u64>>]) -> Option<u64> {
        let fits = |(length, (row, most)): (&u64, &(u64, u64))| length.is_multiple_of((*row).max(1)) && length <= most;
        let of_sample = |lengths: &Vec<u64>| {
            let is_possible = lengths.len() == self.ragged.len() && lengths.iter().zip(&self.ragged).all(fits);
            is_possible.then(|| self.fixed_bytes + lengths.iter().sum::<u64>())
        };
        let bytes = samples.iter().flatten().try_fold(0, |sum, lengths| Some(sum + of_sample(lengths)?))?;
        (samples.len() == asked).then_some(bytes)
    }
}

/// The job as a home needs it to ask for samples.
pub(crate) struct LentJob {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) sizes: ColumnSizes,
    /// Makes the description of the job for a helper that does not know it.
    pub(crate) describe: Box<dyn Fn() -> HelpJob + Send + Sync>,
}

/// Asks helpers.
pub(crate) trait AskHelper: fmt::Debug + Send + Sync {
    /// Forgets the workers that are no helpers any more.
    fn keep(&self, helpers: &[PeerAddress]);

    /// Asks a helper to decode samples, whose fields are `bytes`.
    fn ask<'a>(
        &'a self,
        helper: PeerAddress,
        job: &'a LentJob,
        request: DecodeRequest,
        bytes: Vec<Bytes>,
    ) -> BoxFuture<'a, Result<HelpAnswer, QuicError>>;
}

/// The helpers of this worker, and how fast they are.
#[derive(Debug, Default)]
pub(crate) struct Helpers {
    list: Mutex<Helping>,
    links: OnceLock<Box<dyn AskHelper>>,
    /// Notified when a helper can be asked that could not be before.
    freed: Notify,
    /// The mean time in which one of this process's own threads decodes a sample, with its pauses, in nanoseconds.
    own_sample_ns: AtomicU64,
    counts: Mutex<HelpStats>,
    /// The jobs whose samples this process decodes for others.
    pub(crate) jobs: HelpedJobs,
}

#[derive(Debug, Default)]
struct Helping {
    version: u64,
    helpers: Vec<Arc<Helper>>,
}

#[derive(Debug)]
struct Helper {
    address: PeerAddress,
    pace: Mutex<HelperPace>,
}

/// The samples that wait to be decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    /// Those of the batch that may be lent.
    pub(crate) of_batch: usize,
    /// Those of all batches.
    pub(crate) of_all: usize,
    /// This process's decoding threads.
    pub(crate) threads: usize,
}

/// The permission to ask a helper for one chunk. It is given back when dropped.
#[derive(Debug)]
pub(crate) struct HelpTurn<'h> {
    helpers: &'h Helpers,
    helper: Arc<Helper>,
    pub(crate) address: PeerAddress,
    /// The number of samples to ask for.
    pub(crate) samples: usize,
    started: Instant,
}

impl Helpers {
    /// Lets this process ask others. Called at most once.
    pub(crate) fn start(&self, links: Box<dyn AskHelper>) {
        assert!(self.links.set(links).is_ok(), "a process is one worker");
    }

    /// Returns whether this process asks others, and answers them.
    pub(crate) fn is_started(&self) -> bool {
        self.links.get().is_some()
    }

    /// Takes over the coordinator's list.
    pub(crate) fn set(&self, HelperList { version, helpers }: HelperList) {
        let Some(links) = self.links.get() else { return };
        links.keep(&helpers);
        let mut list = self.list.lock();
        let known = std::mem::take(&mut list.helpers);
        let find = |address: PeerAddress| {
            let known = known.iter().find(|helper| helper.address == address).cloned();
            known.unwrap_or_else(|| Arc::new(Helper { address, pace: Mutex::default() }))
        };
        *list = Helping { version, helpers: helpers.into_iter().map(find).collect() };
        drop(list);
        self.freed.notify_waiters();
    }

    /// Returns the version of the list.
    pub(crate) fn version(&self) -> u64 {
        self.list.lock().version
    }

    /// Returns how to ask, if there are helpers.
    pub(crate) fn links(&self) -> Option<&dyn AskHelper> {
        if self.list.lock().helpers.is_empty() { None } else { self.links.get().map(|links| &**links) }
    }

    /// Notes how long one of this process's own threads took for a sample.
    pub(crate) fn note_own_sample(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX / 2);
        let before = self.own_sample_ns.load(Relaxed);
        // If two threads note their times at once, one of these may be lost.
        let after = if before == 0 { took } else { before - before / 16 + took / 16 };
        self.own_sample_ns.store(after, Relaxed);
    }

    /// Returns the permission to ask the helper that is likely to be done first, if it is likely to be done before this
    /// process's threads have decoded all samples of `queue`.
    pub(crate) fn take_turn(&self, job: Fingerprint, queue: Queue, now: Instant) -> Option<HelpTurn<'_>> {
        let Queue { of_batch, of_all, threads } = queue;
        let own_s = self.own_sample_ns.load(Relaxed) as f64 / 1e9 * of_all as f64 / threads.max(1) as f64;
        let list = self.list.lock();
        // Smaller chunks towards the end of a batch, so that all that decode it are done at about the same time.
        let samples = of_batch.div_ceil(2 * (1 + list.helpers.len())).min(CHUNK_SAMPLES);
        let expected =
            |helper: &Arc<Helper>| helper.pace.lock().expected_s(job, samples, now).map(|s| (s, helper.clone()));
        let (first_s, helper) = list.helpers.iter().filter_map(expected).min_by(|a, b| a.0.total_cmp(&b.0))?;
        if samples == 0 || first_s >= own_s {
            return None;
        }
        helper.pace.lock().begin();
        Some(HelpTurn { helpers: self, address: helper.address, helper, samples, started: now })
    }

    /// Waits until a helper can be asked that could not be when this was called, except those that are aside.
    pub(crate) fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }

    /// Returns when the first of the helpers that are aside can be asked again.
    pub(crate) fn aside_until(&self, now: Instant) -> Option<Instant> {
        self.list.lock().helpers.iter().filter_map(|helper| helper.pace.lock().aside_until(now)).min()
    }

    /// Counts samples that this process has decoded for another worker.
    pub(crate) fn note_made(&self, samples: usize) {
        self.counts.lock().made_samples += samples as u64;
    }

    pub(crate) fn stats(&self) -> HelpStats {
        *self.counts.lock()
    }
}

impl HelpTurn<'_> {
    /// Returns how long the helper may take for `samples` samples, before they are decoded here.
    pub(crate) fn limit(&self, samples: usize) -> Duration {
        self.helper.pace.lock().limit(samples)
    }

    /// Notes that the helper has decoded `decoded` of `samples` samples.
    pub(crate) fn finish(self, decoded: usize, samples: usize, now: Instant) {
        self.helper.pace.lock().done(samples, now.saturating_duration_since(self.started));
        let mut counts = self.helpers.counts.lock();
        counts.received_samples += decoded as u64;
        counts.returned_samples += (samples - decoded) as u64;
    }

    /// Notes that the helper had no room for `samples` samples.
    pub(crate) fn busy(self, samples: usize, now: Instant) {
        self.put_aside(samples, now + BUSY_PAUSE);
    }

    /// Notes that the helper was late with `samples` samples, or could not be reached.
    pub(crate) fn fail(self, samples: usize, now: Instant) {
        self.put_aside(samples, now + ASIDE);
    }

    /// Notes that the helper cannot decode samples of this job. Returns whether that is new.
    pub(crate) fn unable(self, job: Fingerprint, samples: usize) -> bool {
        self.helpers.counts.lock().returned_samples += samples as u64;
        self.helper.pace.lock().exclude(job)
    }

    fn put_aside(self, samples: usize, until: Instant) {
        self.helpers.counts.lock().returned_samples += samples as u64;
        self.helper.pace.lock().put_aside(until);
    }
}

impl Drop for HelpTurn<'_> {
    fn drop(&mut self) {
        self.helper.pace.lock().end();
        self.helpers.freed.notify_waiters();
    }
}
