//! Where credentials come from, and the errors of those that are missing, wrong, expired or of another region.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use futures::TryStreamExt;
use spdl_shard::store::DatasetStore;
use spdl_store::{StoreError, StoreOptions};

use crate::store::{answer, server};

/// A home folder with AWS's files.
struct Home(tempfile::TempDir);

impl Home {
    fn new(config: &str, credentials: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(".aws")).unwrap();
        std::fs::write(folder.path().join(".aws/config"), config).unwrap();
        std::fs::write(folder.path().join(".aws/credentials"), credentials).unwrap();
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn options(&self, more: &[(&str, &str)]) -> StoreOptions {
        let home = ("HOME", self.path().to_str().unwrap());
        std::iter::once(home).chain(more.iter().copied()).collect()
    }

    /// Writes a program that runs `script`.
    fn program(&self, script: &str) -> PathBuf {
        let path = self.path().join("print-credentials");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }
}

async fn missing() -> (String, std::sync::Arc<std::sync::Mutex<Vec<String>>>) {
    server(answer("404 Not Found", "<Error><Code>NoSuchKey</Code></Error>")).await
}

/// Returns the error of reading a dataset at `url`.
async fn error(url: &str, options: &StoreOptions) -> StoreError {
    match DatasetStore::open_with(url, options) {
        Ok(store) => store.manifest().await.unwrap_err(),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_profile_gives_keys_region_and_endpoint_and_the_environment_comes_before_it() {
    let (address, asked) = missing().await;
    let config =
        format!("[default]\nregion = nowhere-9\n[profile dev]\nregion = nowhere-2\nendpoint_url = http://{address}\n");
    let keys = "[dev]\naws_access_key_id = from-file\naws_secret_access_key = secret\naws_session_token = session\n";
    let home = Home::new(&config, keys);
    let options = home.options(&[("AWS_PROFILE", "dev")]);
    assert!(matches!(error("s3://bucket/set", &options).await, StoreError::Missing { .. }));
    let request = asked.lock().unwrap().pop().unwrap().to_lowercase();
    assert!(request.contains("credential=from-file/") && request.contains("/nowhere-2/s3/"), "{request}");
    assert!(request.contains("x-amz-security-token: session\r\n"), "{request}");
    let keys = [("AWS_ACCESS_KEY_ID", "from-environment"), ("AWS_SECRET_ACCESS_KEY", "secret")];
    let options = home.options(&[("AWS_PROFILE", "dev"), ("AWS_REGION", "nowhere-3"), keys[0], keys[1]]);
    assert!(matches!(error("s3://bucket/set", &options).await, StoreError::Missing { .. }));
    let request = asked.lock().unwrap().pop().unwrap().to_lowercase();
    assert!(request.contains("credential=from-environment/") && request.contains("/nowhere-3/s3/"), "{request}");
}

#[tokio::test]
async fn a_program_that_a_profile_names_prints_the_credentials() {
    let (address, asked) = missing().await;
    let home = Home::new("", "");
    let printed = r#"{"Version": 1, "AccessKeyId": "printed", "SecretAccessKey": "s", "SessionToken": "t", "Expiration": "2100-01-01T00:00:00Z"}"#;
    let program = home.program(&format!("echo '{printed}'"));
    let config = format!(
        "[default]\nregion = nowhere-1\nendpoint_url = http://{address}\ncredential_process = '{}' a\n",
        program.display()
    );
    std::fs::write(home.path().join(".aws/config"), config).unwrap();
    assert!(matches!(error("s3://bucket/set", &home.options(&[])).await, StoreError::Missing { .. }));
    let request = asked.lock().unwrap().drain(..).next().unwrap().to_lowercase();
    assert!(request.contains("credential=printed/") && request.contains("x-amz-security-token: t\r\n"), "{request}");
    for (script, expected) in [
        ("echo 'the token of your login is too old' >&2; exit 3", "the token of your login is too old"),
        ("echo '{\"Version\": 1, \"AccessKeyId\": \"secret-word\"}'", "printed no credentials of version 1"),
    ] {
        home.program(script);
        let found = error("s3://bucket/set", &home.options(&[])).await;
        let text = found.to_string();
        assert!(matches!(found, StoreError::Profile { .. }) && !found.is_retryable(), "{found:?}");
        assert!(text.contains("`default`") && text.contains("print-credentials") && text.contains(expected), "{text}");
        assert!(!text.contains("secret-word"), "{text}");
    }
    assert!(asked.lock().unwrap().is_empty(), "nothing is asked without credentials");
}

#[tokio::test]
async fn a_profile_that_is_not_there_or_needs_a_program_that_is_not_is_an_error_that_says_where_it_was_looked_for() {
    let config = "[profile sso]\nsso_session = work\nsso_account_id = 1\nsso_role_name = r\nregion = nowhere-1\n[profile bad]\nregion = a b\n";
    let home = Home::new(config, "");
    let found = error("s3://bucket/set", &home.options(&[("AWS_PROFILE", "none")])).await;
    let text = found.to_string();
    let files = ["config", "credentials"].map(|name| home.path().join(".aws").join(name).display().to_string());
    assert!(text.contains("`none`") && files.iter().all(|file| text.contains(file)), "{text}");
    let found = error("s3://bucket/set", &home.options(&[("AWS_PROFILE", "sso")])).await.to_string();
    assert!(found.contains("`sso`") && found.contains("aws configure export-credentials --profile sso"), "{found}");
    let found = error("s3://bucket/set", &home.options(&[("AWS_PROFILE", "bad")])).await.to_string();
    assert!(found.contains("`bad`") && found.contains("AWS_REGION is `a b`"), "{found}");
}

#[tokio::test]
async fn without_credentials_the_error_names_where_they_were_looked_for_and_no_answer_of_the_store() {
    let (address, _) = server(answer("403 Forbidden", "not for you")).await;
    let metadata = format!("http://{address}");
    let options = StoreOptions::from_iter([("AWS_METADATA_ENDPOINT", &*metadata), ("AWS_REGION", "nowhere-1")]);
    let found = error("s3://bucket/set", &options).await;
    assert!(matches!(found, StoreError::NoCredentials { .. }) && !found.is_retryable(), "{found:?}");
    let text = found.to_string();
    assert!(text.starts_with("no credentials for `s3://bucket/set/.spdl/manifest.spdl` were found: "), "{text}");
    assert!(text.contains("AWS_ACCESS_KEY_ID") && text.contains("~/.aws/config"), "{text}");
    assert!(text.contains("this machine's metadata service: the server answered 403"), "{text}");
    assert!(found.hint().unwrap().contains("AWS_PROFILE"));
    let options = [
        ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
        ("AZURE_MSI_ENDPOINT", &*format!("{metadata}/metadata/identity/oauth2/token")),
    ];
    let found = error("az://container/set", &StoreOptions::from_iter(options)).await;
    assert!(matches!(found, StoreError::NoCredentials { .. }), "{found:?}");
    assert!(found.to_string().contains("AZURE_STORAGE_ACCOUNT_KEY"), "{found}");
}

fn s3_options(address: &str) -> StoreOptions {
    let options = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_REGION", "nowhere-1")];
    options.into_iter().chain([("AWS_ENDPOINT", &*format!("http://{address}"))]).collect()
}

#[tokio::test]
async fn a_bucket_of_another_region_is_an_error_that_names_it() {
    let redirect = "HTTP/1.1 301 Moved Permanently\r\nx-amz-bucket-region: eu-west-1\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";
    let body = "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region 'nowhere-1' is wrong</Message><Region>eu-west-1</Region></Error>";
    for answer in [redirect.to_owned(), answer("400 Bad Request", body)] {
        let (address, asked) = server(answer).await;
        let found = error("s3://bucket/set", &s3_options(&address)).await;
        assert!(matches!(found, StoreError::WrongRegion { .. }) && !found.is_retryable(), "{found:?}");
        assert!(found.to_string().ends_with("is in region `eu-west-1`"), "{found}");
        assert!(found.hint().unwrap().contains("AWS_REGION"));
        assert_eq!(asked.lock().unwrap().len(), 1, "it is not asked again");
    }
}

#[tokio::test]
async fn credentials_that_are_expired_unknown_or_too_weak_have_a_hint_each() {
    let account = [
        ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
        ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5"),
        ("AZURE_ALLOW_HTTP", "true"),
    ];
    for (url, status, code, hint) in [
        ("s3://bucket/set", "400 Bad Request", "ExpiredToken", "have expired"),
        ("s3://bucket/set", "403 Forbidden", "SignatureDoesNotMatch", "does not know these credentials"),
        ("s3://bucket/set", "403 Forbidden", "InvalidAccessKeyId", "does not know these credentials"),
        ("s3://bucket/set", "403 Forbidden", "RequestTimeTooSkewed", "clock"),
        ("s3://bucket/set", "403 Forbidden", "AccessDenied", "an object that is not there"),
        ("gs://bucket/set", "403 Forbidden", "AccessDenied", "what they allow"),
        ("gs://bucket/set", "400 Bad Request", "ExpiredToken", "have expired"),
        ("az://container/set", "403 Forbidden", "AuthenticationFailed", "SAS token"),
    ] {
        let (address, _) =
            server(answer(status, &format!("<Error><Code>{code}</Code><Message>m</Message></Error>"))).await;
        let endpoint = format!("http://{address}");
        let options = match &url[..2] {
            "gs" => [("GOOGLE_BASE_URL", &*endpoint), ("GOOGLE_SKIP_SIGNATURE", "true"), ("GOOGLE_ALLOW_HTTP", "true")]
                .into_iter()
                .collect(),
            "az" => account.into_iter().chain([("AZURE_STORAGE_ENDPOINT", &*endpoint)]).collect(),
            _ => s3_options(&address),
        };
        let found = error(url, &options).await;
        assert!(matches!(found, StoreError::Denied { .. }) && !found.is_retryable(), "{url} {code}: {found:?}");
        assert!(found.to_string().contains(code), "{found}");
        assert!(found.hint().is_some_and(|text| text.contains(hint)), "{url} {code}: {:?}", found.hint());
    }
}

#[tokio::test]
async fn a_list_that_is_forbidden_is_told_from_an_object_that_is() {
    let (address, _) = server(answer("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>")).await;
    let store = DatasetStore::open_with("s3://bucket/set", &s3_options(&address)).unwrap();
    let listed = store.object().list(None).try_collect::<Vec<_>>().await;
    let found = StoreError::of(store.url(), listed.unwrap_err());
    assert!(found.hint().unwrap().contains("s3:ListBucket"), "{found:?}");
}
