//! Cuts a TFRecord file into its records.
//!
//! ```text
//! u64 bytes, u32 masked CRC-32C of these 8 bytes, the data, u32 masked CRC-32C of the data
//! ```

/// Bytes of a record in front of its data.
pub(super) const HEAD_BYTES: usize = 12;
/// Bytes of a record behind its data.
const TAIL_BYTES: usize = 4;
/// Most bytes of a record's data.
const MAX_RECORD_BYTES: u64 = 1 << 30;

/// Cuts a file that comes in chunks into its records.
#[derive(Debug, Default)]
pub struct TfRecordReader {
    /// Offset in the file of the first byte that belongs to no complete record.
    offset: u64,
    /// The bytes of the record that is not complete.
    rest: Vec<u8>,
}

/// Why a file is not a TFRecord file.
#[derive(Debug, PartialEq, Eq)]
pub struct WrongFrame {
    /// Offset of the record in the file, in bytes.
    pub offset: u64,
    /// What is wrong with it, as words that follow its name.
    pub problem: String,
}

impl TfRecordReader {
    /// Reads the next chunk and passes each complete record to `found`: where its data lies in the file, and the data. The
    /// inner error is that of `found`, which ends the reading.
    ///
    /// # Errors
    /// If the file is damaged, or is not a TFRecord file.
    pub fn read<E>(
        &mut self,
        mut chunk: &[u8],
        mut found: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<Result<(), E>, WrongFrame> {
        while !chunk.is_empty() {
            if self.rest.is_empty()
                && let Some(data_bytes) = self.data_bytes(chunk)?
                && let Some((frame, after)) = chunk.split_at_checked(HEAD_BYTES + data_bytes + TAIL_BYTES)
            {
                let data = self.data(frame)?;
                if let Err(error) = found(self.offset + HEAD_BYTES as u64, data) {
                    return Ok(Err(error));
                }
                (self.offset, chunk) = (self.offset + frame.len() as u64, after);
                continue;
            }
            let wanted = match self.data_bytes(&self.rest)? {
                Some(data_bytes) => HEAD_BYTES + data_bytes + TAIL_BYTES,
                None => HEAD_BYTES,
            };
            let (piece, after) = chunk.split_at((wanted - self.rest.len()).min(chunk.len()));
            self.rest.extend_from_slice(piece);
            chunk = after;
            if wanted > HEAD_BYTES && self.rest.len() == wanted {
                let frame = std::mem::take(&mut self.rest);
                let data = self.data(&frame)?;
                if let Err(error) = found(self.offset + HEAD_BYTES as u64, data) {
                    return Ok(Err(error));
                }
                self.offset += frame.len() as u64;
            }
        }
        Ok(Ok(()))
    }

    /// Ends the file, and returns its size in bytes.
    ///
    /// # Errors
    /// If the last record is not complete.
    pub fn finish(self) -> Result<u64, WrongFrame> {
        match self.rest.len() {
            0 => Ok(self.offset),
            bytes => Err(self.wrong(format!("is cut off after {bytes} bytes"))),
        }
    }

    /// Returns the size of a record's data as its head states it, in bytes; `None` if the head is not complete.
    fn data_bytes(&self, frame: &[u8]) -> Result<Option<usize>, WrongFrame> {
        let Some((length, crc)) = head(frame) else { return Ok(None) };
        if !is_masked(crc, &length.to_le_bytes()) {
            return Err(
                self.wrong("has a length whose checksum is wrong: the file is damaged, or no TFRecord file".to_owned())
            );
        }
        if length > MAX_RECORD_BYTES {
            return Err(self.wrong(format!("has {length} bytes, more than {MAX_RECORD_BYTES}")));
        }
        Ok(Some(length as usize))
    }

    /// Returns the data of a complete record.
    fn data<'f>(&self, frame: &'f [u8]) -> Result<&'f [u8], WrongFrame> {
        let (data, tail) = frame[HEAD_BYTES..].split_at(frame.len() - HEAD_BYTES - TAIL_BYTES);
        match is_masked(u32::from_le_bytes(*tail.first_chunk().expect("4 bytes")), data) {
            true => Ok(data),
            false => Err(self.wrong("has other bytes than were written: its checksum is wrong".to_owned())),
        }
    }

    fn wrong(&self, problem: String) -> WrongFrame {
        WrongFrame { offset: self.offset, problem }
    }
}

/// Returns whether a file begins with the head of a record.
#[must_use]
pub fn begins_with_record(first: &[u8]) -> bool {
    head(first).is_some_and(|(length, crc)| is_masked(crc, &length.to_le_bytes()))
}

fn head(frame: &[u8]) -> Option<(u64, u32)> {
    let (length, rest) = frame.split_first_chunk()?;
    Some((u64::from_le_bytes(*length), u32::from_le_bytes(*rest.first_chunk()?)))
}

fn is_masked(masked: u32, data: &[u8]) -> bool {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8) == masked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(data: &[u8]) -> Vec<u8> {
        let masked = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
        let length = (data.len() as u64).to_le_bytes();
        [&length[..], &masked(&length), data, &masked(data)].concat()
    }

    /// Where the data of each record lies, and the data.
    type Records = Vec<(u64, Vec<u8>)>;

    fn read(file: &[u8], chunk_bytes: usize) -> Result<(Records, u64), WrongFrame> {
        let (mut reader, mut found) = (TfRecordReader::default(), Vec::new());
        for chunk in file.chunks(chunk_bytes) {
            let keep = |at, data: &[u8]| {
                found.push((at, data.to_vec()));
                Ok::<_, ()>(())
            };
            reader.read(chunk, keep)?.unwrap();
        }
        Ok((found, reader.finish()?))
    }

    #[test]
    fn records_are_the_same_however_the_file_is_cut() {
        let records = [&b"abc"[..], b"", &[7; 100], b"z"];
        let file: Vec<u8> = records.iter().flat_map(|data| frame(data)).collect();
        let expected = vec![(12, b"abc".to_vec()), (31, vec![]), (47, vec![7; 100]), (163, b"z".to_vec())];
        for chunk_bytes in 1..=file.len() {
            assert_eq!(read(&file, chunk_bytes).unwrap(), (expected.clone(), file.len() as u64));
        }
        assert!(begins_with_record(&file) && !begins_with_record(&file[1..]) && !begins_with_record(&file[..11]));
    }

    #[test]
    fn every_damaged_byte_and_every_cut_is_found() {
        let file: Vec<u8> = [&b"abc"[..], b"defg"].iter().flat_map(|data| frame(data)).collect();
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 0x40;
            for chunk_bytes in [1, 7, 100] {
                assert_eq!(read(&damaged, chunk_bytes).unwrap_err().offset, if at < 19 { 0 } else { 19 }, "{at}");
            }
        }
        for length in (1..file.len()).filter(|length| *length != 19) {
            assert!(read(&file[..length], 5).unwrap_err().problem.contains("is cut off"), "{length}");
        }
        let long = (u64::MAX >> 1).to_le_bytes();
        let crc = crc32c::crc32c(&long).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
        assert!(read(&[&long[..], &crc, &[0; 9]].concat(), 100).unwrap_err().problem.contains("more than 1073741824"));
    }
}
