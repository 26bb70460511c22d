//! The two forms of a table of sequences.

use crate::envelope::{FileKind, HEAD_BYTES, u32_at};

pub(super) static KIND: FileKind =
    FileKind { name: "table of sequences", magic: *b"SPDLSEQ\n", version: WITH_LEARNED, header_bytes: HEAD_BYTES };
/// The version of tables without numbers of learned tokens, and of those with them.
const WITHOUT_LEARNED: u32 = 1;
const WITH_LEARNED: u32 = 2;
/// Bytes before the counts: the envelope's head, and the number of pools.
pub(super) const COUNTS_AT: usize = HEAD_BYTES + 8;

/// What a table has, by its version.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableForm {
    pub(super) has_learned: bool,
}

impl TableForm {
    /// Returns the form of a file that begins with these bytes, whose envelope may not be checked yet.
    pub(super) fn of(file: &[u8]) -> Self {
        Self { has_learned: u32_at(file, 8) == WITH_LEARNED }
    }

    /// Returns the bytes before the rows.
    pub(super) const fn table_at(self) -> usize {
        COUNTS_AT + 8 * if self.has_learned { 10 } else { 8 }
    }

    /// Returns the bytes of a pool's row: the block after its last, its documents, its sequences, the CRC-32C of what is known of its
    /// documents, and the number of their pieces if these have numbers of learned tokens.
    pub(super) const fn row_bytes(self) -> usize {
        if self.has_learned { 20 } else { 16 }
    }

    /// Returns the version of the file.
    pub(super) const fn version(self) -> u32 {
        if self.has_learned { WITH_LEARNED } else { WITHOUT_LEARNED }
    }
}
