//! The header of an `.idx`, and where its arrays lie.

use std::ops::Range;

use spdl_types::DType;

use crate::envelope::u64_at;

const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
/// The magic of the older format of fairseq, which has no fixed layout.
const OLD_MAGIC: &[u8; 6] = b"TNTIDX";
const VERSION: u64 = 1;
/// The types of tokens, in the order of their codes from 1.
const DTYPES: [DType; 8] =
    [DType::U8, DType::I8, DType::I16, DType::I32, DType::I64, DType::F64, DType::F32, DType::U16];

/// Bytes of a length, of a pointer, of an entry of the document index, and of a mode.
const LENGTH_BYTES: u64 = 4;
const POINTER_BYTES: u64 = 8;
const ENTRY_BYTES: u64 = 8;
const MODE_BYTES: u64 = 1;

/// The header of an `.idx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdxHeader {
    /// Type of the tokens.
    pub dtype: DType,
    /// Number of sequences.
    pub sequences: u64,
    /// Number of entries of the document index: one more than there are documents.
    pub entries: u64,
    /// Whether each sequence has a mode.
    pub has_modes: bool,
}

impl IdxHeader {
    /// Size of a header in bytes.
    pub const BYTES: u64 = 34;

    /// Reads the header from the `first` bytes of an `.idx` of `idx_bytes`.
    ///
    /// # Errors
    /// If it is no `.idx` of a known version, or its counts do not add up to its size. The text follows the file's name.
    pub fn read(first: &[u8], idx_bytes: u64) -> Result<Self, String> {
        let seen = &first[..first.len().min(MAGIC.len())];
        if first.starts_with(OLD_MAGIC) {
            return Err(
                "is an `.idx` of fairseq's older format (`TNTIDX`): write it with Megatron's `mmap` format".into()
            );
        }
        if !MAGIC.starts_with(seen) {
            return Err(format!(
                "is no `.idx` of Megatron: it begins with `{}`, and not `MMIDIDX`",
                seen.escape_ascii()
            ));
        }
        if first.len() < Self::BYTES as usize {
            return Err(format!("is cut off: it has {idx_bytes} bytes, and its header has {}", Self::BYTES));
        }
        let version = u64_at(first, 9);
        if version != VERSION {
            return Err(format!("has the version {version}, and {VERSION} is read"));
        }
        let code = first[17];
        let dtype = usize::from(code).checked_sub(1).and_then(|code| DTYPES.get(code).copied());
        let dtype = dtype.ok_or_else(|| format!("has the type of tokens (dtype) {code}, and 1 to 8 are known"))?;
        let (sequences, entries) = (u64_at(first, 18), u64_at(first, 26));
        if entries == 0 {
            return Err("has no entry in its document index, which begins with 0 even if there is no document".into());
        }
        let plain = sequences
            .checked_mul(LENGTH_BYTES + POINTER_BYTES)
            .and_then(|bytes| entries.checked_mul(ENTRY_BYTES)?.checked_add(bytes)?.checked_add(Self::BYTES));
        let with_modes = plain.and_then(|plain| sequences.checked_mul(MODE_BYTES)?.checked_add(plain));
        let is_known = plain == Some(idx_bytes) || with_modes == Some(idx_bytes);
        if !is_known {
            let counts = format!("its counts, {sequences} sequences and {entries} entries of the document index,");
            return Err(match (plain, with_modes) {
                (Some(plain), Some(with_modes)) => {
                    let how = if idx_bytes < plain { "is cut off" } else { "has another size than its counts" };
                    format!("{how}: it has {idx_bytes} bytes, and {counts} take {plain}, or with modes {with_modes}")
                }
                _ => format!("is no `.idx`, or damaged: {counts} take more than 2^64 bytes, and it has {idx_bytes}"),
            });
        }
        Ok(Self { dtype, sequences, entries, has_modes: plain != Some(idx_bytes) })
    }

    /// Returns the bytes of the header.
    ///
    /// # Panics
    /// If Megatron has no tokens of this type.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let code = (1..).zip(DTYPES).find_map(|(code, dtype): (u8, _)| (dtype == self.dtype).then_some(code));
        let code = code.unwrap_or_else(|| panic!("Megatron has no tokens of {:?}", self.dtype));
        let numbers = [self.sequences, self.entries].map(u64::to_le_bytes);
        [MAGIC, &VERSION.to_le_bytes()[..], &[code], numbers.as_flattened()].concat()
    }

    /// Returns the range of the `.idx` with the lengths of these sequences.
    #[must_use]
    pub const fn lengths(&self, sequences: &Range<u64>) -> Range<u64> {
        part(Self::BYTES, LENGTH_BYTES, sequences)
    }

    /// Returns the range of the `.idx` with the pointers of these sequences.
    #[must_use]
    pub const fn pointers(&self, sequences: &Range<u64>) -> Range<u64> {
        part(Self::BYTES + self.sequences * LENGTH_BYTES, POINTER_BYTES, sequences)
    }

    /// Returns the range of the `.idx` with these entries of the document index.
    #[must_use]
    pub const fn document_index(&self, entries: &Range<u64>) -> Range<u64> {
        part(Self::BYTES + self.sequences * (LENGTH_BYTES + POINTER_BYTES), ENTRY_BYTES, entries)
    }

    /// Returns the range of the `.idx` with the modes of these sequences, which is empty if they have none.
    #[must_use]
    pub const fn modes(&self, sequences: &Range<u64>) -> Range<u64> {
        let at = self.document_index(&(0..self.entries)).end;
        if self.has_modes { part(at, MODE_BYTES, sequences) } else { at..at }
    }
}

/// Returns the range of some elements of an array that begins at `at`, with elements of `width` bytes.
const fn part(at: u64, width: u64, elements: &Range<u64>) -> Range<u64> {
    at + width * elements.start..at + width * elements.end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(dtype: u8, sequences: u64, entries: u64) -> Vec<u8> {
        let numbers = [sequences, entries].map(u64::to_le_bytes);
        [&MAGIC[..], &1_u64.to_le_bytes(), &[dtype], numbers.as_flattened()].concat()
    }

    #[test]
    fn a_header_states_types_counts_and_places() {
        let read = IdxHeader::read(&header(8, 3, 2), 34 + 36 + 16 + 3).unwrap();
        assert_eq!(read, IdxHeader { dtype: DType::U16, sequences: 3, entries: 2, has_modes: true });
        assert_eq!((read.lengths(&(0..3)), read.pointers(&(1..2))), (34..46, 54..62));
        assert_eq!((read.document_index(&(0..2)), read.modes(&(2..3))), (70..86, 88..89));
        let read = IdxHeader::read(&header(5, 3, 2), 34 + 36 + 16).unwrap();
        assert_eq!((read.dtype, read.has_modes, read.modes(&(0..3))), (DType::I64, false, 86..86));
        assert!(!IdxHeader::read(&header(1, 0, 1), 34 + 8).unwrap().has_modes);
        for code in 1..=8 {
            let bytes = header(code, 7, 8);
            assert_eq!(IdxHeader::read(&bytes, 34 + 7 * 12 + 64).unwrap().to_bytes(), bytes);
        }
    }

    #[test]
    fn every_lie_of_a_header_is_named_with_its_value() {
        let problem = |header: &[u8], bytes: u64| IdxHeader::read(header, bytes).unwrap_err();
        let with = |at: usize, value: &[u8]| {
            let mut header = header(4, 3, 2);
            header[at..at + value.len()].copy_from_slice(value);
            problem(&header, 86)
        };
        assert_eq!(
            with(0, b"TNTIDX"),
            "is an `.idx` of fairseq's older format (`TNTIDX`): write it with Megatron's `mmap` format"
        );
        assert_eq!(with(8, b"x"), r"is no `.idx` of Megatron: it begins with `MMIDIDX\x00x`, and not `MMIDIDX`");
        assert_eq!(with(9, &[2]), "has the version 2, and 1 is read");
        assert_eq!(with(17, &[0]), "has the type of tokens (dtype) 0, and 1 to 8 are known");
        assert_eq!(with(17, &[9]), "has the type of tokens (dtype) 9, and 1 to 8 are known");
        assert!(with(25, &[0x80]).contains("9223372036854775811 sequences and 2 entries"), "{}", with(25, &[0x80]));
        assert!(with(33, &[0x80]).contains("take more than 2^64 bytes, and it has 86"));
        assert!(with(18, &[4]).starts_with("is cut off: it has 86 bytes, and its counts, 4 sequences"));
        assert!(with(18, &[2]).contains("take 74, or with modes 76"));
        assert!(with(26, &[0]).starts_with("has no entry in its document index"));
        for bytes in 0..34 {
            let problem = problem(&header(4, 3, 2)[..bytes], bytes as u64);
            assert_eq!(problem, format!("is cut off: it has {bytes} bytes, and its header has 34"));
        }
    }
}
