//! A folder on a local disk: a range that the page cache holds is read at once, without waiting for another thread, and
//! everything else in large pieces by another thread. `object_store` opens these files.

use std::{
    fmt,
    fs::File,
    io::{self, IoSliceMut, Read as _, Seek as _, SeekFrom},
    path::{Path as FilePath, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
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
/// is read there.
const MAX_BYTES: u64 = 1 << 20;
/// Bytes that another thread reads at once: more than a block has usually, which is then never copied. `object_store` would take 8 KiB.
const PIECE_BYTES: u64 = 16 << 20;

/// An extension of the options of a read whose caller reads files itself: what is not read at once is answered with the open file, and
/// the caller chooses the memory that its bytes go to.
#[derive(Clone, Copy, Debug)]
pub struct WantsFile;

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
        if let Some(result) = self.read_now(location, &options) {
            return Ok(result);
        }
        let wants_file = options.extensions.get::<WantsFile>().is_some();
        let result = self.inner.get_opts(location, options).await?;
        Ok(if wants_file { result } else { in_large_pieces(result) })
    }
}

/// Returns the result whose file is read in large pieces.
fn in_large_pieces(result: GetResult) -> GetResult {
    let GetResult { payload: GetResultPayload::File(file, path), range, meta, attributes, extensions } = result else {
        return result;
    };
    let end = range.end;
    let pieces = stream::try_unfold((file, path, range.start), move |(mut file, path, at)| async move {
        let bytes = end.saturating_sub(at).min(PIECE_BYTES);
        if bytes == 0 {
            return Ok(None);
        }
        let read = tokio::task::spawn_blocking(move || {
            let read = read_piece(&mut file, at, bytes);
            read.map(|piece| (piece, (file, path.clone(), at + bytes))).map_err(|source| failed(&path, source))
        });
        read.await?.map(Some)
    });
    let payload = GetResultPayload::Stream(pieces.boxed());
    GetResult { payload, range, meta, attributes, extensions }
}

fn read_piece(file: &mut File, at: u64, bytes: u64) -> io::Result<Bytes> {
    let mut piece = Vec::with_capacity(usize::try_from(bytes).map_err(io::Error::other)?);
    file.seek(SeekFrom::Start(at))?;
    file.take(bytes).read_to_end(&mut piece)?;
    if piece.len() as u64 == bytes {
        return Ok(piece.into());
    }
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("it ends at byte {}", at + piece.len() as u64)))
}

fn failed(path: &FilePath, source: io::Error) -> object_store::Error {
    let source = io::Error::new(source.kind(), format!("reading `{}`: {source}", path.display()));
    object_store::Error::Generic { store: "file", source: source.into() }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

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

    #[tokio::test]
    async fn who_wants_the_file_gets_it_unless_its_bytes_are_here() {
        let (_folder, files) = folder(&vec![7; 2 * MAX_BYTES as usize]);
        for (bytes, is_file) in [(MAX_BYTES, false), (MAX_BYTES + 1, true)] {
            let mut options = bounded(1..1 + bytes);
            options.extensions.insert(WantsFile);
            let result = files.get_opts(&Path::from("shard.tar"), options).await.unwrap();
            assert_eq!(matches!(result.payload, GetResultPayload::File(..)), is_file);
            assert_eq!(result.range, 1..1 + bytes);
            assert_eq!(result.bytes().await.unwrap(), vec![7; bytes as usize]);
        }
    }

    #[tokio::test]
    async fn what_is_long_comes_in_large_pieces() {
        let bytes: Vec<u8> = (0..(2 * PIECE_BYTES + 5) as u32).map(|at| (at % 251) as u8).collect();
        let (folder, files) = folder(&bytes);
        let path = Path::from("shard.tar");
        let pieces = async |options: GetOptions| {
            let result = files.get_opts(&path, options).await?;
            let range = result.range.start as usize..result.range.end as usize;
            let pieces: Vec<Bytes> = result.into_stream().try_collect().await?;
            Ok::<_, object_store::Error>((range, pieces))
        };
        let piece = PIECE_BYTES as usize;
        for (options, lengths) in [
            (bounded(7..PIECE_BYTES + 7), vec![piece]),
            (bounded(3..2 * PIECE_BYTES + 4), vec![piece, piece, 1]),
            (GetOptions::default(), vec![piece, piece, 5]),
        ] {
            let (range, found) = pieces(options).await.unwrap();
            assert_eq!(found.iter().map(Bytes::len).collect::<Vec<_>>(), lengths);
            assert!(found.concat() == bytes[range]);
        }

        let reading = files.get_opts(&path, bounded(3..2 * PIECE_BYTES)).await.unwrap();
        File::options().write(true).open(folder.path().join("shard.tar")).unwrap().set_len(PIECE_BYTES + 100).unwrap();
        let error = reading.bytes().await.unwrap_err().to_string();
        assert!(
            error.contains("shard.tar") && error.contains(&format!("ends at byte {}", PIECE_BYTES + 100)),
            "{error}"
        );
    }
}
