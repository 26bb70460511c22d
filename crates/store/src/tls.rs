//! The certificates by which the servers of stores are trusted, where the environment names a file or folder of them.

use std::{fmt, path::Path, sync::Arc};

use object_store::{
    ClientConfigKey, ClientOptions,
    client::{HttpClient, HttpConnector, ReqwestConnector},
};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};

use crate::{StoreError, StoreOptions};

/// The variables of Python's and of OpenSSL's programs.
pub(crate) const OF_ALL: [&str; 2] = ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"];
/// Size of the largest file of certificates that is read, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The certificates that the environment names.
#[derive(Clone)]
pub(crate) struct TrustedCertificates {
    certificates: Arc<[CertificateDer<'static>]>,
    verifier: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for TrustedCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustedCertificates").field("count", &self.certificates.len()).finish_non_exhaustive()
    }
}

impl TrustedCertificates {
    /// Reads the certificates that the first of the variables names: the store's own one, or those of all; `None` if none is
    /// set, which means those of the system.
    pub(crate) fn of(options: &StoreOptions, own: Option<&'static str>) -> Result<Option<Self>, StoreError> {
        let mut names = own.into_iter().chain(OF_ALL);
        let Some((name, path)) = names.find_map(|name| Some((name, options.value(name)?))) else { return Ok(None) };
        let wrong = |problem: String| StoreError::Setting {
            name: name.to_owned(),
            problem: format!("names `{path}`, {problem}"),
        };
        let certificates = read(Path::new(path)).map_err(|problem| wrong(format!("which {problem}")))?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.iter().cloned());
        if roots.is_empty() {
            return Err(wrong("which has no certificate in the form of PEM".to_owned()));
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        let verifier = verifier.map_err(|error| wrong(format!("which cannot be used: {error}")))?;
        Ok(Some(Self { certificates: certificates.into(), verifier, provider }))
    }
}

/// Returns the certificates in a file, or in the files of a folder.
fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let in_file = |path: &Path| {
        if std::fs::metadata(path).map_err(unreadable)?.len() > MAX_FILE_BYTES {
            return Err(format!("has more than {MAX_FILE_BYTES} bytes"));
        }
        let text = std::fs::read(path).map_err(unreadable)?;
        // What is no certificate is passed over, as by other programs: a key, or a comment.
        Ok(CertificateDer::pem_slice_iter(&text).filter_map(Result::ok).collect::<Vec<_>>())
    };
    if !std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        return in_file(path);
    }
    let mut certificates = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_file() {
            certificates.extend(in_file(&path)?);
        }
    }
    Ok(certificates)
}

impl ServerCertVerifier for TrustedCertificates {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.verifier.verify_server_cert(server, intermediates, name, ocsp, now);
        match &verified {
            // `openssl req -x509` makes a certificate that is marked as that of an authority. curl and Python accept it
            // as a server's certificate if it is itself trusted. When this error arises, its dates have been checked.
            Err(rustls::Error::InvalidCertificate(CertificateError::Other(error)))
                if error.to_string() == "CaUsedAsEndEntity" && self.certificates.iter().any(|own| own == server) =>
            {
                verify_server_name(&ParsedCertificate::try_from(server)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            _ => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Makes an HTTP client: object_store's own with the certificates of the system, or one with those that are given.
pub(crate) fn connect(
    trusted: Option<&TrustedCertificates>,
    options: &ClientOptions,
) -> object_store::Result<HttpClient> {
    let Some(trusted) = trusted.filter(|_| !is_set(options, ClientConfigKey::AllowInvalidCertificates)) else {
        return ReqwestConnector::default().connect(options);
    };
    let generic = |problem: String| object_store::Error::Generic { store: "http", source: problem.into() };
    let tls = ClientConfig::builder_with_provider(trusted.provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| generic(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trusted.clone()))
        .with_no_client_auth();
    let value = |key| options.get_config_value(&key);
    let time = |key| {
        let parsed = value(key).map(|text| humantime::parse_duration(&text));
        parsed.transpose().map_err(|error| generic(error.to_string()))
    };
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(concat!("spdl-cluster/", env!("CARGO_PKG_VERSION")))
        .https_only(!is_set(options, ClientConfigKey::AllowHttp))
        .http1_only();
    if let Some(timeout) = time(ClientConfigKey::Timeout)? {
        builder = builder.timeout(timeout);
    }
    if let Some(timeout) = time(ClientConfigKey::ConnectTimeout)? {
        builder = builder.connect_timeout(timeout);
    }
    if let Some(timeout) = time(ClientConfigKey::ReadTimeout)? {
        builder = builder.read_timeout(timeout);
    }
    if let Some(proxy) = value(ClientConfigKey::ProxyUrl) {
        let proxy = reqwest::Proxy::all(proxy).map_err(|error| generic(error.to_string()))?;
        let excluded = value(ClientConfigKey::ProxyExcludes);
        let excluded = excluded.and_then(|excluded| reqwest::NoProxy::from_string(&excluded));
        builder = builder.proxy(proxy.no_proxy(excluded));
    }
    builder.build().map(HttpClient::new).map_err(|error| generic(error.to_string()))
}

fn is_set(options: &ClientOptions, key: ClientConfigKey) -> bool {
    options.get_config_value(&key).is_some_and(|value| value == "true")
}
