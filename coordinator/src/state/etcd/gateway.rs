//! A client of etcd's v3 API over its JSON gateway (`/v3/...`), with the few calls that the state and the election
//! need.
//!
//! The gateway is part of every etcd since 3.4 and needs only HTTP: a gRPC client would add a second HTTP stack, and a
//! protobuf compiler to the build.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::encoding::{encoded, number};

/// The largest answer that is read, in bytes: a page of a few large values, in base64.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// The calls that make etcd write to its disk.
const GRANT: &str = "lease/grant";
const REVOKE: &str = "lease/revoke";
const COMMIT: &str = "kv/txn";

/// The error of a call to etcd.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum EtcdError {
    /// A file of `--etcd-certs` cannot be used.
    #[error("`{file}` for etcd: {cause}")]
    Certs { file: String, cause: String },
    /// The member could not be reached, or did not answer in time.
    #[error("etcd at `{endpoint}` does not answer: {cause}")]
    Away { endpoint: String, cause: String },
    /// The member refused the call.
    #[error("etcd at `{endpoint}` refuses: {message}")]
    Refused { endpoint: String, status: u16, message: String },
    /// The answer of the member could not be parsed.
    #[error("etcd at `{endpoint}` sent an invalid answer: {cause}")]
    Answer { endpoint: String, cause: String },
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct KeyValue {
    #[serde(deserialize_with = "encoded::deserialize")]
    pub(crate) key: Vec<u8>,
    #[serde(deserialize_with = "encoded::deserialize", default)]
    pub(crate) value: Vec<u8>,
    #[serde(deserialize_with = "number::deserialize", default)]
    pub(crate) create_revision: i64,
    #[serde(deserialize_with = "number::deserialize", default)]
    pub(crate) mod_revision: i64,
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TxnOp {
    Put {
        key: String,
        value: Vec<u8>,
        lease: Option<i64>,
    },
    Delete {
        key: String,
    },
    /// Deletes all keys from `key` up to but not including `end`.
    DeleteRange {
        key: String,
        end: String,
    },
}

/// The condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) key: String,
    /// The revision in which the key was created; 0 if it must not exist.
    pub(crate) created: i64,
}

/// A further condition of a transaction: the key was last written in this revision; 0 if it must not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unchanged {
    pub(crate) key: String,
    pub(crate) written: i64,
}

/// The outcome of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    /// It was carried out, in this revision.
    Done { revision: i64 },
    /// The conditions do not hold; `held` is the value of the condition's key.
    Unmet { held: Option<KeyValue> },
}

/// A lease and the time for which it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) id: i64,
    pub(crate) ttl_s: u64,
}

/// The members of one etcd cluster. A call goes to the member that answered last, then to the others in turn.
#[derive(Debug)]
pub(crate) struct Gateway {
    http: reqwest::Client,
    endpoints: Vec<String>,
    current: AtomicUsize,
    timeouts: Timeouts,
}

/// Time limits for one member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// For a call that only reads.
    pub(crate) answer: Duration,
    /// For a call that writes to the member's disk, which may be slow.
    pub(crate) commit: Duration,
}

impl Gateway {
    /// Creates a gateway. `members` are `host:port`; with `certs`, a directory of `ca.pem` and optionally `cert.pem`
    /// and `key.pem`, calls use TLS.
    pub(crate) fn new(members: &[String], certs: Option<&Path>, timeouts: Timeouts) -> Result<Self, EtcdError> {
        let mut builder = reqwest::Client::builder()
            .connect_timeout(timeouts.answer)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy();
        if let Some(folder) = certs {
            builder = with_certs(builder, folder)?;
        }
        let scheme = if certs.is_some() { "https" } else { "http" };
        let endpoints = members.iter().map(|member| format!("{scheme}://{member}")).collect();
        let http = builder.build().map_err(|error| EtcdError::Certs {
            file: certs.map_or_else(String::new, |folder| folder.display().to_string()),
            cause: crate::error_text(&error),
        })?;
        Ok(Self { http, endpoints, current: AtomicUsize::new(0), timeouts })
    }

    /// Requests a lease of at least `ttl_s` seconds.
    pub(crate) async fn grant(&self, ttl_s: u64) -> Result<Granted, EtcdError> {
        self.call(GRANT, &json!({ "TTL": ttl_s.to_string() }))
            .await
            .map(|lease: EtcdLease| Granted { id: lease.id, ttl_s: u64::try_from(lease.ttl).unwrap_or(0) })
    }

    /// Renews a lease and returns its remaining time in seconds, or `None` if it has expired.
    pub(crate) async fn keep_alive(&self, lease: i64) -> Result<Option<u64>, EtcdError> {
        #[derive(Deserialize)]
        struct KeepAliveResponse {
            result: EtcdLease,
        }
        let kept: KeepAliveResponse = self.call("lease/keepalive", &json!({ "ID": lease.to_string() })).await?;
        Ok(u64::try_from(kept.result.ttl).ok().filter(|ttl_s| *ttl_s > 0))
    }

    /// Revokes a lease, which deletes the keys attached to it. Succeeds also if the lease has expired.
    pub(crate) async fn revoke(&self, lease: i64) -> Result<(), EtcdError> {
        match self.call::<Value>(REVOKE, &json!({ "ID": lease.to_string() })).await {
            Err(EtcdError::Refused { status: 404, .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the value at a key.
    pub(crate) async fn read(&self, key: &str) -> Result<Option<KeyValue>, EtcdError> {
        let found: RangeResponse = self.call("kv/range", &json!({ "key": encoded::text(key.as_bytes()) })).await?;
        Ok(found.kvs.into_iter().next())
    }

    /// Returns the keys from `start` up to but not including `end`, in order, at most `limit` of them.
    pub(crate) async fn page(&self, start: &[u8], end: &str, limit: usize) -> Result<Vec<KeyValue>, EtcdError> {
        let question = json!({
            "key": encoded::text(start),
            "range_end": encoded::text(end.as_bytes()),
            "limit": limit.to_string(),
        });
        Ok(self.call::<RangeResponse>("kv/range", &question).await?.kvs)
    }

    /// Carries out `ops` atomically if the condition holds and the other key is unchanged.
    pub(crate) async fn commit(
        &self,
        condition: &Condition,
        unchanged: Option<&Unchanged>,
        ops: &[TxnOp],
    ) -> Result<Committed, EtcdError> {
        let key = encoded::text(condition.key.as_bytes());
        let mut compare = vec![json!({
            "result": "EQUAL",
            "target": "CREATE",
            "key": key,
            "create_revision": condition.created.to_string(),
        })];
        compare.extend(unchanged.map(|unchanged| {
            json!({
                "result": "EQUAL",
                "target": "MOD",
                "key": encoded::text(unchanged.key.as_bytes()),
                "mod_revision": unchanged.written.to_string(),
            })
        }));
        let question = json!({
            "compare": compare,
            "success": ops.iter().map(TxnOp::to_json).collect::<Vec<_>>(),
            "failure": [{ "request_range": { "key": key } }],
        });
        let mut answer: Transaction = self.call(COMMIT, &question).await?;
        if answer.succeeded {
            return Ok(Committed::Done { revision: answer.header.revision });
        }
        let held = answer.responses.pop().and_then(|response| response.response_range?.kvs.into_iter().next());
        Ok(Committed::Unmet { held })
    }

    /// Posts a question to one member after the other until one answers. A refusal is an answer, unless it is a server
    /// error or status 429, by which a member reports that it has no leader or no capacity.
    async fn call<A: DeserializeOwned>(&self, method: &str, question: &Value) -> Result<A, EtcdError> {
        let body = question.to_string();
        let first = self.current.load(Ordering::Relaxed);
        let mut last = None;
        for attempt in 0..self.endpoints.len() {
            let at = (first + attempt) % self.endpoints.len();
            match self.post(&self.endpoints[at], method, body.clone()).await {
                Err(error @ EtcdError::Away { .. }) => last = Some(error),
                done => {
                    self.current.store(at, Ordering::Relaxed);
                    return done;
                }
            }
        }
        Err(last.expect("an etcd has members"))
    }

    async fn post<A: DeserializeOwned>(&self, endpoint: &str, method: &str, body: String) -> Result<A, EtcdError> {
        let away = |error: reqwest::Error| {
            let error = error.without_url();
            EtcdError::Away { endpoint: endpoint.to_owned(), cause: crate::error_text(&error) }
        };
        let is_write = matches!(method, COMMIT | GRANT | REVOKE);
        let timeout = if is_write { self.timeouts.commit } else { self.timeouts.answer };
        let request = self.http.post(format!("{endpoint}/v3/{method}")).body(body).timeout(timeout);
        let mut response = request.send().await.map_err(away)?;
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(away)? {
            if bytes.len() + chunk.len() > MAX_ANSWER_BYTES {
                let cause = format!("it is longer than {MAX_ANSWER_BYTES} bytes");
                return Err(EtcdError::Answer { endpoint: endpoint.to_owned(), cause });
            }
            bytes.extend_from_slice(&chunk);
        }
        if status.is_success() {
            return serde_json::from_slice(&bytes)
                .map_err(|error| EtcdError::Answer { endpoint: endpoint.to_owned(), cause: error.to_string() });
        }
        let message = message_of(&bytes);
        let endpoint = endpoint.to_owned();
        if status.is_server_error() || status.as_u16() == 429 {
            return Err(EtcdError::Away { endpoint, cause: message });
        }
        Err(EtcdError::Refused { endpoint, status: status.as_u16(), message })
    }
}

impl TxnOp {
    fn to_json(&self) -> Value {
        match self {
            Self::Put { key, value, lease } => json!({ "request_put": {
                "key": encoded::text(key.as_bytes()),
                "value": encoded::text(value),
                "lease": lease.unwrap_or(0).to_string(),
            }}),
            Self::Delete { key } => json!({ "request_delete_range": { "key": encoded::text(key.as_bytes()) } }),
            Self::DeleteRange { key, end } => json!({ "request_delete_range": {
                "key": encoded::text(key.as_bytes()),
                "range_end": encoded::text(end.as_bytes()),
            }}),
        }
    }
}

#[derive(Deserialize)]
struct EtcdLease {
    #[serde(rename = "ID", deserialize_with = "number::deserialize", default)]
    id: i64,
    #[serde(rename = "TTL", deserialize_with = "number::deserialize", default)]
    ttl: i64,
}

#[derive(Deserialize)]
struct HttpHeader {
    #[serde(deserialize_with = "number::deserialize", default)]
    revision: i64,
}

#[derive(Deserialize)]
struct Transaction {
    header: HttpHeader,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<TxnResponse>,
}

#[derive(Deserialize)]
struct TxnResponse {
    response_range: Option<RangeResponse>,
}

#[derive(Deserialize)]
struct RangeResponse {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

/// Returns the message in the body of an error, cut to a length that fits a log line.
fn message_of(bytes: &[u8]) -> String {
    #[derive(Deserialize)]
    struct EtcdRefusal {
        error: String,
    }
    let text = match serde_json::from_slice::<EtcdRefusal>(bytes) {
        Ok(refusal) => refusal.error,
        Err(_) => String::from_utf8_lossy(bytes).trim().to_owned(),
    };
    text.chars().take(300).collect()
}

fn with_certs(builder: reqwest::ClientBuilder, folder: &Path) -> Result<reqwest::ClientBuilder, EtcdError> {
    let file = |name: &str| folder.join(name);
    let wrong = |name: &str, cause: String| EtcdError::Certs { file: file(name).display().to_string(), cause };
    let read = |name: &str| fs::read(file(name)).map_err(|error| wrong(name, error.to_string()));
    let roots = reqwest::Certificate::from_pem_bundle(&read("ca.pem")?)
        .map_err(|error| wrong("ca.pem", crate::error_text(&error)))?;
    let builder = builder.tls_certs_only(roots);
    if !file("cert.pem").exists() {
        return Ok(builder);
    }
    let mut pem = read("key.pem")?;
    pem.extend_from_slice(&read("cert.pem")?);
    let identity = reqwest::Identity::from_pem(&pem).map_err(|error| wrong("cert.pem", crate::error_text(&error)))?;
    Ok(builder.identity(identity))
}
