//! Builds the index of a run of documents.

use bytes::Bytes;
use spdl_types::{DType, Fingerprint};

use super::index::{HAS_LOSS, HAS_MODES, HEADER_BYTES, KIND, TokenIndex};
use crate::{
    FormatError,
    envelope::{HEAD_BYTES, sealed},
};

/// The facts about a run of documents.
#[derive(Clone, Debug)]
pub struct TokenShardFacts<'f> {
    /// Size of the file of tokens in bytes.
    pub file_bytes: u64,
    /// Where the first token of the run lies in the file, in bytes.
    pub offset: u64,
    /// Type of the tokens.
    pub dtype: DType,
    /// Number of the first document in the file.
    pub first_document: u64,
    /// Where each document ends, in tokens from the first token of the run.
    pub ends: &'f [u32],
    /// The modes of the sequences, if the file has modes.
    pub modes: Option<DocumentModes<'f>>,
    /// The first document of each block, if the file has a mask of the loss: the masks of a block's documents follow its tokens.
    pub loss_blocks: Option<&'f [u32]>,
    /// The prefix of the keys of the documents.
    pub prefix: &'f str,
}

/// The modes of the sequences of a run of documents.
#[derive(Clone, Copy, Debug)]
pub struct DocumentModes<'f> {
    /// For each document the end of its modes among those of the run.
    pub ends: &'f [u32],
    /// A byte for each sequence.
    pub modes: &'f [u8],
}

impl TokenShardFacts<'_> {
    /// Writes the index and opens it again to verify that it is valid. Returns the index and its hash.
    ///
    /// # Errors
    /// If the index would not be valid.
    pub fn index(&self) -> Result<(Bytes, Fingerprint), FormatError> {
        let modes = self.modes.map_or(0, |modes| 4 * modes.ends.len() + modes.modes.len());
        let blocks = self.loss_blocks.unwrap_or_default();
        let bytes = HEADER_BYTES + 4 * (self.ends.len() + blocks.len()) + modes + self.prefix.len();
        let mut file = Vec::with_capacity(bytes);
        file.resize(HEAD_BYTES, 0);
        for number in [self.file_bytes, self.offset, self.first_document] {
            file.extend(number.to_le_bytes());
        }
        let flags = [(self.modes.is_some(), HAS_MODES), (self.loss_blocks.is_some(), HAS_LOSS)];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag as usize).sum();
        let modes_bytes = self.modes.map_or(0, |modes| modes.modes.len());
        let numbers = [self.ends.len(), self.dtype as usize, flags, modes_bytes, blocks.len(), self.prefix.len()];
        for number in numbers {
            let number = u32::try_from(number);
            let number = number.map_err(|_| FormatError::Unwritable("too many documents or modes".to_owned()))?;
            file.extend(number.to_le_bytes());
        }
        debug_assert_eq!(file.len(), HEADER_BYTES);
        extend(&mut file, self.ends);
        if let Some(DocumentModes { ends, modes }) = self.modes {
            extend(&mut file, ends);
            file.extend_from_slice(modes);
        }
        extend(&mut file, blocks);
        file.extend_from_slice(self.prefix.as_bytes());
        sealed(&KIND, file, TokenIndex::open)
    }
}

fn extend(file: &mut Vec<u8>, numbers: &[u32]) {
    for number in numbers {
        file.extend_from_slice(&number.to_le_bytes());
    }
}
