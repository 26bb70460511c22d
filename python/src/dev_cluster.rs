//! The cluster that `spdl-ctl dev up` has started for this user.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use spdl_cli::dev_cluster::DevCluster;
use spdl_control::Role;

/// A cluster: what it is, the coordinator's address, the folder of certificates, its jobs, and the job of each job file.
type NativeCluster = (String, String, String, Vec<String>, BTreeMap<String, String>);

/// Returns the cluster that is up, with the certificates of an administrator or a client; `None` if there is none.
#[pyfunction]
pub(crate) fn dev_cluster(py: Python<'_>, role: &str) -> Option<NativeCluster> {
    let role = if role == "admin" { Role::Admin } else { Role::Client };
    let found = py.detach(DevCluster::find)?;
    let (text, certs) = (found.text(), found.certs(role).display().to_string());
    Some((text, found.coordinator, certs, found.jobs, found.job_files))
}
