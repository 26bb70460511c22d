//! The cluster that `spdl-ctl dev up` has started for this user, and how other commands and trainers find it without settings.

pub(crate) mod lock_file;

use std::{
    collections::BTreeMap,
    env, fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use spdl_control::Role;

use lock_file::is_held_by;

/// The file with what `up` prints, for the other commands.
const READY: &str = "ready.json";

/// Why there is no cluster to be found in a folder, or none to be noted there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DevClusterError {
    #[error("the cluster in `{}` is still starting", folder.display())]
    Starts { folder: PathBuf },
    #[error("a cluster is up, but `{}` is not what `dev up` wrote: {source}", path.display())]
    Unreadable { path: PathBuf, source: serde_json::Error },
    #[error("XDG_RUNTIME_DIR is `{}`, which is no folder", folder.display())]
    NoRuntimeFolder { folder: PathBuf },
    #[error("cannot read `{}`: {source}", path.display())]
    ReadFile { path: PathBuf, source: io::Error },
    #[error("cannot write `{}`: {source}", path.display())]
    WriteFile { path: PathBuf, source: io::Error },
}

impl DevClusterError {
    /// Suggests what to do.
    pub(crate) const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Starts { .. } => Some("try again in a few seconds"),
            Self::Unreadable { .. } => Some("`spdl-ctl dev down` ends the cluster in any case"),
            Self::NoRuntimeFolder { .. } => {
                Some("unset it, upon which the folder for temporary files is used, or name a folder with `--dir`")
            }
            Self::ReadFile { .. } | Self::WriteFile { .. } => None,
        }
    }
}

/// A cluster that is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevCluster {
    /// Its folder.
    pub folder: PathBuf,
    /// The process that is the parent of the servers.
    pub pid: i32,
    /// `HOST:PORT` of the coordinator.
    pub coordinator: String,
    /// Address of its page.
    pub page: String,
    /// The names of the workers.
    pub workers: Vec<String>,
    /// The names of the jobs.
    pub jobs: Vec<String>,
    /// The name of the job of each job file, by the file's absolute path.
    pub job_files: BTreeMap<String, String>,
}

impl DevCluster {
    /// Returns the cluster that is up in the folder of clusters without `--dir`. `None` if none is ready there, or if it is of another user
    /// or another container.
    #[must_use]
    pub fn find() -> Option<Self> {
        let folder = default_folder().ok()?;
        let found = fs::symlink_metadata(&folder).ok()?;
        // In a folder for temporary files another user could have made it.
        if !found.is_dir() || found.uid() != geteuid().as_raw() {
            return None;
        }
        let cluster = Self::read(&folder).ok()?;
        (cluster.folder == folder && is_held_by(&folder, cluster.pid)).then_some(cluster)
    }

    /// Returns the folder of the certificates of a role.
    #[must_use]
    pub fn certs(&self, role: Role) -> PathBuf {
        self.folder.join("certs").join(role.to_string())
    }

    /// Describes the cluster, for a line that says which one was found.
    #[must_use]
    pub fn text(&self) -> String {
        format!("the cluster of `spdl-ctl dev up` in `{}`, at {}", self.folder.display(), self.coordinator)
    }

    /// Reads what `up` has written for the cluster in a folder.
    pub(crate) fn read(folder: &Path) -> Result<Self, DevClusterError> {
        let path = ready_file(folder);
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|source| DevClusterError::Unreadable { path, source }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(DevClusterError::Starts { folder: folder.to_owned() })
            }
            Err(source) => Err(DevClusterError::ReadFile { path, source }),
        }
    }

    /// Writes it into its folder, at once.
    pub(crate) fn write(&self) -> Result<(), DevClusterError> {
        let path = ready_file(&self.folder);
        let partial = self.folder.join(format!("{READY}.new"));
        let written = fs::write(&partial, self.json()).and_then(|()| fs::rename(&partial, &path));
        written.map_err(|source| DevClusterError::WriteFile { path, source })
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).expect("plain data serialises")
    }

    /// Notes that a job file has made a job.
    pub(crate) fn add_job(&mut self, file: &Path, job: String) {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        if !self.jobs.contains(&job) {
            self.jobs.push(job.clone());
        }
        self.job_files.insert(file.display().to_string(), job);
    }
}

/// Returns the file of a folder that says that a cluster was ready there.
pub(crate) fn ready_file(folder: &Path) -> PathBuf {
    folder.join(READY)
}

/// Returns whether a file of a folder is one that [`DevCluster::write`] writes.
pub(crate) fn is_ready_file(name: &str) -> bool {
    name.starts_with(READY)
}

/// Returns the folder of a cluster without `--dir`.
pub(crate) fn default_folder() -> Result<PathBuf, DevClusterError> {
    match env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from) {
        Some(folder) if !folder.is_dir() => Err(DevClusterError::NoRuntimeFolder { folder }),
        Some(folder) => Ok(folder.join("spdl-dev")),
        None => Ok(env::temp_dir().join(format!("spdl-dev-{}", geteuid().as_raw()))),
    }
}
