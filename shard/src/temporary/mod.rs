//! Data that does not fit into memory: bytes that are [spooled](Spool), items that are [sorted](Sorter) and objects that are
//! [read in place](MappedObject), in temporary files. The files have no name, so that nothing of them stays when the process
//! ends, however it ends.

mod mapped;
mod sorter;
mod spool;

pub(crate) use mapped::{MappedObject, MappedWriter};
pub(crate) use sorter::{Sorted, SortedItem, SortedItems, Sorter};
pub(crate) use spool::Spool;

use std::sync::Arc;
use std::{fs::File, io, path::PathBuf};

/// The folder that temporary files lie in.
#[derive(Clone, Debug)]
pub(crate) struct TemporaryFolder(Arc<PathBuf>);

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
