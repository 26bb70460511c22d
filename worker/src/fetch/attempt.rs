//! A single request to a store: its timeouts, and the classification of its failure.

use std::{
    error::Error as _,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use futures::{
    Stream, StreamExt,
    future::{Either, select},
};
use object_store::{
    Attributes, Extensions, GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore, ObjectStoreExt,
    client::HttpError, path::Path,
};
use parking_lot::Mutex;
use spdl_feed::requests::{AnswerProgress, DripPolicy};
use spdl_shard::format::StoredObject;
use spdl_store::{Busy, cause, is_refusal};

/// An object requested without a range is read whole up to this size; a larger one has to be requested in ranges.
pub(crate) const WHOLE_BYTES: u64 = 8 << 20;

/// How often an answer that is coming is judged.
const LOOK: Duration = Duration::from_millis(250);

/// The object that is requested, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTarget<'a> {
    pub(crate) store: &'a dyn ObjectStore,
    /// URL of the object's dataset.
    pub(crate) dataset: &'a Arc<str>,
    pub(crate) path: &'a Path,
    /// The object as it was indexed, if it is one of a shard's.
    pub(crate) expected: Option<&'a StoredObject>,
}

/// How long a store may take for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerLimits<'a> {
    /// The store may send nothing for at most this, before the answer and between two pieces of it.
    pub(crate) silence: Duration,
    /// Decides when an answer comes too slowly.
    pub(crate) drips: &'a Mutex<DripPolicy>,
    /// How often the same request was given up before.
    pub(crate) given_up: u32,
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) meta: ObjectMeta,
    pub(crate) range: std::ops::Range<u64>,
    pub(crate) attributes: Attributes,
    pub(crate) extensions: Extensions,
    /// Time from the request until the answer began.
    pub(crate) first_byte: Duration,
    /// `None` for an object that is too large to be read whole.
    pub(crate) bytes: Option<Bytes>,
}

/// The error of a single request.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The object is not the one in the manifest.
    Changed { expected: String, actual: String },
    /// The store refused the request.
    Refused(object_store::Error),
    /// The request may succeed later.
    Later { cause: String, retry_after: Option<Duration>, kind: LaterKind },
}

/// What went wrong with a request that may succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaterKind {
    /// The connection or the store failed, or the answer is wrong.
    Failed,
    /// The store was silent, or took too long.
    Timeout,
    /// The answer came so slowly that it was dropped.
    Drip,
    /// The store answered that it is busy.
    Busy,
}

impl RequestError {
    fn later(cause: String) -> Self {
        Self::Later { cause, retry_after: None, kind: LaterKind::Failed }
    }

    pub(crate) fn timeout(what: &str, limit: Duration) -> Self {
        let cause = format!("{what} within {:.1} s", limit.as_secs_f64());
        Self::Later { cause, retry_after: None, kind: LaterKind::Timeout }
    }

    fn drip(progress: &AnswerProgress) -> Self {
        let AnswerProgress { bytes, expected_bytes, elapsed } = progress;
        let cause = format!("the answer drips: {bytes} of {expected_bytes} bytes in {:.1} s", elapsed.as_secs_f64());
        Self::Later { cause, retry_after: None, kind: LaterKind::Drip }
    }
}

impl RequestTarget<'_> {
    /// Makes one request, and gives it up when it exceeds `limits`.
    pub(crate) async fn ask(&self, options: GetOptions, limits: &AnswerLimits<'_>) -> Result<Response, RequestError> {
        let silence = limits.silence;
        let (is_head, is_ranged) = (options.head, options.range.is_some());
        let wanted_bytes = wanted_bytes(&options);
        let started = Instant::now();
        let answer = tokio::time::timeout(silence, self.store.get_opts(self.path, options)).await;
        let answer = match answer.map_err(|_| RequestError::timeout("no answer", silence))? {
            Ok(answer) => answer,
            Err(error) => return Err(self.classify(error, silence).await),
        };
        let first_byte = started.elapsed();
        self.check(&answer.meta)?;
        let GetResult { payload, meta, range, attributes, extensions } = answer;
        let expected_bytes = range.end - range.start;
        if wanted_bytes.is_some_and(|wanted| wanted < expected_bytes) {
            return Err(RequestError::later(format!("the answer has bytes {range:?}, which were not requested")));
        }
        let bytes = if is_head {
            Some(Bytes::new())
        } else if !is_ranged && expected_bytes > WHOLE_BYTES {
            None
        } else {
            Some(body(payload, &meta, &range, limits).await?)
        };
        if let Some(came) = bytes.as_ref().map(|bytes| bytes.len() as u64)
            && came != expected_bytes
            && !is_head
        {
            return Err(RequestError::later(format!("{came} of {expected_bytes} bytes arrived")));
        }
        Ok(Response { meta, range, attributes, extensions, first_byte, bytes })
    }

    /// Classifies a failed request. If the store answered, the object may have been replaced, so its size is checked.
    async fn classify(&self, error: object_store::Error, silence: Duration) -> RequestError {
        let was_answered = !is_of_transport(&error);
        use object_store::Error as E;
        let may_tell = !matches!(error, E::NotFound { .. } | E::PermissionDenied { .. } | E::Unauthenticated { .. });
        if self.expected.is_some()
            && was_answered
            && may_tell
            && let Ok(Ok(meta)) = tokio::time::timeout(silence, self.store.head(self.path)).await
            && let Err(changed) = self.check(&meta)
        {
            return changed;
        }
        if is_refusal(&error) {
            return RequestError::Refused(error);
        }
        let busy = Busy::in_chain(&error);
        let retry_after = busy.and_then(|busy| busy.retry_after);
        let is_busy = busy.is_some_and(|busy| matches!(busy.status, 429 | 503));
        let kind = if is_busy { LaterKind::Busy } else { LaterKind::Failed };
        RequestError::Later { cause: cause(&error), retry_after, kind }
    }

    fn check(&self, meta: &ObjectMeta) -> Result<(), RequestError> {
        match self.expected.and_then(|object| object.change(meta.size, meta.e_tag.as_deref())) {
            Some([expected, actual]) => Err(RequestError::Changed { expected, actual }),
            None => Ok(()),
        }
    }

    /// Returns the etags in the manifest and in the store if they differ. This is normal for copies: S3 computes etags
    /// from the parts of an upload, and other stores in other ways. So only checksums prove that an object changed.
    pub(crate) fn other_etag(&self, meta: &ObjectMeta) -> Option<[String; 2]> {
        let noted = self.expected.and_then(|expected| expected.etag.as_deref())?;
        let found = meta.e_tag.as_deref().filter(|found| *found != noted)?;
        Some([noted.to_owned(), found.to_owned()])
    }
}

/// Returns whether the transport failed: no answer came, or the answer that the store is busy.
fn is_of_transport(error: &object_store::Error) -> bool {
    let mut next = error.source();
    while let Some(error) = next {
        if error.downcast_ref::<HttpError>().is_some() {
            return true;
        }
        next = error.source();
    }
    false
}

/// Returns the number of bytes requested, if the range is bounded.
pub(crate) fn wanted_bytes(options: &GetOptions) -> Option<u64> {
    match &options.range {
        Some(GetRange::Bounded(range)) if !options.head => Some(range.end.saturating_sub(range.start)),
        _ => None,
    }
}

async fn body(
    payload: GetResultPayload,
    meta: &ObjectMeta,
    range: &std::ops::Range<u64>,
    limits: &AnswerLimits<'_>,
) -> Result<Bytes, RequestError> {
    match payload {
        GetResultPayload::Stream(stream) => watched(stream, range.end - range.start, limits).await,
        // A file is read at once: as a stream it would come in small pieces.
        payload => {
            let (meta, range) = (meta.clone(), range.clone());
            let (attributes, extensions) = (Attributes::default(), Extensions::default());
            let file = GetResult { payload, meta, range, attributes, extensions };
            file.bytes().await.map_err(|error| RequestError::later(cause(&error)))
        }
    }
}

/// Collects the pieces of a body of `expected_bytes` bytes, unless they come too slowly.
async fn watched(
    stream: impl Stream<Item = object_store::Result<Bytes>> + Unpin,
    expected_bytes: u64,
    limits: &AnswerLimits<'_>,
) -> Result<Bytes, RequestError> {
    let (began, came) = (Instant::now(), AtomicU64::new(0));
    let drip = async {
        loop {
            tokio::time::sleep(LOOK).await;
            let progress = AnswerProgress { bytes: came.load(Relaxed), expected_bytes, elapsed: began.elapsed() };
            if limits.drips.lock().is_dripping(&progress, limits.given_up) {
                return progress;
            }
        }
    };
    let whole = collect(stream, expected_bytes as usize, limits.silence, &came);
    // An answer that has come completely is taken, however slowly it came: this process may be late itself.
    match select(pin!(whole), pin!(drip)).await {
        Either::Left((body, _)) => {
            if body.is_ok() {
                limits.drips.lock().note_done(expected_bytes, began.elapsed());
            }
            body
        }
        Either::Right((progress, _)) => {
            limits.drips.lock().note_dropped();
            Err(RequestError::drip(&progress))
        }
    }
}

/// Collects the pieces of a body of `expected_bytes` bytes, and sets `came_bytes` to the number of bytes that have come
/// so far.
async fn collect(
    mut stream: impl Stream<Item = object_store::Result<Bytes>> + Unpin,
    expected_bytes: usize,
    silence: Duration,
    came_bytes: &AtomicU64,
) -> Result<Bytes, RequestError> {
    let mut all = BytesMut::new();
    let mut came = 0;
    while let Some(piece) = tokio::time::timeout(silence, stream.next()).await.map_err(|_| {
        RequestError::timeout(&format!("the answer ended after {came} of {expected_bytes} bytes"), silence)
    })? {
        let piece = piece.map_err(|error| {
            RequestError::later(format!(
                "the answer broke off after {came} of {expected_bytes} bytes: {}",
                cause(&error)
            ))
        })?;
        if came == 0 && piece.len() == expected_bytes {
            return Ok(piece);
        }
        came += piece.len();
        came_bytes.store(came as u64, Relaxed);
        if came > expected_bytes {
            return Err(RequestError::later(format!("more than {expected_bytes} bytes arrived")));
        }
        if all.is_empty() {
            all.reserve(expected_bytes);
        }
        all.extend_from_slice(&piece);
    }
    Ok(all.freeze())
}
