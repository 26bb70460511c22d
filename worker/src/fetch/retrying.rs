//! A store with retries. Manifests and record indexes are read through it, by code that knows nothing of retries.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream::BoxStream};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, path::Path,
};

use super::{
    attempt::{RequestError, RequestTarget},
    client::StoreClient,
};

/// Makes the reads of `inner` through [`StoreClient`]. All other operations are passed to `inner`.
#[derive(Debug)]
pub(crate) struct RetryingStore {
    pub(crate) inner: Arc<dyn ObjectStore>,
    /// URL of the dataset that is read.
    pub(crate) dataset: Arc<str>,
    pub(crate) requests: Arc<StoreClient>,
}

impl fmt::Display for RetryingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RetryingStore({})", self.inner)
    }
}

fn generic(problem: String) -> Error {
    Error::Generic { store: "patient", source: problem.into() }
}

#[async_trait::async_trait]
impl ObjectStore for RetryingStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let target = RequestTarget { store: &*self.inner, dataset: &self.dataset, path: location, expected: None };
        let got = self.requests.get(&target, &options).await.map_err(|failed| match failed {
            RequestError::Refused(error) => error,
            RequestError::Changed { expected, actual } => generic(format!("{actual} instead of {expected}")),
            RequestError::Later { cause, .. } => generic(cause),
        })?;
        let bytes: Result<Bytes> = got.bytes.ok_or_else(|| generic("so long an object is read in ranges".to_owned()));
        let payload = GetResultPayload::Stream(async { bytes }.into_stream().boxed());
        Ok(GetResult {
            payload,
            meta: got.meta,
            range: got.range,
            attributes: got.attributes,
            extensions: got.extensions,
        })
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
