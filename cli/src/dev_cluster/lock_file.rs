//! The lock of a cluster's folder, as other processes see it: a file that all of the cluster's processes have open and locked.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, process::Pid};

/// The file whose lock a cluster's processes hold. A folder without this file belongs to no cluster.
const LOCK: &str = "lock";
/// Returns the path of a folder's lock file.
pub(crate) fn path(folder: &Path) -> PathBuf {
    folder.join(LOCK)
}

pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Identifies a file on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(crate) fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }

    /// Returns whether the file is the one at this path.
    pub(crate) fn is_at(self, path: &Path) -> io::Result<bool> {
        match fs::metadata(path) {
            Ok(there) => Ok(self == Self::of(&there)),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Returns whether a process with this number holds the lock of a folder for a cluster. Takes no lock, so that it disturbs no other command.
pub(crate) fn is_held_by(folder: &Path, pid: i32) -> bool {
    let lock = fs::metadata(path(folder)).map(|found| FileId::of(&found));
    Pid::from_raw(pid).zip(lock.ok()).is_some_and(|(pid, lock)| holds(pid, lock))
}

/// Returns whether a process has locked this file for a cluster. A cluster's processes let the programs that they start
/// inherit the lock; a command that takes the lock for a moment does not.
pub(crate) fn holds(pid: Pid, lock: FileId) -> bool {
    let folder = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let open = fs::read_dir(folder.join("fdinfo")).into_iter().flatten().flatten();
    open.filter(|entry| fs::read_to_string(entry.path()).is_ok_and(|info| is_cluster_lock(&info))).any(|entry| {
        // Looks only at locked files, because a look at a file on a hanging file system would block.
        fs::metadata(folder.join("fd").join(entry.file_name())).is_ok_and(|found| FileId::of(&found) == lock)
    })
}

/// Returns whether the kernel's information on an open file shows a lock that started processes inherit.
fn is_cluster_lock(info: &str) -> bool {
    let flags = info.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
    let closes = flags.is_none_or(|flags| flags & OFlags::CLOEXEC.bits() != 0);
    !closes && info.lines().any(|line| line.starts_with("lock:") && line.contains("FLOCK"))
}
