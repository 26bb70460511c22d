//! A store whose writes stop at a chosen one, as if the process was killed or the disk was full.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{StreamExt, TryStreamExt, future, stream::BoxStream};
use object_store::{
    CopyOptions, Error, MultipartUpload, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UploadPart, path::Path,
};
use spdl_store::StoreLayer;
use tokio::sync::Notify;

/// What happens at the chosen write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    /// Neither this write nor any later one is done: the process was killed.
    Kill,
    /// This write fails, and so does every later one except removals: the disk is full.
    FullDisk,
    /// Only this write fails.
    Once,
}

/// Counts writes, and decides which of them are done.
#[derive(Debug)]
pub(super) struct Writes {
    how: Interruption,
    at: usize,
    begun: AtomicUsize,
    killed: Notify,
}

impl Writes {
    pub(super) fn interrupted(how: Interruption, at: usize) -> Arc<Self> {
        Arc::new(Self { how, at, begun: AtomicUsize::new(0), killed: Notify::new() })
    }

    /// Returns whether the chosen write was begun.
    pub(super) fn were_interrupted(&self) -> bool {
        self.begun.load(Ordering::Relaxed) > self.at
    }

    /// Returns the number of writes that were begun.
    pub(super) fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    /// Waits until the process would have been killed.
    pub(super) async fn killed(&self) {
        self.killed.notified().await;
    }

    async fn next(&self, removes: bool) -> Result<()> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let fails = match self.how {
            Interruption::Kill if number >= self.at => {
                self.killed.notify_one();
                future::pending().await
            }
            Interruption::Kill => false,
            Interruption::FullDisk => number >= self.at && !removes,
            Interruption::Once => number == self.at,
        };
        if fails { Err(Error::Generic { store: "file", source: "no space left on device".into() }) } else { Ok(()) }
    }
}

/// The layer that passes to `inner` the writes that `writes` allows.
#[derive(Debug)]
pub(super) struct Interrupted {
    pub(super) inner: Arc<dyn ObjectStore>,
    pub(super) writes: Arc<Writes>,
}

#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    writes: Arc<Writes>,
}

#[async_trait::async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.writes.next(false).await?;
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait::async_trait]
impl StoreLayer for Interrupted {
    fn inner(&self) -> &dyn ObjectStore {
        &*self.inner
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.writes.next(false).await?;
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.writes.next(false).await?;
        let inner = self.inner.put_multipart_opts(location, opts).await?;
        Ok(Box::new(Upload { inner, writes: Arc::clone(&self.writes) }))
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let writes = Arc::clone(&self.writes);
        let locations = locations.and_then(move |location| {
            let writes = Arc::clone(&writes);
            async move { writes.next(true).await.map(|()| location) }
        });
        self.inner.delete_stream(locations.boxed())
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.writes.next(false).await?;
        self.inner.copy_opts(from, to, options).await
    }
}
