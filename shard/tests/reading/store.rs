//! Opening datasets, and the errors of folders, a web server and an S3 endpoint that are not what they should be.

use std::sync::{Arc, Mutex};

use spdl_shard::{
    FormatError,
    manifest::{MANIFEST_NAME, ManifestBuilder},
    store::DatasetStore,
};
use spdl_store::{StoreError, StoreOptions};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// Starts a server that gives every request the same answer. Returns its address and the requests that it received.
pub(crate) async fn server(answer: String) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 8192];
            let length = stream.read(&mut request).await.unwrap_or(0);
            log.lock().unwrap().push(String::from_utf8_lossy(&request[..length]).into_owned());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (address, asked)
}

pub(crate) fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

fn s3(endpoint: &str) -> DatasetStore {
    let options = [
        ("AWS_ENDPOINT", format!("http://{endpoint}")),
        ("AWS_ACCESS_KEY_ID", "key".into()),
        ("AWS_SECRET_ACCESS_KEY", "secret".into()),
        ("AWS_REGION", "nowhere-1".into()),
    ];
    DatasetStore::open_with("s3://bucket/some/set/", &options.into_iter().collect()).unwrap()
}

#[tokio::test]
async fn a_manifest_is_read_from_a_path_and_from_a_file_url() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("a set #1 %20");
    std::fs::create_dir(&place).unwrap();
    let manifest = ManifestBuilder::new("x").classes(["a"]).finish().unwrap();
    std::fs::write(place.join(MANIFEST_NAME), manifest.bytes()).unwrap();
    let url = url::Url::from_file_path(&place).unwrap();
    for location in [place.to_str().unwrap(), url.as_str(), &format!("{}/", place.display())] {
        let store = DatasetStore::open_with(location, &StoreOptions::default()).unwrap();
        assert_eq!(store.manifest().await.unwrap().fingerprint(), manifest.fingerprint(), "{location}");
    }
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    let error = DatasetStore::open(nowhere.to_str().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), format!("`{}` does not exist", nowhere.display()));
    let store = DatasetStore::open(folder.path().to_str().unwrap()).unwrap();
    let error = store.manifest().await.unwrap_err();
    assert_eq!(error.to_string(), format!("`{}/.spdl/manifest.spdl` does not exist", folder.path().display()));
    assert!(error.hint().unwrap().contains("spdl-ctl pack") && !error.is_retryable());
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = DatasetStore::open(file.to_str().unwrap()).unwrap_err();
    assert!(error.to_string().contains("it is a file"), "{error}");
}

#[tokio::test]
async fn a_manifest_that_is_none_is_an_error_with_its_url() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(MANIFEST_NAME), "{}").unwrap();
    let error = DatasetStore::open(folder.path().to_str().unwrap()).unwrap().manifest().await.unwrap_err();
    let StoreError::Format { source, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(source.error.downcast_ref(), Some(FormatError::WrongMagic { .. })));
    assert!(error.to_string().contains("manifest.spdl` is not a manifest: it starts with `{}`"), "{error}");
}

#[test]
fn a_location_that_is_none_is_an_error() {
    for (location, expected) in [
        ("ftp://host/x", "`ftp://host/x` cannot be opened"),
        ("s3:///x", "cannot be opened"),
        ("file://otherhost/x", "another host"),
        ("http://", "cannot be opened"),
    ] {
        let error = DatasetStore::open_with(location, &StoreOptions::default()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.hint().unwrap().contains("give a path, or a URL"));
    }
}

#[test]
fn a_manifest_in_a_store_has_its_shards_in_a_store_and_a_relative_base_stays_in_it() {
    let with = |base: &str| ManifestBuilder::new("x").base(Some(base)).finish().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("manifest");
    std::fs::create_dir(&here).unwrap();
    let [here, beside] = [here, folder.path().join("set")].map(|path| path.to_str().unwrap().to_owned());
    for (manifest, base, expected) in [
        (&*here, "../set", Ok(&*beside)),
        (&here, "/data/set", Ok("/data/set")),
        (&here, "s3://bucket/set", Ok("s3://bucket/set")),
        ("s3://bucket/manifests/x", "../set", Ok("s3://bucket/manifests/set")),
        ("s3://bucket/x", "https://host/set", Ok("https://host/set")),
        ("s3://bucket/x", "..", Ok("s3://bucket")),
        ("s3://bucket", "../other", Err("outside of the store")),
        ("https://host/", "../other", Err("outside of the store")),
        ("s3://bucket/x", "/etc", Err("a manifest in a store cannot have its shards on this machine")),
        ("https://host/x", "/etc", Err("a manifest in a store cannot have its shards on this machine")),
    ] {
        let store = DatasetStore::open_with(manifest, &StoreOptions::default()).unwrap();
        match (store.shards_url(&with(base)), expected) {
            (Ok(url), Ok(expected)) => assert_eq!(url, expected, "{base} from {manifest}"),
            (Err(error), Err(expected)) => {
                let text = error.to_string();
                let named = [format!("`{}/.spdl/manifest.spdl`", manifest.trim_end_matches('/')), format!("`{base}`")];
                assert!(named.iter().all(|name| text.contains(name)) && text.contains(expected), "{text}");
                assert!(store.shards(&with(base)).is_err() && !error.is_retryable());
            }
            (found, expected) => panic!("{base} from {manifest}: {found:?}, not {expected:?}"),
        }
    }
    let store = DatasetStore::open(&here).unwrap();
    let error = store.shards(&with("/nowhere/set")).unwrap_err();
    assert!(error.to_string().contains("`/nowhere/set` does not exist"), "{error}");
    assert!(error.hint().unwrap().contains("shared file system"));
}

#[tokio::test]
async fn a_web_server_serves_a_dataset_to_the_users_of_the_netrc_file_and_no_url_has_a_password() {
    let manifest = ManifestBuilder::new("x").finish().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let body = manifest.bytes().clone();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        let length = stream.read(&mut request).await.unwrap();
        let request = String::from_utf8_lossy(&request[..length]).to_ascii_lowercase();
        assert!(request.starts_with("get /data/my%20set/.spdl/manifest.spdl "), "{request}");
        assert!(request.contains("authorization: basic dxnlcjpzzwnyzxq=\r\n"), "user:secret, in base 64: {request}");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
    });
    let url = format!("http://user:secret@{address}/data/my%20set");
    let error = DatasetStore::open_with(&url, &StoreOptions::default()).unwrap_err().to_string();
    assert!(error.contains("NETRC") && !error.contains("secret"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let netrc = folder.path().join("netrc");
    std::fs::write(&netrc, format!("machine {} login user password secret\n", address.ip())).unwrap();
    let options = StoreOptions::from_iter([("NETRC", netrc.to_str().unwrap())]);
    let store = DatasetStore::open_with(&format!("http://{address}/data/my%20set"), &options).unwrap();
    assert_eq!(store.manifest().await.unwrap().fingerprint(), manifest.fingerprint());
}

#[tokio::test]
async fn a_missing_bucket_a_denial_and_a_server_error_are_different_errors() {
    let (address, _) = server(answer("404 Not Found", "<Error><Code>NoSuchBucket</Code></Error>")).await;
    let error = s3(&address).manifest().await.unwrap_err();
    assert!(matches!(error, StoreError::MissingBucket { .. }) && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains("the bucket of `s3://bucket/some/set/.spdl/manifest.spdl` does not exist"));

    let (address, _) = server(answer("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>")).await;
    let error = s3(&address).manifest().await.unwrap_err();
    assert!(matches!(error, StoreError::Denied { .. }) && !error.is_retryable(), "{error}");

    let (address, asked) = server(answer("503 Slow Down", "")).await;
    let error = s3(&address).manifest().await.unwrap_err();
    assert!(matches!(error, StoreError::Failed { .. }) && error.is_retryable(), "{error}");
    assert_eq!(asked.lock().unwrap().len(), 4, "one request and three retries");
}

#[tokio::test]
async fn a_wrong_port_is_an_error_that_names_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = s3(&address).manifest().await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }) && error.is_retryable(), "{error:?}");
    assert!(error.hint().unwrap().contains("AWS_ENDPOINT"));
    let store = DatasetStore::open_with(&format!("http://{address}/x"), &StoreOptions::default()).unwrap();
    assert!(matches!(store.manifest().await.unwrap_err(), StoreError::Unreachable { .. }));
}
