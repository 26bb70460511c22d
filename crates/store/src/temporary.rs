//! Files for data that does not fit into memory. They have no name, so that nothing of them stays when the process ends,
//! however it ends.

use std::{fs::File, io, path::PathBuf, sync::Arc};

/// The folder that temporary files lie in.
#[derive(Clone, Debug)]
pub struct TemporaryFolder(Arc<PathBuf>);

/// A temporary file cannot be made, written or read.
#[derive(Debug, thiserror::Error)]
#[error("a temporary file in `{}` cannot be used: {source}", folder.display())]
pub struct TemporaryError {
    /// The folder that the file lies in.
    pub folder: PathBuf,
    /// What the system reports.
    pub source: io::Error,
}

impl TemporaryFolder {
    /// Returns the folder at this path.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self(Arc::new(folder))
    }

    /// Returns the folder that the system has for temporary files.
    #[must_use]
    pub fn of_system() -> Self {
        Self::new(std::env::temp_dir())
    }

    /// Creates a file in the folder.
    ///
    /// # Errors
    /// If the system cannot create one.
    pub fn create(&self) -> Result<File, TemporaryError> {
        tempfile::tempfile_in(&*self.0).map_err(|error| self.error(error))
    }

    /// Returns the error of a file in the folder.
    #[must_use]
    pub fn error(&self, source: io::Error) -> TemporaryError {
        TemporaryError { folder: PathBuf::clone(&self.0), source }
    }
}
