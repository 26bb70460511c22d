//! The durable state in one redb file, `coordinator.redb` in the state folder. Every change is synced before it counts as
//! done. A lock ends with the process, so kill -9 leaves none behind.
//!
//! After an error of the disk the database takes nothing more until it is opened anew, which the next change does. Beside
//! it lies a plain file with all of it, `backup.jsonl`, a minute old at most while there is something to write.

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
    tables::{self, Reader},
};
use crate::core::{Change, Durable};

/// Memory for cached pages.
const CACHE_BYTES: usize = 8 << 20;
/// The backup is at most so old when something has changed since.
const BACKUP_PERIOD: Duration = Duration::from_secs(60);
/// Where writing the backup takes long it is written less often: it takes at most this part of the time.
const BACKUP_SHARE: u32 = 50;

/// State in a file.
pub struct EmbeddedState {
    folder: Folder,
    /// `None` after an error, until it is opened anew.
    database: Option<Database>,
    owns_ca: bool,
    backup: Backup,
}

/// When the backup was written, and whether it lags behind.
struct Backup {
    written: Instant,
    period: Duration,
    is_behind: bool,
    is_failing: bool,
}

impl EmbeddedState {
    /// Opens the state in a folder, or begins it there.
    ///
    /// # Errors
    /// When another process has it, another version wrote it, it is damaged or was lost, or the disk fails.
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
            tracing::info!("state `{}` goes on in format {FORMAT}", path.display());
            state.change(tables::raise_format)?;
        }
        state.write_backup(&dump);
        Ok(state)
    }

    /// Makes the state of a folder anew, with `dump` in it. What was there is moved aside: where to.
    ///
    /// # Errors
    /// When another process has it, or the disk fails.
    pub fn replace(directory: &Path, dump: &Dump) -> Result<Option<PathBuf>, StateStoreError> {
        let folder = Folder::take(directory)?;
        let aside = folder.set_aside()?;
        make(&folder, dump)?;
        Ok(aside)
    }

    /// All of the state in a folder, as a plain file has it.
    ///
    /// # Errors
    /// As [`open`](Self::open), and where there is none.
    pub fn export(directory: &Path) -> Result<Dump, StateStoreError> {
        // Taking a folder makes it.
        let path = Folder::database_in(directory);
        fs::metadata(&path).map_err(|error| io_error(&path, "read", error))?;
        let _folder = Folder::take(directory)?;
        try_out(&path)
    }

    /// Whether its coordinator's CA lies beside it, and has to.
    #[must_use]
    pub const fn owns_ca(&self) -> bool {
        self.owns_ca
    }

    /// Notes that the CA lies beside it from here on.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn own_ca(&mut self) -> Result<(), StateStoreError> {
        self.change(tables::own_ca)?;
        self.owns_ca = true;
        self.backup.is_behind = true;
        Ok(())
    }

    /// The folder it lies in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs `action` on the database, which is opened first where an error has closed it. An error closes it: what it has
    /// in memory may then differ from what is on the disk.
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
        guarded(|| Reader { database, path: &path }.format()).unwrap_or_else(|cause| Err(damaged(&path, cause)))
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
        guarded(|| Reader { database, path: &path }.read()).unwrap_or_else(|cause| Err(damaged(&path, cause)))
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

/// Makes the database of a folder that has none.
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

/// What a database holds, read from a copy of its file in memory that is checked first: one that is damaged is left as
/// it is, and whatever can be restored from it still can.
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
        Reader { database: &database, path }.read()
    });
    tried.unwrap_or_else(|cause| Err(damaged(path, cause)))
}

fn open_database(path: &Path) -> Result<Database, StateStoreError> {
    let opened = guarded(|| Database::builder().set_cache_size(CACHE_BYTES).open(path));
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
