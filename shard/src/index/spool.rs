//! A sequence of bytes that grows at its end: all of it is in memory, or only the last bytes, and the rest in a
//! temporary file.

use std::{fs::File, os::unix::fs::FileExt as _};

use spdl_store::{TemporaryError, TemporaryFolder};

/// Number of bytes in memory at which they are written to the file.
const SPILL_BYTES: usize = 1 << 20;
/// Size of the pieces in which bytes are read back.
const PIECE_BYTES: u64 = 1 << 20;

/// Bytes that are appended and read back; by default all of them stay in memory.
#[derive(Debug, Default)]
pub struct Spool {
    /// Where bytes are spilled to; `None` if all stay in memory.
    folder: Option<TemporaryFolder>,
    /// Bytes that were spilled, and their number.
    spilled: Option<(File, u64)>,
    /// The bytes that follow these.
    memory: Vec<u8>,
}

impl Spool {
    /// Creates a spool that keeps about a MiB in memory; the rest goes to `folder`.
    #[must_use]
    pub fn in_folder(folder: &TemporaryFolder) -> Self {
        Self { folder: Some(folder.clone()), ..Self::default() }
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.spilled_bytes() + self.memory.len() as u64
    }

    /// Returns whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), TemporaryError> {
        self.memory.extend_from_slice(bytes);
        match &self.folder {
            Some(folder) if self.memory.len() >= SPILL_BYTES => {
                let (file, spilled) = match &mut self.spilled {
                    Some(spilled) => spilled,
                    none => none.insert((folder.create()?, 0)),
                };
                file.write_all_at(&self.memory, *spilled).map_err(|error| folder.error(error))?;
                *spilled += self.memory.len() as u64;
                self.memory.clear();
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads bytes from byte `place` on.
    ///
    /// # Errors
    /// If the file cannot be read.
    ///
    /// # Panics
    /// If there are fewer bytes.
    pub fn read(&self, place: u64, into: &mut [u8]) -> Result<(), TemporaryError> {
        let in_file = self.spilled_bytes().saturating_sub(place).min(into.len() as u64) as usize;
        let (from_file, from_memory) = into.split_at_mut(in_file);
        if let (Some((file, _)), Some(folder)) = (&self.spilled, &self.folder) {
            file.read_exact_at(from_file, place).map_err(|error| folder.error(error))?;
        }
        let start = place.saturating_sub(self.spilled_bytes()) as usize;
        from_memory.copy_from_slice(&self.memory[start..][..from_memory.len()]);
        Ok(())
    }

    /// Iterates over all bytes, in pieces of at most one MiB.
    pub fn pieces(&self) -> impl Iterator<Item = Result<Vec<u8>, TemporaryError>> + Send + '_ {
        (0..self.len()).step_by(PIECE_BYTES as usize).map(|place| {
            let mut piece = vec![0; (self.len() - place).min(PIECE_BYTES) as usize];
            self.read(place, &mut piece)?;
            Ok(piece)
        })
    }

    fn spilled_bytes(&self) -> u64 {
        self.spilled.as_ref().map_or(0, |(_, bytes)| *bytes)
    }
}

impl From<Vec<u8>> for Spool {
    /// Creates a spool in memory.
    fn from(memory: Vec<u8>) -> Self {
        Self { memory, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_back_wherever_they_are() {
        let folder = TemporaryFolder::of_system();
        for mut spool in [Spool::default(), Spool::in_folder(&folder)] {
            let bytes: Vec<u8> = (0..3 * SPILL_BYTES + 77).map(|number| (number / 7) as u8).collect();
            bytes.chunks(1001).for_each(|chunk| spool.append(chunk).unwrap());
            assert_eq!(spool.len(), bytes.len() as u64);
            assert_eq!(spool.spilled.is_some(), spool.folder.is_some());
            let pieces: Vec<Vec<u8>> = spool.pieces().map(Result::unwrap).collect();
            assert!(pieces.concat() == bytes && pieces.len() > 3);
            for (place, length) in [(0, 10), (SPILL_BYTES - 1, 2 * SPILL_BYTES + 5), (bytes.len() - 3, 3), (5, 0)] {
                let mut found = vec![0; length];
                spool.read(place as u64, &mut found).unwrap();
                assert!(found == bytes[place..place + length], "{place}");
            }
        }
    }
}
