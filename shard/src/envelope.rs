//! The envelope that the manifest and the record index share: magic, version, length, checksum. What the
//! bytes inside mean is not decided here.

use xxhash_rust::xxh3::xxh3_128;

/// Bytes of the envelope's head; the content follows.
pub(crate) const HEAD_BYTES: usize = 40;

/// Which file an envelope holds.
#[derive(Debug)]
pub(crate) struct FileKind {
    pub(crate) name: &'static str,
    pub(crate) magic: [u8; 8],
    /// The newest version that is read.
    pub(crate) version: u32,
}

/// A manifest or record index that cannot be used. Whoever opened the file adds its URL.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The file starts with other bytes.
    #[error("is not a {kind}: it starts with `{found}`")]
    WrongMagic {
        /// `manifest` or `record index`.
        kind: &'static str,
        /// The first bytes, escaped.
        found: String,
    },
    /// The file has a version that this program does not know.
    #[error("was written by a newer spdl-cluster: {kind} version {version}, this program reads up to {known}")]
    Newer {
        /// `manifest` or `record index`.
        kind: &'static str,
        /// The file's version.
        version: u32,
        /// The newest version that this program reads.
        known: u32,
    },
    /// The file is shorter than it says.
    #[error("is cut off: {found_bytes} bytes of {expected_bytes}")]
    Truncated {
        /// Bytes that are there.
        found_bytes: u64,
        /// Bytes that should be there.
        expected_bytes: u64,
    },
    /// The content is not what was written.
    #[error("is damaged: its checksum does not match")]
    Checksum,
    /// The file is whole, but not the one that the manifest means.
    #[error("is not the {kind} that the manifest was made with: its hash is {found}, the manifest says {expected}")]
    OtherFile {
        /// `record index`.
        kind: &'static str,
        /// Hash of the file.
        found: crate::Fingerprint,
        /// Hash in the manifest.
        expected: crate::Fingerprint,
    },
    /// The checksum matches but the content contradicts itself.
    #[error("makes no sense: {0}")]
    Malformed(String),
    /// What should be written does not fit the format.
    #[error("cannot be written: {0}")]
    Unwritable(String),
}

impl FormatError {
    /// Whether reading the file once more can help: the bytes may have been hurt on their way.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Truncated { .. } | Self::Checksum)
    }
}

/// Checks the head of a file of `found_bytes`, of which `first` are the first ones: a file that is none of ours, or is cut
/// off, is known before the rest of it is read.
pub(crate) fn check_head(kind: &'static FileKind, first: &[u8], found_bytes: u64) -> Result<(), FormatError> {
    let seen = &first[..first.len().min(8)];
    if !kind.magic.starts_with(seen) {
        return Err(FormatError::WrongMagic { kind: kind.name, found: seen.escape_ascii().to_string() });
    }
    if first.len() < HEAD_BYTES {
        return Err(FormatError::Truncated { found_bytes, expected_bytes: HEAD_BYTES as u64 });
    }
    let version = u32_at(first, 8);
    if version > kind.version {
        return Err(FormatError::Newer { kind: kind.name, version, known: kind.version });
    }
    if version == 0 || u32_at(first, 12) != 0 {
        return Err(FormatError::Malformed("version or flags are out of range".to_owned()));
    }
    let expected_bytes = u64_at(first, 16);
    if expected_bytes > found_bytes {
        return Err(FormatError::Truncated { found_bytes, expected_bytes });
    }
    if expected_bytes < found_bytes {
        return Err(FormatError::Malformed(format!("{} bytes follow its end", found_bytes - expected_bytes)));
    }
    Ok(())
}

/// Checks the envelope around `bytes`. Afterwards they are what a writer of the format wrote, or were made
/// to look so: the content still has to be checked.
pub(crate) fn check(kind: &'static FileKind, bytes: &[u8]) -> Result<(), FormatError> {
    check_head(kind, bytes, bytes.len() as u64)?;
    if xxh3_128(&bytes[HEAD_BYTES..]) != u128_at(bytes, 24) {
        return Err(FormatError::Checksum);
    }
    Ok(())
}

/// Fills in the head of `bytes`, whose first [`HEAD_BYTES`] were left free and the others laid out as `version` has it.
pub(crate) fn seal(kind: &'static FileKind, version: u32, bytes: &mut [u8]) {
    let (length, checksum) = (bytes.len() as u64, xxh3_128(&bytes[HEAD_BYTES..]));
    bytes[..8].copy_from_slice(&kind.magic);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[12..16].fill(0);
    bytes[16..24].copy_from_slice(&length.to_le_bytes());
    bytes[24..40].copy_from_slice(&checksum.to_le_bytes());
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("offsets are checked when the file is opened")
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(array_at(bytes, at))
}

/// Lays sections out one after the other and gives the offset of each and of the end; `None` where the sum
/// does not fit.
pub(crate) fn section_offsets<const N: usize>(start: u64, lengths: [u64; N]) -> Option<([usize; N], u64)> {
    let mut at = start;
    let mut offsets = [0; N];
    for (offset, length) in offsets.iter_mut().zip(lengths) {
        *offset = usize::try_from(at).ok()?;
        at = at.checked_add(length)?;
    }
    Some((offsets, at))
}

/// Text out of a table that was checked to be UTF-8 when the file was opened.
pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text is checked when the file is opened")
}
