//! Reads a tar from chunks: members with the offset of their data, and the data as it arrives.

use super::{
    MAX_EXTENSION_BYTES, OddTally, TAR_BLOCK_BYTES, TarAnomaly, TarError, TarFault,
    header::{MemberKind, Name, TarHeader, WithoutData, until_zero},
    pax::{Pax, PaxReader},
};

/// A file in a tar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its path as in the tar; a byte that is not UTF-8 is escaped as in `\xe9`.
    pub path: String,
    /// Offset in the tar of the first of its headers, long-name and pax headers included.
    pub header_offset: u64,
    /// Offset of its data in the tar.
    pub offset: u64,
    /// Size of its data in bytes.
    pub bytes: u64,
}

/// An event that a [`TarReader`] returns.
#[derive(Debug, PartialEq, Eq)]
pub enum TarEvent<'a> {
    /// A file starts. Directories, links and the like are skipped; all but directories are counted.
    Member(Member),
    /// The next bytes of the file that started last; never empty.
    Data(&'a [u8]),
}

/// Reads a tar that arrives in chunks of any size. Call [`next`](Self::next) until it returns `None`, pass the next
/// chunk, and call [`finish`](Self::finish) after the last one.
#[derive(Debug)]
pub struct TarReader {
    shard: String,
    offset: u64,
    state: TarState,
    buffer: Vec<u8>,
    /// Offset of the next member's headers, if an extension header came first.
    header_offset: Option<u64>,
    long_name: Option<Name>,
    pax: Pax,
    pax_reader: PaxReader,
    odd: OddTally,
}

#[derive(Clone, Copy, Debug)]
enum TarState {
    Header,
    /// In the long name of the next member.
    LongName {
        bytes: u64,
    },
    /// In the pax header of the next member.
    Pax {
        left: u64,
        padding: u64,
    },
    Data {
        left: u64,
        padding: u64,
    },
    Skip {
        left: u64,
    },
    /// Behind the mark that ends the tar: members here are counted but not read.
    Ended,
    /// In the data of a member behind the mark.
    Behind {
        left: u64,
    },
    /// Behind the end, where the bytes are not a tar.
    Ignored,
}

impl TarReader {
    /// Creates a reader at the start of the shard called `shard`; errors name the shard.
    #[must_use]
    pub fn new(shard: &str) -> Self {
        Self {
            shard: shard.to_owned(),
            offset: 0,
            state: TarState::Header,
            buffer: Vec::new(),
            header_offset: None,
            long_name: None,
            pax: Pax::default(),
            pax_reader: PaxReader::default(),
            odd: OddTally::default(),
        }
    }

    /// Returns the next event in `chunk` and advances `chunk` past the bytes that were read; returns `None` when the
    /// chunk is used up. Members behind the end of the tar give no events.
    ///
    /// # Errors
    /// If the bytes are not a tar.
    pub fn next<'a>(&mut self, chunk: &mut &'a [u8]) -> Result<Option<TarEvent<'a>>, TarError> {
        loop {
            match self.state {
                TarState::Header => {
                    let start = self.offset - self.buffer.len() as u64;
                    if !self.fill(chunk, TAR_BLOCK_BYTES) {
                        return Ok(None);
                    }
                    let block = std::mem::take(&mut self.buffer);
                    let block = block.first_chunk().expect("a whole block was read");
                    if let Some(member) = self.header(block, start).map_err(|fault| self.error(start, fault))? {
                        return Ok(Some(TarEvent::Member(member)));
                    }
                }
                TarState::LongName { bytes } => {
                    if !self.fill(chunk, bytes as usize) {
                        return Ok(None);
                    }
                    self.long_name = Some(Name::of(until_zero(&std::mem::take(&mut self.buffer))));
                    self.state = TarState::Skip { left: padding(bytes) };
                }
                TarState::Pax { left: 0, padding } => {
                    let read = std::mem::take(&mut self.pax_reader).finish();
                    self.pax = read.map_err(|fault| self.error(self.offset, fault))?;
                    self.state = TarState::Skip { left: padding };
                }
                TarState::Pax { left, padding } => {
                    let start = self.offset;
                    let piece = self.take(chunk, left);
                    if piece.is_empty() {
                        return Ok(None);
                    }
                    self.state = TarState::Pax { left: left - piece.len() as u64, padding };
                    self.pax_reader.read(piece).map_err(|fault| self.error(start, fault))?;
                }
                TarState::Data { left: 0, padding } => self.state = TarState::Skip { left: padding },
                TarState::Data { left, padding } => {
                    let data = self.take(chunk, left);
                    if data.is_empty() {
                        return Ok(None);
                    }
                    self.state = TarState::Data { left: left - data.len() as u64, padding };
                    return Ok(Some(TarEvent::Data(data)));
                }
                TarState::Skip { left: 0 } => self.state = TarState::Header,
                TarState::Skip { left } => {
                    let skipped = self.take(chunk, left).len() as u64;
                    if skipped == 0 {
                        return Ok(None);
                    }
                    self.state = TarState::Skip { left: left - skipped };
                }
                TarState::Ended => {
                    if !self.fill(chunk, TAR_BLOCK_BYTES) {
                        return Ok(None);
                    }
                    self.state = self.behind_the_end();
                }
                TarState::Behind { left: 0 } => self.state = TarState::Ended,
                TarState::Behind { left } => {
                    let skipped = self.take(chunk, left).len() as u64;
                    if skipped == 0 {
                        return Ok(None);
                    }
                    self.state = TarState::Behind { left: left - skipped };
                }
                TarState::Ignored => {
                    self.take(chunk, u64::MAX);
                    return Ok(None);
                }
            }
        }
    }

    /// Finishes reading and returns the number of bytes that were read.
    ///
    /// # Errors
    /// If the tar has not ended.
    pub fn finish(&self) -> Result<u64, TarError> {
        let what = match self.state {
            TarState::Ended | TarState::Behind { .. } | TarState::Ignored => return Ok(self.offset),
            TarState::Header if self.buffer.is_empty() => "the blocks of zeros that end it are missing",
            TarState::Header | TarState::LongName { .. } | TarState::Pax { .. } => "it ends inside a header",
            TarState::Data { .. } | TarState::Skip { .. } => "it ends inside a member",
        };
        match compression(&self.buffer) {
            Some(name) if self.offset == self.buffer.len() as u64 => Err(self.error(0, TarFault::Compressed(name))),
            _ => Err(self.error(self.offset, TarFault::CutOff(what))),
        }
    }

    /// Returns the oddities counted so far.
    pub(super) fn odd(&mut self) -> &mut OddTally {
        &mut self.odd
    }

    fn header(&mut self, block: &[u8; TAR_BLOCK_BYTES], start: u64) -> Result<Option<Member>, TarFault> {
        let read = TarHeader::read(block).map_err(|fault| match compression(block) {
            Some(name) if start == 0 => TarFault::Compressed(name),
            _ => fault,
        });
        let Some(header) = read? else {
            self.state = TarState::Ended;
            return Ok(None);
        };
        let (kind, size) = (header.kind(), header.size()?);
        if kind == MemberKind::LongName {
            if size > MAX_EXTENSION_BYTES {
                return Err(TarFault::ExtensionTooLong(size));
            }
            self.header_offset.get_or_insert(start);
            self.state = TarState::LongName { bytes: size };
            return Ok(None);
        }
        if kind == MemberKind::Pax {
            self.header_offset.get_or_insert(start);
            self.state = TarState::Pax { left: size, padding: padding(size) };
            return Ok(None);
        }
        if kind == MemberKind::Other {
            self.state = TarState::Skip { left: size + padding(size) };
            return Ok(None);
        }
        let pax = std::mem::take(&mut self.pax);
        let long_name = self.long_name.take();
        let Name { path, is_escaped } = pax.path.or(long_name).unwrap_or_else(|| header.name());
        let header_offset = self.header_offset.take().unwrap_or(start);
        if kind == MemberKind::Sparse || pax.sparse {
            return Err(TarFault::Sparse(path));
        }
        if let MemberKind::WithoutData(kind) = kind {
            match kind {
                WithoutData::Folder => {}
                WithoutData::HardLink => self.odd.add(TarAnomaly::HardLink, &self.shard, &path),
                WithoutData::Symlink => self.odd.add(TarAnomaly::Symlink, &self.shard, &path),
                WithoutData::Device => self.odd.add(TarAnomaly::Device, &self.shard, &path),
            }
            return Ok(None);
        }
        if is_escaped {
            self.odd.add(TarAnomaly::NotUtf8, &self.shard, &path);
        }
        let bytes = pax.size.unwrap_or(size);
        self.state = TarState::Data { left: bytes, padding: padding(bytes) };
        Ok(Some(Member { path, header_offset, offset: self.offset, bytes }))
    }

    /// Looks at a block behind the end: another tar may follow, as after joining two with `cat`.
    fn behind_the_end(&mut self) -> TarState {
        let block = std::mem::take(&mut self.buffer);
        let header = match TarHeader::read(block.first_chunk().expect("a whole block was read")) {
            Ok(None) => return TarState::Ended,
            Ok(Some(header)) => header,
            Err(_) => return TarState::Ignored,
        };
        let Ok(size) = header.size() else { return TarState::Ignored };
        match header.kind() {
            MemberKind::WithoutData(_) => return TarState::Ended,
            MemberKind::Regular | MemberKind::Sparse => {
                self.odd.add(TarAnomaly::BehindTheEnd, &self.shard, &header.name().path);
            }
            MemberKind::LongName | MemberKind::Pax | MemberKind::Other => {}
        }
        TarState::Behind { left: size.saturating_add(padding(size)) }
    }

    /// Moves bytes of `chunk` into the buffer; returns whether the buffer holds `bytes` bytes.
    fn fill(&mut self, chunk: &mut &[u8], bytes: usize) -> bool {
        let missing = bytes - self.buffer.len();
        let data = self.take(chunk, missing as u64);
        self.buffer.extend_from_slice(data);
        self.buffer.len() == bytes
    }

    fn take<'a>(&mut self, chunk: &mut &'a [u8], most: u64) -> &'a [u8] {
        let count = usize::try_from(most).unwrap_or(usize::MAX).min(chunk.len());
        let (data, rest) = chunk.split_at(count);
        *chunk = rest;
        self.offset += count as u64;
        data
    }

    fn error(&self, offset: u64, fault: TarFault) -> TarError {
        TarError { shard: self.shard.clone(), offset, fault }
    }
}

/// Returns the number of zero bytes that follow `bytes` of data.
pub(super) const fn padding(bytes: u64) -> u64 {
    bytes.wrapping_neg() % TAR_BLOCK_BYTES as u64
}

/// Returns the name of the compression program if the block is the beginning of a compressed file.
fn compression(block: &[u8]) -> Option<&'static str> {
    let magics: [(&[u8], &str); 5] = [
        (b"\x1f\x8b", "gzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\xfd7zXZ\0", "xz"),
        (b"BZh", "bzip2"),
        (b"PK\x03\x04", "zip"),
    ];
    magics.into_iter().find(|(magic, _)| block.starts_with(magic)).map(|(_, name)| name)
}
