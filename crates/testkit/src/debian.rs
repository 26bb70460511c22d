//! Programs of Debian's packages, without root.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::target;

/// Returns the path of `program`: the one on `PATH`, or that of Debian's `package`, which is downloaded and unpacked into
/// the build directory once.
///
/// # Errors
/// The reason why there is no such program.
pub fn program(program: &str, package: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(found) = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file()) {
        return Ok(found);
    }
    let target = target();
    let unpacked = target.join("debian").join(package);
    let binary = unpacked.join("usr/bin").join(program);
    // The lock is needed because tests of several crates may run this at once.
    let lock = fs::File::open(&target).map_err(|error| error.to_string())?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).map_err(|error| error.to_string())?;
    if !binary.is_file() {
        unpack(package, &target, &unpacked)?;
    }
    if binary.is_file() { Ok(binary) } else { Err(format!("Debian's package has no `{}`", binary.display())) }
}

/// Downloads a package and unpacks it into `folder`, which exists only when it is complete.
fn unpack(package: &str, target: &Path, folder: &Path) -> Result<(), String> {
    let work = tempfile::tempdir_in(target).map_err(|error| error.to_string())?;
    let run = |command: &mut Command| match command.current_dir(work.path()).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{command:?}: {error}")),
    };
    run(Command::new("apt-get").args(["download", "--quiet", package]))?;
    let files = fs::read_dir(work.path()).map_err(|error| error.to_string())?.flatten();
    let found = files.map(|file| file.path()).find(|path| path.extension().is_some_and(|end| end == "deb"));
    let found = found.ok_or("apt-get has fetched nothing")?;
    run(Command::new("dpkg-deb").arg("-x").arg(found).arg("unpacked"))?;
    fs::create_dir_all(target.join("debian")).map_err(|error| error.to_string())?;
    fs::rename(work.path().join("unpacked"), folder).map_err(|error| error.to_string())
}
