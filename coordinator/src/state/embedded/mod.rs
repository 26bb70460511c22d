//! The durable state in one redb file, `coordinator.redb` in the state directory. Every change is synced to disk before
//! it counts as done. The lock ends with the process, so kill -9 leaves no stale lock.
//!
//! After a disk error the database accepts no more changes until it is reopened, which the next change does. A backup
//! of the whole state, `backup.jsonl`, lies beside it; it is at most a minute old while there are changes to write.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use redb::{Database, DatabaseError};

use super::{
    Dump, FORMAT, StateStore, StateStoreError,
    folder::{Folder, write_whole},
    guard::{Copy, guarded},
    tables::{self, TableReader},
};
use spdl_control::coordinator::{Change, Durable};
use spdl_process::lock::patiently;

/// Memory for cached pages.
const CACHE_BYTES: usize = 8 << 20;
/// The largest age of the backup while changes are missing from it.
const BACKUP_PERIOD: Duration = Duration::from_secs(60);
/// Writing the backup takes at most one part in this many of the time; if it is slow, it is written less often.
const BACKUP_SHARE: u32 = 50;

/// The durable state in a file.
pub struct EmbeddedState {
    folder: Folder,
    /// The database, or `None` after an error until it is reopened.
    database: Option<Database>,
    owns_ca: bool,
    backup: Backup,
}

/// When the backup was written, and whether changes are missing from it.
struct Backup {
    written: Instant,
    period: Duration,
    is_behind: bool,
    is_failing: bool,
}

impl EmbeddedState {
    /// Opens the state in a directory, or creates it there.
    ///
    /// # Errors
    /// Fails when another process holds the lock, another version wrote the state, it is damaged or lost, or the disk
    /// fails.
    pub fn open(directory: &Path) -> Result<Self, StateStoreError> {
        let folder = Folder::take(directory)?;
        let path = folder.database();
        let is_there = path.try_exists().map_err(|error| io_error(&path, "opened", error))?;
        if !is_there {
            if folder.backup().exists() {
                return Err(StateStoreError::Lost { folder: directory.to_owned() });
            }
            tracing::info!("state `{}` is new: it knows of no jobs and sessions", path.display());
            make(&folder, &Dump::default())?;
        }
        let dump = try_out(&path)?;
        let database = open_database(&path)?;
        let backup = Backup { written: Instant::now(), period: BACKUP_PERIOD, is_behind: false, is_failing: false };
        let mut state = Self { folder, database: Some(database), owns_ca: dump.owns_ca, backup };
        if state.format()? != Some(FORMAT) {
            tracing::info!("state `{}` is upgraded to format {FORMAT}", path.display());
            state.change(tables::raise_format)?;
        }
        state.write_backup(&dump);
        Ok(state)
    }

    /// Replaces the state in a directory by `dump`. The previous database is moved aside; its new path is returned.
    ///
    /// # Errors
    /// Fails when another process holds the lock, or the disk fails.
    pub fn replace(directory: &Path, dump: &Dump) -> Result<Option<PathBuf>, StateStoreError> {
        let folder = Folder::take(directory)?;
        let aside = folder.set_aside()?;
        make(&folder, dump)?;
        Ok(aside)
    }

    /// Reads the whole state in a directory, in the form of a dump.
    ///
    /// # Errors
    /// Fails as [`open`](Self::open) does, and when there is no state.
    pub fn export(directory: &Path) -> Result<Dump, StateStoreError> {
        // Checked first, because locking a directory creates it.
        let path = Folder::database_in(directory);
        fs::metadata(&path).map_err(|error| io_error(&path, "read", error))?;
        let _folder = Folder::take(directory)?;
        try_out(&path)
    }

    /// Returns whether the coordinator's CA lies beside the state, where it must stay.
    #[must_use]
    pub const fn owns_ca(&self) -> bool {
        self.owns_ca
    }

    /// Records that the CA lies beside the state from now on.
    ///
    /// # Errors
    /// Fails when the disk fails.
    pub fn own_ca(&mut self) -> Result<(), StateStoreError> {
        self.change(tables::own_ca)?;
        self.owns_ca = true;
        self.backup.is_behind = true;
        Ok(())
    }

    /// Returns the state directory.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs `action` on the database, which is reopened first if an error has closed it. An error closes the database,
    /// because its state in memory may then differ from that on the disk.
    fn change(&mut self, action: impl FnOnce(&Database) -> Result<(), redb::Error>) -> Result<(), StateStoreError> {
        let path = self.folder.database();
        let database = match self.database.take() {
            Some(database) => database,
            None => open_database(&path)?,
        };
        let result = match guarded(|| action(&database)) {
            Ok(Ok(())) => {
                self.database = Some(database);
                return Ok(());
            }
            Ok(Err(source)) => Err(StateStoreError::Io { path, action: "written", source: source.into() }),
            Err(cause) => Err(damaged(&path, cause)),
        };
        let _ = guarded(|| drop(database));
        result
    }

    fn format(&self) -> Result<Option<u64>, StateStoreError> {
        let (path, database) = (self.folder.database(), self.database.as_ref().expect("it was just opened"));
        guarded(|| TableReader { database, path: &path }.format()).unwrap_or_else(|cause| Err(damaged(&path, cause)))
    }

    fn write_backup(&mut self, dump: &Dump) {
        let started = Instant::now();
        let path = self.folder.backup();
        let written = write_whole(&path, |out| dump.write(out));
        self.backup.written = Instant::now();
        self.backup.period = BACKUP_PERIOD.max(started.elapsed() * BACKUP_SHARE);
        self.backup.is_behind = written.is_err();
        if let Err(error) = &written
            && !self.backup.is_failing
        {
            tracing::warn!("backup `{}` of the state cannot be written: {error}", path.display());
        }
        self.backup.is_failing = written.is_err();
    }

    fn back_up(&mut self) {
        match self.read() {
            Ok(dump) => self.write_backup(&dump),
            Err(error) => tracing::warn!("the state cannot be backed up: {}", crate::error_text(&error)),
        }
    }

    fn read(&self) -> Result<Dump, StateStoreError> {
        let path = self.folder.database();
        let Some(database) = &self.database else {
            return Err(io_error(&path, "read", io::Error::other("it is closed after an error")));
        };
        guarded(|| TableReader { database, path: &path }.read()).unwrap_or_else(|cause| Err(damaged(&path, cause)))
    }
}

impl Drop for EmbeddedState {
    fn drop(&mut self) {
        if self.backup.is_behind && self.database.is_some() {
            self.back_up();
        }
    }
}

impl StateStore for EmbeddedState {
    fn load(&self) -> Result<Durable, StateStoreError> {
        Ok(self.read()?.durable)
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), StateStoreError> {
        if changes.is_empty() && self.database.is_some() {
            return Ok(());
        }
        self.change(|database| tables::write(database, changes))?;
        self.backup.is_behind = true;
        if self.backup.written.elapsed() >= self.backup.period {
            self.back_up();
        }
        Ok(())
    }
}

/// Creates the database of a directory that has none.
fn make(folder: &Folder, dump: &Dump) -> Result<(), StateStoreError> {
    folder.put_database(|path| {
        let write = |source: redb::Error| StateStoreError::Io {
            path: path.to_owned(),
            action: "written",
            source: source.into(),
        };
        let database = Database::builder().set_cache_size(CACHE_BYTES).create(path);
        let database = database.map_err(|error| write(error.into()))?;
        tables::begin(&database, dump).map_err(write)
    })
}

/// Returns the content of a database, read from a copy of its file in memory that is checked first: a damaged file
/// stays unchanged, so that whatever can be restored from it still can be.
fn try_out(path: &Path) -> Result<Dump, StateStoreError> {
    let bytes = fs::read(path).map_err(|error| io_error(path, "read", error))?;
    if bytes.is_empty() {
        return Err(damaged(path, "it is empty".to_owned()));
    }
    let tried = guarded(|| -> Result<Dump, StateStoreError> {
        let wrong = |error: DatabaseError| damaged(path, error.to_string());
        let mut database =
            Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(Copy::of(bytes)).map_err(wrong)?;
        if !database.check_integrity().map_err(wrong)? {
            return Err(damaged(path, "its checksums do not match".to_owned()));
        }
        TableReader { database: &database, path }.read()
    });
    tried.unwrap_or_else(|cause| Err(damaged(path, cause)))
}

fn open_database(path: &Path) -> Result<Database, StateStoreError> {
    let open = || Database::builder().set_cache_size(CACHE_BYTES).open(path);
    let opened = guarded(|| patiently(open, |error| matches!(error, DatabaseError::DatabaseAlreadyOpen)));
    opened.map_err(|cause| damaged(path, cause))?.map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => StateStoreError::Locked { path: path.to_owned() },
        other => {
            StateStoreError::Io { path: path.to_owned(), action: "opened", source: redb::Error::from(other).into() }
        }
    })
}

fn damaged(path: &Path, cause: String) -> StateStoreError {
    StateStoreError::Damaged { path: path.to_owned(), subject: "the database".to_owned(), cause }
}

fn io_error(path: &Path, action: &'static str, error: io::Error) -> StateStoreError {
    StateStoreError::Io { path: path.to_owned(), action, source: error.into() }
}

#[cfg(test)]
mod tests;
