//! etcd's v3 API over its JSON gateway (`/v3/...`): the few calls that keeping state and leading take.
//!
//! The gateway is a part of every etcd since 3.4 and needs no more than HTTP: a gRPC client would bring a second HTTP
//! stack, and its build a protobuf compiler.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::encoding::{encoded, number};

/// The most that an answer may take: a page of a few large values, in base64.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// The calls that make etcd write.
const GRANT: &str = "lease/grant";
const REVOKE: &str = "lease/revoke";
const COMMIT: &str = "kv/txn";

/// A call that did not do what it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// A file of `--etcd-certs`.
    #[error("`{file}` for etcd: {cause}")]
    Certs {
        /// The file.
        file: String,
        /// What is wrong with it.
        cause: String,
    },
    /// It could not be reached, or did not answer in time.
    #[error("etcd at `{endpoint}` is away: {cause}")]
    Away {
        /// Which member.
        endpoint: String,
        /// Why.
        cause: String,
    },
    /// It says no.
    #[error("etcd at `{endpoint}` refuses: {message}")]
    Refused {
        /// Which member.
        endpoint: String,
        /// The status code of HTTP.
        status: u16,
        /// Its words.
        message: String,
    },
    /// It said something else.
    #[error("etcd at `{endpoint}` answered what makes no sense: {cause}")]
    Answer {
        /// Which member.
        endpoint: String,
        /// In what way.
        cause: String,
    },
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
    /// All keys from `key` to before `end`.
    DeleteRange {
        key: String,
        end: String,
    },
}

/// What a transaction takes for given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) key: String,
    /// The revision in which the key was created; 0 where it is not there.
    pub(crate) created: i64,
}

/// What a transaction takes for given besides: a key that was written in this revision last; 0 where it is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unchanged {
    pub(crate) key: String,
    pub(crate) written: i64,
}

/// What became of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    /// It is done, in this revision.
    Done { revision: i64 },
    /// They do not hold: this is what the condition's key holds.
    Unmet { held: Option<KeyValue> },
}

/// A lease, and for how long it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) id: i64,
    pub(crate) ttl_s: u64,
}

/// The members of one etcd cluster. A call goes to the one that answered last, then round the others.
#[derive(Debug)]
pub(crate) struct Gateway {
    http: reqwest::Client,
    endpoints: Vec<String>,
    current: AtomicUsize,
    timeouts: Timeouts,
}

/// How long one member may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// To answer what it knows.
    pub(crate) answer: Duration,
    /// To write to its disk, which may be slow.
    pub(crate) commit: Duration,
}

impl Gateway {
    /// `members` are `host:port`; with `certs`, a folder of `ca.pem` and perhaps `cert.pem` and `key.pem`, over TLS.
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

    /// A lease of at least `ttl_s` seconds.
    pub(crate) async fn grant(&self, ttl_s: u64) -> Result<Granted, EtcdError> {
        self.call(GRANT, &json!({ "TTL": ttl_s.to_string() }))
            .await
            .map(|lease: EtcdLease| Granted { id: lease.id, ttl_s: u64::try_from(lease.ttl).unwrap_or(0) })
    }

    /// Renews a lease; how many seconds it has from then on, or `None` where it has run out.
    pub(crate) async fn keep_alive(&self, lease: i64) -> Result<Option<u64>, EtcdError> {
        #[derive(Deserialize)]
        struct Kept {
            result: EtcdLease,
        }
        let kept: Kept = self.call("lease/keepalive", &json!({ "ID": lease.to_string() })).await?;
        Ok(u64::try_from(kept.result.ttl).ok().filter(|ttl_s| *ttl_s > 0))
    }

    /// Ends a lease, and with it the keys that hang on it. One that has run out is as good.
    pub(crate) async fn revoke(&self, lease: i64) -> Result<(), EtcdError> {
        match self.call::<Value>(REVOKE, &json!({ "ID": lease.to_string() })).await {
            Err(EtcdError::Refused { status: 404, .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// What a key holds.
    pub(crate) async fn read(&self, key: &str) -> Result<Option<KeyValue>, EtcdError> {
        #[derive(Deserialize)]
        struct Found {
            #[serde(default)]
            kvs: Vec<KeyValue>,
        }
        let found: Found = self.call("kv/range", &json!({ "key": encoded::text(key.as_bytes()) })).await?;
        Ok(found.kvs.into_iter().next())
    }

    /// The keys from `start` to before `end`, in order, at most `limit` of them.
    pub(crate) async fn page(&self, start: &[u8], end: &str, limit: usize) -> Result<Vec<KeyValue>, EtcdError> {
        #[derive(Deserialize)]
        struct Found {
            #[serde(default)]
            kvs: Vec<KeyValue>,
        }
        let question = json!({
            "key": encoded::text(start),
            "range_end": encoded::text(end.as_bytes()),
            "limit": limit.to_string(),
        });
        Ok(self.call::<Found>("kv/range", &question).await?.kvs)
    }

    /// Carries out `ops`, all or none, where the condition holds and the other key is unchanged.
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

    /// Posts a question to one member after the other until one answers. A refusal is an answer, unless it says that
    /// the member has no leader or no time.
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
    response_range: Option<Range>,
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

/// What an error's body says, cut to what a line of a log can hold.
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
