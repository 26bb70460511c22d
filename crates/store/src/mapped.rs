//! An object in a temporary file that is mapped into memory: the system may drop its pages and read them again.
#![allow(unsafe_code)]

use std::{fs::File, os::unix::fs::FileExt as _, sync::Arc};

use bytes::Bytes;
use memmap2::{Mmap, UncheckedAdvice};

use crate::{TemporaryError, TemporaryFolder};

/// Collects the bytes of an object of known size, to be mapped.
#[derive(Debug)]
pub(crate) struct MappedWriter {
    folder: TemporaryFolder,
    file: File,
    bytes: u64,
    written: u64,
}

/// The bytes of an object, in a file that only this process can reach and that nothing writes any more.
#[derive(Clone, Debug)]
pub struct MappedObject(Arc<Mmap>);

impl MappedWriter {
    /// Reserves the room for an object of `bytes` bytes, so that a full disk is found here and not by a reader of a page.
    pub(crate) fn create(folder: &TemporaryFolder, bytes: u64) -> Result<Self, TemporaryError> {
        let file = folder.create()?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)
            .map_err(|error| folder.error(error.into()))?;
        Ok(Self { folder: folder.clone(), file, bytes, written: 0 })
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// If there are more than the object has.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), TemporaryError> {
        let end = self.written + bytes.len() as u64;
        assert!(end <= self.bytes, "{end} bytes of an object of {}", self.bytes);
        self.file.write_all_at(bytes, self.written).map_err(|error| self.folder.error(error))?;
        self.written = end;
        Ok(())
    }

    /// Maps the object.
    ///
    /// # Panics
    /// If bytes are missing.
    pub(crate) fn finish(self) -> Result<MappedObject, TemporaryError> {
        assert_eq!(self.written, self.bytes, "bytes of the object");
        // SAFETY: nothing changes the file while it is mapped. It has no name, and its only descriptor, which could write,
        // is closed at the end of this function.
        let map = unsafe { Mmap::map(&self.file) }.map_err(|error| self.folder.error(error))?;
        Ok(MappedObject(Arc::new(map)))
    }
}

impl MappedObject {
    /// Returns the bytes, without copying them.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        Bytes::from_owner(self.clone())
    }

    /// Drops the pages that were read from this process's memory, for instance after all of them were checked. The
    /// system maps them again when they are read again.
    pub fn give_back(&self) {
        // SAFETY: the mapping is of a file and read-only, so its pages are read from the file again, with the same bytes.
        // A refusal leaves the pages where they are.
        let _ = unsafe { self.0.unchecked_advise(UncheckedAdvice::DontNeed) };
    }
}

impl AsRef<[u8]> for MappedObject {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how much of the bytes is in this process's memory, as the system counts it.
    fn resident_bytes(bytes: &[u8]) -> u64 {
        let start = format!("{:x}-", bytes.as_ptr() as usize);
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut mapping = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let rss = mapping.find_map(|line| line.strip_prefix("Rss:")).unwrap();
        rss.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }

    #[test]
    fn bytes_that_were_given_back_are_read_again() {
        let content: Vec<u8> = (0..(8_u32 << 20)).map(|number| (number / 4099) as u8).collect();
        let mut writer = MappedWriter::create(&TemporaryFolder::of_system(), content.len() as u64).unwrap();
        content.chunks(1_000_003).for_each(|chunk| writer.append(chunk).unwrap());
        let object = writer.finish().unwrap();
        let bytes = object.bytes();
        assert!(bytes == content);
        assert_eq!(resident_bytes(&bytes), content.len() as u64);
        object.give_back();
        assert_eq!(resident_bytes(&bytes), 0);
        drop(object);
        assert!(bytes == content);
    }

    #[test]
    fn a_disk_without_room_is_an_error() {
        let error = MappedWriter::create(&TemporaryFolder::of_system(), 1 << 55).unwrap_err();
        assert!(error.to_string().contains("a temporary file in"), "{error}");
    }
}
