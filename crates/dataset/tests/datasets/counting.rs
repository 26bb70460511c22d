//! A store that counts the bytes that are read.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use object_store::{GetOptions, GetResult, ObjectStore};
use spdl_shard::store::DatasetStore;
use spdl_store::StoreLayer;

/// Returns `store`, and the count of the bytes that are read through it from objects whose paths end in `suffix`.
pub(crate) fn counted(store: DatasetStore, suffix: &'static str) -> (DatasetStore, Arc<AtomicU64>) {
    let bytes = Arc::<AtomicU64>::default();
    let counter = bytes.clone();
    (store.through(|inner| Arc::new(Counting { inner, suffix, bytes: counter }).layered()), bytes)
}

#[derive(Debug)]
struct Counting {
    inner: Arc<dyn ObjectStore>,
    suffix: &'static str,
    bytes: Arc<AtomicU64>,
}

impl std::fmt::Display for Counting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "counting {}", self.inner)
    }
}

#[async_trait::async_trait]
impl StoreLayer for Counting {
    fn inner(&self) -> &dyn ObjectStore {
        &self.inner
    }

    async fn get_opts(
        &self,
        location: &object_store::path::Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        let got = self.inner.get_opts(location, options).await?;
        if location.as_ref().ends_with(self.suffix) {
            self.bytes.fetch_add(got.range.end - got.range.start, Relaxed);
        }
        Ok(got)
    }
}
