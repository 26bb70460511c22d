//! Writes one shard: members go to the store and into the shard's catalogue as they arrive.

use std::{io::ErrorKind, path::Path};

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::{ObjectStoreExt, WriteMultipart};
use spdl_shard::{manifest::MetadataPlace, store::DatasetStore};
use spdl_store::StoreError;
use spdl_types::Fingerprint;
use tokio::io::AsyncReadExt;
use xxhash_rust::xxh3::Xxh3;

use super::{
    DatasetError,
    catalog::Catalog,
    folder::{PART_BYTES, put_index},
    members::{MemberPart, Members},
    scan::ScannedShard,
    source::{CHANGED, FilePlace, wrong},
};
use crate::tar::TAR_END;

/// Number of parts that are uploaded at once. Each takes the memory of one part.
const PARTS_AT_ONCE: usize = 4;
/// Size of the pieces in which large files are copied, in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// A shard that is being written. It appears in the store as a whole when it is finished, or not at all.
pub(super) struct ShardUpload<'a> {
    store: &'a DatasetStore,
    name: String,
    upload: WriteMultipart,
    catalog: Catalog,
    /// Hashes its bytes, if the hash is wanted.
    hasher: Option<Xxh3>,
    pub(super) bytes: u64,
    pub(super) records: u32,
}

impl<'a> ShardUpload<'a> {
    /// Starts the shard that `catalog` describes under the name `name` in the folder.
    pub(super) async fn start(store: &'a DatasetStore, name: String, catalog: Catalog) -> Result<Self, DatasetError> {
        let upload = store.object().put_multipart(&store.path_of(&name)).await;
        let upload = upload.map_err(|source| StoreError::of(&store.url_of(&name), source))?;
        let upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        Ok(Self { store, name, upload, catalog, hasher: None, bytes: 0, records: 0 })
    }

    /// Hashes the bytes that follow, for [`finish_hashed`](Self::finish_hashed).
    pub(super) fn hashed(self) -> Self {
        Self { hasher: Some(Xxh3::new()), ..self }
    }

    /// Appends the members of one record.
    pub(super) async fn append(&mut self, record: Members) -> Result<(), DatasetError> {
        self.bytes += record.bytes;
        self.records += 1;
        record.tables.into_iter().for_each(|table| self.catalog.expect(table));
        for part in record.parts {
            match part {
                MemberPart::Bytes(bytes) => self.put(bytes).await?,
                MemberPart::File { place: FilePlace::Disk(path), bytes } => self.copy(&path, bytes).await?,
                MemberPart::File { place: FilePlace::Stored(file), bytes } => {
                    let mut pieces = file.pieces(bytes).await?;
                    while let Some(piece) = pieces.try_next().await? {
                        self.put(piece).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies a file in pieces, so that it takes the memory of one piece.
    async fn copy(&mut self, path: &Path, bytes: u64) -> Result<(), DatasetError> {
        let fail = |error: std::io::Error| match error.kind() {
            ErrorKind::UnexpectedEof => wrong(path, CHANGED),
            _ => wrong(path, &format!("cannot be read: {error}")),
        };
        let mut file = tokio::fs::File::open(path).await.map_err(fail)?;
        file.set_max_buf_size(PIECE_BYTES);
        let mut left = bytes;
        while left > 0 {
            let mut piece = vec![0; left.min(PIECE_BYTES as u64) as usize];
            file.read_exact(&mut piece).await.map_err(fail)?;
            left -= piece.len() as u64;
            self.put(piece.into()).await?;
        }
        match file.read(&mut [0]).await.map_err(fail)? {
            0 => Ok(()),
            _ => Err(wrong(path, CHANGED)),
        }
    }

    async fn put(&mut self, bytes: Bytes) -> Result<(), DatasetError> {
        self.catalog.read(&bytes)?;
        self.hasher.iter_mut().for_each(|hasher| hasher.update(&bytes));
        self.upload.put(bytes);
        let room = self.upload.wait_for_capacity(PARTS_AT_ONCE).await;
        room.map_err(|source| StoreError::of(&self.store.url_of(&self.name), source).into())
    }

    /// Finishes the shard like [`finish`](Self::finish), and returns the XXH3-128 of its bytes as well.
    ///
    /// # Panics
    /// If it is not [hashed](Self::hashed).
    pub(super) async fn finish_hashed(mut self) -> Result<(ScannedShard, Fingerprint), DatasetError> {
        let mut hasher = self.hasher.take().expect("the shard is hashed");
        hasher.update(&TAR_END);
        Ok((self.finish().await?, Fingerprint(hasher.digest128())))
    }

    /// Finishes the shard and writes its index.
    pub(super) async fn finish(mut self) -> Result<ScannedShard, DatasetError> {
        self.catalog.read(&TAR_END)?;
        self.upload.put(Bytes::from_static(&TAR_END));
        let url = self.store.url_of(&self.name);
        let written = self.upload.finish().await.map_err(|source| StoreError::of(&url, source))?;
        let shard = self.catalog.finish(self.store.lasting_etag(written.e_tag))?;
        put_index(self.store, &MetadataPlace::Hidden.index_path(&self.name), &shard.index).await?;
        Ok(shard)
    }

    /// Cancels the shard; nothing of it stays.
    pub(super) async fn abort(self) {
        // The first error is the one to report.
        let _ = self.upload.abort().await;
    }
}
