//! Ids of a vocabulary as they are stored, and documents of them in memory.

use spdl_shard::format::{
    Format,
    megatron::{BIN_SUFFIX, IDX_SUFFIX, Megatron},
    token_files::{DS_INDEX_SUFFIX, DS_LOSS_SUFFIX, DS_SUFFIX, Datatrove},
};
use spdl_types::DType;

use crate::DatasetError;

/// Megatron stores vocabularies of fewer ids than this in 16 bits.
const MIN_WIDE_VOCAB: u32 = 65_500;
/// datatrove stores vocabularies of at most so many ids in 16 bits.
const MAX_NARROW_VOCAB: u32 = 1 << 16;
/// Upper limit of a vocabulary: ids are below 2^31.
const MAX_VOCAB: u32 = 1 << 31;
/// Upper limit of the bytes of a document: the index of a dataset has its length in 32 bits.
const MAX_DOCUMENT_BYTES: usize = u32::MAX as usize;

/// How the ids of a vocabulary are stored: in Megatron's files, or, if it is noted of each which are learned, in datatrove's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenEncoding {
    vocab: u32,
    has_masks: bool,
}

/// Documents of tokens as they are stored, one after the other. With masks, a byte for each token follows the tokens of a document: 1 if it
/// is learned, and 0 if not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenDocuments {
    encoding: TokenEncoding,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl TokenEncoding {
    /// Returns how ids from 0 to `vocab - 1` are stored.
    ///
    /// # Errors
    /// If there are no such ids, or they have more than 31 bits.
    pub fn of_vocab(vocab: u32) -> Result<Self, DatasetError> {
        if (1..=MAX_VOCAB).contains(&vocab) {
            return Ok(Self { vocab, has_masks: false });
        }
        let problem = format!("is {vocab}; give the size of the tokenizer's vocabulary, from 1 to {MAX_VOCAB}");
        Err(DatasetError::Option { option: "vocab", problem })
    }

    /// Returns the number of ids.
    #[must_use]
    pub const fn vocab(self) -> u32 {
        self.vocab
    }

    /// Returns the same vocabulary for documents with masks, which state which tokens are learned.
    #[must_use]
    pub const fn with_masks(self) -> Self {
        Self { has_masks: true, ..self }
    }

    /// Returns whether documents have masks.
    #[must_use]
    pub const fn has_masks(self) -> bool {
        self.has_masks
    }

    /// Returns the type of the tokens. Without masks it is `u16` or `i32`, as Megatron's `DType.optimal_dtype` chooses; with masks `u16` or
    /// `u32`, as datatrove's `token_size` does.
    #[must_use]
    pub const fn dtype(self) -> DType {
        match self.has_masks {
            false if self.vocab < MIN_WIDE_VOCAB => DType::U16,
            false => DType::I32,
            true if self.vocab <= MAX_NARROW_VOCAB => DType::U16,
            true => DType::U32,
        }
    }

    /// Returns the bytes that are stored for a token, with its part of the mask.
    pub(super) const fn token_bytes(self) -> u64 {
        self.dtype().bytes() as u64 + self.has_masks as u64
    }

    /// Returns the format of the files.
    pub(super) fn format(self) -> &'static dyn Format {
        if self.has_masks { &Datatrove } else { &Megatron }
    }

    /// Returns the suffix of a file of tokens.
    pub(super) const fn suffix(self) -> &'static str {
        if self.has_masks { DS_SUFFIX } else { BIN_SUFFIX }
    }

    /// Returns the suffix of the file that states where documents are, which is written last.
    pub(super) const fn index_suffix(self) -> &'static str {
        if self.has_masks { DS_INDEX_SUFFIX } else { IDX_SUFFIX }
    }

    /// Returns the suffixes of all files of a shard, that of the last one first.
    pub(super) fn suffixes(self) -> Vec<&'static str> {
        let mask = self.has_masks.then_some(DS_LOSS_SUFFIX);
        [self.index_suffix()].into_iter().chain(mask).chain([self.suffix()]).collect()
    }

    /// Returns documents of these ids: at first none.
    #[must_use]
    pub const fn documents(self) -> TokenDocuments {
        TokenDocuments { encoding: self, bytes: Vec::new(), ends: Vec::new() }
    }
}

impl TokenDocuments {
    /// Adds a document of these ids, which may be empty. With masks, all of them are learned.
    ///
    /// # Errors
    /// If an id is not in the vocabulary, or there are too many. The text follows the document's name. Nothing is added then.
    pub fn push(&mut self, ids: &[u32]) -> Result<(), String> {
        self.push_ids(ids)?;
        if self.encoding.has_masks {
            self.bytes.resize(self.bytes.len() + ids.len(), 1);
        }
        self.ends.push(self.bytes.len());
        Ok(())
    }

    /// Adds a document of these ids, of which some are learned.
    ///
    /// # Errors
    /// As [`Self::push`].
    ///
    /// # Panics
    /// If the encoding has no masks, or the mask another length than the ids.
    pub fn push_masked(&mut self, ids: &[u32], learned: &[bool]) -> Result<(), String> {
        assert!(self.encoding.has_masks, "documents without masks");
        assert_eq!(ids.len(), learned.len(), "a mask has a value for each id");
        self.push_ids(ids)?;
        self.bytes.extend(learned.iter().map(|learned| u8::from(*learned)));
        self.ends.push(self.bytes.len());
        Ok(())
    }

    fn push_ids(&mut self, ids: &[u32]) -> Result<(), String> {
        let TokenEncoding { vocab, .. } = self.encoding;
        let dtype = self.encoding.dtype();
        if ids.iter().fold(0, |most, id| most.max(*id)) >= vocab {
            let wrong = ids.iter().zip(0_u64..).find(|(id, _)| **id >= vocab);
            let (id, place) = wrong.expect("the greatest id is one of them");
            let last = vocab - 1;
            return Err(format!(
                "has id {id} at place {place}, from 0; `vocab` is {vocab}, so ids are from 0 to {last}"
            ));
        }
        if ids.len() > MAX_DOCUMENT_BYTES / self.encoding.token_bytes() as usize {
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

    /// Iterates over the documents: the tokens of each, one after the other, little-endian, and the mask if there are masks.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + '_ {
        (0..self.ends.len()).map(|number| {
            let first = if number == 0 { 0 } else { self.ends[number - 1] };
            &self.bytes[first..self.ends[number]]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vocabularies_have_the_types_that_megatron_and_datatrove_choose() {
        let dtype = |vocab| TokenEncoding::of_vocab(vocab).map(TokenEncoding::dtype).ok();
        assert_eq!([1, 65_499, 65_500, 1 << 31].map(dtype), [DType::U16, DType::U16, DType::I32, DType::I32].map(Some));
        assert_eq!([0, (1 << 31) + 1].map(dtype), [None, None]);
        let masked = |vocab| TokenEncoding::of_vocab(vocab).unwrap().with_masks().dtype();
        assert_eq!([65_500, 65_536, 65_537].map(masked), [DType::U16, DType::U16, DType::U32]);
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

    #[test]
    fn a_mask_follows_the_tokens_of_its_document() {
        let mut documents = TokenEncoding::of_vocab(300).unwrap().with_masks().documents();
        documents.push_masked(&[1, 299], &[false, true]).unwrap();
        documents.push(&[7]).unwrap();
        assert!(documents.push_masked(&[300], &[true]).is_err());
        assert_eq!(documents.iter().collect::<Vec<_>>(), [&[1, 0, 43, 1, 0, 1][..], &[7, 0, 1]]);
    }
}
