//! The certificate that a process presents to its peers, and the checks of theirs: mutual TLS 1.3 against the cluster's
//! CA.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ::aws_lc_rs::hmac;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::Resumption,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
};
use x509_parser::{extensions::GeneralName, prelude::X509Certificate, time::ASN1Time};

use spdl_control::Role;

use super::{
    CA_FILE, CERTIFICATE_FILE, CertError, KEY_FILE,
    renewal::{self, Origin},
};

/// The protocol name that both sides must offer. The version is in the frames, where an error can name both versions.
const ALPN: &[u8] = b"spdl";
/// The largest certificate file. Certificate files are small; a longer file is not one.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The file names tried in a directory: ours, then those of a Kubernetes TLS secret.
const FILE_NAMES: [[&str; 3]; 2] = [[CA_FILE, CERTIFICATE_FILE, KEY_FILE], ["ca.crt", "tls.crt", "tls.key"]];

/// A checked certificate with its key and the CA, ready for connections.
#[derive(Clone, Debug)]
pub struct Identity {
    role: Role,
    name: String,
    ca_name: String,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    pub(super) ca_pem: String,
    /// The beginning and the end of the certificate's validity.
    pub(super) validity: [SystemTime; 2],
    /// A hash of the files, to notice that one of them has changed.
    pub(super) stamp: u64,
    pub(super) origin: Option<Origin>,
    /// A key for secrets that only holders of the private key share.
    secret: hmac::Key,
}

impl Identity {
    /// Loads an identity from a directory with `ca.pem`, `cert.pem` and `key.pem`, or Kubernetes' `ca.crt`, `tls.crt`
    /// and `tls.key`. Endpoints that are made from it take over files that are renewed there.
    ///
    /// # Errors
    /// [`CertError`], naming the file.
    pub fn load(dir: &Path) -> Result<Self, CertError> {
        let [ca, certificate, key] =
            FILE_NAMES.iter().find(|names| names.iter().all(|name| dir.join(name).exists())).ok_or_else(|| {
                CertError::invalid(dir, "has no ca.pem, cert.pem and key.pem: make them with `spdl-ctl cert`")
            })?;
        let identity = Self::load_files(&dir.join(ca), &dir.join(certificate), &dir.join(key))?;
        Ok(identity.of(Origin::Files(dir.to_owned())))
    }

    /// Loads an identity from three PEM files.
    ///
    /// # Errors
    /// [`CertError`], naming the file.
    pub fn load_files(ca: &Path, certificate: &Path, key: &Path) -> Result<Self, CertError> {
        Self::from_pem(&read(ca)?, &read(certificate)?, &read(key)?, certificate)
    }

    /// Makes an identity from PEM text; `origin` is for errors.
    ///
    /// # Errors
    /// [`CertError::Invalid`].
    pub fn from_pem(ca: &str, certificate: &str, key: &str, origin: &Path) -> Result<Self, CertError> {
        let invalid = |problem: String| CertError::invalid(origin, problem);
        let list = |pem: &str| CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
        let authorities = list(ca).map_err(|error| invalid(format!("has a CA file that is not PEM: {error}")))?;
        let chain = list(certificate).map_err(|error| invalid(format!("is not PEM: {error}")))?;
        let stamp = renewal::stamp([ca, certificate, key]);
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| invalid(format!("has a key file without a key: {error}")))?;
        let leaf = chain.first().ok_or_else(|| invalid("holds no certificate".to_owned()))?;
        let secret = hmac::Key::new(hmac::HMAC_SHA256, key.secret_der());
        let (role, name) = names_of(leaf).map_err(invalid)?;
        let (ca_name, validity) = check_issuer(leaf, &authorities).map_err(invalid)?;
        let configs = Configs { authorities, chain, key };
        let client = configs.client().map_err(|error| invalid(format!("cannot be used: {error}")))?;
        let server = configs.server().map_err(|error| invalid(format!("cannot be used: {error}")))?;
        let (client, server, ca_pem) = (Arc::new(client), Arc::new(server), ca.to_owned());
        Ok(Self { role, name, ca_name, client, server, ca_pem, validity, stamp, origin: None, secret })
    }

    /// Returns the identity with the place that it comes from.
    pub(super) fn of(self, origin: Origin) -> Self {
        Self { origin: Some(origin), ..self }
    }

    /// Returns the role in the certificate.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Returns the name in the certificate.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a key for secrets that only processes with the same private key share.
    pub(crate) const fn secret(&self) -> &hmac::Key {
        &self.secret
    }

    /// Returns the name of the CA that issued the certificate; it differs between clusters.
    #[must_use]
    pub fn ca_name(&self) -> &str {
        &self.ca_name
    }

    /// Returns when the certificate expires.
    #[must_use]
    pub const fn valid_until(&self) -> SystemTime {
        self.validity[1]
    }

    pub(crate) fn client_config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }
}

struct Configs {
    authorities: Vec<CertificateDer<'static>>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Configs {
    fn roots(&self) -> Result<RootCertStore, rustls::Error> {
        let mut roots = RootCertStore::empty();
        for authority in &self.authorities {
            roots.add(authority.clone())?;
        }
        Ok(roots)
    }

    /// Makes the client's TLS configuration. Neither side resumes TLS sessions, so every connection presents its
    /// certificate.
    fn client(&self) -> Result<ClientConfig, rustls::Error> {
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    fn server(&self) -> Result<ServerConfig, rustls::Error> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()?), provider())
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

/// Returns the cipher suites, with AES-128 before AES-256: equally safe for this use, and less work for bulk data.
fn provider() -> Arc<CryptoProvider> {
    use aws_lc_rs::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256};
    let cipher_suites = vec![TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256];
    Arc::new(CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() })
}

/// Returns role and name in a certificate, which must contain exactly one role.
pub(crate) fn names_of(certificate: &CertificateDer<'_>) -> Result<(Role, String), String> {
    let parsed = parse(certificate)?;
    let alternative = parsed.subject_alternative_name().map_err(|error| format!("has odd names: {error}"))?;
    let names = alternative.iter().flat_map(|extension| &extension.value.general_names);
    let mut roles = Role::ALL.into_iter().filter(|role| {
        names.clone().any(|name| matches!(name, GeneralName::DNSName(dns) if dns.eq_ignore_ascii_case(role.dns_name())))
    });
    let (Some(role), None) = (roles.next(), roles.next()) else {
        return Err("does not name a role of spdl-cluster; issue it with `spdl-ctl cert`".to_owned());
    };
    let name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    Ok((role, name.unwrap_or("unnamed").to_owned()))
}

/// Checks what can be checked before a peer does: that this CA issued the certificate, and that it is valid now.
/// Returns the CA's name, and the beginning and the end of the certificate's validity.
fn check_issuer(
    leaf: &CertificateDer<'_>,
    authorities: &[CertificateDer<'_>],
) -> Result<(String, [SystemTime; 2]), String> {
    let leaf = parse(leaf)?;
    for authority in authorities {
        let authority = parse(authority)?;
        if authority.subject() == leaf.issuer() {
            if !leaf.validity().is_valid() {
                let (from, until) = (leaf.validity().not_before, leaf.validity().not_after);
                return Err(format!("is valid from {from} until {until}, not now: issue another with `spdl-ctl cert`"));
            }
            let time = |at: &ASN1Time| UNIX_EPOCH + Duration::from_secs(at.timestamp().max(0).unsigned_abs());
            let validity = [&leaf.validity().not_before, &leaf.validity().not_after].map(time);
            return Ok((authority.subject().to_string(), validity));
        }
    }
    Err(format!("was issued by `{}`, which is not the CA beside it: both must be of one cluster", leaf.issuer()))
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, String> {
    match x509_parser::parse_x509_certificate(certificate) {
        Ok((_, parsed)) => Ok(parsed),
        Err(error) => Err(format!("is not a certificate: {error}")),
    }
}

fn read(path: &Path) -> Result<String, CertError> {
    let bytes = std::fs::metadata(path).map_err(CertError::io(path))?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(CertError::invalid(path, format!("is {bytes} bytes, more than the {MAX_FILE_BYTES} it may have")));
    }
    std::fs::read_to_string(path).map_err(CertError::io(path))
}
