//! A folder on a local disk: a range that the page cache holds is read at once, without waiting for another thread;
//! `object_store` reads everything else.

use std::{
    fmt,
    fs::File,
    io::IoSliceMut,
    path::{Path as FilePath, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use object_store::{
    GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore, Result, local::LocalFileSystem,
    path::Path,
};
use rustix::{
    fs::OFlags,
    io::{Errno, ReadWriteFlags},
};

use crate::StoreLayer;

/// File systems whose calls wait for no other machine, by their magic numbers: ext2 to ext4, XFS, btrfs, tmpfs,
/// overlayfs, F2FS and ZFS.
const LOCAL_KINDS: [u32; 7] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0xf2f5_2010, 0x2fc1_2fc1];
/// Longest range that is read here, in bytes. Copying a longer one takes long enough to be worth another thread, so it
/// is left to `object_store`.
const MAX_BYTES: u64 = 1 << 20;

/// The store of the files in `root`.
#[derive(Debug)]
pub(crate) struct PageCacheStore {
    inner: LocalFileSystem,
    root: PathBuf,
}

impl PageCacheStore {
    /// Wraps `inner`, whose prefix is `root`, if `root` lies on a disk of this machine; otherwise returns `inner`.
    pub(crate) fn over(inner: LocalFileSystem, root: &FilePath) -> Arc<dyn ObjectStore> {
        let kind = rustix::fs::statfs(root).map(|facts| facts.f_type);
        if kind.is_ok_and(|kind| LOCAL_KINDS.iter().any(|local| i128::from(*local) == i128::from(kind))) {
            return Arc::new(Self { inner, root: root.to_owned() }).layered();
        }
        Arc::new(inner)
    }

    /// Returns the whole range if the page cache holds it; `None` if it does not, or if the request is not a plain
    /// range read.
    fn read_now(&self, location: &Path, options: &GetOptions) -> Option<GetResult> {
        let GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: None,
            if_none_match: None,
            if_modified_since: None,
            if_unmodified_since: None,
            version: None,
            head: false,
            ..
        } = options
        else {
            return None;
        };
        let bytes = range.end.checked_sub(range.start).filter(|bytes| (1..=MAX_BYTES).contains(bytes))?;
        let file = open(&self.root.join(location.as_ref()))?;
        let facts = file.metadata().ok()?;
        if range.end > facts.len() {
            return None;
        }
        let mut buffer = vec![0; usize::try_from(bytes).ok()?];
        if !fill_now(&file, range.start, &mut buffer) {
            return None;
        }
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: facts.modified().ok()?.into(),
            size: facts.len(),
            // As for all local files: an etag would not survive copying the dataset.
            e_tag: None,
            version: None,
        };
        let bytes = Bytes::from(buffer);
        let payload = GetResultPayload::Stream(async { Ok(bytes) }.into_stream().boxed());
        let (range, attributes, extensions) = (range.clone(), Default::default(), Default::default());
        Some(GetResult { payload, meta, range, attributes, extensions })
    }
}

/// Opens a regular file and nothing else: a pipe could wait for its writer.
fn open(path: &FilePath) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok()?);
    file.metadata().is_ok_and(|facts| facts.is_file()).then_some(file)
}

/// Fills `buffer` from the page cache; returns `false` if the cache does not hold all of it.
fn fill_now(file: &File, mut offset: u64, mut buffer: &mut [u8]) -> bool {
    while !buffer.is_empty() {
        match rustix::io::preadv2(file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT) {
            Ok(0) => return false,
            Ok(read) => {
                offset += read as u64;
                buffer = &mut buffer[read..];
            }
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

impl fmt::Display for PageCacheStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait::async_trait]
impl StoreLayer for PageCacheStore {
    fn inner(&self) -> &dyn ObjectStore {
        &self.inner
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        match self.read_now(location, &options) {
            Some(result) => Ok(result),
            None => self.inner.get_opts(location, options).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(bytes: &[u8]) -> (tempfile::TempDir, PageCacheStore) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("shard.tar"), bytes).unwrap();
        let inner = LocalFileSystem::new_with_prefix(folder.path()).unwrap();
        let files = PageCacheStore { inner, root: folder.path().to_owned() };
        (folder, files)
    }

    fn bounded(range: std::ops::Range<u64>) -> GetOptions {
        GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() }
    }

    #[tokio::test]
    async fn what_was_just_written_is_read_at_once_and_is_what_the_library_reads() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        let (_folder, files) = folder(&bytes);
        let path = Path::from("shard.tar");
        for range in [0..1, 5..99_999, 99_999..100_000] {
            let now = files.read_now(&path, &bounded(range.clone())).expect("it is in the page cache");
            let library = files.inner.get_opts(&path, bounded(range.clone())).await.unwrap();
            assert_eq!((now.meta.size, &now.meta.location), (library.meta.size, &library.meta.location));
            assert_eq!(now.meta.last_modified, library.meta.last_modified);
            assert_eq!(now.range, library.range);
            let now = now.bytes().await.unwrap();
            assert_eq!(now, library.bytes().await.unwrap());
            assert_eq!(now, bytes[range.start as usize..range.end as usize]);
        }
    }

    #[tokio::test]
    async fn what_is_not_simple_is_left_to_the_library() {
        let (folder, files) = folder(b"0123456789");
        let path = Path::from("shard.tar");
        for options in [
            GetOptions::default(),
            bounded(3..3),
            bounded(5..11),
            GetOptions { head: true, ..bounded(0..5) },
            GetOptions { if_match: Some("x".to_owned()), ..bounded(0..5) },
        ] {
            assert!(files.read_now(&path, &options).is_none(), "{options:?}");
        }
        assert!(files.read_now(&Path::from("missing.tar"), &bounded(0..5)).is_none());
        std::fs::create_dir(folder.path().join("folder.tar")).unwrap();
        assert!(files.read_now(&Path::from("folder.tar"), &bounded(0..5)).is_none());
        assert!(files.get_opts(&Path::from("missing.tar"), bounded(0..5)).await.is_err());
    }
}
