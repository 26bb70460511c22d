//! What every store has to do, for each row of the table, on the servers of `spdl-testkit`. A new row needs a [`Served`].

use std::{any::Any, collections::BTreeMap, fs, path::Path};

use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use spdl_job::scheme::{URL_SCHEMES, UrlScheme};
use spdl_store::{StoreError, StoreFolder, StoreOptions};
use spdl_testkit::{
    hub::{HubAccess, HubServer},
    s3::S3Server,
};

/// The files of the folder `set`.
const FILES: [(&str, &[u8]); 4] =
    [("one.bin", b"0123456789"), ("empty", b""), ("sub/two words.bin", b"two"), ("sub/sub/ü.bin", b"deep")];

/// The folder with [`FILES`] in a store.
struct Served {
    url: String,
    options: StoreOptions,
    /// Options with which access to it is denied, if the store can deny it.
    denied: Option<StoreOptions>,
    /// `None` if the server takes no writes.
    is_writable: Option<bool>,
    can_list: bool,
    server: Box<dyn Any>,
}

/// Serves the folder by the store of a row; `None` if there is no server for it.
async fn serve(row: &UrlScheme, folder: &Path) -> Option<Served> {
    let set = folder.join("set");
    let all = Served {
        url: format!("file://{}", set.display()),
        options: StoreOptions::default(),
        denied: None,
        is_writable: Some(true),
        can_list: true,
        server: Box::new(()),
    };
    Some(match row.names[0] {
        "file" => all,
        "s3" => {
            let server = S3Server::start();
            let wrong = [("AWS_SECRET_ACCESS_KEY", "wrong".to_owned())];
            let denied = server.environment().into_iter().chain(wrong).collect();
            let (url, options) = (server.upload(&set, "set").await, server.environment().into_iter().collect());
            Served { url, options, denied: Some(denied), server: Box::new(server), ..all }
        }
        "gs" => {
            let server = S3Server::start_open();
            let url = server.upload(&set, "set").await.replace("s3://", "gs://");
            let base = format!("http://{}", server.address());
            let open = [("GOOGLE_SKIP_SIGNATURE", "true"), ("GOOGLE_ALLOW_HTTP", "true"), ("GOOGLE_BASE_URL", &*base)];
            let options = open.into_iter().collect();
            // Without credentials this store only reads.
            Served { url, options, is_writable: None, server: Box::new(server), ..all }
        }
        // No server here speaks Azure's protocol.
        "az" => return None,
        "hf" => {
            let [server, private] = [HubServer::start(), HubServer::start()];
            server.push("main", folder);
            private.set_access(HubAccess::Private);
            let [options, denied] = [&server, &private].map(|server| server.environment().into_iter().collect());
            let url = "hf://datasets/ORG/NAME/set".to_owned();
            let server = Box::new((server, private));
            Served { url, options, denied: Some(denied), is_writable: Some(false), server, ..all }
        }
        "http" => {
            let server = S3Server::start_open();
            server.upload(&set, "set").await;
            Served {
                url: server.web_url("set"),
                is_writable: Some(false),
                can_list: false,
                server: Box::new(server),
                ..all
            }
        }
        other => panic!("`{other}` is new: serve it here"),
    })
}

#[tokio::test]
async fn every_store_reads_lists_writes_and_fails_alike() {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in FILES {
        let path = folder.path().join("set").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    for row in URL_SCHEMES {
        let Some(served) = serve(row, folder.path()).await else { continue };
        let Served { url, options, .. } = &served;
        let store = StoreFolder::open_with(&format!("{url}/"), options).unwrap();
        let shown = url.strip_prefix("file://").unwrap_or(url);
        assert_eq!((store.url(), store.name(), store.can_list()), (shown, "set", served.can_list));
        assert_eq!(store.local_folder().is_some(), row.names[0] == "file");
        reads(&store, url).await;
        if served.can_list {
            lists(&store, url).await;
        }
        let missing = store.object().get(&store.path_of("none")).await.unwrap_err();
        let missing = StoreError::of(&store.url_of("none"), missing);
        assert!(matches!(missing, StoreError::Missing { .. }) && !missing.is_retryable(), "{missing:?}");
        assert_eq!(missing.to_string(), format!("`{shown}/none` does not exist"));
        assert!(missing.hint().is_some());

        let pinned = store.pinned().await.unwrap();
        assert_eq!(pinned.url() != store.url(), row.has_revisions, "{url}");
        assert_eq!(pinned.pinned_url("given"), if row.has_revisions { pinned.url() } else { "given" });
        reads(&store.open_another(pinned.url()).unwrap(), url).await;

        match StoreFolder::create_with(url, options) {
            Ok(store) if served.is_writable == Some(true) => writes(&store).await,
            Err(error) if served.is_writable == Some(false) => {
                assert!(error.to_string().contains("read, not written"), "{error}")
            }
            opened => assert!(opened.is_ok() && served.is_writable.is_none(), "{url}: {opened:?}"),
        }
        if let Some(denied) = &served.denied {
            let store = StoreFolder::open_with(url, denied).unwrap();
            let error = StoreError::of(url, store.object().get(&store.path_of("one.bin")).await.unwrap_err());
            assert!(matches!(error, StoreError::Denied { .. }) && error.hint().is_some(), "{error:?}");
        }
        if let Some(server) = served.server.downcast_ref::<S3Server>() {
            server.clear().await;
        }
    }
}

async fn reads(store: &StoreFolder, url: &str) {
    let object = store.object();
    for (name, content) in FILES {
        let path = store.path_of(name);
        assert_eq!(object.head(&path).await.unwrap().size, content.len() as u64, "{name} of {url}");
        assert_eq!(object.get(&path).await.unwrap().bytes().await.unwrap(), content, "{name} of {url}");
    }
    let path = store.path_of("one.bin");
    assert_eq!(object.get_range(&path, 2..5).await.unwrap(), "234", "{url}");
    assert_eq!(object.get_range(&path, 9..20).await.unwrap(), "9", "the rest of {url}");
}

async fn lists(store: &StoreFolder, url: &str) {
    let listed: Vec<_> = store.object().list(Some(store.folder())).try_collect().await.unwrap();
    let listed: BTreeMap<_, _> = listed.into_iter().map(|meta| (meta.location, meta.size)).collect();
    let expected = FILES.map(|(name, content)| (store.path_of(name), content.len() as u64));
    assert_eq!(listed, BTreeMap::from(expected), "{url}");
}

async fn writes(store: &StoreFolder) {
    let (object, path) = (store.object(), store.path_of("new/one.bin"));
    for content in ["first", "second"] {
        store.put("new/one.bin", content.into()).await.unwrap();
        assert_eq!(object.get(&path).await.unwrap().bytes().await.unwrap(), content, "{store:?}");
    }
    object.delete(&path).await.unwrap();
    assert!(matches!(object.head(&path).await, Err(object_store::Error::NotFound { .. })), "{store:?}");
}

#[test]
fn every_store_is_known_by_its_urls_and_refuses_those_without_a_place() {
    for row in URL_SCHEMES {
        for name in row.names.iter().chain(row.aliases) {
            assert!(std::ptr::eq(UrlScheme::of(&format!("{}://x", name.to_uppercase())), row));
        }
        if row.names[0] != "file" {
            let nowhere = format!("{}://", row.names[0]);
            let error = StoreFolder::open_with(&nowhere, &StoreOptions::default()).unwrap_err();
            assert!(matches!(error, StoreError::BadLocation { .. }), "{error:?}");
            assert!(row.names.iter().all(|name| error.hint().unwrap().contains(name)), "{error:?}");
        }
        assert_eq!(UrlScheme::parent(row.root), None, "there is nothing above a store");
        assert_eq!(UrlScheme::parent(&format!("{}/a", row.root)), Some(row.root));
    }
}
