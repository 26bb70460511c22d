//! Decodes samples for other workers, whenever no batch of a rank of this process waits for a decoding thread.

use std::{
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use spdl_control::help::{
    DecodeRequest, HelpJob, HelpReply, MAX_BYTES, MAX_SAMPLES, StoredField, StoredSample, StoredValue,
};
use spdl_job::layout::{Layout, Place};
use spdl_shard::format::{Array, FieldValue, MAX_LIST_FILES};
use spdl_store::blocking;
use spdl_types::{BatchId, Fingerprint};
use spdl_wire::{frame::FrameError, quic::PeerStream};

use super::{ColumnSizes, Helpers};
use crate::{
    decode::{Decoder, FieldLookup, FieldTarget, SampleKey},
    feed::{RankMemory, SampleDecoding},
};

/// Maximum number of jobs that are kept ready.
const JOBS: NonZeroUsize = NonZeroUsize::new(16).expect("it is not zero");
/// A job that no home asks for is forgotten after this time, so that processes with its functions end.
const IDLE: Duration = Duration::from_secs(60);

/// The jobs whose samples this process can decode for others.
#[derive(Debug)]
pub(crate) struct HelpedJobs(Mutex<LruCache<Fingerprint, KnownJob>>);

#[derive(Debug)]
struct KnownJob {
    job: Arc<HelpedJob>,
    asked: Instant,
}

impl Default for HelpedJobs {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(JOBS)))
    }
}

impl HelpedJobs {
    /// Forgets the jobs that no home has asked for lately.
    pub(crate) fn forget_idle(&self, now: Instant) {
        let mut jobs = self.0.lock();
        while jobs.peek_lru().is_some_and(|(_, known)| known.asked + IDLE <= now) {
            jobs.pop_lru();
        }
    }

    fn put(&self, job: HelpedJob, now: Instant) {
        self.0.lock().put(job.fingerprint, KnownJob { job: Arc::new(job), asked: now });
    }

    /// Returns a job that a home asks for.
    fn find(&self, fingerprint: Fingerprint, now: Instant) -> Option<Arc<HelpedJob>> {
        let mut jobs = self.0.lock();
        let known = jobs.get_mut(&fingerprint)?;
        known.asked = now;
        Some(known.job.clone())
    }
}

pub(super) struct HelpedJob {
    fingerprint: Fingerprint,
    decoder: Decoder,
    /// The fields that its columns may read, by their numbers.
    fields: Vec<String>,
    layout: Layout,
    sizes: ColumnSizes,
}

impl std::fmt::Debug for HelpedJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HelpedJob").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

/// The columns of a sample. Those of a fixed shape have their full size from the beginning.
struct Columns {
    fixed: Vec<Vec<u8>>,
    ragged: Vec<Bytes>,
}

/// Makes a job ready, or returns why its samples cannot be decoded here.
pub(crate) async fn prepare(
    decoding: &Arc<SampleDecoding>,
    jobs: &HelpedJobs,
    job: HelpJob,
    mut stream: PeerStream,
) -> Result<(), FrameError> {
    let (name, preparing) = (job.job.name.clone(), decoding.clone());
    let reply = match blocking(move || HelpedJob::new(&preparing, job)).await {
        Ok(job) => {
            jobs.put(job, Instant::now());
            HelpReply::Ready
        }
        Err(cause) => {
            tracing::warn!(job = name, cause, "samples of this job cannot be decoded here for other workers");
            unable(&cause)
        }
    };
    stream.reply(&reply).await
}

/// Answers a request for help where the worker is no helper.
pub(crate) async fn refuse(mut stream: PeerStream) -> Result<(), FrameError> {
    stream.reply(&unable("this worker is no helper: `--role` is `home`")).await
}

fn unable(cause: &str) -> HelpReply {
    HelpReply::Unable { cause: cause.chars().take(1000).collect() }
}

/// Answers a request to decode samples.
pub(crate) async fn decode(
    decoding: &Arc<SampleDecoding>,
    memory: &RankMemory,
    helpers: &Arc<Helpers>,
    request: DecodeRequest,
    mut stream: PeerStream,
) -> Result<(), FrameError> {
    let known = helpers.jobs.find(request.job, Instant::now());
    let Some(job) = known else { return stream.reply(&HelpReply::UnknownJob).await };
    if let Some(failure) = job.decoder.failure() {
        return stream.reply(&unable(&failure.to_string())).await;
    }
    let Some((bytes, columns_bytes)) = job.bytes(&request) else {
        let cause = format!(
            "a request has more than {MAX_SAMPLES} samples, {MAX_BYTES} bytes, unknown fields, or lists of other sizes than \
             they say"
        );
        return stream.reply(&unable(&cause)).await;
    };
    let Some(_room) = memory.slots.reserve_help(bytes + columns_bytes) else {
        return stream.reply(&HelpReply::Busy).await;
    };
    let content = stream.bytes(usize::try_from(bytes).expect("there is room for them")).await?;
    let permit = decoding.scheduler.take_for_other(request.samples.len()).await;
    let (decoding, helpers) = (decoding.clone(), helpers.clone());
    let answer = blocking(move || {
        let answer = job.answer((&decoding, &helpers), &request, &content);
        permit.finish(request.samples.len());
        answer
    });
    let (samples, columns) = answer.await;
    stream.finish(&HelpReply::Decoded(samples), columns).await
}

impl HelpedJob {
    /// Makes a job ready. Blocks.
    pub(super) fn new(decoding: &SampleDecoding, HelpJob { job, classes }: HelpJob) -> Result<Self, String> {
        job.check().map_err(|error| error.to_string())?;
        let functions = decoding.pool.install(|| decoding.rust_functions(&job)).map_err(|error| error.to_string())?;
        let lease = decoding.lease(&job).map_err(|error| error.to_string())?;
        let loaded = lease.as_ref().map_or(Ok(()), |lease| decoding.pool.install(|| lease.load()));
        loaded.map_err(|error| error.to_string())?;
        let decoder = decoding.decoder(&job, classes.iter().map(String::as_str)).map_err(|error| error.to_string())?;
        let decoder = decoder.with_functions(lease, functions);
        let fields = decoder.field_names().map(str::to_owned).collect();
        let layout = Layout::new(&job.columns, 1);
        Ok(Self {
            fingerprint: job.fingerprint(),
            decoder,
            fields,
            sizes: ColumnSizes::new(&job.columns, &layout),
            layout,
        })
    }

    /// Returns how many bytes follow a request, and how many the columns of its samples take; `None` if the request
    /// exceeds the limits or contradicts itself.
    pub(super) fn bytes(&self, request: &DecodeRequest) -> Option<(u64, u64)> {
        let fields = || request.samples.iter().flat_map(|sample| &sample.fields);
        let is_known = fields().all(|field| usize::from(field.number) < self.fields.len() && has_its_size(field));
        let bytes = fields().try_fold(0_u64, |sum, field| sum.checked_add(field.bytes))?;
        let mut columns = request.samples.iter().map(|sample| self.sizes.bytes_of(&sample.fields));
        let columns = columns.try_fold(0_u64, u64::checked_add)?;
        let is_possible =
            is_known && request.samples.len() <= MAX_SAMPLES && bytes <= MAX_BYTES && columns <= MAX_BYTES;
        is_possible.then_some((bytes, columns))
    }

    /// Decodes the samples of a request, whose fields are `content`. Returns for each sample the lengths of its ragged
    /// columns, or `None` if it did not decode, and the columns of all samples that did.
    pub(super) fn answer(
        &self,
        (decoding, helpers): (&SampleDecoding, &Helpers),
        request: &DecodeRequest,
        content: &Bytes,
    ) -> (Vec<Option<Vec<u64>>>, Vec<Bytes>) {
        let decoded = self.decode(decoding, request, content);
        helpers.note_made(decoded.iter().flatten().count());
        let lengths = |columns: &Columns| columns.ragged.iter().map(|value| value.len() as u64).collect();
        let samples = decoded.iter().map(|columns| columns.as_ref().map(lengths)).collect();
        (samples, decoded.into_iter().flatten().flat_map(|columns| self.in_order(columns)).collect())
    }

    /// Decodes the samples of a request, whose fields are `content`; `None` for those that do not decode.
    fn decode(&self, decoding: &SampleDecoding, request: &DecodeRequest, content: &Bytes) -> Vec<Option<Columns>> {
        let mut at = 0;
        let mut samples = Vec::with_capacity(request.samples.len());
        for sample in &request.samples {
            let bytes: u64 = sample.fields.iter().map(|field| field.bytes).sum();
            samples.push((sample, content.slice(at..at + bytes as usize)));
            at += bytes as usize;
        }
        let decode = |(sample, content)| {
            // A sample that panics here panics again at its home, with a message that names it.
            catch_unwind(AssertUnwindSafe(|| self.decode_sample(decoding, request.batch, sample, &content))).ok()?
        };
        decoding.pool.install(|| samples.into_par_iter().map(decode).collect())
    }

    fn decode_sample(
        &self,
        decoding: &SampleDecoding,
        batch: BatchId,
        sample: &StoredSample,
        content: &Bytes,
    ) -> Option<Columns> {
        let key = SampleKey { epoch: sample.epoch, id: sample.id, sample_in_record: sample.sample_in_record };
        let mut columns = self.columns();
        let fields = ReceivedFields { names: &self.fields, fields: &sample.fields, content };
        let decoded = decoding.decode_for_other((self.fingerprint, sample.id), batch, content.len(), || {
            let (mut fixed, mut ragged) = (columns.fixed.iter_mut(), columns.ragged.iter_mut());
            let target = |place: &Place| match place {
                Place::Fixed { .. } => FieldTarget::Fixed(fixed.next().expect("one for each fixed column")),
                Place::Ragged { .. } => FieldTarget::Ragged(ragged.next().expect("one for each ragged column")),
            };
            let mut targets: Vec<_> = self.layout.columns().iter().map(|column| &column.place).map(target).collect();
            self.decoder.decode_record(key, &fields, &mut targets).is_ok()
        });
        decoded.then_some(columns)
    }

    fn columns(&self) -> Columns {
        let (mut fixed, mut ragged) = (Vec::new(), Vec::new());
        for column in self.layout.columns() {
            match &column.place {
                Place::Fixed { sample_bytes, .. } => fixed.push(vec![0; *sample_bytes]),
                Place::Ragged { .. } => ragged.push(Bytes::new()),
            }
        }
        Columns { fixed, ragged }
    }

    /// Returns the bytes of the columns, in the job's order.
    fn in_order(&self, Columns { fixed, ragged }: Columns) -> Vec<Bytes> {
        let (mut fixed, mut ragged) = (fixed.into_iter(), ragged.into_iter());
        let next = |place: &Place| match place {
            Place::Fixed { .. } => fixed.next().map(Bytes::from),
            Place::Ragged { .. } => ragged.next(),
        };
        self.layout.columns().iter().map(|column| &column.place).filter_map(next).collect()
    }
}

/// Returns whether a list has few enough files, whose sizes add up to the bytes of the field; true for a field that is
/// no list.
fn has_its_size(field: &StoredField) -> bool {
    let StoredValue::List(files) = &field.value else { return true };
    let bytes = files.iter().flatten().try_fold(0_u64, |sum, bytes| sum.checked_add(*bytes));
    bytes == Some(field.bytes) && files.len() <= MAX_LIST_FILES
}

/// The fields of a record that another worker has sent.
struct ReceivedFields<'f> {
    names: &'f [String],
    fields: &'f [StoredField],
    content: &'f Bytes,
}

impl FieldLookup for ReceivedFields<'_> {
    fn value(&self, name: &str) -> Option<FieldValue> {
        let mut at = 0;
        for field in self.fields {
            let end = at + field.bytes as usize;
            if self.names[usize::from(field.number)] == name {
                let bytes = self.content.slice(at..end);
                return Some(match &field.value {
                    StoredValue::File => bytes.into(),
                    StoredValue::Array(dtype, shape) => {
                        Array { dtype: *dtype, shape: shape.clone(), elements: bytes }.into()
                    }
                    StoredValue::List(files) => {
                        let mut rest = bytes;
                        let file = |bytes: &Option<u64>| Some(rest.split_to((*bytes)? as usize));
                        FieldValue::List(files.iter().map(file).collect())
                    }
                });
            }
            at = end;
        }
        None
    }
}
