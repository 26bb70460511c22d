//! A request to a store, its answer or its failure, and what makes it.

use std::{fmt, ops::Range, sync::Arc, time::Duration};

use object_store::{Attributes, Extensions, GetOptions, GetRange, ObjectMeta, ObjectStore, path::Path};
use spdl_shard::format::StoredObject;

use super::joined::{PartBytes, PartPlace};

/// Makes requests to stores. All but the innermost implementation add one thing to another.
pub(crate) trait AskStore: fmt::Debug + Send + Sync {
    /// Makes a request until it has a complete answer, or failed as far as this implementation can tell.
    fn ask(&self, request: StoreRequest<'_>) -> impl Future<Output = Result<Response, RequestError>> + Send;
}

/// A dataset's URL, and the object's path in its store.
pub(super) type ObjectName = (Arc<str>, Path);

/// A request, and what is known of its object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreRequest<'a> {
    pub(crate) store: &'a dyn ObjectStore,
    /// URL of the object's dataset.
    pub(crate) dataset: &'a Arc<str>,
    pub(crate) path: &'a Path,
    /// The object as it was indexed, if it is one of a shard's.
    pub(crate) expected: Option<&'a StoredObject>,
    pub(crate) options: &'a GetOptions,
    /// Where the answer is written, if it is a part of a long range.
    pub(crate) place: Option<&'a PartPlace>,
    /// How often the same request was given up before.
    pub(crate) given_up: u32,
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) meta: ObjectMeta,
    pub(crate) range: Range<u64>,
    pub(crate) attributes: Attributes,
    pub(crate) extensions: Extensions,
    /// Time from the request until the answer began.
    pub(crate) first_byte: Duration,
    /// `None` for an object that is too large to be read whole.
    pub(crate) bytes: Option<PartBytes>,
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

impl StoreRequest<'_> {
    pub(super) fn object(&self) -> ObjectName {
        (self.dataset.clone(), self.path.clone())
    }

    /// Returns the number of bytes requested, if the range is bounded.
    pub(super) fn wanted_bytes(&self) -> Option<u64> {
        match &self.options.range {
            Some(GetRange::Bounded(range)) if !self.options.head => Some(range.end.saturating_sub(range.start)),
            _ => None,
        }
    }

    pub(super) fn check(&self, meta: &ObjectMeta) -> Result<(), RequestError> {
        match self.expected.and_then(|object| object.change(meta.size, meta.e_tag.as_deref())) {
            Some([expected, actual]) => Err(RequestError::Changed { expected, actual }),
            None => Ok(()),
        }
    }

    /// Returns the etags in the manifest and in the store if they differ. This is normal for copies: S3 computes etags
    /// from the parts of an upload, and other stores in other ways. So only checksums prove that an object changed.
    pub(super) fn other_etag(&self, meta: &ObjectMeta) -> Option<[String; 2]> {
        let noted = self.expected.and_then(|expected| expected.etag.as_deref())?;
        let found = meta.e_tag.as_deref().filter(|found| *found != noted)?;
        Some([noted.to_owned(), found.to_owned()])
    }
}

impl Response {
    /// Returns the number of bytes that came.
    pub(super) fn len(&self) -> u64 {
        self.bytes.as_ref().map_or(0, PartBytes::len)
    }
}

impl RequestError {
    pub(super) fn later(cause: String) -> Self {
        Self::Later { cause, retry_after: None, kind: LaterKind::Failed }
    }

    pub(super) fn timeout(what: &str, limit: Duration) -> Self {
        let cause = format!("{what} within {:.1} s", limit.as_secs_f64());
        Self::Later { cause, retry_after: None, kind: LaterKind::Timeout }
    }
}
