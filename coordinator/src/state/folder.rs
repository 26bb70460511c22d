//! The state directory: its lock and the names of its files. The content of the files is not defined here.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use super::StateStoreError;

/// The database.
const DATABASE: &str = "coordinator.redb";
/// The database while it is being created.
const DATABASE_NEW: &str = "coordinator.redb.new";
/// The backup beside the database; its presence shows that the directory is in use.
const BACKUP: &str = "backup.jsonl";
/// The lock file, held for the life of the process, also while the database is closed after an error. Its mode denies
/// other users, because any user who could open it could lock it.
const LOCK: &str = "coordinator.lock";

/// A state directory that this process has locked.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Locks the directory, and creates it if it does not exist.
    pub(super) fn take(path: &Path) -> Result<Self, StateStoreError> {
        let file = path.join(LOCK);
        let io =
            |source: io::Error| StateStoreError::Io { path: file.clone(), action: "opened", source: source.into() };
        fs::create_dir_all(path).map_err(io)?;
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&file).map_err(io)?;
        match spdl_process::lock::lock(&lock) {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(StateStoreError::Locked { path: path.join(DATABASE) }),
            Err(TryLockError::Error(error)) => Err(io(error)),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the database in a directory.
    pub(super) fn database_in(folder: &Path) -> PathBuf {
        folder.join(DATABASE)
    }

    pub(super) fn database(&self) -> PathBuf {
        Self::database_in(&self.path)
    }

    pub(super) fn backup(&self) -> PathBuf {
        self.path.join(BACKUP)
    }

    /// Creates a database with `make`, which gets a temporary path, and renames it into place once it is complete.
    pub(super) fn put_database(
        &self,
        make: impl FnOnce(&Path) -> Result<(), StateStoreError>,
    ) -> Result<(), StateStoreError> {
        let new = self.path.join(DATABASE_NEW);
        let io =
            |source: io::Error| StateStoreError::Io { path: new.clone(), action: "written", source: source.into() };
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        make(&new)?;
        fs::rename(&new, self.database()).and_then(|()| File::open(&self.path)?.sync_all()).map_err(io)
    }

    /// Moves the database, if there is one, to a free name in the directory, and returns its new path.
    pub(super) fn set_aside(&self) -> Result<Option<PathBuf>, StateStoreError> {
        let database = self.database();
        if !database.exists() {
            return Ok(None);
        }
        let name = |number: u32| self.path.join(format!("{DATABASE}.old-{number}"));
        let aside = (1..).map(name).find(|path| !path.exists()).expect("some number is free");
        let io =
            |source: io::Error| StateStoreError::Io { path: database.clone(), action: "moved", source: source.into() };
        fs::rename(&database, &aside).map_err(io)?;
        Ok(Some(aside))
    }
}

/// Writes a file completely or not at all.
pub(crate) fn write_whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    let attempt = || {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(beside)?;
        let mut out = io::BufWriter::new(file);
        write(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(beside, path)
    };
    attempt().inspect_err(|_| {
        let _ = fs::remove_file(beside);
    })
}
