//! The cluster's CA in its directory, and the certificates that it issues.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustix::fs::FlockOperation;
use rustls::pki_types::{CertificateDer, pem::PemObject};

use spdl_control::Role;

use super::{
    CA_FILE, CA_KEY_FILE, CERTIFICATE_FILE, CertError, Identity, KEY_FILE,
    renewal::{Origin, Subject},
};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long a CA is valid.
pub const CA_VALIDITY: Duration = DAY.saturating_mul(3650);
/// How long a certificate is valid by default.
pub const LEAF_VALIDITY: Duration = DAY.saturating_mul(365);
/// Certificates are valid from this long before they are made, for peers whose clocks are behind.
const CLOCK_SLACK: Duration = Duration::from_secs(3600);
/// The number of attempts to lock the directory, and the pause between them: making a CA takes milliseconds.
const LOCK_ATTEMPTS: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// The longest common name that RFC 5280 allows.
const MAX_NAME_BYTES: usize = 64;

/// The CA of one cluster.
#[derive(Debug)]
pub struct ClusterCa {
    dir: PathBuf,
    ca_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl ClusterCa {
    /// Opens the CA in `dir`, and makes one if there is none. Two processes that do this at once get the same CA.
    pub fn open_or_create(dir: &Path) -> Result<Self, CertError> {
        if !dir.join(CA_FILE).exists() {
            make_dir(dir)?;
            let _lock = lock(dir)?;
            if !dir.join(CA_FILE).exists() {
                Self::create(dir)?;
            }
        }
        Self::open(dir)
    }

    /// Opens the CA in `dir`.
    ///
    /// Returns [`CertError::NoCa`] if there is none, and other errors if the files are not those of a CA.
    pub fn open(dir: &Path) -> Result<Self, CertError> {
        let (ca_path, key_path) = (dir.join(CA_FILE), dir.join(CA_KEY_FILE));
        if !ca_path.exists() || !key_path.exists() {
            return Err(CertError::NoCa { path: dir.to_owned() });
        }
        let ca_pem = read(&ca_path)?;
        let mode = fs::metadata(&key_path).map_err(CertError::io(&key_path))?.permissions().mode();
        if mode & 0o004 != 0 {
            let key = key_path.display();
            tracing::warn!("every user here can read `{key}`, and issue certificates with it: chmod 600 {key}");
        }
        let key = KeyPair::from_pem(&read(&key_path)?)
            .map_err(|error| CertError::invalid(&key_path, format!("is not a key: {error}")))?;
        let issuer = Issuer::from_ca_cert_pem(&ca_pem, key)
            .map_err(|error| CertError::invalid(&ca_path, format!("is not a CA's certificate: {error}")))?;
        Ok(Self { dir: dir.to_owned(), ca_pem, issuer })
    }

    /// Writes the key, then the certificate: a crash in between leaves a key that the next start uses.
    fn create(dir: &Path) -> Result<(), CertError> {
        let key_path = dir.join(CA_KEY_FILE);
        let key = if key_path.exists() {
            KeyPair::from_pem(&read(&key_path)?)
                .map_err(|error| CertError::invalid(&key_path, format!("is not a key: {error}")))?
        } else {
            let key = KeyPair::generate()?;
            write(&key_path, &key.serialize_pem(), Secrecy::Secret)?;
            key
        };
        let mut params = CertificateParams::default();
        // Each CA has its own name, so the error for a certificate of another cluster is "unknown issuer", not "bad
        // signature".
        let id: String = params.key_identifier(&key)[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        params.distinguished_name = common_name(&format!("spdl-cluster CA {id}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params, CA_VALIDITY)?;
        write(&dir.join(CA_FILE), &params.self_signed(&key)?.pem(), Secrecy::Public)
    }

    /// Reads the certificate of the CA in `dir`.
    pub(super) fn pem_in(dir: &Path) -> Result<String, CertError> {
        read(&dir.join(CA_FILE))
    }

    /// Returns the CA's certificate.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Issues a certificate for `name` in `role`. `sans` are further DNS names and addresses by which other tools reach
    /// the process.
    ///
    /// Returns [`CertError::Issue`] for a name or a SAN that is not allowed in a certificate.
    pub fn issue(&self, role: Role, name: &str, sans: &[String], validity: Duration) -> Result<Issued, CertError> {
        let problem = |problem: String| CertError::Issue { problem };
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_name_byte) {
            return Err(problem(format!("name `{name}` is not 1 to {MAX_NAME_BYTES} of A-Z, a-z, 0-9, `.`, `_`, `-`")));
        }
        if let Some(san) = sans.iter().find(|san| san.to_ascii_lowercase().ends_with(".role.spdl.internal")) {
            return Err(problem(format!("`{san}` is the name of a role; choose the role instead")));
        }
        let own = [role.dns_name(), "localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let all: Vec<String> = own.into_iter().chain(sans.iter().cloned()).collect();
        let mut params = CertificateParams::new(all)?;
        params.distinguished_name = common_name(name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if role.is_server() {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, validity)?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Issued { ca_pem: self.ca_pem.clone(), certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// Issues the identity of this process. Endpoints that are made from it renew it by themselves.
    ///
    /// Returns [`CertError::Issue`] for a name or a SAN that is not allowed in a certificate.
    pub fn identity(&self, role: Role, name: &str, sans: &[String]) -> Result<Identity, CertError> {
        let identity = self.issue(role, name, sans, LEAF_VALIDITY)?.identity()?;
        let subject = Subject { role, name: name.to_owned(), sans: sans.to_vec() };
        Ok(identity.of(Origin::Ca { dir: self.dir.clone(), subject }))
    }
}

/// A certificate with its key, and the CA to verify it against.
#[derive(Clone)]
pub struct Issued {
    /// The CA's certificate.
    pub ca_pem: String,
    /// The certificate.
    pub certificate_pem: String,
    /// Its key: a secret.
    pub key_pem: String,
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("certificate_pem", &self.certificate_pem).finish_non_exhaustive()
    }
}

impl Issued {
    /// Writes `ca.pem`, `cert.pem` and `key.pem` (readable only by the owner) into `dir`; replaces an older certificate
    /// of the same cluster, which is one whose `ca.pem` has a CA in common.
    ///
    /// Returns [`CertError::OtherCluster`] if another cluster's CA is there, or [`CertError::Io`].
    pub fn write(&self, dir: &Path) -> Result<(), CertError> {
        make_dir(dir)?;
        let ca_path = dir.join(CA_FILE);
        let before = if ca_path.exists() { Some(read(&ca_path)?) } else { None };
        if before.as_ref().is_some_and(|before| !has_common_certificate(before, &self.ca_pem)) {
            return Err(CertError::OtherCluster { path: dir.to_owned() });
        }
        if before.as_ref() != Some(&self.ca_pem) {
            write(&ca_path, &self.ca_pem, Secrecy::Public)?;
        }
        write(&dir.join(KEY_FILE), &self.key_pem, Secrecy::Secret)?;
        write(&dir.join(CERTIFICATE_FILE), &self.certificate_pem, Secrecy::Public)
    }

    /// Returns the identity directly, without files.
    ///
    /// Returns [`CertError::Invalid`] if the parts do not belong together.
    pub fn identity(&self) -> Result<Identity, CertError> {
        Identity::from_pem(&self.ca_pem, &self.certificate_pem, &self.key_pem, Path::new("(issued)"))
    }
}

/// Returns whether a certificate is in both texts, which are PEM.
fn has_common_certificate(one: &str, other: &str) -> bool {
    let certificates = |pem: &str| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).collect()
    };
    let others = certificates(other);
    certificates(one).iter().any(|certificate| others.contains(certificate))
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn set_validity(params: &mut CertificateParams, validity: Duration) -> Result<(), CertError> {
    let validity = validity.min(CA_VALIDITY);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_err(|_| CertError::Issue { problem: "the clock of this machine is before 1970".to_owned() })?;
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(CLOCK_SLACK);
    params.not_after = epoch + now + validity;
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Secrecy {
    Secret,
    Public,
}

/// Locks a directory. The lock is on the directory itself: no file is left behind, and the lock ends with the process.
fn lock(dir: &Path) -> Result<fs::File, CertError> {
    let lock = fs::File::open(dir).map_err(CertError::io(dir))?;
    for _ in 0..LOCK_ATTEMPTS {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            done => return done.map(|()| lock).map_err(|error| CertError::io(dir)(error.into())),
        }
    }
    Err(CertError::Locked { path: dir.to_owned() })
}

fn make_dir(dir: &Path) -> Result<(), CertError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(CertError::io(dir))
}

fn read(path: &Path) -> Result<String, CertError> {
    fs::read_to_string(path).map_err(CertError::io(path))
}

/// Writes a file atomically. The name of the temporary file contains the process id, so two writers do not share it.
fn write(path: &Path, text: &str, secrecy: Secrecy) -> Result<(), CertError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = Path::new(&beside);
    let mode = if secrecy == Secrecy::Secret { 0o600 } else { 0o644 };
    let attempt = || -> io::Result<()> {
        let _ = fs::remove_file(beside);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(beside, path)
    };
    attempt().map_err(|error| {
        let _ = fs::remove_file(beside);
        CertError::Io { path: path.to_owned(), source: error }
    })
}
