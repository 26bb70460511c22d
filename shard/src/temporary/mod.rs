//! Data that does not fit into memory: bytes that are [spooled](Spool), items that are [sorted](Sorter) and objects that are
//! [read in place](MappedObject), in temporary files. The files have no name, so that nothing of them stays when the process
//! ends, however it ends.

#[cfg(feature = "store")]
mod mapped;
#[cfg(feature = "store")]
mod sorter;
mod spool;

#[cfg(feature = "store")]
pub(crate) use mapped::{MappedObject, MappedWriter};
#[cfg(feature = "store")]
pub(crate) use sorter::{Sorted, SortedItem, SortedItems, Sorter};
pub(crate) use spool::Spool;

#[cfg(feature = "store")]
use std::sync::Arc;
use std::{fs::File, io, path::PathBuf};

/// The folder that temporary files lie in.
#[cfg(feature = "store")]
#[derive(Clone, Debug)]
pub(crate) struct TemporaryFolder(Arc<PathBuf>);

/// There is none without the writers of datasets: indexes are built in memory.
#[cfg(not(feature = "store"))]
#[derive(Clone, Debug)]
pub(crate) enum TemporaryFolder {}

/// A temporary file cannot be made, written or read.
#[derive(Debug, thiserror::Error)]
#[error("a temporary file in `{}` cannot be used: {source}", folder.display())]
pub struct TemporaryError {
    /// The folder that the file lies in.
    pub folder: PathBuf,
    /// What the system reports.
    pub source: io::Error,
}

#[cfg(feature = "store")]
impl TemporaryFolder {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self(Arc::new(folder))
    }

    /// Returns the folder that the system has for temporary files.
    pub(crate) fn of_system() -> Self {
        Self::new(std::env::temp_dir())
    }

    fn create(&self) -> Result<File, TemporaryError> {
        tempfile::tempfile_in(&*self.0).map_err(|error| self.error(error))
    }

    fn error(&self, source: io::Error) -> TemporaryError {
        TemporaryError { folder: PathBuf::clone(&self.0), source }
    }
}

#[cfg(not(feature = "store"))]
impl TemporaryFolder {
    fn create(&self) -> Result<File, TemporaryError> {
        match *self {}
    }

    fn error(&self, _source: io::Error) -> TemporaryError {
        match *self {}
    }
}
