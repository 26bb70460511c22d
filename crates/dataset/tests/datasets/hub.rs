//! Datasets on the Hugging Face Hub, against a server that answers as it does.

use std::{fs, path::Path};

use futures::TryStreamExt;
use object_store::{GetOptions, ObjectStoreExt};
use spdl_dataset::{IndexOptions, index, unpack, verify};
use spdl_shard::store::DatasetStore;
use spdl_store::{StoreError, StoreOptions};
use spdl_testkit::hub::{HubAccess, HubServer, TOKEN};

fn options(hub: &HubServer, token: Option<&str>) -> StoreOptions {
    let token = token.map(|token| ("HF_TOKEN", token.to_owned()));
    hub.environment().into_iter().chain(token).collect()
}

fn at(hub: &HubServer, url: &str) -> DatasetStore {
    DatasetStore::open_with(url, &options(hub, None)).unwrap()
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Files of two commits: three in folders of classes, whose list has several pages, and an empty one.
fn files(folder: &Path) -> [std::path::PathBuf; 2] {
    let commits = [folder.join("1"), folder.join("2")];
    for (number, commit) in commits.iter().enumerate() {
        for (name, bytes) in [("a b/1.jpg", 5000), ("a b/2.jpg", 100), ("ü/3.jpg", 2000), ("empty.txt", 0)] {
            write(&commit.join("data").join(name), &vec![b'a' + number as u8; bytes + number]);
        }
        write(&commit.join("README.md"), b"about");
    }
    write(&commits[0].join("data/empty.txt"), b"");
    commits
}

#[tokio::test]
async fn files_are_listed_by_pages_and_read_by_ranges_from_the_server_behind_which_gets_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let hub = HubServer::start();
    hub.push("main", &files(folder.path())[0]);
    hub.set_access(HubAccess::Private);
    let url = "hf://datasets/ORG/NAME/data";
    let from = DatasetStore::open_with(url, &options(&hub, Some(&format!(" {TOKEN}\n")))).unwrap();
    let to = folder.path().join("manifest");
    let to = DatasetStore::create_with(to.to_str().unwrap(), &options(&hub, Some(TOKEN))).unwrap();
    let report = index(&from, &to, &IndexOptions::default(), &|_| {}).await.unwrap();
    assert_eq!((report.records, report.classes), (3, 2));
    assert_eq!(verify(&to, &Default::default(), &|_| {}).await.unwrap().faults, []);
    let unpacked = folder.path().join("unpacked");
    unpack(&to, &unpacked, &|_| {}).await.unwrap();
    assert_eq!(fs::read(unpacked.join("a b/1.jpg")).unwrap(), vec![b'a'; 5000]);

    let path = from.path_of("a b/1.jpg");
    let part = from.object().get_range(&path, 10..30).await.unwrap();
    assert_eq!(part.as_ref(), [b'a'; 20]);
    for (name, size) in [("a b/1.jpg", 5000), ("empty.txt", 0)] {
        let meta = from.object().head(&from.path_of(name)).await.unwrap();
        assert_eq!((meta.size, meta.location), (size, from.path_of(name)));
    }
    // An etag of the list is none of the server behind.
    let options = GetOptions { if_match: Some("0".repeat(64)), ..GetOptions::default() };
    assert_eq!(from.object().get_opts(&path, options).await.unwrap().bytes().await.unwrap().len(), 5000);

    let requests = hub.requests();
    assert!(requests.iter().filter(|request| request.line.contains("cursor=")).count() >= 2, "{requests:?}");
    for request in &requests {
        assert_ne!(request.has_token, request.is_behind, "{request:?}");
        assert!(request.line.starts_with("GET "), "{request:?}");
    }
    assert!(requests.iter().any(|request| request.is_behind && request.status == 206));
    let shown = format!("{from:?} {:?}", from.object());
    assert!(!shown.contains(TOKEN), "{shown}");
}

#[tokio::test]
async fn a_list_that_goes_on_at_another_server_gets_no_token_there() {
    let folder = tempfile::tempdir().unwrap();
    let hub = HubServer::start();
    hub.push("main", &files(folder.path())[0]);
    hub.list_elsewhere();
    let from = DatasetStore::open_with("hf://datasets/ORG/NAME/data", &options(&hub, Some(TOKEN))).unwrap();
    let to = DatasetStore::create_with(folder.path().join("m").to_str().unwrap(), &StoreOptions::default()).unwrap();
    let error = index(&from, &to, &IndexOptions::default(), &|_| {}).await.unwrap_err().to_string();
    assert!(error.contains("`hf://datasets/ORG/NAME@") && error.contains("goes on at another server"), "{error}");
    assert!(hub.requests().iter().all(|request| !request.is_behind));
}

#[tokio::test]
async fn a_revision_is_one_commit_from_the_first_request_on() {
    let folder = tempfile::tempdir().unwrap();
    let hub = HubServer::start();
    let [first, second] = files(folder.path());
    let commit = hub.push("refs/convert/x", &first);
    let url = "hf://datasets/ORG/NAME@refs%2Fconvert%2Fx/data";
    let store = at(&hub, url);
    let read = async |store: &DatasetStore| {
        let answer = store.object().get(&store.path_of("a b/2.jpg")).await.unwrap();
        answer.bytes().await.unwrap().len()
    };
    assert_eq!(read(&store).await, 100);
    hub.push("refs/convert/x", &second);
    assert_eq!((read(&store).await, read(&at(&hub, url)).await), (100, 101));
    let pinned = at(&hub, &format!("hf://datasets/ORG/NAME@{commit}/data"));
    assert_eq!(read(&pinned).await, 100);
    let asked = hub.requests().iter().filter(|request| request.line.contains("/revision/")).count();
    assert_eq!(asked, 2, "once for each store, and never for a commit");
}

#[tokio::test]
async fn what_the_hub_refuses_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let hub = HubServer::start();
    hub.push("main", &files(folder.path())[0]);
    let read = async |url: &str, token| {
        let store = DatasetStore::open_with(url, &options(&hub, token)).unwrap();
        store.manifest().await.unwrap_err()
    };
    let missing = read("hf://datasets/ORG/NAME@v9", None).await;
    assert!(
        matches!(missing, StoreError::Missing { .. }) && missing.hint().unwrap().contains("no such branch"),
        "{missing}"
    );
    let missing = read("hf://datasets/ORG/NAME/data", None).await;
    assert_eq!(missing.to_string(), "`hf://datasets/ORG/NAME/data/.spdl/manifest.spdl` does not exist");
    for (access, url, token, code, hint) in [
        (HubAccess::Public, "hf://datasets/ORG/OTHER", None, "401 Unauthorized: RepoNotFound", "check the name"),
        (HubAccess::Private, "hf://datasets/ORG/NAME", None, "401 Unauthorized: RepoNotFound", "set HF_TOKEN"),
        (HubAccess::Private, "hf://datasets/ORG/NAME", Some("hf_wrong"), "401 Unauthorized", "HF_TOKEN"),
        (HubAccess::Gated, "hf://datasets/ORG/NAME", None, "401 Unauthorized: GatedRepo", "accept the terms"),
        (HubAccess::Gated, "hf://datasets/ORG/NAME", Some(TOKEN), "403 Forbidden: GatedRepo", "accept the terms"),
    ] {
        hub.set_access(access);
        let error = read(url, token).await;
        let text = error.to_string();
        assert!(text.contains("access to `hf://") && text.contains(code) && !text.contains("hf_"), "{text}");
        assert!(matches!(error, StoreError::Denied { .. }) && error.hint().unwrap().contains(hint), "{error:?}");
        assert!(!error.is_retryable());
    }
}

#[tokio::test]
async fn a_busy_hub_gets_the_time_that_it_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let hub = HubServer::start();
    hub.push("main", &files(folder.path())[0]);
    hub.answer_busy(&["Retry-After: 1", "RateLimit: \"api\";r=0;t=1"]);
    let store = at(&hub, "hf://datasets/ORG/NAME/data");
    let read = store.object().get(&store.path_of("a b/2.jpg")).await.unwrap();
    assert_eq!(read.bytes().await.unwrap().len(), 100);
    // A request before its time would have another status.
    let statuses: Vec<u16> = hub.requests().iter().map(|request| request.status).collect();
    assert_eq!(statuses, [429, 429, 200, 302, 200]);
}

#[tokio::test]
async fn a_hub_that_asks_for_years_or_lists_forever_is_an_error_and_no_wait() {
    let folder = tempfile::tempdir().unwrap();
    let hub = HubServer::start();
    hub.push("main", &files(folder.path())[0]);
    let store = at(&hub, "hf://datasets/ORG/NAME/data");
    hub.list_forever();
    let listed = store.object().list(None).try_collect::<Vec<_>>().await;
    let text = StoreError::of(store.url(), listed.unwrap_err()).to_string();
    assert!(text.contains("hf://datasets/ORG/NAME/data") && text.contains("on two pages"), "{text}");

    let before = hub.requests().len();
    hub.answer_busy(&["Retry-After: 99999999999"]);
    let error = at(&hub, "hf://datasets/ORG/NAME/data").manifest().await.unwrap_err();
    assert!(error.to_string().contains("429 and asks for a retry after 99999999999 s"), "{error}");
    assert_eq!(hub.requests().len() - before, 1, "it is not asked before");
}

#[test]
fn the_token_is_where_the_hubs_own_programs_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let hub = HubServer::start();
    hub.push("main", &files(folder.path())[0]);
    hub.set_access(HubAccess::Private);
    write(&folder.path().join("home/token"), format!("{TOKEN}\n").as_bytes());
    write(&folder.path().join("user/.cache/huggingface/token"), TOKEN.as_bytes());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [endpoint, ..] = hub.environment();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (variables, is_open) in [
        (vec![("HF_HOME", path("home"))], true),
        (vec![("HF_TOKEN_PATH", path("home/token"))], true),
        (vec![("HOME", path("user"))], true),
        (vec![("HOME", path("user")), ("XDG_CACHE_HOME", path("home"))], false),
        (vec![("HF_TOKEN", "hf_other".to_owned()), ("HF_HOME", path("home"))], false),
        (vec![], false),
    ] {
        let options: StoreOptions = variables.iter().cloned().chain([endpoint.clone()]).collect();
        let store = DatasetStore::open_with("hf://datasets/ORG/NAME", &options).unwrap();
        let read = runtime.block_on(async { store.object().get(&store.path_of("README.md")).await });
        assert_eq!(read.is_ok(), is_open, "{variables:?}");
    }
}
