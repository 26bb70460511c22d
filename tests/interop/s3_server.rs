//! Checks the server of the S3 tests itself: it keeps objects, serves ranges and checks signatures.

use object_store::{Error, ObjectStoreExt};
use spdl_testkit::s3::S3Server;

#[tokio::test]
async fn the_test_server_serves_ranges_and_refuses_a_wrong_secret() {
    let server = S3Server::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shard.tar"), [7; 1000]).unwrap();
    assert_eq!(server.upload(folder.path(), "probe").await, server.url("probe"));
    let key = server.key("probe/shard.tar");
    assert_eq!(server.client().get_range(&key, 10..30).await.unwrap().as_ref(), [7; 20]);
    let refused = server.client_with("another-secret").get_range(&key, 10..30).await.unwrap_err();
    assert!(matches!(refused, Error::PermissionDenied { .. } | Error::Unauthenticated { .. }), "{refused:?}");
    let missing = server.client().get(&server.key("probe/none")).await.unwrap_err();
    assert!(matches!(missing, Error::NotFound { .. }), "{missing:?}");
    server.clear().await;
    let gone = server.client().get(&key).await.unwrap_err();
    assert!(matches!(gone, Error::NotFound { .. }), "{gone:?}");
}
