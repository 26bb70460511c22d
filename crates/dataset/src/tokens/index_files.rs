//! Writes an `.idx` or a `.ds.index` from the lengths of documents, in pieces.

use spdl_shard::{format::megatron::IdxHeader, index::Spool, store::DatasetStore};
use spdl_store::TemporaryError;
use spdl_types::DType;

use crate::{DatasetError, folder::put_pieces};

/// Number of entries of the document index that are made at once.
const ENTRIES_AT_ONCE: usize = 1 << 17;

/// Writes the `.idx` called `name` of documents of one sequence each; `lengths` has their numbers of tokens as `i32`. It appears in the
/// store as a whole.
pub(super) async fn put_idx(
    to: &DatasetStore,
    name: &str,
    dtype: DType,
    documents: u64,
    lengths: &Spool,
) -> Result<(), DatasetError> {
    put_pieces(to, name, idx_pieces(dtype, documents, lengths)).await
}

/// Writes the `.ds.index` called `name`, as [`put_idx`] does an `.idx`: where each document ends, in tokens.
pub(super) async fn put_ends(to: &DatasetStore, name: &str, lengths: &Spool) -> Result<(), DatasetError> {
    let mut end = 0_u64;
    let ends = lengths.pieces().map(move |piece| {
        let end_of = |length: &[u8; 4]| {
            end += u64::from(u32::from_le_bytes(*length));
            end.to_le_bytes()
        };
        Ok(piece?.as_chunks().0.iter().flat_map(end_of).collect())
    });
    put_pieces(to, name, ends).await
}

/// Returns the bytes of an `.idx`: its header, the lengths of sequences, where these begin, and the numbers of the first sequences of
/// documents.
fn idx_pieces(
    dtype: DType,
    documents: u64,
    lengths: &Spool,
) -> impl Iterator<Item = Result<Vec<u8>, TemporaryError>> + Send + '_ {
    let header = IdxHeader { dtype, sequences: documents, entries: documents + 1, has_modes: false };
    let (width, mut at) = (dtype.bytes() as i64, 0_i64);
    let pointers = lengths.pieces().map(move |piece| {
        let begins = |length: &[u8; 4]| {
            let begin = at;
            at += i64::from(i32::from_le_bytes(*length)) * width;
            begin.to_le_bytes()
        };
        Ok(piece?.as_chunks().0.iter().flat_map(begins).collect())
    });
    let entries = (0..=documents).step_by(ENTRIES_AT_ONCE).map(move |first| {
        let some = first..(first + ENTRIES_AT_ONCE as u64).min(documents + 1);
        Ok(some.flat_map(u64::to_le_bytes).collect())
    });
    std::iter::once(Ok(header.to_bytes())).chain(lengths.pieces()).chain(pointers).chain(entries)
}

#[cfg(test)]
mod tests {
    use spdl_store::TemporaryFolder;

    use super::*;

    #[test]
    fn the_arrays_of_an_idx_do_not_hang_on_the_pieces() {
        let count = 600_000_u64;
        let lengths: Vec<i32> = (0..count as i32).map(|number| number % 5).collect();
        let bytes: Vec<u8> = lengths.iter().flat_map(|length| length.to_le_bytes()).collect();
        let mut spool = Spool::in_folder(&TemporaryFolder::of_system());
        bytes.chunks(1000).for_each(|chunk| spool.append(chunk).unwrap());
        let made = idx_pieces(DType::I32, count, &spool).map(Result::unwrap).collect::<Vec<_>>().concat();
        let header = IdxHeader::read(&made, made.len() as u64).unwrap();
        let part = |range: std::ops::Range<u64>| &made[range.start as usize..range.end as usize];
        assert_eq!(part(header.lengths(&(0..count))), bytes);
        let mut at = 0;
        for (pointer, length) in part(header.pointers(&(0..count))).as_chunks().0.iter().zip(lengths) {
            assert_eq!(i64::from_le_bytes(*pointer), at);
            at += i64::from(length) * 4;
        }
        let entries = part(header.document_index(&(0..count + 1))).as_chunks().0;
        assert!(entries.iter().map(|entry| u64::from_le_bytes(*entry)).eq(0..=count));
    }
}
