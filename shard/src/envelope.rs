//! The envelope that the manifest and the record index share: magic, version, length and checksum. The meaning of the
//! bytes inside is defined elsewhere.

use bytes::Bytes;
use spdl_store::TemporaryError;
use spdl_types::Fingerprint;
use xxhash_rust::xxh3::xxh3_128;

/// Size of the envelope's head in bytes; the content follows it.
pub(crate) const HEAD_BYTES: usize = 40;

/// The kind of file that an envelope holds.
#[derive(Debug)]
pub(crate) struct FileKind {
    pub(crate) name: &'static str,
    pub(crate) magic: [u8; 8],
    /// The newest version that this program reads.
    pub(crate) version: u32,
    /// The bytes before the tables, at least.
    pub(crate) header_bytes: usize,
}

/// Why a manifest or record index cannot be used. The caller that opened the file adds its URL.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum FormatError {
    /// The file does not start with the bytes of its kind.
    #[error("is not a {kind}: it starts with `{found}`")]
    WrongMagic { kind: &'static str, found: String },
    /// The file has a version that this program does not know.
    #[error("was written by a newer spdl-cluster: {kind} version {version}, this program reads up to {known}")]
    Newer { kind: &'static str, version: u32, known: u32 },
    /// The file is shorter than its head states.
    #[error("is cut off: {found_bytes} bytes of {expected_bytes}")]
    Truncated { found_bytes: u64, expected_bytes: u64 },
    /// The content differs from what was written.
    #[error("is damaged: its checksum does not match")]
    Checksum,
    /// The file is intact, but it is another than the manifest refers to.
    #[error("is not the {kind} that the manifest was made with: its hash is {found}, the manifest has {expected}")]
    OtherFile { kind: &'static str, found: Fingerprint, expected: Fingerprint },
    /// The manifest names a format that this program does not read.
    #[error("names the format `{format}`, which this program does not know: it was written by another spdl-cluster")]
    UnknownFormat { format: String },
    /// The checksum matches but the content contradicts itself.
    #[error("is invalid: {0}")]
    Malformed(String),
    /// The folder of a manifest's shards cannot be used.
    #[error("has its shards in `{base}`: {problem}")]
    Base { base: String, problem: String },
    /// The content to write does not fit the format.
    #[error("cannot be written: {0}")]
    Unwritable(String),
    /// The content to write does not fit into memory, and there is no room for it elsewhere.
    #[error("cannot be written: {0}")]
    Temporary(#[from] TemporaryError),
}

impl FormatError {
    /// Returns whether reading the file again can help: the bytes may have been damaged in transit.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Truncated { .. } | Self::Checksum)
    }
}

/// Returns the error for content that contradicts itself.
pub(crate) fn wrong(what: &str) -> FormatError {
    FormatError::Malformed(what.to_owned())
}

/// Checks the head of a file of `found_bytes` that starts with `first`. This detects a foreign or truncated file before
/// the rest of it is read.
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
        return Err(wrong("version or flags are out of range"));
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

/// Checks the envelope around `bytes`. An attacker can write a valid envelope too, so the content still has to be
/// checked.
pub(crate) fn check(kind: &'static FileKind, bytes: &[u8]) -> Result<(), FormatError> {
    check_head(kind, bytes, bytes.len() as u64)?;
    if xxh3_128(&bytes[HEAD_BYTES..]) != u128_at(bytes, 24) {
        return Err(FormatError::Checksum);
    }
    if bytes.len() < kind.header_bytes {
        return Err(wrong("it is shorter than its header"));
    }
    Ok(())
}

/// Checks the envelope around `bytes` like [`check`], and that they are the file whose hash in the manifest is `expected`.
pub(crate) fn check_expected(kind: &'static FileKind, bytes: &[u8], expected: Fingerprint) -> Result<(), FormatError> {
    check(kind, bytes)?;
    match Fingerprint::of(bytes) {
        found if found == expected => Ok(()),
        found => Err(FormatError::OtherFile { kind: kind.name, found, expected }),
    }
}

/// Seals a file whose first [`HEAD_BYTES`] are free, and opens it again to verify that it is valid. Returns its bytes and
/// their hash.
pub(crate) fn sealed<T>(
    kind: &'static FileKind,
    file: Vec<u8>,
    open: impl FnOnce(Bytes, Fingerprint) -> Result<T, FormatError>,
) -> Result<(Bytes, Fingerprint), FormatError> {
    sealed_as(kind, kind.version, file, open)
}

/// Seals a file like [`sealed`], laid out as `version` defines.
pub(crate) fn sealed_as<T>(
    kind: &'static FileKind,
    version: u32,
    mut file: Vec<u8>,
    open: impl FnOnce(Bytes, Fingerprint) -> Result<T, FormatError>,
) -> Result<(Bytes, Fingerprint), FormatError> {
    seal(kind, version, &mut file);
    let (hash, file) = (Fingerprint::of(&file), Bytes::from(file));
    open(file.clone(), hash).map_err(|error| FormatError::Unwritable(error.to_string()))?;
    Ok((file, hash))
}

/// Fills in the head of `bytes`: their first [`HEAD_BYTES`] are free, the rest is laid out as `version` defines.
pub(crate) fn seal(kind: &'static FileKind, version: u32, bytes: &mut [u8]) {
    let head = head(kind, version, bytes.len() as u64, xxh3_128(&bytes[HEAD_BYTES..]));
    bytes[..HEAD_BYTES].copy_from_slice(&head);
}

/// Returns the head of a file of `bytes`, whose content has this checksum.
pub(crate) fn head(kind: &'static FileKind, version: u32, bytes: u64, checksum: u128) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&kind.magic);
    head[8..12].copy_from_slice(&version.to_le_bytes());
    head[16..24].copy_from_slice(&bytes.to_le_bytes());
    head[24..].copy_from_slice(&checksum.to_le_bytes());
    head
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

/// Lays sections out one after the other and returns the offset of each and of the end; `None` if the sum overflows.
pub(crate) fn section_offsets<const N: usize>(start: u64, lengths: [u64; N]) -> Option<([usize; N], u64)> {
    let mut at = start;
    let mut offsets = [0; N];
    for (offset, length) in offsets.iter_mut().zip(lengths) {
        *offset = usize::try_from(at).ok()?;
        at = at.checked_add(length)?;
    }
    Some((offsets, at))
}

/// Lays sections out like [`section_offsets`], up to the end of `bytes`.
pub(crate) fn sections_of<const N: usize>(
    start: usize,
    lengths: [u64; N],
    bytes: &[u8],
) -> Result<[usize; N], FormatError> {
    let sections = section_offsets(start as u64, lengths).filter(|(_, end)| *end == bytes.len() as u64);
    sections.map(|(offsets, _)| offsets).ok_or_else(|| wrong("its sections do not add up to its size"))
}

/// Returns how many of the entries of a table `is_before` holds for: those from the first on, up to one of them.
pub(crate) fn partition_point(entries: u32, is_before: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, entries);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Returns the last entry of a table that `is_before` holds for, or the first entry.
pub(crate) fn last_before(entries: u32, is_before: impl Fn(u32) -> bool) -> u32 {
    partition_point(entries, is_before).saturating_sub(1)
}

/// Returns text from a table that was checked to be UTF-8 when the file was opened.
pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text is checked when the file is opened")
}
