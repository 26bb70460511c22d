//! Takes the lock of a dev cluster's folder, and finds the cluster's processes by it.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use super::super::CtlError;
use crate::dev_cluster::lock_file::{FileId, holds, is_absent, path};

/// How often a cluster checks that its lock file is still there.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The holder of a folder's lock.
pub(super) enum LockState {
    /// This process has taken it.
    Taken(File),
    /// Another process has it.
    Held,
    /// There is no lock file.
    Absent,
}

/// Takes the lock of a folder, and creates the lock file if there is none. Returns `None` if another process has the
/// lock.
pub(super) fn take(folder: &Path) -> Result<Option<File>, CtlError> {
    match lock(folder, OpenOptions::new().write(true).create(true).truncate(false).mode(0o600))? {
        LockState::Taken(lock) => Ok(Some(lock)),
        LockState::Held => Ok(None),
        LockState::Absent => {
            let path = path(folder);
            Err(CtlError::WriteFile { path, source: io::ErrorKind::NotFound.into() })
        }
    }
}

/// Takes the lock of a folder, if it is free and its file is there.
pub(super) fn take_existing(folder: &Path) -> Result<LockState, CtlError> {
    lock(folder, OpenOptions::new().write(true))
}

fn lock(folder: &Path, options: &OpenOptions) -> Result<LockState, CtlError> {
    let path = path(folder);
    let fail = |source| CtlError::WriteFile { path: path.clone(), source };
    loop {
        let lock = match options.open(&path) {
            Ok(lock) => lock,
            Err(error) if is_absent(&error) => return Ok(LockState::Absent),
            Err(error) => return Err(fail(error)),
        };
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            // A `down` may have removed the file after it was opened; the lock of a removed file excludes nobody.
            Ok(()) if FileId::of(&lock.metadata().map_err(fail)?).is_at(&path).map_err(fail)? => {
                return Ok(LockState::Taken(lock));
            }
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(LockState::Held),
            Err(error) => return Err(CtlError::Runtime(error.into())),
        }
    }
}

/// The lock file that a process of a cluster has inherited. While it is open, no other file has its number.
pub(super) struct HeldLock {
    path: PathBuf,
    file: FileId,
}

impl HeldLock {
    pub(super) fn of(folder: &Path) -> Result<Self, CtlError> {
        let path = path(folder);
        match fs::metadata(&path) {
            Ok(found) => Ok(Self { path, file: FileId::of(&found) }),
            Err(source) => Err(CtlError::ReadFile { path, source }),
        }
    }

    /// Returns whether the file is where it was. Without it, the folder is no longer this cluster's.
    pub(super) fn is_there(&self) -> bool {
        self.file.is_at(&self.path).unwrap_or(true)
    }

    /// Waits until the file is removed or another one is in its place.
    pub(super) async fn gone(&self) {
        while self.is_there() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

/// A process of a cluster.
pub(super) struct LockHolder {
    pub(super) pid: Pid,
    /// Refers to this process, and to no later one with its number.
    process: OwnedFd,
    parent: Option<Pid>,
}

impl LockHolder {
    /// Asks the process to end.
    pub(super) fn ask_to_end(&self) {
        // Fails only when the process is gone already.
        let _ = pidfd_send_signal(&self.process, Signal::TERM);
    }
}

/// Returns the processes of the cluster that has a folder's lock, as far as this process can see them. Leaves out
/// processes that another of them has started, because that one ends them.
pub(super) fn holders(folder: &Path) -> Result<Vec<LockHolder>, CtlError> {
    let path = path(folder);
    let lock = match fs::metadata(&path) {
        Ok(found) => FileId::of(&found),
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(source) => return Err(CtlError::ReadFile { path, source }),
    };
    let processes = fs::read_dir("/proc").map_err(|source| CtlError::ReadFile { path: "/proc".into(), source })?;
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    let all: Vec<LockHolder> = pids
        .filter_map(|pid| {
            let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
            holds(pid, lock).then(|| LockHolder { pid, process, parent: parent(pid) })
        })
        .collect();
    let pids: Vec<Pid> = all.iter().map(|holder| holder.pid).collect();
    Ok(all.into_iter().filter(|holder| !holder.parent.is_some_and(|parent| pids.contains(&parent))).collect())
}

fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name before it, in brackets, may hold anything.
    let (_, after_name) = stat.rsplit_once(')')?;
    Pid::from_raw(after_name.split_whitespace().nth(1)?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use rustix::{
        io::{FdFlags, fcntl_setfd},
        process::getpid,
    };

    use super::*;
    use crate::dev_cluster::lock_file::is_held_by;

    #[test]
    fn a_cluster_is_the_processes_whose_children_get_the_lock_and_a_removed_file_keeps_nobody_away() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(matches!(take_existing(folder).unwrap(), LockState::Absent));
        assert!(holders(folder).unwrap().is_empty());
        let lock = take(folder).unwrap().unwrap();
        assert!(matches!(take_existing(folder).unwrap(), LockState::Held));
        assert!(holders(folder).unwrap().is_empty(), "a command has it for a moment");

        fcntl_setfd(&lock, FdFlags::empty()).unwrap();
        let pids: Vec<Pid> = holders(folder).unwrap().iter().map(|holder| holder.pid).collect();
        assert_eq!(pids, [getpid()]);
        let own = getpid().as_raw_nonzero().get();
        assert!(is_held_by(folder, own) && !is_held_by(folder, 1) && !is_held_by(folder, 0));

        let held = HeldLock::of(folder).unwrap();
        fs::remove_file(path(folder)).unwrap();
        assert!(holders(folder).unwrap().is_empty());
        assert!(take(folder).unwrap().is_some() && !held.is_there());
    }
}
