//! A real S3 server on a loopback port that has a bucket and checks credentials; stops when dropped.
//!
//! With `SPDL_TEST_S3_ENDPOINT` and `SPDL_TEST_S3_BUCKET` set, the tests use that endpoint with the usual `AWS_*`
//! variables instead, under a prefix of their own.

use std::env;
use std::net::SocketAddr;
use std::path::Path;

use futures::TryStreamExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::{ObjectStore, ObjectStoreExt};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tokio::net::TcpListener;

use crate::background::{Background, listen};

const BUCKET: &str = "datasets";
const ACCESS_KEY: &str = "test-access-key";
const SECRET_KEY: &str = "test-secret-key";

/// An S3 endpoint with a bucket.
pub struct S3Server {
    endpoint: String,
    bucket: String,
    prefix: String,
    access_key: String,
    secret_key: String,
    /// Whether requests are sent without a signature.
    is_open: bool,
    _own: Option<OwnServer>,
}

/// A server that the test started, and its files.
struct OwnServer {
    _server: Background,
    _root: tempfile::TempDir,
}

impl S3Server {
    /// Starts a server, or uses the server that the environment names.
    pub fn start() -> Self {
        if let (Ok(endpoint), Ok(bucket)) = (env::var("SPDL_TEST_S3_ENDPOINT"), env::var("SPDL_TEST_S3_BUCKET")) {
            let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("set {name} for {endpoint}"));
            let prefix = format!("spdl-test-{}", std::process::id());
            let (access_key, secret_key) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"));
            return Self { endpoint, bucket, prefix, access_key, secret_key, is_open: false, _own: None };
        }
        Self::start_own(Some(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY)))
    }

    /// Starts a server that requires no credentials: for readers it is a web server.
    pub fn start_open() -> Self {
        Self::start_own(None)
    }

    fn start_own(auth: Option<SimpleAuth>) -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(root.path().join(BUCKET)).expect("a folder for the bucket");
        let mut service = S3ServiceBuilder::new(FileSystem::new(root.path()).expect("a folder that is there"));
        let is_open = auth.is_none();
        if let Some(auth) = auth {
            service.set_auth(auth);
        }
        let (listener, address) = listen();
        let server = Background::start(serve(listener, service.build()));
        Self {
            endpoint: format!("http://{address}"),
            bucket: BUCKET.to_owned(),
            prefix: "data".to_owned(),
            access_key: ACCESS_KEY.to_owned(),
            secret_key: SECRET_KEY.to_owned(),
            is_open,
            _own: Some(OwnServer { _server: server, _root: root }),
        }
    }

    /// Returns the URL of `path` in the bucket: `s3://bucket/prefix/path`.
    pub fn url(&self, path: &str) -> String {
        format!("s3://{}/{}/{path}", self.bucket, self.prefix)
    }

    /// Returns the HTTP URL of `path`, for readers that use the server as a web server.
    pub fn web_url(&self, path: &str) -> String {
        format!("{}/{}/{}/{path}", self.endpoint, self.bucket, self.prefix)
    }

    /// Returns the address of a server that the test started.
    pub fn address(&self) -> SocketAddr {
        self.endpoint.strip_prefix("http://").and_then(|address| address.parse().ok()).expect("a server of our own")
    }

    /// Returns the environment variables that give a process the endpoint and its credentials.
    pub fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ENDPOINT", self.endpoint.clone()),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", self.access_key.clone()),
            ("AWS_SECRET_ACCESS_KEY", self.secret_key.clone()),
        ]
    }

    /// Returns a client of the bucket.
    pub fn client(&self) -> AmazonS3 {
        AmazonS3Builder::new()
            .with_endpoint(&self.endpoint)
            .with_allow_http(true)
            .with_region("us-east-1")
            .with_bucket_name(&self.bucket)
            .with_access_key_id(&self.access_key)
            .with_secret_access_key(&self.secret_key)
            .with_skip_signature(self.is_open)
            .build()
            .expect("a valid endpoint")
    }

    /// Returns the key of `path` in the bucket.
    pub fn key(&self, path: &str) -> object_store::path::Path {
        let path = format!("{}/{path}", self.prefix);
        object_store::path::Path::parse(&path).unwrap_or_else(|error| panic!("key {path}: {error}"))
    }

    /// Uploads the files of `folder` and of its subfolders under `path` and returns the [`S3Server::url`] of `path`.
    pub async fn upload(&self, folder: &Path, path: &str) -> String {
        let client = self.client();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in std::fs::read_dir(next).expect("a folder that is there") {
                let file = entry.expect("a folder that can be read").path();
                if !file.is_file() {
                    folders.push(file);
                    continue;
                }
                let bytes = std::fs::read(&file).expect("a file that can be read");
                let name = file.strip_prefix(folder).expect("a file inside");
                let key = self.key(&format!("{path}/{}", name.to_string_lossy()));
                client.put(&key, bytes.into()).await.unwrap_or_else(|error| panic!("put {key}: {error}"));
            }
        }
        self.url(path)
    }

    /// Returns the keys of all objects under `path`.
    pub async fn keys(&self, path: &str) -> Vec<object_store::path::Path> {
        let client = self.client();
        let keys = client.list(Some(&self.key(path))).map_ok(|object| object.location);
        keys.try_collect().await.expect("a bucket that can be listed")
    }

    /// Deletes the tests' objects; needed on an endpoint that outlives the tests.
    pub async fn clear(&self) {
        let client = self.client();
        for key in self.keys("").await {
            client.delete(&key).await.unwrap_or_else(|error| panic!("delete {key}: {error}"));
        }
    }
}

async fn serve(listener: std::net::TcpListener, service: S3Service) {
    let listener = TcpListener::from_std(listener).expect("a socket of this runtime");
    loop {
        let (socket, _) = listener.accept().await.expect("a listening socket");
        // Without this, a body would wait for the delayed acknowledgement of its head: 40 ms for each request.
        socket.set_nodelay(true).expect("a TCP socket");
        let service = service.clone();
        tokio::spawn(async move {
            // An error is a client that has disconnected, which is normal.
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
        });
    }
}
