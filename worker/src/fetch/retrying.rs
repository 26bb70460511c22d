//! A store with retries. Manifests and record indexes are read through it, by code that knows nothing of retries.

use std::{fmt, sync::Arc};

use futures::{FutureExt, StreamExt};
use object_store::{Error, GetOptions, GetResult, GetResultPayload, ObjectStore, Result, path::Path};
use spdl_store::StoreLayer;

use super::{
    client::StoreClient,
    joined::PartBytes,
    request::{RequestError, StoreRequest},
};

/// Makes the reads of `inner` through [`StoreClient`].
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
    Error::Generic { store: "retrying", source: problem.into() }
}

#[async_trait::async_trait]
impl StoreLayer for RetryingStore {
    fn inner(&self) -> &dyn ObjectStore {
        &*self.inner
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (store, dataset) = (&*self.inner, &self.dataset);
        let (path, options) = (location, &options);
        let request = StoreRequest { store, dataset, path, expected: None, options, place: None, given_up: 0 };
        let got = self.requests.get(request).await.map_err(|failed| match failed {
            RequestError::Refused(error) => error,
            RequestError::Changed { expected, actual } => generic(format!("{actual} instead of {expected}")),
            RequestError::Later { cause, .. } => generic(cause),
        })?;
        let bytes = match got.bytes {
            Some(PartBytes::Apart(bytes)) => Ok(bytes),
            Some(PartBytes::Placed(memory)) => Ok(memory.freeze()),
            None => Err(generic("so long an object is read in ranges".to_owned())),
        };
        let payload = GetResultPayload::Stream(async { bytes }.into_stream().boxed());
        Ok(GetResult {
            payload,
            meta: got.meta,
            range: got.range,
            attributes: got.attributes,
            extensions: got.extensions,
        })
    }
}
