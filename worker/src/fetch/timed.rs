//! A single request to a store: its timeouts, and the classification of its failure.

use std::{
    error::Error as _,
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt as _,
    path::PathBuf,
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
    Attributes, Extensions, GetResult, GetResultPayload, ObjectMeta, ObjectStoreExt, client::HttpError,
};
use parking_lot::Mutex;
use spdl_feed::requests::{AnswerProgress, DripPolicy, patience};
use spdl_store::{Busy, blocking, cause, is_refusal};

use super::{
    counted::RequestCounts,
    joined::{PartBytes, TakenPlace},
    request::{AskStore, LaterKind, RequestError, Response, StoreRequest},
    settings::RetrySettings,
};

/// An object requested without a range is read whole up to this size; a larger one has to be requested in ranges.
const WHOLE_BYTES: u64 = 8 << 20;
/// How often an answer that is coming is judged.
const LOOK: Duration = Duration::from_millis(250);
/// The limits of a request grow to at most this many times as long.
const MAX_PATIENCE: u32 = 16;

/// Makes each request once, and gives it up when it takes too long.
#[derive(Debug)]
pub(super) struct Timed {
    request_timeout: Duration,
    silence_timeout: Duration,
    /// Decides when an answer comes too slowly.
    drips: Mutex<DripPolicy>,
    counts: Arc<RequestCounts>,
}

impl AskStore for Timed {
    async fn ask(&self, request: StoreRequest<'_>) -> Result<Response, RequestError> {
        self.counts.stats.lock().requests += 1;
        let patience = patience(request.given_up).min(MAX_PATIENCE);
        let [request_timeout, silence] = [self.request_timeout, self.silence_timeout].map(|limit| limit * patience);
        let answered = tokio::time::timeout(request_timeout, self.answer(request, silence)).await;
        answered.unwrap_or_else(|_| Err(RequestError::timeout("no whole answer", request_timeout)))
    }
}

impl Timed {
    pub(super) fn new(settings: &RetrySettings, counts: Arc<RequestCounts>) -> Self {
        let RetrySettings { request_timeout, silence_timeout, .. } = *settings;
        Self { request_timeout, silence_timeout, drips: Mutex::new(DripPolicy::new(request_timeout)), counts }
    }

    /// Makes one request. The store may send nothing for at most `silence`, before the answer and between two pieces of it.
    async fn answer(&self, request: StoreRequest<'_>, silence: Duration) -> Result<Response, RequestError> {
        let (options, wanted_bytes) = (request.options, request.wanted_bytes());
        let started = Instant::now();
        let answer = tokio::time::timeout(silence, request.store.get_opts(request.path, options.clone())).await;
        let answer = match answer.map_err(|_| RequestError::timeout("no answer", silence))? {
            Ok(answer) => answer,
            Err(error) => return Err(classify(request, error, silence).await),
        };
        let first_byte = started.elapsed();
        request.check(&answer.meta)?;
        let GetResult { payload, meta, range, attributes, extensions } = answer;
        let expected_bytes = range.end - range.start;
        if wanted_bytes.is_some_and(|wanted| wanted < expected_bytes) {
            return Err(RequestError::later(format!("the answer has bytes {range:?}, which were not requested")));
        }
        let bytes = if options.head {
            Some(PartBytes::Apart(Bytes::new()))
        } else if options.range.is_none() && expected_bytes > WHOLE_BYTES {
            None
        } else {
            let place = request.place.and_then(|place| place.take(expected_bytes));
            Some(self.body(payload, &meta, &range, (silence, request.given_up), place).await?)
        };
        if let Some(came) = bytes.as_ref().map(PartBytes::len)
            && came != expected_bytes
            && !options.head
        {
            return Err(RequestError::later(format!("{came} of {expected_bytes} bytes arrived")));
        }
        Ok(Response { meta, range, attributes, extensions, first_byte, bytes })
    }

    async fn body(
        &self,
        payload: GetResultPayload,
        meta: &ObjectMeta,
        range: &Range<u64>,
        limits: (Duration, u32),
        place: Option<TakenPlace<'_>>,
    ) -> Result<PartBytes, RequestError> {
        match (payload, place) {
            (GetResultPayload::Stream(stream), place) => {
                self.watched(stream, range.end - range.start, limits, place).await
            }
            (GetResultPayload::File(file, path), Some(place)) => read_file(file, path, range.start, place).await,
            // A file is read at once: as a stream it would come in small pieces.
            (payload, None) => {
                let (meta, range) = (meta.clone(), range.clone());
                let (attributes, extensions) = (Attributes::default(), Extensions::default());
                let file = GetResult { payload, meta, range, attributes, extensions };
                let bytes = file.bytes().await;
                bytes.map(PartBytes::Apart).map_err(|error| RequestError::later(cause(&error)))
            }
        }
    }

    /// Collects the pieces of a body of `expected_bytes` bytes, unless they come too slowly.
    async fn watched(
        &self,
        stream: impl Stream<Item = object_store::Result<Bytes>> + Unpin,
        expected_bytes: u64,
        (silence, given_up): (Duration, u32),
        place: Option<TakenPlace<'_>>,
    ) -> Result<PartBytes, RequestError> {
        let (began, came) = (Instant::now(), AtomicU64::new(0));
        let drip = async {
            loop {
                tokio::time::sleep(LOOK).await;
                let progress = AnswerProgress { bytes: came.load(Relaxed), expected_bytes, elapsed: began.elapsed() };
                if self.drips.lock().is_dripping(&progress, given_up) {
                    return progress;
                }
            }
        };
        let whole = collect(stream, expected_bytes as usize, silence, &came, place);
        // An answer that has come completely is taken, however slowly it came: this process may be late itself.
        match select(pin!(whole), pin!(drip)).await {
            Either::Left((body, _)) => {
                if body.is_ok() {
                    self.drips.lock().note_done(expected_bytes, began.elapsed());
                }
                body
            }
            Either::Right((progress, _)) => {
                self.drips.lock().note_dropped();
                Err(dripping(&progress))
            }
        }
    }
}

/// Classifies a failed request. If the store answered, the object may have been replaced, so its size is checked.
async fn classify(request: StoreRequest<'_>, error: object_store::Error, silence: Duration) -> RequestError {
    let was_answered = !is_of_transport(&error);
    use object_store::Error as E;
    let may_tell = !matches!(error, E::NotFound { .. } | E::PermissionDenied { .. } | E::Unauthenticated { .. });
    if request.expected.is_some()
        && was_answered
        && may_tell
        && let Ok(Ok(meta)) = tokio::time::timeout(silence, request.store.head(request.path)).await
        && let Err(changed) = request.check(&meta)
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

/// Reads a file from `start` into the place of a part. If the caller is dropped meanwhile, so is the place once it has been read.
async fn read_file(
    file: File,
    path: PathBuf,
    start: u64,
    mut place: TakenPlace<'_>,
) -> Result<PartBytes, RequestError> {
    let mut memory = place.memory.take().expect("it was just taken");
    let (memory, read) = blocking(move || {
        let read = read_range(&file, start, &mut memory.bytes);
        (memory, read)
    })
    .await;
    match read {
        Ok(()) => Ok(PartBytes::Placed(memory)),
        Err(error) => {
            place.memory = Some(memory);
            Err(RequestError::later(format!("reading `{}`: {error}", path.display())))
        }
    }
}

fn read_range(file: &File, start: u64, memory: &mut [u8]) -> io::Result<()> {
    let mut read = 0;
    while read < memory.len() {
        match file.read_at(&mut memory[read..], start + read as u64) {
            Ok(0) => {
                let problem = format!("it ends at byte {}", start + read as u64);
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
            }
            Ok(bytes) => read += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Collects the pieces of a body of `expected_bytes` bytes, in its place if it has one, and sets `came_bytes` to the number of bytes
/// that have come so far.
async fn collect(
    mut stream: impl Stream<Item = object_store::Result<Bytes>> + Unpin,
    expected_bytes: usize,
    silence: Duration,
    came_bytes: &AtomicU64,
    mut place: Option<TakenPlace<'_>>,
) -> Result<PartBytes, RequestError> {
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
        if place.is_none() && came == 0 && piece.len() == expected_bytes {
            return Ok(PartBytes::Apart(piece));
        }
        let at = came;
        came += piece.len();
        came_bytes.store(came as u64, Relaxed);
        if came > expected_bytes {
            return Err(RequestError::later(format!("more than {expected_bytes} bytes arrived")));
        }
        if let Some(memory) = place.as_mut().and_then(|place| place.memory.as_mut()) {
            memory.bytes[at..came].copy_from_slice(&piece);
            continue;
        }
        if all.is_empty() {
            all.reserve(expected_bytes);
        }
        all.extend_from_slice(&piece);
    }
    if let Some(mut place) = place {
        if came < expected_bytes {
            return Err(RequestError::later(format!("{came} of {expected_bytes} bytes arrived")));
        }
        return Ok(PartBytes::Placed(place.memory.take().expect("it was just written")));
    }
    Ok(PartBytes::Apart(all.freeze()))
}

fn dripping(AnswerProgress { bytes, expected_bytes, elapsed }: &AnswerProgress) -> RequestError {
    let cause = format!("the answer drips: {bytes} of {expected_bytes} bytes in {:.1} s", elapsed.as_secs_f64());
    RequestError::Later { cause, retry_after: None, kind: LaterKind::Drip }
}
