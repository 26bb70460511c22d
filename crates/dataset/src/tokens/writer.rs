//! Takes documents of tokens one by one and writes files of them: pairs of `shard-000000.bin` and `.idx`, or, with masks,
//! `shard-000000.ds`, `.ds.loss` and `.ds.index`.

use bytes::Bytes;
use object_store::{ObjectStoreExt, WriteMultipart};
use spdl_shard::{format::token_files::DS_LOSS_SUFFIX, index::Spool, store::DatasetStore};
use spdl_store::StoreError;

use super::{
    TokenEncoding,
    index_files::{put_ends, put_idx},
};
use crate::{
    DatasetError,
    folder::{part_bytes, remove},
};

/// Number of parts that are uploaded at once. Each takes the memory of one part.
const PARTS_AT_ONCE: usize = 4;

/// Files of tokens that are complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenShard {
    /// Name of the file of tokens in the folder, such as a `.bin`. The others have the same stem.
    pub name: String,
    /// Number of its documents.
    pub documents: u64,
    /// Number of their tokens.
    pub tokens: u64,
}

/// Writes documents as shards of two or three files, in the order of the calls. A shard ends before the document that would make its tokens
/// and masks longer than `shard_bytes`, or at a number of documents. The file that states where its documents are is written when the others
/// are complete, and each appears as a whole. The memory of a shard is that of the parts that are uploaded; the lengths of its documents are in
/// a temporary file if they are many.
///
/// Call [`add`](Self::add) for each document, and [`finish`](Self::finish) or [`abort`](Self::abort) at the end.
#[derive(Debug)]
pub struct TokenShardWriter<'a> {
    to: &'a DatasetStore,
    encoding: TokenEncoding,
    shard_bytes: u64,
    shard_documents: Option<u32>,
    /// Number of the next shard that is opened.
    next: u64,
    open: Option<OpenTokenShard>,
    complete: Vec<TokenShard>,
}

/// A shard that is being written.
#[derive(Debug)]
struct OpenTokenShard {
    stem: String,
    tokens: OpenFile,
    /// The file of masks, if there are masks.
    masks: Option<OpenFile>,
    /// The number of tokens of each document, as an `i32`.
    lengths: Spool,
    documents: u64,
    /// Number of tokens.
    length: u64,
}

/// A file that is being written.
#[derive(Debug)]
struct OpenFile {
    name: String,
    /// The upload, once a part is full.
    upload: Option<WriteMultipart>,
    /// The bytes of the next part.
    part: Vec<u8>,
}

impl<'a> TokenShardWriter<'a> {
    /// Creates a writer of shards in the folder `to`, numbered from `first` on.
    ///
    /// # Errors
    /// If a limit is 0.
    pub fn new(
        to: &'a DatasetStore,
        encoding: TokenEncoding,
        first: u64,
        shard_bytes: u64,
        shard_documents: Option<u32>,
    ) -> Result<Self, DatasetError> {
        let zero = |option| Err(DatasetError::Option { option, problem: "is 0; give at least 1".to_owned() });
        match (shard_bytes, shard_documents) {
            (0, _) => zero("shard_bytes"),
            (_, Some(0)) => zero("shard_records"),
            _ => Ok(Self { to, encoding, shard_bytes, shard_documents, next: first, open: None, complete: Vec::new() }),
        }
    }

    /// Returns the shards that are complete.
    #[must_use]
    pub fn shards(&self) -> &[TokenShard] {
        &self.complete
    }

    /// Adds a document, which is one of [`TokenDocuments`](super::TokenDocuments) with the encoding of the writer. Completes the shard before
    /// it if that is full.
    ///
    /// # Errors
    /// If the store or a temporary file cannot be written.
    pub async fn add(&mut self, document: &[u8]) -> Result<(), DatasetError> {
        let tokens = document.len() as u64 / self.encoding.token_bytes();
        let is_full = |open: &OpenTokenShard| {
            (open.length + tokens) * self.encoding.token_bytes() > self.shard_bytes
                || self.shard_documents.is_some_and(|most| open.documents >= most.into())
        };
        if self.open.as_ref().is_some_and(is_full) {
            self.finish().await?;
        }
        let (to, encoding, next) = (self.to, self.encoding, &mut self.next);
        let open = self.open.get_or_insert_with(|| {
            *next += 1;
            OpenTokenShard::new(*next - 1, encoding, to)
        });
        open.lengths.append(&(tokens as i32).to_le_bytes())?;
        open.documents += 1;
        open.length += tokens;
        let (ids, mask) = document.split_at(tokens as usize * encoding.dtype().bytes());
        open.tokens.put(to, ids).await?;
        match &mut open.masks {
            Some(masks) => masks.put(to, mask).await,
            None => Ok(()),
        }
    }

    /// Completes the last shard, if there is one.
    ///
    /// # Errors
    /// If the store or a temporary file cannot be written.
    pub async fn finish(&mut self) -> Result<(), DatasetError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.tokens.finish(self.to).await?;
        if let Some(masks) = &mut open.masks {
            masks.finish(self.to).await?;
        }
        let index = format!("{}{}", open.stem, self.encoding.index_suffix());
        match self.encoding.has_masks() {
            true => put_ends(self.to, &index, &open.lengths).await?,
            false => put_idx(self.to, &index, self.encoding.dtype(), open.documents, &open.lengths).await?,
        }
        let name = std::mem::take(&mut open.tokens.name);
        self.complete.push(TokenShard { name, documents: open.documents, tokens: open.length });
        self.open = None;
        Ok(())
    }

    /// Removes what was written of the shard that is not complete, if there is one.
    ///
    /// # Errors
    /// If something of it may be left.
    pub async fn abort(self) -> Result<(), DatasetError> {
        let Some(OpenTokenShard { tokens, masks, stem, .. }) = self.open else { return Ok(()) };
        for upload in [Some(tokens), masks].into_iter().flatten().filter_map(|file| file.upload) {
            // Its parts are nothing that is seen in the folder.
            let _ = upload.abort().await;
        }
        remove_shard(self.to, self.encoding, &stem).await
    }
}

impl OpenTokenShard {
    fn new(number: u64, encoding: TokenEncoding, to: &DatasetStore) -> Self {
        let (stem, lengths) = (shard_stem(number), Spool::in_folder(&to.temporary_folder()));
        let file = |suffix: &str| OpenFile { name: format!("{stem}{suffix}"), upload: None, part: Vec::new() };
        let (tokens, masks) = (file(encoding.suffix()), encoding.has_masks().then(|| file(DS_LOSS_SUFFIX)));
        Self { stem, tokens, masks, lengths, documents: 0, length: 0 }
    }
}

impl OpenFile {
    /// Appends bytes.
    async fn put(&mut self, to: &DatasetStore, bytes: &[u8]) -> Result<(), DatasetError> {
        let (mut rest, part_bytes) = (bytes, part_bytes(to));
        while self.part.len() + rest.len() >= part_bytes {
            let (now, later) = rest.split_at(part_bytes - self.part.len());
            self.part.extend_from_slice(now);
            self.upload(to).await?;
            rest = later;
        }
        if self.part.capacity() == 0 && self.upload.is_some() {
            self.part.reserve_exact(part_bytes);
        }
        self.part.extend_from_slice(rest);
        Ok(())
    }

    /// Uploads the part.
    async fn upload(&mut self, to: &DatasetStore) -> Result<(), DatasetError> {
        let fail = |source| StoreError::of(&to.url_of(&self.name), source);
        let upload = match &mut self.upload {
            Some(upload) => upload,
            none => {
                let upload = to.object().put_multipart(&to.path_of(&self.name)).await.map_err(fail)?;
                none.insert(WriteMultipart::new_with_chunk_size(upload, part_bytes(to)))
            }
        };
        upload.put(std::mem::take(&mut self.part).into());
        upload.wait_for_capacity(PARTS_AT_ONCE).await.map_err(fail)?;
        Ok(())
    }

    /// Uploads what is left, and lets the file appear.
    async fn finish(&mut self, to: &DatasetStore) -> Result<(), DatasetError> {
        let part = Bytes::from(std::mem::take(&mut self.part));
        match self.upload.take() {
            Some(mut upload) => {
                upload.put(part);
                let written = upload.finish().await;
                written.map_err(|source| StoreError::of(&to.url_of(&self.name), source))?;
            }
            None => to.put(&self.name, part).await?,
        }
        Ok(())
    }
}

/// Returns what the names of the files of shard `number` begin with.
pub(super) fn shard_stem(number: u64) -> String {
    format!("shard-{number:06}")
}

/// Removes the files of a shard, if they exist: that which states where its documents are first.
pub(super) async fn remove_shard(to: &DatasetStore, encoding: TokenEncoding, stem: &str) -> Result<(), DatasetError> {
    for suffix in encoding.suffixes() {
        remove(to, &format!("{stem}{suffix}")).await?;
    }
    Ok(())
}
