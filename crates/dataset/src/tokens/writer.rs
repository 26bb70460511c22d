//! Takes documents of tokens one by one and writes pairs of `shard-000000.bin` and `shard-000000.idx`.

use bytes::Bytes;
use object_store::{ObjectStoreExt, WriteMultipart};
use spdl_shard::{
    format::megatron::{BIN_SUFFIX, IDX_SUFFIX},
    index::Spool,
    store::DatasetStore,
};
use spdl_store::StoreError;
use spdl_types::DType;

use super::idx::put_idx;
use crate::{
    DatasetError,
    folder::{PART_BYTES, remove},
};

/// Number of parts that are uploaded at once. Each takes the memory of one part.
const PARTS_AT_ONCE: usize = 4;
/// Megatron stores vocabularies of fewer ids than this in 16 bits.
const MIN_WIDE_VOCAB: u32 = 65_500;
/// Upper limit of a vocabulary: ids are below 2^31.
const MAX_VOCAB: u32 = 1 << 31;
/// Upper limit of the bytes of a document: the index of a dataset has its length in 32 bits.
const MAX_DOCUMENT_BYTES: usize = u32::MAX as usize;

/// How the ids of a vocabulary are stored: in the type that Megatron's `DType.optimal_dtype` chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenEncoding {
    vocab: u32,
}

/// Documents of tokens as they are stored, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenDocuments {
    encoding: TokenEncoding,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

/// A pair of files that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenShard {
    /// Name of the `.bin` in the folder. The `.idx` has the same stem.
    pub name: String,
    /// Number of its documents.
    pub documents: u64,
    /// Number of their tokens.
    pub tokens: u64,
}

impl TokenEncoding {
    /// Returns how ids from 0 to `vocab - 1` are stored.
    ///
    /// # Errors
    /// If there are no such ids, or they have more than 31 bits.
    pub fn of_vocab(vocab: u32) -> Result<Self, DatasetError> {
        if (1..=MAX_VOCAB).contains(&vocab) {
            return Ok(Self { vocab });
        }
        let problem = format!("is {vocab}; give the size of the tokenizer's vocabulary, from 1 to {MAX_VOCAB}");
        Err(DatasetError::Option { option: "vocab", problem })
    }

    /// Returns the number of ids.
    #[must_use]
    pub const fn vocab(self) -> u32 {
        self.vocab
    }

    /// Returns the type of the tokens: `u16` or `i32`.
    #[must_use]
    pub const fn dtype(self) -> DType {
        if self.vocab < MIN_WIDE_VOCAB { DType::U16 } else { DType::I32 }
    }

    /// Returns documents of these ids: at first none.
    #[must_use]
    pub const fn documents(self) -> TokenDocuments {
        TokenDocuments { encoding: self, bytes: Vec::new(), ends: Vec::new() }
    }
}

impl TokenDocuments {
    /// Adds a document of these ids, which may be empty.
    ///
    /// # Errors
    /// If an id is not in the vocabulary, or there are too many. The text follows the document's name. Nothing is added then.
    pub fn push(&mut self, ids: &[u32]) -> Result<(), String> {
        let TokenEncoding { vocab } = self.encoding;
        let dtype = self.encoding.dtype();
        if ids.iter().fold(0, |most, id| most.max(*id)) >= vocab {
            let wrong = ids.iter().zip(0_u64..).find(|(id, _)| **id >= vocab);
            let (id, place) = wrong.expect("the greatest id is one of them");
            let last = vocab - 1;
            return Err(format!(
                "has id {id} at place {place}, from 0; `vocab` is {vocab}, so ids are from 0 to {last}"
            ));
        }
        if ids.len() > MAX_DOCUMENT_BYTES / dtype.bytes() {
            return Err(format!("has {} tokens; a document has less than 4 GiB", ids.len()));
        }
        let first = self.bytes.len();
        self.bytes.resize(first + ids.len() * dtype.bytes(), 0);
        let places = &mut self.bytes[first..];
        if dtype == DType::U16 {
            // Below the vocabulary, so below 2^16.
            ids.iter().zip(places.as_chunks_mut().0).for_each(|(id, place)| *place = (*id as u16).to_le_bytes());
        } else {
            ids.iter().zip(places.as_chunks_mut().0).for_each(|(id, place)| *place = id.to_le_bytes());
        }
        self.ends.push(self.bytes.len());
        Ok(())
    }

    /// Adds a document that was one of others with this encoding.
    pub(super) fn push_stored(&mut self, document: &[u8]) {
        self.bytes.extend_from_slice(document);
        self.ends.push(self.bytes.len());
    }

    /// Removes all documents.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Returns the number of documents.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no documents.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the size of all documents and of what is noted about each, in bytes.
    pub(super) const fn size(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<usize>()
    }

    /// Iterates over the documents: the tokens of each, one after the other, little-endian.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + '_ {
        (0..self.ends.len()).map(|number| {
            let first = if number == 0 { 0 } else { self.ends[number - 1] };
            &self.bytes[first..self.ends[number]]
        })
    }
}

/// Writes documents as pairs of files, in the order of the calls. A pair ends before the document that would make its `.bin` longer than
/// `shard_bytes`, or at a number of documents. Its `.idx` is written when its `.bin` is complete, and either appears as a whole. The
/// memory of a pair is that of the parts that are uploaded; the lengths of its documents are in a temporary file if they are many.
///
/// Call [`add`](Self::add) for each document, and [`finish`](Self::finish) or [`abort`](Self::abort) at the end.
#[derive(Debug)]
pub struct TokenShardWriter<'a> {
    to: &'a DatasetStore,
    dtype: DType,
    shard_bytes: u64,
    shard_documents: Option<u32>,
    /// Number of the next pair that is opened.
    next: u64,
    open: Option<OpenPair>,
    complete: Vec<TokenShard>,
}

/// A pair that is being written.
#[derive(Debug)]
struct OpenPair {
    stem: String,
    /// The upload of the tokens, once a part is full.
    upload: Option<WriteMultipart>,
    /// The tokens of the next part.
    part: Vec<u8>,
    /// The number of tokens of each document, as an `i32`.
    lengths: Spool,
    documents: u64,
    bytes: u64,
}

impl<'a> TokenShardWriter<'a> {
    /// Creates a writer of pairs in the folder `to`, numbered from `first` on.
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
            _ => Ok(Self {
                to,
                dtype: encoding.dtype(),
                shard_bytes,
                shard_documents,
                next: first,
                open: None,
                complete: Vec::new(),
            }),
        }
    }

    /// Returns the pairs that are complete.
    #[must_use]
    pub fn shards(&self) -> &[TokenShard] {
        &self.complete
    }

    /// Adds a document, which is one of [`TokenDocuments`] with the encoding of the writer. Completes the pair before it if that is full.
    ///
    /// # Errors
    /// If the store or a temporary file cannot be written.
    pub async fn add(&mut self, document: &[u8]) -> Result<(), DatasetError> {
        let bytes = document.len() as u64;
        let is_full = |open: &OpenPair| {
            open.bytes + bytes > self.shard_bytes
                || self.shard_documents.is_some_and(|most| open.documents >= most.into())
        };
        if self.open.as_ref().is_some_and(is_full) {
            self.finish().await?;
        }
        let (to, width, next) = (self.to, self.dtype.bytes() as u64, &mut self.next);
        let open = self.open.get_or_insert_with(|| {
            *next += 1;
            OpenPair::new(*next - 1, to)
        });
        open.lengths.append(&((bytes / width) as i32).to_le_bytes())?;
        open.documents += 1;
        open.put(to, document).await
    }

    /// Completes the last pair, if there is one.
    ///
    /// # Errors
    /// If the store or a temporary file cannot be written.
    pub async fn finish(&mut self) -> Result<(), DatasetError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let name = format!("{}{BIN_SUFFIX}", open.stem);
        let part = Bytes::from(std::mem::take(&mut open.part));
        match open.upload.take() {
            Some(mut upload) => {
                upload.put(part);
                let written = upload.finish().await;
                written.map_err(|source| StoreError::of(&self.to.url_of(&name), source))?;
            }
            None => self.to.put(&name, part).await?,
        }
        let idx = format!("{}{IDX_SUFFIX}", open.stem);
        put_idx(self.to, &idx, self.dtype, open.documents, &open.lengths).await?;
        let tokens = open.bytes / self.dtype.bytes() as u64;
        self.complete.push(TokenShard { name, documents: open.documents, tokens });
        self.open = None;
        Ok(())
    }

    /// Removes what was written of the pair that is not complete, if there is one.
    ///
    /// # Errors
    /// If something of it may be left.
    pub async fn abort(self) -> Result<(), DatasetError> {
        let Some(OpenPair { upload, stem, .. }) = self.open else { return Ok(()) };
        if let Some(upload) = upload {
            // Its parts are nothing that is seen in the folder.
            let _ = upload.abort().await;
        }
        remove_pair(self.to, &stem).await
    }
}

impl OpenPair {
    fn new(number: u64, to: &DatasetStore) -> Self {
        let lengths = Spool::in_folder(&to.temporary_folder());
        Self { stem: pair_stem(number), upload: None, part: Vec::new(), lengths, documents: 0, bytes: 0 }
    }

    /// Appends the tokens of a document.
    async fn put(&mut self, to: &DatasetStore, tokens: &[u8]) -> Result<(), DatasetError> {
        self.bytes += tokens.len() as u64;
        let mut rest = tokens;
        while self.part.len() + rest.len() >= PART_BYTES {
            let (now, later) = rest.split_at(PART_BYTES - self.part.len());
            self.part.extend_from_slice(now);
            self.upload(to).await?;
            rest = later;
        }
        if self.part.capacity() == 0 && self.upload.is_some() {
            self.part.reserve_exact(PART_BYTES);
        }
        self.part.extend_from_slice(rest);
        Ok(())
    }

    /// Uploads the part.
    async fn upload(&mut self, to: &DatasetStore) -> Result<(), DatasetError> {
        let name = format!("{}{BIN_SUFFIX}", self.stem);
        let fail = |source| StoreError::of(&to.url_of(&name), source);
        let upload = match &mut self.upload {
            Some(upload) => upload,
            none => {
                let upload = to.object().put_multipart(&to.path_of(&name)).await.map_err(fail)?;
                none.insert(WriteMultipart::new_with_chunk_size(upload, PART_BYTES))
            }
        };
        upload.put(std::mem::take(&mut self.part).into());
        upload.wait_for_capacity(PARTS_AT_ONCE).await.map_err(fail)?;
        Ok(())
    }
}

/// Returns what the names of the files of pair `number` begin with.
pub(super) fn pair_stem(number: u64) -> String {
    format!("shard-{number:06}")
}

/// Removes the files of a pair, if they exist: the `.idx` first.
pub(super) async fn remove_pair(to: &DatasetStore, stem: &str) -> Result<(), DatasetError> {
    remove(to, &format!("{stem}{IDX_SUFFIX}")).await?;
    remove(to, &format!("{stem}{BIN_SUFFIX}")).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vocabularies_have_the_types_that_megatron_chooses() {
        let dtype = |vocab| TokenEncoding::of_vocab(vocab).map(TokenEncoding::dtype).ok();
        assert_eq!([1, 65_499, 65_500, 1 << 31].map(dtype), [DType::U16, DType::U16, DType::I32, DType::I32].map(Some));
        assert_eq!([0, (1 << 31) + 1].map(dtype), [None, None]);
    }

    #[test]
    fn a_document_with_an_id_beyond_the_vocabulary_is_refused() {
        let mut small = TokenEncoding::of_vocab(300).unwrap().documents();
        [&[1, 299][..], &[], &[7]].into_iter().for_each(|ids| small.push(ids).unwrap());
        let problem = "has id 300 at place 1, from 0; `vocab` is 300, so ids are from 0 to 299";
        assert_eq!(small.push(&[299, 300, 301]).unwrap_err(), problem);
        assert_eq!(small.iter().collect::<Vec<_>>(), [&[1, 0, 43, 1][..], &[], &[7, 0]]);
        let mut large = TokenEncoding::of_vocab(65_500).unwrap().documents();
        large.push(&[65_499]).unwrap();
        assert!(large.push(&[u32::MAX]).is_err());
        assert_eq!(large.iter().collect::<Vec<_>>(), [[0xdb, 0xff, 0, 0]]);
    }
}
