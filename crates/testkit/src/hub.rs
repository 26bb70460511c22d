//! A server that answers like the Hugging Face Hub, and behind it, as at the Hub, a second one that has the files:
//! pages of lists, revisions, redirects, ranges, tokens, limits of requests.

use percent_encoding::percent_decode_str;
use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

/// The repository that the server has.
pub const REPOSITORY: &str = "ORG/NAME";
/// The token that opens it if it is private.
pub const TOKEN: &str = "hf_test-token";
/// Number of files on one page of a list.
const PAGE_FILES: usize = 2;
/// A file of at least this size is in LFS: its own hash is not that of git.
const LFS_BYTES: u64 = 1 << 10;

/// The Hub, on two loopback ports.
pub struct HubServer {
    address: SocketAddr,
    state: Arc<Mutex<HubState>>,
}

/// Who may read the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubAccess {
    /// Everyone.
    Public,
    /// Those who have the token.
    Private,
    /// Nobody yet: its terms are not accepted.
    Gated,
}

/// A request that the Hub or the server behind it received.
#[derive(Clone, Debug)]
pub struct HubRequest {
    /// Whether it is one of the server behind the Hub.
    pub is_behind: bool,
    /// Method and path.
    pub line: String,
    /// Whether it came with an `Authorization` header.
    pub has_token: bool,
    /// The status of the answer.
    pub status: u16,
}

struct HubState {
    access: HubAccess,
    /// The folder of each commit.
    commits: BTreeMap<String, PathBuf>,
    /// The commit of each branch.
    branches: BTreeMap<String, String>,
    /// Headers of the next answers, each of which reports that there are too many requests (status 429).
    busy: VecDeque<String>,
    /// The time until which the last of these answers asked the client to wait.
    busy_until: Option<Instant>,
    requests: Vec<HubRequest>,
    /// The server that has the next page of a list. It should be the Hub itself.
    list_at: SocketAddr,
    behind: SocketAddr,
    /// Whether lists begin again after their last page.
    is_endless: bool,
}

/// An answer: its status, its headers, and its body.
type HubResponse = (u16, Vec<String>, Vec<u8>);

impl HubServer {
    /// Starts a Hub with an empty repository.
    pub fn start() -> Self {
        let bind = || TcpListener::bind("127.0.0.1:0").expect("a port");
        let (hub, behind) = (bind(), bind());
        let address = hub.local_addr().expect("an address");
        let state = Arc::new(Mutex::new(HubState {
            access: HubAccess::Public,
            commits: BTreeMap::new(),
            branches: BTreeMap::new(),
            busy: VecDeque::new(),
            busy_until: None,
            requests: Vec::new(),
            list_at: address,
            behind: behind.local_addr().expect("an address"),
            is_endless: false,
        }));
        for (listener, is_behind) in [(hub, false), (behind, true)] {
            let state = Arc::clone(&state);
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let state = Arc::clone(&state);
                    thread::spawn(move || serve(stream, is_behind, &state));
                }
            });
        }
        Self { address, state }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, HubState> {
        self.state.lock().expect("no request panics")
    }

    /// Pushes a folder as a commit on `branch`, and returns the commit. The folder must stay as it is.
    pub fn push(&self, branch: &str, folder: &Path) -> String {
        let mut state = self.state();
        let commit = format!("{:040x}", 0xc0_ffee + state.commits.len());
        state.commits.insert(commit.clone(), folder.to_owned());
        state.branches.insert(branch.to_owned(), commit.clone());
        commit
    }

    /// Serves the files of a commit from another folder, to which they were moved.
    pub fn replace(&self, commit: &str, folder: &Path) {
        self.state().commits.insert(commit.to_owned(), folder.to_owned());
    }

    /// Sets who may read the repository.
    pub fn set_access(&self, access: HubAccess) {
        self.state().access = access;
    }

    /// Answers the next requests with status 429, too many requests, once with each of these headers, which end with a
    /// number of seconds. A request before these seconds have passed gets status 425.
    pub fn answer_busy(&self, headers: &[&str]) {
        self.state().busy.extend(headers.iter().map(|header| (*header).to_owned()));
    }

    /// Puts the next pages of lists on another server than the Hub, which an honest Hub never does.
    pub fn list_elsewhere(&self) {
        let mut state = self.state();
        state.list_at = state.behind;
    }

    /// Begins lists again after their last page, without end.
    pub fn list_forever(&self) {
        self.state().is_endless = true;
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<HubRequest> {
        self.state().requests.clone()
    }

    /// Returns the environment variables that lead a process here, and hide the user's own token.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        let endpoint = format!("http://{}", self.address);
        let nothing = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"].map(|name| (name, String::new()));
        let [token, old_token] = nothing;
        [("HF_ENDPOINT", endpoint), ("HF_HOME", "/nowhere".to_owned()), token, old_token]
    }
}

fn serve(stream: TcpStream, is_behind: bool, state: &Mutex<HubState>) {
    let Ok(reading) = stream.try_clone() else { return };
    let (mut reader, mut writer) = (BufReader::new(reading), stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(1..) if line.trim().is_empty() => break,
                Ok(1..) => lines.push(line.trim().to_owned()),
                _ => return,
            }
        }
        let Some(request) = lines.first().and_then(|line| line.rsplit_once(' ')).map(|(line, _)| line.to_owned())
        else {
            return;
        };
        let header = |name: &str| {
            let named = lines.iter().skip(1).filter_map(|line| line.split_once(':'));
            named.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned()).next()
        };
        let (authorization, range) = (header("authorization"), header("range"));
        let (status, headers, body) = {
            let mut state = state.lock().expect("no request panics");
            let (status, headers, body) = match is_behind {
                true => state.file(&request, range.as_deref()),
                false => state.answer(&request, authorization.as_deref()),
            };
            let has_token = authorization.is_some();
            state.requests.push(HubRequest { is_behind, line: request.clone(), has_token, status });
            (status, headers, body)
        };
        let mut head = format!("HTTP/1.1 {status} -\r\nContent-Length: {}\r\n", body.len());
        headers.iter().for_each(|header| head += &format!("{header}\r\n"));
        let body = if request.starts_with("HEAD") { Vec::new() } else { body };
        if writer.write_all(&[head.as_bytes(), b"\r\n", &body].concat()).is_err() {
            return;
        }
    }
}

fn error(status: u16, code: &str) -> HubResponse {
    (status, vec![format!("X-Error-Code: {code}")], format!("{{\"error\":\"{code}\"}}").into_bytes())
}

impl HubState {
    /// Answers a request to the Hub itself.
    fn answer(&mut self, request: &str, authorization: Option<&str>) -> HubResponse {
        if self.busy_until.is_some_and(|until| Instant::now() < until) {
            return (425, Vec::new(), Vec::new());
        }
        if let Some(header) = self.busy.pop_front() {
            let seconds = header.rsplit(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok());
            self.busy_until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
            return (429, vec![header], Vec::new());
        }
        let is_known = authorization == Some(&format!("Bearer {TOKEN}"));
        match (authorization, self.access) {
            (Some(_), _) if !is_known => return (401, Vec::new(), b"{\"error\":\"Invalid credentials\"}".to_vec()),
            (None, HubAccess::Private) => return error(401, "RepoNotFound"),
            (None, HubAccess::Gated) => return error(401, "GatedRepo"),
            (Some(_), HubAccess::Gated) => return error(403, "GatedRepo"),
            _ => {}
        }
        let Some(("GET", target)) = request.split_once(' ') else { return error(405, "Method") };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if let Some(rest) = path.strip_prefix(&format!("/api/datasets/{REPOSITORY}/revision/")) {
            return match self.branches.get(&rest.replace("%2F", "/")) {
                Some(commit) => (200, Vec::new(), format!("{{\"sha\":\"{commit}\",\"id\":\"{REPOSITORY}\"}}").into()),
                None => error(404, "RevisionNotFound"),
            };
        }
        if let Some(rest) = path.strip_prefix(&format!("/api/datasets/{REPOSITORY}/tree/")) {
            let (revision, folder) = rest.split_once('/').unwrap_or((rest, ""));
            return self.page(path, revision, &decoded(folder), query);
        }
        let Some(rest) = path.strip_prefix(&format!("/datasets/{REPOSITORY}/resolve/")) else {
            // The Hub does not reveal whether there is such a repository.
            return error(401, "RepoNotFound");
        };
        let Some((revision, file)) = rest.split_once('/') else { return error(404, "EntryNotFound") };
        match self.path(revision, &decoded(file)) {
            Some(path) if path.is_file() => {
                let commit = self.commit(revision).expect("it has a folder");
                (302, vec![format!("Location: http://{}/{commit}/{file}", self.behind)], Vec::new())
            }
            _ => error(404, "EntryNotFound"),
        }
    }

    fn commit(&self, revision: &str) -> Option<String> {
        self.branches.get(revision).or_else(|| self.commits.get_key_value(revision).map(|(commit, _)| commit)).cloned()
    }

    fn path(&self, revision: &str, inside: &str) -> Option<PathBuf> {
        Some(self.commits.get(&self.commit(revision)?)?.join(inside))
    }

    /// Returns a page of the list of files.
    fn page(&self, path: &str, revision: &str, folder: &str, query: &str) -> HubResponse {
        let Some(root) = self.path(revision, "") else { return error(404, "RevisionNotFound") };
        if !root.join(folder).is_dir() {
            return error(404, "EntryNotFound");
        }
        let (mut entries, mut folders) = (Vec::new(), vec![root.join(folder)]);
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(next).expect("a folder that is there").flatten() {
                let relative = entry.path().strip_prefix(&root).expect("a file inside").display().to_string();
                let size = entry.metadata().expect("a file").len();
                if entry.path().is_dir() {
                    folders.push(entry.path());
                    entries.push((relative, "directory", 0));
                } else {
                    entries.push((relative, "file", size));
                }
            }
        }
        entries.sort();
        let cursor = query.split('&').find_map(|part| part.strip_prefix("cursor=")).and_then(|at| at.parse().ok());
        let cursor: usize = cursor.unwrap_or(0);
        let from = if self.is_endless { cursor % entries.len() } else { cursor };
        let page = entries.iter().skip(from).take(PAGE_FILES).map(|(path, kind, size)| {
            let lfs = if *size < LFS_BYTES {
                String::new()
            } else {
                format!(",\"lfs\":{{\"oid\":\"{size:064x}\",\"size\":{size},\"pointerSize\":134}}")
            };
            let path = serde_json::to_string(path).expect("text");
            format!("{{\"type\":\"{kind}\",\"oid\":\"{size:040x}\",\"size\":{size},\"path\":{path}{lfs}}}")
        });
        let body = format!("[{}]", page.collect::<Vec<_>>().join(","));
        let next = from + PAGE_FILES;
        let link = (next < entries.len() || self.is_endless)
            .then(|| format!("Link: <http://{}{path}?recursive=true&cursor={next}>; rel=\"next\"", self.list_at));
        (200, link.into_iter().collect(), body.into_bytes())
    }

    /// Answers a request to the server behind the Hub, which takes no token.
    fn file(&mut self, request: &str, range: Option<&str>) -> HubResponse {
        let path = request.split_once(' ').and_then(|(method, path)| (method == "GET").then_some(path));
        let file = path.and_then(|path| path.strip_prefix('/')?.split_once('/'));
        let Some(path) = file.and_then(|(commit, file)| self.path(commit, &decoded(file))) else {
            return (403, Vec::new(), Vec::new());
        };
        let Ok(bytes) = fs::read(path) else { return (403, Vec::new(), Vec::new()) };
        let etag = "ETag: \"of-the-server-behind\"".to_owned();
        let Some((from, to)) = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) else {
            return (200, vec![etag], bytes);
        };
        let from: usize = from.parse().unwrap_or(0);
        let to = to.parse().unwrap_or(usize::MAX).min(bytes.len().wrapping_sub(1));
        if from >= bytes.len() {
            return (416, vec![format!("Content-Range: bytes */{}", bytes.len())], Vec::new());
        }
        let whole = bytes.len();
        (206, vec![etag, format!("Content-Range: bytes {from}-{to}/{whole}")], bytes[from..=to].to_vec())
    }
}

/// Decodes the percent signs of a path.
fn decoded(path: &str) -> String {
    percent_decode_str(path).decode_utf8_lossy().into_owned()
}
