//! Finds leftovers of a cluster: processes, sockets, shared memory, temporary files.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The state of the machine before the cluster was started.
pub(super) struct Surroundings {
    /// The folder for temporary files of the cluster's processes only.
    temporary: PathBuf,
    shared_memory: BTreeSet<String>,
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn shared_memory() -> BTreeSet<String> {
    names(Path::new("/dev/shm")).into_iter().filter(|name| name.contains("spdl")).collect()
}

impl Surroundings {
    /// Makes a folder for the processes' temporary files.
    pub(super) fn new(temporary: PathBuf) -> Self {
        fs::create_dir(&temporary).expect("a new folder");
        Self { temporary, shared_memory: shared_memory() }
    }

    /// Returns the environment variables that make processes use the folder.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        vec![("TMPDIR".to_owned(), self.temporary.to_string_lossy().into_owned())]
    }

    /// Describes each thing that a cluster in `folder` has left behind.
    pub(super) fn leftovers(&self, folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let temporary = names(&self.temporary).into_iter();
        found.extend(temporary.map(|name| format!("`{name}` is left in the folder for temporary files")));
        let shared_memory = shared_memory();
        let shared_memory = shared_memory.difference(&self.shared_memory);
        found.extend(shared_memory.map(|name| format!("`{name}` is left in shared memory")));
        let is_litter = |name: &String| name.ends_with(".sock") || name.ends_with(".tmp") || name.contains("lock");
        // The lock file is part of the state and may stay: the lock itself ends with the process.
        let state = names(&folder.join("state")).into_iter().filter(|name| name != "coordinator.lock");
        let litter = names(folder).into_iter().chain(state).filter(is_litter);
        found.extend(litter.map(|name| format!("`{name}` is left in the cluster's folder")));
        found.extend(processes(folder).into_iter().map(|command| format!("process `{command}` is left")));
        found
    }
}

/// Returns the command lines of all processes that name the folder.
fn processes(folder: &Path) -> Vec<String> {
    let folder = folder.to_string_lossy().into_owned();
    let pids = names(Path::new("/proc")).into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let commands = pids.filter_map(|pid| fs::read(format!("/proc/{pid}/cmdline")).ok());
    let commands = commands.map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "));
    commands.filter(|command| command.contains(&folder)).collect()
}
