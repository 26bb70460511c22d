//! A cluster's certificates and endpoints on loopback, for tests.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use quinn::Endpoint;
use spdl_control::Role;
use spdl_wire::{
    certs::{ClusterCa, Identity, LEAF_VALIDITY},
    quic::{self, QuicSettings},
};

/// The CA of a cluster, in a folder of its own.
pub struct ClusterCerts {
    ca: ClusterCa,
    folder: tempfile::TempDir,
}

impl Default for ClusterCerts {
    fn default() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { ca: ClusterCa::open_or_create(&folder.path().join("ca")).unwrap(), folder }
    }
}

impl ClusterCerts {
    /// Returns the path of a file in the cluster's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Issues a certificate and writes it into a subfolder.
    pub fn write(&self, role: Role, subfolder: &str) {
        let issued = self.ca.issue(role, &format!("{role}-0"), &[], LEAF_VALIDITY).unwrap();
        issued.write(&self.path(subfolder)).unwrap();
    }

    /// Issues an identity of a process.
    pub fn identity(&self, role: Role) -> Identity {
        self.ca.issue(role, &format!("{role}-0"), &[], LEAF_VALIDITY).unwrap().identity().unwrap()
    }

    /// Makes an identity of this cluster that trusts both this cluster and `other`.
    pub fn identity_trusting(&self, other: &Self, role: Role) -> Identity {
        let issued = self.ca.issue(role, &format!("{role}-0"), &[], LEAF_VALIDITY).unwrap();
        let both = [self.ca.ca_pem(), other.ca.ca_pem()].concat();
        Identity::from_pem(&both, &issued.certificate_pem, &issued.key_pem, Path::new("mixed")).unwrap()
    }

    /// Creates an endpoint that accepts connections.
    pub fn server(&self, role: Role) -> Endpoint {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        quic::server_endpoint(any, &self.identity(role), &QuicSettings::default()).unwrap()
    }

    /// Creates an endpoint that connects.
    pub fn client(&self, role: Role) -> Endpoint {
        quic::client_endpoint(&self.identity(role), &QuicSettings::default()).unwrap()
    }
}

/// Returns the address that an endpoint listens on.
pub fn server_address(endpoint: &Endpoint) -> SocketAddr {
    endpoint.local_addr().unwrap()
}
