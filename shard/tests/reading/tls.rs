//! Stores with TLS: which certificates are accepted, and what the errors say of others.

use std::{fs, path::Path, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use spdl_shard::store::DatasetStore;
use spdl_store::{StoreError, StoreOptions};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use crate::store::{answer, server};

/// A certificate and its key.
struct Identity {
    certificate: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

fn parameters(name: &str) -> CertificateParams {
    CertificateParams::new(vec![name.to_owned()]).unwrap()
}

/// A certificate as `openssl req -x509` makes it: signed by itself, and of an authority.
fn self_signed(mut parameters: CertificateParams) -> Identity {
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    Identity { certificate: certificate.der().clone(), pem: certificate.pem(), key }
}

/// A certificate for `name`, and that of the authority that signed it.
fn signed(name: &str) -> (Identity, String) {
    let mut authority = parameters("authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = parameters(name).signed_by(&key, &authority).unwrap();
    let identity = Identity { certificate: certificate.der().clone(), pem: certificate.pem(), key };
    (identity, authority.pem())
}

/// Starts a server that has no object. Returns its address.
async fn tls_server(identity: &Identity) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::try_from(identity.key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![identity.certificate.clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let answer = answer("404 Not Found", "<Error><Code>NoSuchKey</Code></Error>");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let _ = stream.read(&mut [0; 8192]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    address
}

/// Returns the error of reading a dataset of an S3 server with these certificates.
async fn on_s3(address: &str, variables: &[(&str, &Path)]) -> StoreError {
    let endpoint = format!("https://{address}");
    let keys = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_ENDPOINT", &*endpoint)];
    let variables = variables.iter().map(|(name, path)| (*name, path.to_str().unwrap()));
    let options: StoreOptions = keys.into_iter().chain(variables).collect();
    match DatasetStore::open_with("s3://bucket/set", &options) {
        Ok(store) => store.manifest().await.unwrap_err(),
        Err(error) => error,
    }
}

fn is_reached(error: &StoreError) -> bool {
    matches!(error, StoreError::Missing { .. })
}

#[tokio::test]
async fn the_certificate_of_a_private_authority_is_accepted_where_it_is_named_and_asked_for_where_it_is_not() {
    let (identity, authority) = signed("127.0.0.1");
    let address = tls_server(&identity).await;
    let found = on_s3(&address, &[]).await;
    assert!(matches!(found, StoreError::Untrusted { .. }), "{found:?}");
    assert!(found.to_string().contains("signed by no authority that is trusted"), "{found}");
    let hint = found.hint().unwrap();
    assert!(["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"].iter().all(|name| hint.contains(name)), "{hint}");
    let folder = tempfile::tempdir().unwrap();
    let (bundle, other) = (folder.path().join("ca.pem"), folder.path().join("other.pem"));
    fs::write(&bundle, format!("# ours\n{authority}")).unwrap();
    fs::write(&other, signed("127.0.0.1").1).unwrap();
    for variable in ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"] {
        let found = on_s3(&address, &[(variable, &bundle)]).await;
        assert!(is_reached(&found), "{variable}: {found:?}");
        let found = on_s3(&address, &[(variable, &other)]).await;
        assert!(matches!(found, StoreError::Untrusted { .. }), "{variable}: {found:?}");
    }
    let both = [("AWS_CA_BUNDLE", &*bundle), ("REQUESTS_CA_BUNDLE", &*other)];
    assert!(is_reached(&on_s3(&address, &both).await), "AWS's own variable comes first");
    let in_folder = folder.path().join("certificates");
    fs::create_dir(&in_folder).unwrap();
    fs::copy(&bundle, in_folder.join("ours.pem")).unwrap();
    assert!(is_reached(&on_s3(&address, &[("REQUESTS_CA_BUNDLE", &in_folder)]).await));
    // A web server is one of no store of AWS.
    let options = |name| StoreOptions::from_iter([(name, bundle.to_str().unwrap())]);
    let open = |name| DatasetStore::open_with(&format!("https://{address}/set"), &options(name)).unwrap();
    assert!(is_reached(&open("REQUESTS_CA_BUNDLE").manifest().await.unwrap_err()));
    assert!(!is_reached(&open("AWS_CA_BUNDLE").manifest().await.unwrap_err()));
}

#[tokio::test]
async fn a_certificate_that_signed_itself_is_accepted_where_it_is_named_if_its_name_and_dates_are_right() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("self.pem");
    let mut expired = parameters("127.0.0.1");
    (expired.not_before, expired.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    for (identity, expected) in [
        (self_signed(parameters("127.0.0.1")), None),
        (self_signed(parameters("other.example")), Some("subjectAltName")),
        (self_signed(expired), Some("renewed")),
    ] {
        fs::write(&bundle, &identity.pem).unwrap();
        let address = tls_server(&identity).await;
        let found = on_s3(&address, &[("AWS_CA_BUNDLE", &bundle)]).await;
        match expected {
            None => assert!(is_reached(&found), "{found:?}"),
            Some(hint) => {
                assert!(matches!(found, StoreError::Untrusted { .. }), "{found:?}");
                assert!(found.hint().unwrap().contains(hint), "{found}: {}", found.hint().unwrap());
            }
        }
        // One that is not trusted is not accepted for what it says of itself.
        fs::write(&bundle, self_signed(parameters("127.0.0.1")).pem).unwrap();
        let found = on_s3(&address, &[("AWS_CA_BUNDLE", &bundle)]).await;
        assert!(matches!(found, StoreError::Untrusted { .. }), "{found:?}");
        assert!(!found.to_string().contains("CaUsed"), "{found}");
    }
}

#[tokio::test]
async fn a_file_of_certificates_that_cannot_be_used_is_an_error_by_the_name_of_its_variable() {
    let folder = tempfile::tempdir().unwrap();
    let (missing, text) = (folder.path().join("missing.pem"), folder.path().join("text.pem"));
    fs::write(&text, "no certificate").unwrap();
    for (path, expected) in [(&missing, "cannot be read"), (&text, "has no certificate in the form of PEM")] {
        let found = on_s3("127.0.0.1:1", &[("SSL_CERT_FILE", path)]).await.to_string();
        assert!(found.contains("`SSL_CERT_FILE`") && found.contains(expected), "{found}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_told_from_one_that_is_not_there() {
    let (address, _) = server(answer("404 Not Found", "")).await;
    let found = on_s3(&address, &[]).await;
    assert!(matches!(found, StoreError::Unreachable { .. }), "{found:?}");
    assert!(found.hint().unwrap().contains("http://"), "{found}: {:?}", found.hint());
}
