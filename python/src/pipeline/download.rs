//! The operation that reads objects of stores, files, and presigned URLs.

use std::{collections::HashMap, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use object_store::{
    ClientOptions, ObjectStoreExt,
    client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody, ReqwestConnector},
    path::Path,
};
use parking_lot::Mutex;
use spdl_job::redact;
use spdl_shard::store::DatasetStore;
use spdl_store::StoreError;
use tokio::runtime::Runtime;

/// Folders whose stores stay open, so that their connections are used again.
const OPEN_FOLDERS: usize = 64;

/// Reads whole objects of a bounded size.
pub(crate) struct Downloader {
    max_bytes: u64,
    clients: Mutex<OfProcess<Clients>>,
}

/// What keeps connections open.
#[derive(Default)]
struct Clients {
    folders: HashMap<String, DatasetStore>,
    presigned: Option<HttpClient>,
}

/// A value of one process: a forked child has neither its threads nor its connections, and makes another.
struct OfProcess<T> {
    process: u32,
    value: Option<T>,
}

impl<T> OfProcess<T> {
    const EMPTY: Self = Self { process: 0, value: None };

    /// Returns the value of this process, if it has one.
    fn get(&mut self) -> &mut Option<T> {
        let process = std::process::id();
        if self.process != process {
            // Its threads exist only in the parent, so that nothing may wait for them.
            std::mem::forget(self.value.take());
            self.process = process;
        }
        &mut self.value
    }

    fn get_or_default(&mut self) -> &mut T
    where
        T: Default,
    {
        self.get().get_or_insert_default()
    }
}

/// Returns the runtime for downloads outside of pipelines. It lives as long as the process, as do connections.
pub(crate) fn runtime() -> Result<Arc<Runtime>, String> {
    static RUNTIME: Mutex<OfProcess<Arc<Runtime>>> = Mutex::new(OfProcess::EMPTY);
    let mut of_process = RUNTIME.lock();
    let runtime = of_process.get();
    if let Some(runtime) = runtime {
        return Ok(runtime.clone());
    }
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let made = builder.worker_threads(1).thread_name("spdl-download").enable_all().build();
    let made = made.map_err(|error| format!("cannot start a thread for downloads: {error}"))?;
    Ok(runtime.insert(Arc::new(made)).clone())
}

impl Downloader {
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self { max_bytes, clients: Mutex::new(OfProcess::EMPTY) }
    }

    /// Reads a whole object.
    pub(crate) async fn read(&self, url: &str) -> Result<Bytes, String> {
        let is_http = ["http://", "https://"]
            .iter()
            .any(|scheme| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
        // What an error shows of the URL has no signature in it.
        let read = if is_http && url.contains('?') { self.presigned(url).await } else { self.stored(url).await };
        read.map_err(|problem| redact(&problem).into_owned())
    }

    /// Reads an object of a store, or a file.
    async fn stored(&self, url: &str) -> Result<Bytes, String> {
        let text = |error: StoreError| error.to_string();
        let (folder, name) = url.rsplit_once('/').unwrap_or((".", url));
        let is_remote = url.contains("://");
        let path = if is_remote { Path::from_url_path(name) } else { Path::parse(name) };
        let path = path.ok().filter(|path| path.parts().count() == 1);
        let path = path.ok_or_else(|| format!("`{url}` names no object"))?;
        let store = self.store(if folder.is_empty() { "/" } else { folder }).map_err(text)?;
        let of = |source| text(StoreError::of(&store.url_of(path.as_ref()), source));
        let answer = store.object().get(&store.path_of(path.as_ref())).await.map_err(of)?;
        if answer.meta.size > self.max_bytes {
            return Err(self.too_large(&store.url_of(path.as_ref()), answer.meta.size));
        }
        answer.bytes().await.map_err(of)
    }

    fn store(&self, folder: &str) -> Result<DatasetStore, StoreError> {
        if let Some(store) = self.clients.lock().get_or_default().folders.get(folder) {
            return Ok(store.clone());
        }
        let store = DatasetStore::open(folder)?;
        let mut clients = self.clients.lock();
        let folders = &mut clients.get_or_default().folders;
        if folders.len() >= OPEN_FOLDERS {
            folders.clear();
        }
        Ok(folders.entry(folder.to_owned()).or_insert(store).clone())
    }

    /// Reads what a URL with a query names. The URL is sent as it is, since its signature covers all of it.
    async fn presigned(&self, url: &str) -> Result<Bytes, String> {
        let of = |error: &dyn std::fmt::Display| format!("`{url}` cannot be read: {error}");
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = url.parse().map_err(|_| format!("`{url}` is no URL"))?;
        let response = self.client().map_err(|error| of(&error))?.execute(request).await.map_err(|error| of(&error))?;
        if !response.status().is_success() {
            let status = response.status();
            let hint = if status.is_client_error() { "; a signature in the URL may have expired" } else { "" };
            return Err(of(&format!("the server answers {status}{hint}")));
        }
        let mut chunks = response.into_body().bytes_stream();
        let mut whole = BytesMut::new();
        while let Some(chunk) = chunks.try_next().await.map_err(|error| of(&error))? {
            let bytes = whole.len() as u64 + chunk.len() as u64;
            if bytes > self.max_bytes {
                return Err(self.too_large(url, bytes));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }

    fn client(&self) -> object_store::Result<HttpClient> {
        let mut clients = self.clients.lock();
        let clients = clients.get_or_default();
        if let Some(client) = &clients.presigned {
            return Ok(client.clone());
        }
        let client = ReqwestConnector::default().connect(&ClientOptions::new().with_allow_http(true))?;
        Ok(clients.presigned.insert(client).clone())
    }

    fn too_large(&self, url: &str, bytes: u64) -> String {
        StoreError::TooLarge { url: url.to_owned(), bytes, limit_bytes: self.max_bytes }.to_string()
    }
}
