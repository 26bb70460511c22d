//! Divides the documents of a file of tokens among shards, as they are found.

use spdl_types::DType;

use super::{DocumentModes, MAX_SHARD_BYTES, MAX_SHARD_DOCUMENTS, MAX_SHARD_MODES, TokenShardFacts};

/// A run of the documents of a file that is a shard.
#[derive(Debug, Default)]
pub struct TokenRun {
    first_document: u64,
    /// Where the first token lies in the file, in bytes.
    offset: u64,
    /// Where each document ends, in tokens from the first one.
    ends: Vec<u32>,
    /// Of each document the end of its modes, if there are modes.
    mode_ends: Option<Vec<u32>>,
    modes: Vec<u8>,
}

/// The documents of a file, in their order.
#[derive(Debug)]
pub struct TokenRuns {
    dtype: DType,
    next_document: u64,
    /// The run that documents are added to.
    run: TokenRun,
}

impl TokenRun {
    /// Returns the number of documents.
    #[must_use]
    pub const fn documents(&self) -> u32 {
        self.ends.len() as u32
    }

    /// Returns the facts of which its index is made, for a file of `file_bytes` of tokens of this type whose keys begin with
    /// `prefix`. The file has no mask of the loss.
    #[must_use]
    pub fn facts<'f>(&'f self, dtype: DType, file_bytes: u64, prefix: &'f str) -> TokenShardFacts<'f> {
        let modes = self.mode_ends.as_ref().map(|ends| DocumentModes { ends, modes: &self.modes });
        let Self { offset, first_document, ends, .. } = self;
        let (offset, first_document) = (*offset, *first_document);
        TokenShardFacts { file_bytes, offset, dtype, first_document, ends, modes, loss_blocks: None, prefix }
    }

    fn tokens(&self) -> u32 {
        self.ends.last().copied().unwrap_or(0)
    }
}

impl TokenRuns {
    /// Creates the documents of a file of tokens of this type, which may have modes.
    #[must_use]
    pub fn new(dtype: DType, has_modes: bool) -> Self {
        Self { dtype, next_document: 0, run: TokenRun { mode_ends: has_modes.then(Vec::new), ..TokenRun::default() } }
    }

    /// Adds the next document: `bytes` from byte `start` of the file on, and at most [`MAX_SHARD_MODES`] modes, which are taken. Adds
    /// the run before it to `full` if that is full.
    ///
    /// # Errors
    /// If the document has 4 GiB or more. The text follows the file's name.
    pub fn add(&mut self, start: u64, bytes: u64, modes: &mut Vec<u8>, full: &mut Vec<TokenRun>) -> Result<(), String> {
        let (width, document) = (self.dtype.bytes() as u64, self.next_document);
        if bytes > u32::MAX.into() {
            return Err(format!("has a document of {bytes} bytes, number {document}; a document has less than 4 GiB"));
        }
        let run = &self.run;
        let is_full = run.ends.len() == MAX_SHARD_DOCUMENTS
            || u64::from(run.tokens()) * width + bytes > MAX_SHARD_BYTES
            || run.modes.len() + modes.len() > MAX_SHARD_MODES;
        if run.ends.is_empty() || is_full {
            let mode_ends = run.mode_ends.as_ref().map(|_| Vec::new());
            let next = TokenRun { first_document: document, offset: start, mode_ends, ..TokenRun::default() };
            let before = std::mem::replace(&mut self.run, next);
            full.extend(Some(before).filter(|run| !run.ends.is_empty()));
        }
        // The sum is below its limit, or that of a single document of less than 2^32 bytes.
        let run = &mut self.run;
        run.ends.push(run.tokens() + (bytes / width) as u32);
        run.modes.append(modes);
        if let Some(ends) = &mut run.mode_ends {
            ends.push(run.modes.len() as u32);
        }
        self.next_document += 1;
        Ok(())
    }

    /// Returns the last run, if there are documents.
    #[must_use]
    pub fn finish(self) -> Option<TokenRun> {
        Some(self.run).filter(|run| !run.ends.is_empty())
    }
}
