//! The roles of the processes.

use std::{fmt, str::FromStr};

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

    /// Returns whether other processes connect to a process with this role.
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
