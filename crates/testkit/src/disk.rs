//! A file system that is small enough to fill.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

/// A small file system in memory, unmounted when dropped.
pub struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// Mounts a file system of `bytes` bytes at a folder that does not exist yet.
    ///
    /// # Errors
    /// The reason why this process cannot mount one, as without root.
    pub fn mount(folder: PathBuf, bytes: u64) -> Result<Self, String> {
        fs::create_dir(&folder).map_err(|error| error.to_string())?;
        let size = format!("size={bytes}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&folder).output();
        let mounted = mounted.map_err(|error| format!("mount: {error}"))?;
        if !mounted.status.success() {
            return Err(String::from_utf8_lossy(&mounted.stderr).trim().to_owned());
        }
        Ok(Self { folder })
    }

    /// Returns the path of a file in it.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.join(name)
    }

    /// Fills the remaining space with a file, and returns the file's path.
    ///
    /// # Panics
    /// If the file cannot be created.
    pub fn fill(&self) -> PathBuf {
        let path = self.path("filler");
        let mut file = fs::File::create(&path).expect("a full disk still has room for a name");
        while file.write_all(&[7; 512]).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount, because a process may still use it when a test has failed.
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
    }
}
