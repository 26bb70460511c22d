//! The identity of a process: the cluster's CA, the certificates that it issues, and the role in each.
//!
//! A role is a DNS name in the certificate, [`Role::dns_name`]. So TLS itself checks the role of a server: a client
//! connects "to `worker.role.spdl.internal`", at any address. Certificates also contain host names and addresses for
//! other tools; nothing here trusts them, because those of pods change.

mod authority;
mod identity;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    str::FromStr,
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

/// The role of a process in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Role {
    Coordinator,
    Worker,
    Client,
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Coordinator, Self::Worker, Self::Client, Self::Admin];

    /// Returns the role's name, as written in commands and errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Worker => "worker",
            Self::Client => "client",
            Self::Admin => "admin",
        }
    }

    /// Returns the DNS name that stands for the role in a certificate.
    #[must_use]
    pub const fn dns_name(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator.role.spdl.internal",
            Self::Worker => "worker.role.spdl.internal",
            Self::Client => "client.role.spdl.internal",
            Self::Admin => "admin.role.spdl.internal",
        }
    }

    /// Whether other processes connect to it.
    #[must_use]
    pub const fn is_server(self) -> bool {
        matches!(self, Self::Coordinator | Self::Worker)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text is not the name of a role.
#[derive(Debug, thiserror::Error)]
#[error("role `{0}` is none of coordinator, worker, client, admin")]
pub struct ParseRoleError(String);

impl FromStr for Role {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| ParseRoleError(text.to_owned()))
    }
}

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
    #[error("there is no cluster CA in `{path}`: `spdl-coord` makes one in its state directory at first start")]
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
