//! Builds the index of an MDS shard.

use bytes::Bytes;
use spdl_types::Fingerprint;

use super::index::{HEADER_BYTES, KIND, MdsIndex};
use crate::{
    FormatError,
    envelope::{HEAD_BYTES, sealed},
    format::Checksum,
};

/// The facts about an MDS shard, from `index.json` and from its table of samples.
#[derive(Debug)]
pub struct MdsFacts<'f> {
    /// Size of the shard in bytes.
    pub shard_bytes: u64,
    /// Where each sample begins, and where the last one ends.
    pub offsets: &'f [u32],
    /// Name, encoding and size of each column, in the order in which samples have them.
    pub columns: &'f [(String, String, Option<u32>)],
    /// The prefix of the keys of the samples.
    pub prefix: &'f str,
    /// Its checksum, if one is known.
    pub checksum: Option<Checksum>,
}

impl MdsFacts<'_> {
    /// Writes the index and opens it again to verify that it is valid. Returns the index and its hash.
    ///
    /// # Errors
    /// If the index would not be valid.
    pub fn index(&self) -> Result<(Bytes, Fingerprint), FormatError> {
        let checksum = self.checksum.as_ref().map(Checksum::text).unwrap_or_default();
        let (mut columns, mut names, mut encodings) = (Vec::new(), String::new(), String::new());
        for (name, encoding, bytes) in self.columns {
            names.push_str(name);
            encodings.push_str(encoding);
            for number in [bytes.unwrap_or(0), names.len() as u32, encodings.len() as u32] {
                columns.extend(number.to_le_bytes());
            }
        }
        let mut file = vec![0; HEAD_BYTES];
        file.extend(self.shard_bytes.to_le_bytes());
        let numbers = [
            self.offsets.len().saturating_sub(1),
            self.columns.len(),
            names.len(),
            encodings.len(),
            self.prefix.len(),
            checksum.len(),
        ];
        for number in numbers {
            let number = u32::try_from(number);
            let number = number.map_err(|_| FormatError::Unwritable("too many samples or columns".to_owned()))?;
            file.extend(number.to_le_bytes());
        }
        debug_assert_eq!(file.len(), HEADER_BYTES);
        self.offsets.iter().for_each(|offset| file.extend(offset.to_le_bytes()));
        for section in [&columns, names.as_bytes(), encodings.as_bytes(), self.prefix.as_bytes(), checksum.as_bytes()] {
            file.extend_from_slice(section);
        }
        sealed(&KIND, file, MdsIndex::open)
    }
}
