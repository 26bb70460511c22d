//! datatrove's `.ds.index`: where each document ends, in tokens from the start of the `.ds`, in 64 bits each.

use spdl_types::DType;

use crate::{
    envelope::u64_at,
    format::token_index::{TokenRun, TokenRuns},
};

/// Returns the type of the tokens of a `.ds` of `ds_bytes`, of which `last` tokens are in documents: 16 or 32 bits without sign.
///
/// # Errors
/// If it is neither. The text follows the name of the `.ds`.
pub fn ds_dtype(ds_bytes: u64, last: u64) -> Result<DType, String> {
    let of = |dtype: DType| last.checked_mul(dtype.bytes() as u64) == Some(ds_bytes);
    [DType::U16, DType::U32].into_iter().find(|dtype| of(*dtype)).ok_or_else(|| {
        format!(
            "has {ds_bytes} bytes, and the last document of its index ends at token {last}, which is neither with 2 nor with 4 \
             bytes a token its end: it is cut off, or another file"
        )
    })
}

/// Reads the ends of the documents of a `.ds`, as they arrive.
#[derive(Debug)]
pub struct DsEnds {
    dtype: DType,
    /// Number of documents, and of the tokens in them.
    documents: u64,
    tokens: u64,
    /// Number of tokens in the `.ds`.
    limit: u64,
    runs: TokenRuns,
}

impl DsEnds {
    /// Creates a reader for a `.ds` of `limit` tokens of this type.
    #[must_use]
    pub fn new(dtype: DType, limit: u64) -> Self {
        Self { dtype, documents: 0, tokens: 0, limit, runs: TokenRuns::new(dtype, false) }
    }

    /// Reads the next ends, of eight bytes each, and adds shards that are full to `full`.
    ///
    /// # Errors
    /// If an end lies before the one before it or behind the file. The text follows the name of the `.ds.index`.
    pub fn read(&mut self, ends: &[u8], full: &mut Vec<TokenRun>) -> Result<(), String> {
        let width = self.dtype.bytes() as u64;
        for end in ends.chunks_exact(8).map(|end| u64_at(end, 0)) {
            let (number, start) = (self.documents, self.tokens);
            if end < start || end > self.limit {
                let limit = self.limit;
                return Err(format!(
                    "has {end} as end of document {number}, which begins at {start}, of {limit} tokens"
                ));
            }
            self.runs.add(start * width, (end - start) * width, &mut Vec::new(), full)?;
            (self.documents, self.tokens) = (number + 1, end);
        }
        Ok(())
    }

    /// Returns the last shard, if there are documents.
    #[must_use]
    pub fn finish(self) -> Option<TokenRun> {
        self.runs.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_documents_and_each_lie_is_named() {
        let read = |ends: &[u64]| {
            let (mut reader, mut full) = (DsEnds::new(DType::U32, 9), Vec::new());
            let ends: Vec<u8> = ends.iter().flat_map(|end| end.to_le_bytes()).collect();
            reader.read(&ends, &mut full)?;
            assert!(full.is_empty());
            Ok::<_, String>(reader.finish().map(|run| run.facts(DType::U32, 36, "").ends.to_vec()))
        };
        assert_eq!(read(&[4, 4, 9]), Ok(Some(vec![4, 4, 9])));
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[4, 3]).unwrap_err(), "has 3 as end of document 1, which begins at 4, of 9 tokens");
        assert_eq!(
            read(&[1 << 63]).unwrap_err(),
            "has 9223372036854775808 as end of document 0, which begins at 0, of 9 tokens"
        );
        assert_eq!((ds_dtype(18, 9), ds_dtype(36, 9)), (Ok(DType::U16), Ok(DType::U32)));
        assert!(ds_dtype(35, 9).is_err() && ds_dtype(0, 1 << 63).is_err());
        assert_eq!(ds_dtype(0, 0), Ok(DType::U16));
    }
}
