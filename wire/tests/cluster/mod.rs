//! A cluster's certificates and endpoints on loopback, for tests.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use quinn::Endpoint;
use spdl_wire::{
    certs::{ClusterCa, Identity, LEAF_VALIDITY, Role},
    quic::{self, QuicSettings},
};

/// A time limit that no test reaches.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) struct Cluster {
    ca: ClusterCa,
    _dir: tempfile::TempDir,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { ca: ClusterCa::open_or_create(dir.path()).unwrap(), _dir: dir }
    }

    pub(crate) fn identity(&self, role: Role) -> Identity {
        self.ca.issue(role, &format!("{role}-0"), &[], LEAF_VALIDITY).unwrap().identity().unwrap()
    }

    /// Makes an identity of this cluster that trusts both this cluster and `other`.
    pub(crate) fn identity_trusting(&self, other: &Self, role: Role) -> Identity {
        let issued = self.ca.issue(role, &format!("{role}-0"), &[], LEAF_VALIDITY).unwrap();
        let both = [self.ca.ca_pem(), other.ca.ca_pem()].concat();
        Identity::from_pem(&both, &issued.certificate_pem, &issued.key_pem, Path::new("mixed")).unwrap()
    }

    pub(crate) fn server(&self, role: Role) -> Endpoint {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        quic::server_endpoint(any, &self.identity(role), &QuicSettings::default()).unwrap()
    }

    pub(crate) fn client(&self, role: Role) -> Endpoint {
        quic::client_endpoint(&self.identity(role), &QuicSettings::default()).unwrap()
    }
}

pub(crate) fn server_address(endpoint: &Endpoint) -> SocketAddr {
    endpoint.local_addr().unwrap()
}
