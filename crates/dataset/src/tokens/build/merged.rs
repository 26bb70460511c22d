//! Takes the documents of a run one by one, in memory or from the store.

use std::{ops::Range, sync::Arc};

use bytes::{Buf, Bytes};
use spdl_shard::store::DatasetStore;

use super::{
    kept::{KeptRun, KeptRuns},
    run::{HEAD_BYTES, range},
    work::run_name,
};
use crate::DatasetError;

/// A part of a run that is merged.
pub(super) enum MergedRun<'r> {
    /// One in memory: the numbers of the next document, and of that behind the last.
    Kept {
        run: Arc<KeptRun>,
        next: usize,
        end: usize,
    },
    Stored(StoredRun<'r>),
}

/// A part of a run that is read from the store.
pub(super) struct StoredRun<'r> {
    to: &'r DatasetStore,
    unit: u32,
    /// Where the next chunk begins.
    at: u64,
    end: u64,
    chunk_bytes: u64,
    /// What was read and not taken.
    chunk: Bytes,
    /// Bytes of the document whose hash was taken.
    document_bytes: u64,
    /// The document that was taken last.
    document: Bytes,
}

impl<'r> MergedRun<'r> {
    /// Begins with a part of the run of a unit, which is read in chunks of about this size if it is not in memory.
    pub(super) fn open(to: &'r DatasetStore, kept: &KeptRuns, unit: u32, part: Range<u64>, chunk_bytes: u64) -> Self {
        let Range { start: at, end } = part;
        match kept.run(unit) {
            Some(run) => {
                let (next, end) = (run.documents_before(at), run.documents_before(end));
                Self::Kept { run, next, end }
            }
            None => {
                let (chunk, document) = (Bytes::new(), Bytes::new());
                Self::Stored(StoredRun { to, unit, at, end, chunk_bytes, chunk, document_bytes: 0, document })
            }
        }
    }

    /// Takes the hash of the next document, and returns it; `None` at the end.
    pub(super) async fn head(&mut self) -> Result<Option<u64>, DatasetError> {
        match self {
            Self::Kept { run, next, end } => Ok((*next < *end).then(|| run.document(*next).0)),
            Self::Stored(run) => run.head().await,
        }
    }

    /// Takes the tokens of that document, with their mask.
    pub(super) async fn document(&mut self) -> Result<&[u8], DatasetError> {
        match self {
            Self::Kept { run, next, .. } => {
                *next += 1;
                Ok(run.document(*next - 1).1)
            }
            Self::Stored(run) => {
                run.document = run.take(run.document_bytes).await?;
                Ok(&run.document)
            }
        }
    }
}

impl StoredRun<'_> {
    /// Takes the next bytes. Only those that two chunks have parts of are copied.
    async fn take(&mut self, bytes: u64) -> Result<Bytes, DatasetError> {
        let missing = bytes.saturating_sub(self.chunk.len() as u64);
        if missing == 0 {
            return Ok(self.chunk.split_to(bytes as usize));
        }
        let begun = std::mem::take(&mut self.chunk);
        let end = (self.at + missing.max(self.chunk_bytes)).min(self.end);
        if end > self.at {
            self.chunk = range(self.to, self.unit, self.at..end).await?;
        }
        if missing > self.chunk.len() as u64 {
            let problem = "is damaged: a document ends behind its slice; remove it, and tokenize again".to_owned();
            return Err(DatasetError::Parts { url: self.to.url_of(&run_name(self.unit)), problem });
        }
        self.at = end;
        let rest = self.chunk.split_to(missing as usize);
        Ok(if begun.is_empty() { rest } else { [begun, rest].concat().into() })
    }

    async fn head(&mut self) -> Result<Option<u64>, DatasetError> {
        if self.chunk.is_empty() && self.at == self.end {
            return Ok(None);
        }
        let mut head = self.take(HEAD_BYTES).await?;
        let hash = head.get_u64_le();
        self.document_bytes = head.get_u32_le().into();
        Ok(Some(hash))
    }
}
