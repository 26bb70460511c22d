//! The place of a file of a source, on disk or in a store, and how it is read there. Reading blocks the thread.

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{GetResult, ObjectStoreExt};
use spdl_shard::store::DatasetStore;
use spdl_store::StoreError;
use tokio::runtime::Handle;

use super::{
    CHANGED, DatasetError,
    file::{check_length, file_bytes, missing_file, packable_bytes, read_file, read_file_range, read_measured, wrong},
};

/// The place of a file.
#[derive(Clone, Debug)]
pub(crate) enum FilePlace {
    Disk(PathBuf),
    Stored(StoredFile),
}

/// A file in a store.
#[derive(Clone, Debug)]
pub(crate) struct StoredFile {
    from: DatasetStore,
    /// Its path in the folder of the store.
    name: Box<str>,
    /// Does the requests: a client's connections end with the runtime that they were made on.
    runtime: Handle,
}

impl fmt::Display for FilePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(path) => path.display().fmt(f),
            Self::Stored(file) => f.write_str(&file.url()),
        }
    }
}

impl FilePlace {
    /// Returns the file's size in bytes; `None` if there is no such file.
    pub(crate) fn bytes(&self) -> Result<Option<u64>, DatasetError> {
        match self {
            Self::Disk(path) => file_bytes(path),
            Self::Stored(file) => file.bytes(),
        }
    }

    /// Returns the size of a file that is packed, which is `listed` if the source's list has it; `None` if there is no
    /// such file.
    pub(crate) fn packable_bytes(&self, listed: Option<u64>) -> Result<Option<u64>, DatasetError> {
        match self {
            Self::Disk(path) => packable_bytes(path),
            Self::Stored(file) => {
                let bytes = listed.map_or_else(|| file.bytes(), |bytes| Ok(Some(bytes)))?;
                bytes.map(|bytes| check_length(Path::new(&file.url()), bytes)).transpose()
            }
        }
    }

    /// Returns the file's content; `None` if there is no such file.
    pub(crate) fn read(&self) -> Result<Option<Vec<u8>>, DatasetError> {
        match self {
            Self::Disk(path) => read_file(path),
            Self::Stored(_) => match self.packable_bytes(None)? {
                Some(bytes) => self.read_measured(bytes).map(Some),
                None => Ok(None),
            },
        }
    }

    /// Returns the content of a file of this size.
    pub(crate) fn read_measured(&self, bytes: u64) -> Result<Vec<u8>, DatasetError> {
        match self {
            Self::Disk(path) => read_measured(path, bytes),
            Self::Stored(file) => file.runtime.block_on(async {
                let content = file.open(bytes).await?.bytes().await;
                content.map(Vec::from).map_err(|source| file.error(source).into())
            }),
        }
    }

    /// Returns a range of the file's content; `None` if there is no such file.
    pub(crate) fn read_range(&self, range: Range<u64>) -> Result<Option<Vec<u8>>, DatasetError> {
        match self {
            Self::Disk(path) => read_file_range(path, range),
            Self::Stored(_) if range.is_empty() => Ok(Some(Vec::new())),
            Self::Stored(file) => {
                let (object, path) = (file.from.object(), file.from.path_of(&file.name));
                let read = file.runtime.block_on(object.get_range(&path, range));
                file.if_there(read.map(Vec::from))
            }
        }
    }
}

impl StoredFile {
    pub(super) fn new(from: DatasetStore, name: &str, runtime: Handle) -> Self {
        Self { from, name: name.into(), runtime }
    }

    fn url(&self) -> String {
        self.from.url_of(&self.name)
    }

    fn error(&self, source: object_store::Error) -> StoreError {
        StoreError::of(&self.url(), source)
    }

    fn if_there<T>(&self, asked: object_store::Result<T>) -> Result<Option<T>, DatasetError> {
        match asked.map_err(|source| self.error(source)) {
            Ok(answer) => Ok(Some(answer)),
            Err(StoreError::Missing { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn bytes(&self) -> Result<Option<u64>, DatasetError> {
        let (object, path) = (self.from.object(), self.from.path_of(&self.name));
        let meta = self.runtime.block_on(object.head(&path));
        self.if_there(meta.map(|meta| meta.size))
    }

    /// Begins to read a file of this size.
    async fn open(&self, bytes: u64) -> Result<GetResult, DatasetError> {
        let got = self.if_there(self.from.object().get(&self.from.path_of(&self.name)).await)?;
        let got = got.ok_or_else(|| missing_file(Path::new(&self.url())))?;
        if got.meta.size == bytes { Ok(got) } else { Err(wrong(Path::new(&self.url()), CHANGED)) }
    }

    /// Returns the content of a file of this size, piece by piece. Does not block.
    pub(crate) async fn pieces(
        self,
        bytes: u64,
    ) -> Result<BoxStream<'static, Result<Bytes, StoreError>>, DatasetError> {
        let pieces = self.open(bytes).await?.into_stream();
        Ok(pieces.map_err(move |source| self.error(source)).boxed())
    }
}
