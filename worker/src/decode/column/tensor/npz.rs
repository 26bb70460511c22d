//! Finds an array in a `.npz` file, which is a zip archive of `.npy` files, stored or deflated. Only files that the
//! central directory lists count, as in Python's `zipfile`. No memory is allocated for bytes that the archive only
//! claims to have.
//!
//! The format is PKWARE's APPNOTE 6.3.

use std::io::{self, Read};

use flate2::{Crc, bufread::DeflateDecoder};

use crate::decode::cause::quoted;

/// The first bytes of an archive with at least one file.
pub(super) const MAGIC: &[u8] = b"PK\x03\x04";

const END: &[u8] = b"PK\x05\x06";
const END_BYTES: usize = 22;
const MAX_COMMENT_BYTES: usize = 0xffff;
const END_64_LOCATOR: &[u8] = b"PK\x06\x07";
const END_64: &[u8] = b"PK\x06\x06";
const ENTRY: &[u8] = b"PK\x01\x02";
const ENTRY_BYTES: usize = 46;
const LOCAL_BYTES: usize = 30;
const EXTRA_64: u16 = 1;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
const IS_ENCRYPTED: u16 = 1;
const WRONG_CHECKSUM: &str = "its content does not match its checksum";
/// Number of names that an error lists.
const MAX_LISTED: usize = 8;

/// An entry of the central directory.
#[derive(Clone, Copy, Debug)]
struct ZipEntry<'a> {
    name: &'a [u8],
    flags: u16,
    method: u16,
    crc32: u32,
    stored_bytes: u64,
    bytes: u64,
    local: u64,
}

/// A `.npy` file, alone or in an archive.
pub(super) enum NpyFile<'a> {
    /// Its bytes as they are.
    Stored(&'a [u8]),
    /// It is compressed.
    Deflated(Box<Deflated<'a>>),
}

impl Read for NpyFile<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Stored(bytes) => bytes.read(out),
            Self::Deflated(source) => source.read(out),
        }
    }
}

/// Returns the file of the array `name`, or that of the only array.
pub(super) fn find<'a>(archive: &'a [u8], name: Option<&str>) -> Result<NpyFile<'a>, String> {
    let entries = Directory::new(archive).ok_or("it is a zip archive that is cut off")?;
    let mut found = None;
    let mut count = 0;
    let mut names: Vec<String> = Vec::new();
    for entry in entries {
        let entry = entry.ok_or("it is a zip archive with a broken directory")?;
        let stem = entry.name.strip_suffix(b".npy").unwrap_or(entry.name);
        count += 1;
        if names.len() < MAX_LISTED {
            names.push(format!("`{}`", quoted(stem)));
        }
        // Of several files with one name, the last counts.
        if name.is_none_or(|name| stem == name.as_bytes() || entry.name == name.as_bytes()) {
            found = Some(entry);
        }
    }
    let listed = || names.join(", ");
    match (found, name) {
        (Some(_), None) if count > 1 => Err(format!("it has {count} arrays: {}; name one with `array`", listed())),
        (Some(entry), _) => entry.open(archive),
        (None, Some(name)) => Err(format!("it has no array `{}`; it has {}", quoted(name.as_bytes()), listed())),
        (None, None) => Err("it is a zip archive without files".to_owned()),
    }
}

impl<'a> ZipEntry<'a> {
    fn open(self, archive: &'a [u8]) -> Result<NpyFile<'a>, String> {
        let name = quoted(self.name);
        if self.flags & IS_ENCRYPTED != 0 {
            return Err(format!("its file `{name}` is encrypted"));
        }
        let outside = || format!("its file `{name}` lies outside of the archive");
        let local = usize::try_from(self.local).ok().and_then(|at| archive.get(at..)).ok_or_else(outside)?;
        if !local.starts_with(MAGIC) || local.len() < LOCAL_BYTES {
            return Err(outside());
        }
        let header = LOCAL_BYTES + usize::from(u16_at(local, 26)) + usize::from(u16_at(local, 28));
        let data = local.get(header..).ok_or_else(outside)?;
        let data = usize::try_from(self.stored_bytes).ok().and_then(|end| data.get(..end)).ok_or_else(outside)?;
        match self.method {
            STORED if self.bytes == self.stored_bytes => {
                let mut crc = Crc::new();
                crc.update(data);
                if crc.sum() == self.crc32 { Ok(NpyFile::Stored(data)) } else { Err(WRONG_CHECKSUM.to_owned()) }
            }
            STORED => Err(format!("its file `{name}` has two sizes")),
            DEFLATED => Ok(NpyFile::Deflated(Box::new(Deflated {
                source: DeflateDecoder::new(data),
                left: self.bytes,
                crc: Crc::new(),
                crc32: self.crc32,
            }))),
            method => Err(format!("its file `{name}` is compressed by method {method}; stored and deflated are read")),
        }
    }
}

/// A compressed file. It is read no further than to the length that the directory gives.
pub(super) struct Deflated<'a> {
    source: DeflateDecoder<&'a [u8]>,
    left: u64,
    crc: Crc,
    crc32: u32,
}

impl Read for Deflated<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let room = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.source.read(&mut out[..room])?;
        self.left -= count as u64;
        self.crc.update(&out[..count]);
        if count > 0 && self.left == 0 && self.crc.sum() != self.crc32 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, WRONG_CHECKSUM));
        }
        Ok(count)
    }
}

/// The entries of the central directory.
struct Directory<'a>(&'a [u8]);

impl<'a> Directory<'a> {
    fn new(archive: &'a [u8]) -> Option<Self> {
        let first = archive.len().saturating_sub(END_BYTES + MAX_COMMENT_BYTES);
        let last = archive.len().checked_sub(END_BYTES)?;
        let is_end = |at: &usize| {
            let end = &archive[*at..];
            end.starts_with(END) && END_BYTES + usize::from(u16_at(end, 20)) == end.len()
        };
        let at = (first..=last).rev().find(is_end)?;
        let end = &archive[at..];
        let (mut bytes, mut offset) = (u64::from(u32_at(end, 12)), u64::from(u32_at(end, 16)));
        let locator = at.checked_sub(20).map(|at| &archive[at..]).filter(|bytes| bytes.starts_with(END_64_LOCATOR));
        if let Some(locator) = locator {
            let end_64 = archive.get(usize::try_from(u64_at(locator, 8)).ok()?..)?;
            if !end_64.starts_with(END_64) || end_64.len() < 56 {
                return None;
            }
            (bytes, offset) = (u64_at(end_64, 40), u64_at(end_64, 48));
        }
        let (start, bytes) = (usize::try_from(offset).ok()?, usize::try_from(bytes).ok()?);
        archive.get(start..start.checked_add(bytes)?).map(Self)
    }

    fn entry(&mut self) -> Option<ZipEntry<'a>> {
        let entry = self.0;
        if !entry.starts_with(ENTRY) || entry.len() < ENTRY_BYTES {
            return None;
        }
        let name_end = ENTRY_BYTES + usize::from(u16_at(entry, 28));
        let extra_end = name_end + usize::from(u16_at(entry, 30));
        let end = extra_end + usize::from(u16_at(entry, 32));
        let (name, extra) = (entry.get(ENTRY_BYTES..name_end)?, entry.get(name_end..extra_end)?);
        self.0 = entry.get(end..)?;
        let mut wide = extra_64(extra);
        let mut number = |narrow: u32| {
            if narrow != u32::MAX {
                return Some(u64::from(narrow));
            }
            let value = wide.get(..8)?;
            wide = &wide[8..];
            Some(u64_at(value, 0))
        };
        // The order of these three is that of the wide numbers.
        let bytes = number(u32_at(entry, 24))?;
        let stored_bytes = number(u32_at(entry, 20))?;
        let local = number(u32_at(entry, 42))?;
        let (flags, method, crc32) = (u16_at(entry, 8), u16_at(entry, 10), u32_at(entry, 16));
        Some(ZipEntry { name, flags, method, crc32, stored_bytes, bytes, local })
    }
}

impl<'a> Iterator for Directory<'a> {
    type Item = Option<ZipEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = self.entry();
        if entry.is_none() {
            self.0 = &[];
        }
        Some(entry)
    }
}

/// Returns the numbers of 64 bits among the extra fields of an entry.
fn extra_64(mut extra: &[u8]) -> &[u8] {
    while extra.len() >= 4 {
        let (id, length) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
        let Some(field) = extra.get(4..4 + length) else { break };
        if id == EXTRA_64 {
            return field;
        }
        extra = &extra[4 + length..];
    }
    &[]
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
