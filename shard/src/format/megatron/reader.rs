//! Reads the documents of an `.idx` as its arrays arrive, in pieces, and divides them among shards. Every number is checked.

use bytes::Bytes;

use super::IdxHeader;
use crate::format::token_index::{MAX_SHARD_MODES, TokenRun, TokenRuns};

/// Numbers of neighbouring sequences that were read, some of which may be used up.
#[derive(Clone, Debug, Default)]
pub struct IdxSequences {
    /// Their lengths in tokens.
    pub lengths: Bytes,
    /// Where they begin in the `.bin`, in bytes.
    pub pointers: Bytes,
    /// Their modes, if the file has them.
    pub modes: Bytes,
    /// Number of sequences that are used up.
    used: usize,
}

/// Entries of the document index that were read, some of which may be used up.
#[derive(Clone, Debug, Default)]
pub struct IdxDocuments {
    /// The entries.
    pub entries: Bytes,
    /// Number of entries that are used up.
    used: usize,
}

/// What a reader needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdxWants {
    /// The next sequences.
    Sequences,
    /// The next entries of the document index.
    Documents,
}

/// Reads the documents of an `.idx`.
///
/// Call [`read`](Self::read) with the next pieces of the arrays until there are no more, and then [`finish`](Self::finish).
#[derive(Debug)]
pub struct IdxReader {
    header: IdxHeader,
    bin_bytes: u64,
    /// Number of the next sequence, and where it has to begin in the `.bin`.
    sequence: u64,
    place: u64,
    /// Number of the next entry of the document index, and the one before it.
    entry: u64,
    document_end: u64,
    /// Whether a document has begun, and where in the `.bin`.
    document: Option<u64>,
    documents: TokenRuns,
    /// The modes of the document.
    modes: Vec<u8>,
}

impl IdxSequences {
    /// Creates the numbers of sequences from parts of the arrays.
    #[must_use]
    pub const fn new(lengths: Bytes, pointers: Bytes, modes: Bytes) -> Self {
        Self { lengths, pointers, modes, used: 0 }
    }

    /// Takes the length and the pointer of the next sequence, if there is one.
    fn next(&mut self) -> Option<(i32, i64)> {
        let number = self.used;
        let length = i32::from_le_bytes(*self.lengths.get(4 * number..)?.first_chunk()?);
        let pointer = i64::from_le_bytes(*self.pointers.get(8 * number..)?.first_chunk()?);
        self.used += 1;
        Some((length, pointer))
    }
}

impl IdxDocuments {
    /// Creates the entries from a part of the array.
    #[must_use]
    pub const fn new(entries: Bytes) -> Self {
        Self { entries, used: 0 }
    }

    fn next(&mut self) -> Option<i64> {
        let entry = i64::from_le_bytes(*self.entries.get(8 * self.used..)?.first_chunk()?);
        self.used += 1;
        Some(entry)
    }
}

impl IdxReader {
    /// Creates a reader for an `.idx` with this header, beside a `.bin` of `bin_bytes`.
    #[must_use]
    pub fn new(header: IdxHeader, bin_bytes: u64) -> Self {
        let documents = TokenRuns::new(header.dtype, header.has_modes);
        let (modes, document) = (Vec::new(), None);
        Self { header, bin_bytes, sequence: 0, place: 0, entry: 0, document_end: 0, document, documents, modes }
    }

    /// Returns the header.
    #[must_use]
    pub const fn header(&self) -> &IdxHeader {
        &self.header
    }

    /// Reads documents until `sequences` or `entries` are used up, and adds shards that are full to `full`. Returns which of the
    /// two is needed next.
    ///
    /// # Errors
    /// If a number is a lie. The text follows the file's name.
    pub fn read(
        &mut self,
        sequences: &mut IdxSequences,
        entries: &mut IdxDocuments,
        full: &mut Vec<TokenRun>,
    ) -> Result<IdxWants, String> {
        loop {
            let Some(document) = self.document else {
                let Some(entry) = entries.next() else { return Ok(IdxWants::Documents) };
                self.begin(entry)?;
                continue;
            };
            while self.sequence < self.document_end {
                let Some((length, pointer)) = sequences.next() else { return Ok(IdxWants::Sequences) };
                if self.header.has_modes {
                    let mode = sequences.modes.get(sequences.used - 1).copied();
                    self.modes.push(mode.ok_or("has fewer modes than sequences")?);
                }
                self.sequence(length, pointer)?;
            }
            self.documents.add(document, self.place - document, &mut self.modes, full)?;
            self.document = None;
        }
    }

    /// Reads an entry of the document index: the first one, or the end of the document that begins.
    fn begin(&mut self, entry: i64) -> Result<(), String> {
        let (number, before, sequences) = (self.entry, self.document_end, self.header.sequences);
        let wrong = |problem: &str| Err(format!("has {entry} in entry {number} of its document index, {problem}"));
        let Some(end) = u64::try_from(entry).ok().filter(|end| *end <= sequences) else {
            return wrong(&format!("and its sequences have the numbers 0 to {sequences}"));
        };
        if number == 0 && end != 0 {
            return wrong("which begins with 0");
        }
        if end < before {
            return wrong(&format!("after {before}: documents follow each other"));
        }
        if self.header.has_modes && end - before > MAX_SHARD_MODES as u64 {
            return wrong(&format!("after {before}: a document with modes has at most {MAX_SHARD_MODES} sequences"));
        }
        if number + 1 == self.header.entries && end != sequences {
            return wrong(&format!("which is the last one, and there are {sequences} sequences"));
        }
        self.document = (number > 0).then_some(self.place);
        (self.entry, self.document_end) = (number + 1, end);
        Ok(())
    }

    /// Adds a sequence to the document.
    fn sequence(&mut self, length: i32, pointer: i64) -> Result<(), String> {
        let (number, place) = (self.sequence, self.place);
        let Ok(length) = u64::try_from(length) else {
            return Err(format!("has the length {length} for sequence {number}"));
        };
        // A length has 31 bits, and a place is at most the file's size.
        let end = place.saturating_add(length * self.header.dtype.bytes() as u64);
        if u64::try_from(pointer) == Ok(place) && end <= self.bin_bytes {
            (self.sequence, self.place) = (number + 1, end);
            return Ok(());
        }
        let tokens = format!("has the pointer {pointer} for sequence {number} of {length} tokens");
        let bytes = self.bin_bytes;
        Err(match u64::try_from(pointer) {
            Ok(pointer) if pointer == place => {
                format!(
                    "{tokens}, which ends at byte {end}, and its `.bin` has {bytes} bytes: it is cut off, or another one"
                )
            }
            Err(_) => format!("{tokens}, before the start of its `.bin`"),
            Ok(pointer) if pointer > bytes => format!("{tokens}, past the end of its `.bin` of {bytes} bytes"),
            Ok(pointer) => {
                let how = if pointer < place { "begins before that one ends" } else { "leaves a gap" };
                format!("{tokens}, and the sequence before it ends at byte {place}: it {how}")
            }
        })
    }

    /// Returns the last shard, if there is one, and how many bytes of the `.bin` follow its last token.
    ///
    /// # Errors
    /// If not all of the `.idx` was read.
    pub fn finish(self) -> Result<(Option<TokenRun>, u64), String> {
        let Self { header, entry, sequence, .. } = self;
        if self.document.is_some() || entry < header.entries {
            let of = format!("{} sequences and {} entries", header.sequences, header.entries);
            return Err(format!("ends early: {sequence} sequences and {entry} entries were read, of {of}"));
        }
        Ok((self.documents.finish(), self.bin_bytes - self.place))
    }
}

#[cfg(test)]
mod tests {
    use spdl_types::DType;

    use super::*;
    use crate::format::token_index::MAX_SHARD_BYTES;

    /// Reads documents of one sequence each in pieces of `piece` elements; returns the first document, the place and the ends of
    /// each shard.
    fn read(lengths: &[i32], bin_bytes: u64, piece: usize) -> Result<Vec<(u64, u64, Vec<u32>)>, String> {
        let (sequences, entries) = (lengths.len() as u64, lengths.len() as u64 + 1);
        let header = IdxHeader { dtype: DType::U16, sequences, entries, has_modes: false };
        let mut place = 0;
        let pointers = lengths.iter().map(|length| {
            place += i64::from(*length) * 2;
            place - i64::from(*length) * 2
        });
        let pointers: Vec<i64> = pointers.collect();
        let documents: Vec<i64> = (0..entries as i64).collect();
        let mut sequences = lengths.chunks(piece).zip(pointers.chunks(piece)).map(|(lengths, pointers)| {
            let lengths: Vec<u8> = lengths.iter().flat_map(|length| length.to_le_bytes()).collect();
            let pointers: Vec<u8> = pointers.iter().flat_map(|pointer| pointer.to_le_bytes()).collect();
            IdxSequences::new(lengths.into(), pointers.into(), Bytes::new())
        });
        let mut entries = documents.chunks(piece).map(|entries| {
            let entries: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
            IdxDocuments::new(entries.into())
        });
        let (mut reader, mut runs) = (IdxReader::new(header, bin_bytes), Vec::new());
        let mut at_hand = (IdxSequences::default(), IdxDocuments::default());
        loop {
            match reader.read(&mut at_hand.0, &mut at_hand.1, &mut runs)? {
                IdxWants::Sequences => at_hand.0 = sequences.next().expect("there are more sequences"),
                IdxWants::Documents => match entries.next() {
                    Some(entries) => at_hand.1 = entries,
                    None => break,
                },
            }
        }
        runs.extend(reader.finish()?.0);
        let facts = runs.iter().map(|run| run.facts(DType::U16, bin_bytes, ""));
        Ok(facts.map(|facts| (facts.first_document, facts.offset, facts.ends.to_vec())).collect())
    }

    #[test]
    fn documents_are_the_same_whatever_pieces_their_numbers_arrive_in() {
        let lengths = [3, 0, 0, 7, 1, 0];
        for piece in 1..=8 {
            assert_eq!(read(&lengths, 22, piece), Ok(vec![(0, 0, vec![3, 3, 3, 10, 11, 11])]), "{piece}");
        }
        assert_eq!(read(&[], 0, 1), Ok(vec![]));
    }

    #[test]
    fn a_shard_ends_at_its_limit_and_a_longer_document_is_one() {
        let limit = (MAX_SHARD_BYTES / 2) as i32;
        let lengths = [limit - 1, 1, 0, 1, limit + 1, 0, 5];
        let expected = vec![
            (0, 0, vec![limit as u32 - 1, limit as u32, limit as u32]),
            (3, MAX_SHARD_BYTES, vec![1]),
            (4, MAX_SHARD_BYTES + 2, vec![limit as u32 + 1]),
            (5, 2 * MAX_SHARD_BYTES + 4, vec![0, 5]),
        ];
        assert_eq!(read(&lengths, u64::MAX, 3), Ok(expected));
        let problem = read(&[1, i32::MAX], u64::MAX, 3).map(drop);
        assert_eq!(problem, Ok(()), "of 16 bits, no sequence has 4 GiB");
    }

    #[test]
    fn a_document_of_4_gib_is_refused_by_its_number() {
        let header = IdxHeader { dtype: DType::U16, sequences: 2, entries: 2, has_modes: false };
        let mut reader = IdxReader::new(header, u64::MAX);
        let lengths: Vec<u8> = [i32::MAX, 1].iter().flat_map(|length| length.to_le_bytes()).collect();
        let pointers: Vec<u8> = [0, 2 * i64::from(i32::MAX)].iter().flat_map(|place| place.to_le_bytes()).collect();
        let entries: Vec<u8> = [0_i64, 2].iter().flat_map(|entry| entry.to_le_bytes()).collect();
        let mut sequences = IdxSequences::new(lengths.into(), pointers.into(), Bytes::new());
        let read = reader.read(&mut sequences, &mut IdxDocuments::new(entries.into()), &mut Vec::new());
        let problem = "has a document of 4294967296 bytes, number 0; a document has less than 4 GiB";
        assert_eq!(read, Err(problem.to_owned()));
    }
}
