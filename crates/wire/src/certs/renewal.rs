//! Certificates that are renewed while their process runs.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    time::SystemTime,
};

use spdl_control::Role;

use super::{CertError, ClusterCa, Identity};

/// Where an identity comes from, so that it can be renewed.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// The files in a directory, which other programs write.
    Files(PathBuf),
    /// The CA in a directory, which issues certificates to this process.
    Ca {
        /// The directory.
        dir: PathBuf,
        /// The subject of the certificates.
        subject: Subject,
    },
}

/// The subject of a certificate.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) role: Role,
    pub(super) name: String,
    pub(super) sans: Vec<String>,
}

/// Returns a hash of the texts, which changes if any of them does.
pub(super) fn stamp(texts: [&str; 3]) -> u64 {
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    hasher.finish()
}

impl Identity {
    /// Returns the process's new identity, if its files have changed since this one was loaded. A process that issues
    /// its own certificates issues a new one when the CA has changed, when two thirds of the validity are over, or when
    /// the validity has not begun because the clock was set back.
    ///
    /// # Errors
    /// [`CertError`]: the files cannot be used, perhaps because they are being written.
    pub fn renewed(&self) -> Result<Option<Self>, CertError> {
        let renewed = match &self.origin {
            None => return Ok(None),
            Some(Origin::Files(dir)) => {
                let now = Self::load(dir)?;
                if now.stamp == self.stamp {
                    return Ok(None);
                }
                now
            }
            Some(Origin::Ca { dir, subject }) => {
                if ClusterCa::pem_in(dir)? == self.ca_pem && !self.is_due(SystemTime::now()) {
                    return Ok(None);
                }
                ClusterCa::open(dir)?.identity(subject.role, &subject.name, &subject.sans)?
            }
        };
        if renewed.role() != self.role() {
            let problem = format!("is now for a {}, and this process is a {}", renewed.role(), self.role());
            return Err(CertError::invalid(self.place(), problem));
        }
        Ok(Some(renewed))
    }

    /// Returns whether this identity can be renewed.
    pub(crate) const fn is_renewable(&self) -> bool {
        self.origin.is_some()
    }

    /// Returns whether two thirds of the certificate's validity are over, or it has not begun.
    fn is_due(&self, now: SystemTime) -> bool {
        let [from, until] = self.validity;
        let Ok(whole) = until.duration_since(from) else { return true };
        now.duration_since(from).map_or(true, |passed| passed > whole * 2 / 3)
    }

    /// Returns the directory that the identity comes from, for messages.
    pub(crate) fn place(&self) -> &Path {
        match &self.origin {
            None => Path::new("(issued)"),
            Some(Origin::Files(dir) | Origin::Ca { dir, .. }) => dir,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::certs::LEAF_VALIDITY;

    #[test]
    fn a_process_with_the_ca_issues_itself_a_certificate_when_two_thirds_of_the_last_are_over_or_not_begun_or_the_ca_changes()
     {
        let folder = tempfile::tempdir().unwrap();
        let ca = ClusterCa::open_or_create(folder.path()).unwrap();
        let mut identity = ca.identity(Role::Coordinator, "head", &[]).unwrap();
        assert!(identity.renewed().unwrap().is_none());
        let [from, until] = identity.validity;
        assert!(until > SystemTime::now() + LEAF_VALIDITY - Duration::from_secs(60));
        identity.validity = [from - LEAF_VALIDITY * 3, until];
        let renewed = identity.renewed().unwrap().expect("two thirds are over");
        assert_eq!((renewed.role(), renewed.name()), (Role::Coordinator, "head"));
        assert!(renewed.renewed().unwrap().is_none());
        // It was issued while the clock was a day ahead.
        let day = Duration::from_secs(24 * 3600);
        identity.validity = [from, until].map(|time| time + day);
        let renewed = identity.renewed().unwrap().expect("it is not valid yet");
        assert!(renewed.validity[0] <= SystemTime::now() && renewed.renewed().unwrap().is_none());

        let other = tempfile::tempdir().unwrap();
        ClusterCa::open_or_create(other.path()).unwrap();
        for file in ["ca.pem", "ca.key"] {
            std::fs::copy(other.path().join(file), folder.path().join(file)).unwrap();
        }
        let renewed = renewed.renewed().unwrap().expect("the CA has changed");
        assert_ne!(renewed.ca_name(), identity.ca_name());
        std::fs::write(folder.path().join("ca.pem"), "half a f").unwrap();
        renewed.renewed().unwrap_err();
    }
}
