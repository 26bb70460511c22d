//! The identity of a process: the cluster's CA, the certificates that it issues, and the role in each.
//!
//! A role is a DNS name in the certificate, [`Role::dns_name`](spdl_control::Role::dns_name). So TLS itself checks the role of a server: a client
//! connects "to `worker.role.spdl.internal`", at any address. Certificates also contain host names and addresses for
//! other tools; nothing here trusts them, because those of pods change.

mod authority;
mod identity;
mod renewal;

use std::{
    io,
    path::{Path, PathBuf},
};

pub use authority::{CA_VALIDITY, ClusterCa, Issued, LEAF_VALIDITY};
pub use identity::Identity;
pub(crate) use identity::names_of;

/// The file name of the CA's certificate.
pub const CA_FILE: &str = "ca.pem";
/// The file name of the CA's key.
pub const CA_KEY_FILE: &str = "ca.key";
/// The file name of a process's certificate.
pub const CERTIFICATE_FILE: &str = "cert.pem";
/// The file name of a process's key.
pub const KEY_FILE: &str = "key.pem";

/// A certificate cannot be made, written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum CertError {
    #[error("certificate file `{path}`: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("certificate file `{path}` {problem}")]
    Invalid { path: PathBuf, problem: String },
    #[error("another process keeps `{path}` locked, where the CA is to be made: choose a directory of your own")]
    Locked { path: PathBuf },
    #[error("`{path}` has no cluster CA; `spdl-coord` creates one in its state directory at its first start")]
    NoCa { path: PathBuf },
    #[error("`{path}` holds the certificates of another cluster: choose another directory, or remove them first")]
    OtherCluster { path: PathBuf },
    #[error("a certificate cannot be issued: {problem}")]
    Issue { problem: String },
}

impl CertError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    fn invalid(path: &Path, problem: impl Into<String>) -> Self {
        Self::Invalid { path: path.to_owned(), problem: problem.into() }
    }
}

impl From<rcgen::Error> for CertError {
    fn from(error: rcgen::Error) -> Self {
        Self::Issue { problem: error.to_string() }
    }
}
