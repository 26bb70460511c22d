//! A repository on the Hub. Files are read by ranges as from any web server, which `object_store` does; the Hub's own
//! interface gives the commit of a revision and the list of files.

use std::{
    collections::{HashSet, VecDeque},
    fmt,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use object_store::{
    Error, GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore, Result,
    client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody},
    http::HttpBuilder,
    path::Path,
};
use serde::Deserialize;
use tokio::sync::OnceCell;
use url::Url;

use super::{super::FolderVersions, location::HubLocation};
use crate::{Busy, StoreLayer, cause::is_refusal, location::ClientPolicy};

/// Number of hexadecimal digits of a commit.
const COMMIT_DIGITS: usize = 40;
/// Upper limit of an answer of the Hub's interface, in bytes: a page of a list has a thousand files.
const MAX_ANSWER_BYTES: usize = 16 << 20;
/// Maximum number of pages of a list: five million files, where the Hub recommends a hundred thousand.
const MAX_PAGES: usize = 5000;
/// Half of the delay before the first repetition of a request to the Hub's interface. The delay doubles with each
/// repetition.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// The name of the store in errors of the Hub's interface.
const STORE: &str = "hub";

/// Returns whether a revision is a commit, which always has the same files.
fn is_commit(revision: &str) -> bool {
    revision.len() == COMMIT_DIGITS && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A dataset repository, at one commit.
pub(crate) struct HubStore {
    location: HubLocation,
    endpoint: Url,
    /// Reads files: the paths begin with the revision.
    files: Arc<dyn ObjectStore>,
    client: HttpClient,
    /// How often a request to the Hub's interface is repeated that may succeed later.
    max_retries: usize,
    commit: OnceCell<String>,
}

impl fmt::Debug for HubStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubStore").field("location", &self.location).finish_non_exhaustive()
    }
}

impl fmt::Display for HubStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HubStore({})", self.location.repository)
    }
}

/// One entry of a list of files. Large files lie in LFS, and `lfs` has their own size and hash.
#[derive(Deserialize)]
struct TreeEntry {
    r#type: String,
    path: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    oid: String,
    lfs: Option<LfsEntry>,
}

#[derive(Deserialize)]
struct LfsEntry {
    oid: String,
    size: u64,
}

/// The Hub's answer about a revision.
#[derive(Deserialize)]
struct RevisionInfo {
    sha: String,
}

/// The pages of a list so far, to detect a list without an end.
#[derive(Default)]
struct PagesSeen {
    count: usize,
    /// The first path of each.
    first: HashSet<String>,
}

impl PagesSeen {
    /// Notes a page that is not the last, by its first path.
    fn note(&mut self, first: Option<&str>) -> Result<()> {
        self.count += 1;
        let problem = match first {
            None => "has a page without files that is not the last".to_owned(),
            Some(_) if self.count >= MAX_PAGES => format!("has more than {MAX_PAGES} pages"),
            Some(first) if self.first.insert(first.to_owned()) => return Ok(()),
            Some(first) => format!("has `{first}` on two pages"),
        };
        // The same request would be answered the same way.
        Err(Error::NotSupported { source: format!("the Hub's list of files {problem}").into() })
    }
}

impl HubStore {
    pub(crate) fn new(
        location: HubLocation,
        endpoint: &str,
        ClientPolicy { retry, client: options, connector }: ClientPolicy,
    ) -> Result<Arc<Self>> {
        let wrong = |error: url::ParseError| generic(error.to_string());
        let endpoint = Url::parse(&format!("{}/", endpoint.trim_end_matches('/'))).map_err(wrong)?;
        let options = options.with_allow_http(endpoint.scheme() == "http");
        let resolve = endpoint.join(&format!("datasets/{}/resolve", location.repository)).map_err(wrong)?;
        let (client, max_retries) = (connector.connect(&options)?, retry.max_retries);
        let files = HttpBuilder::new()
            .with_url(resolve)
            .with_client_options(options)
            .with_retry(retry)
            .with_http_connector(connector)
            .build()?;
        let commit = OnceCell::new_with(is_commit(&location.revision).then(|| location.revision.to_ascii_lowercase()));
        Ok(Arc::new(Self { location, endpoint, files: Arc::new(files), client, max_retries, commit }))
    }

    /// Returns the commit that the revision named when it was first needed: what is pushed later changes nothing.
    async fn commit(&self) -> Result<&str> {
        let ask = || async {
            let revision = self.location.revision.replace('/', "%2F");
            let (info, _) = self.ask::<RevisionInfo>(self.api(&format!("revision/{revision}"))?).await?;
            if is_commit(&info.sha) { Ok(info.sha) } else { Err(generic("it names no commit".to_owned())) }
        };
        self.commit.get_or_try_init(ask).await.map(String::as_str)
    }

    fn api(&self, path: &str) -> Result<Url> {
        let url = self.endpoint.join(&format!("api/datasets/{}/{path}", self.location.repository));
        url.map_err(|error| generic(error.to_string()))
    }

    /// Sends a request to the Hub's interface, and repeats it if it may succeed later. Returns the answer, and the URL
    /// of its next page.
    async fn ask<T: for<'de> Deserialize<'de>>(&self, url: Url) -> Result<(T, Option<Url>)> {
        let mut retries = 0;
        loop {
            match self.ask_once(url.clone()).await {
                // The client has waited for a busy server for as long as it may.
                Err(error) if retries < self.max_retries && !is_refusal(&error) && Busy::in_chain(&error).is_none() => {
                    retries += 1;
                    tokio::time::sleep(RETRY_DELAY * (1 << retries)).await;
                }
                answer => return answer,
            }
        }
    }

    async fn ask_once<T: for<'de> Deserialize<'de>>(&self, url: Url) -> Result<(T, Option<Url>)> {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = url.as_str().parse().map_err(|_| generic(format!("`{url}` is no address")))?;
        let failed = |source: object_store::client::HttpError| Error::Generic { store: STORE, source: source.into() };
        let response = self.client.execute(request).await.map_err(failed)?;
        let (parts, body) = response.into_parts();
        let mut bytes = Vec::new();
        let mut chunks = body.bytes_stream();
        while let Some(chunk) = chunks.try_next().await.map_err(failed)? {
            if bytes.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(generic(format!("the answer has more than {MAX_ANSWER_BYTES} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        let status = parts.status;
        if !status.is_success() {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let source = format!("Server returned non-2xx status code: {status}: {text}").into();
            let path = url.path().to_owned();
            return Err(match status.as_u16() {
                401 => Error::Unauthenticated { path, source },
                403 => Error::PermissionDenied { path, source },
                404 => Error::NotFound { path, source },
                _ => Error::Generic { store: STORE, source },
            });
        }
        let answer =
            serde_json::from_slice(&bytes).map_err(|error| generic(format!("the answer is invalid: {error}")))?;
        let link = parts.headers.get("link").and_then(|link| link.to_str().ok());
        Ok((answer, link.and_then(next_page).map(|next| self.same_server(&url, next)).transpose()?))
    }

    /// Returns the address of a page, if it is on the Hub's server: no other server gets the token.
    fn same_server(&self, of: &Url, next: &str) -> Result<Url> {
        let next = of.join(next).map_err(|error| generic(error.to_string()))?;
        if next.origin() == self.endpoint.origin() {
            return Ok(next);
        }
        Err(generic(format!("the list goes on at another server, {}", next.host_str().unwrap_or("without a name"))))
    }

    /// Returns the address of the list of files in `folder`.
    async fn tree(&self, folder: Option<Path>) -> Result<Url> {
        let commit = self.commit().await?;
        let mut url = self.api(&format!("tree/{commit}"))?;
        if let (Ok(mut path), Some(folder)) = (url.path_segments_mut(), &folder) {
            path.extend(folder.parts().map(|part| part.as_ref().to_owned()));
        }
        url.set_query(Some("recursive=true"));
        Ok(url)
    }

    /// Lists the files in `folder`, page by page.
    fn list_files(self: Arc<Self>, folder: Option<Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        enum Page {
            First(Option<Path>),
            Next(Url),
            End,
        }
        let state = (self, Page::First(folder), VecDeque::new(), PagesSeen::default());
        let files = stream::try_unfold(state, |(hub, mut page, mut files, mut seen)| async move {
            loop {
                if let Some(file) = files.pop_front() {
                    return Ok(Some((file, (hub, page, files, seen))));
                }
                let url = match page {
                    Page::First(folder) => hub.tree(folder).await?,
                    Page::Next(url) => url,
                    Page::End => return Ok(None),
                };
                let (entries, next) = hub.ask::<Vec<TreeEntry>>(url).await?;
                if next.is_some() {
                    seen.note(entries.first().map(|entry| &*entry.path))?;
                }
                files.extend(entries.into_iter().filter(|entry| entry.r#type == "file"));
                page = next.map_or(Page::End, Page::Next);
            }
        });
        files.and_then(|file: TreeEntry| async move { file.meta() }).boxed()
    }

    /// Returns the facts about a file, from a request for its first byte: a `HEAD` request would go to a server behind
    /// the Hub, which may refuse it.
    async fn head(&self, location: &Path) -> Result<GetResult> {
        let options = GetOptions { range: Some(GetRange::Bounded(0..1)), ..GetOptions::default() };
        let meta = match self.get(location, options).await {
            Ok(result) => result.meta,
            // No byte of an empty file can be read.
            Err(error @ Error::Generic { .. }) if is_refusal(&error) => {
                match self.get(location, GetOptions::default()).await {
                    Ok(result) if result.meta.size == 0 => result.meta,
                    _ => return Err(error),
                }
            }
            Err(error) => return Err(error),
        };
        let payload = GetResultPayload::Stream(stream::empty().boxed());
        let (attributes, extensions) = (Default::default(), Default::default());
        Ok(GetResult { payload, range: 0..meta.size, meta, attributes, extensions })
    }

    async fn get(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let path = Path::from_iter([self.commit().await?].into_iter().map(Into::into).chain(location.parts()));
        // A commit's files never change, and their etags are those of the server behind the Hub.
        let options = GetOptions { if_match: None, if_none_match: None, ..options };
        let mut result = self.files.get_opts(&path, options).await?;
        result.meta.location = location.clone();
        result.meta.e_tag = None;
        Ok(result)
    }
}

#[async_trait::async_trait]
impl FolderVersions for HubStore {
    /// The version is a commit, which takes the place of the revision.
    async fn pinned(&self) -> Result<String> {
        Ok(self.location.at(self.commit().await?))
    }
}

impl TreeEntry {
    fn meta(self) -> Result<ObjectMeta> {
        let (oid, size) = self.lfs.map_or((self.oid, self.size), |lfs| (lfs.oid, lfs.size));
        let location = Path::parse(&self.path)?;
        let e_tag = Some(oid).filter(|oid| !oid.is_empty());
        Ok(ObjectMeta { location, last_modified: Default::default(), size, e_tag, version: None })
    }
}

/// The files of a repository, whose listing needs the store itself.
#[derive(Debug)]
pub(crate) struct HubFiles(pub(crate) Arc<HubStore>);

impl fmt::Display for HubFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait::async_trait]
impl StoreLayer for HubFiles {
    fn inner(&self) -> &dyn ObjectStore {
        &*self.0.files
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head { self.0.head(location).await } else { self.0.get(location, options).await }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        Arc::clone(&self.0).list_files(prefix.filter(|prefix| !prefix.as_ref().is_empty()).cloned())
    }
}

/// Returns the address of the next page in a `Link` header (RFC 8288).
fn next_page(link: &str) -> Option<&str> {
    link.split(',').find_map(|link| {
        let (address, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let is_next = parameters.split(';').any(|parameter| matches!(parameter.trim(), "rel=\"next\"" | "rel=next"));
        is_next.then_some(address)
    })
}

fn generic(problem: String) -> Error {
    Error::Generic { store: STORE, source: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_an_end_is_an_error() {
        let mut seen = PagesSeen::default();
        (1..MAX_PAGES).for_each(|page| seen.note(Some(&page.to_string())).unwrap());
        assert!(seen.note(Some("one more")).unwrap_err().to_string().contains("more than 5000 pages"));
        assert!(PagesSeen::default().note(None).unwrap_err().to_string().contains("without files"));
        let mut seen = PagesSeen::default();
        ["a", "b"].iter().for_each(|path| seen.note(Some(path)).unwrap());
        let error = seen.note(Some("a")).unwrap_err();
        assert!(error.to_string().contains("`a` on two pages") && is_refusal(&error));
    }

    #[test]
    fn the_next_page_is_in_the_link_header() {
        let next = "<https://hub/api/x?cursor=a%3D>; rel=\"next\"";
        assert_eq!(next_page(next), Some("https://hub/api/x?cursor=a%3D"));
        assert_eq!(next_page("<https://hub/1>; rel=\"prev\", </2>; title=x; rel=next"), Some("/2"));
        assert_eq!(next_page("<https://hub/1>; rel=\"prev\""), None);
        assert_eq!(next_page("https://hub/1"), None);
    }
}
