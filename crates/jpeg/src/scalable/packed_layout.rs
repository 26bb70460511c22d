//! The bytes of a packed picture: a head, the header of the JPEG, checksums, a table of the lengths of all streams, the streams,
//! and what follows the scan.

use std::ops::Range;

use super::{
    bands::{PARTS, SLOTS},
    book::{BOOK, CodeKind},
    tiles::{MOST_SIDE, TileBlocks, Tiles, classes},
};
use crate::{error::Error, header::Jpeg, limits::Limits, standard};

pub(crate) const MAGIC: [u8; 4] = *b"SPJ\n";
pub(crate) const VERSION: u8 = 1;
/// The highest possible version: up to it, no byte is a character of text, so that no text passes for a packed picture.
pub(crate) const LAST_VERSION: u8 = 8;
/// Bytes of the head before the codes.
const FIXED_BYTES: usize = 24;
/// Bytes of the codes of a class: half a byte each.
const CODES_BYTES: usize = SLOTS / 2;
/// Bytes of the totals of a class: for each band the bytes of its streams in four bytes, and the bits of a length in
/// one.
const TOTALS_BYTES: usize = 4 * 5;
/// The most bits of a length.
const LENGTH_BITS: u8 = 24;
/// Bytes of a checksum.
const CHECKSUM_BYTES: usize = 4;
/// From this size of its streams on, a picture gets checksums, so that parts of it can be read. A store transfers this
/// many bytes in about the time of one request, so reading parts of a smaller picture would save nothing.
pub const PARTS_FROM_BYTES: usize = if cfg!(fuzzing) { 0 } else { 128 << 10 };

/// The bits of the flags.
mod flags {
    pub(super) const CUT_TABLES: u8 = 1;
    /// Two bits encode the `ScanPadding`.
    pub(super) const PADDING_SHIFT: u32 = 1;
    pub(super) const PADDING: u8 = 3 << PADDING_SHIFT;
    pub(super) const CHECKSUMS: u8 = 1 << 3;
    pub(super) const PART: u8 = 1 << 4;
    pub(super) const ALL: u8 = CUT_TABLES | PADDING | CHECKSUMS | PART;
}

/// The bits that fill up the last byte of the scan or of a restart segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScanPadding {
    Ones,
    Zeros,
    /// For each segment a byte with these bits.
    Listed(Vec<u8>),
}

/// The streams of one band of one class: the length of each tile's stream, and where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Where the lengths begin, and the bits of each.
    lengths_at: usize,
    bits: u32,
    /// Where the streams begin and end.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A packed picture whose head has been read and checked.
#[derive(Clone, Debug)]
pub(crate) struct PackedLayout<'b> {
    /// All bytes of the picture, or the first ones with the whole head.
    pub(crate) bytes: &'b [u8],
    pub(crate) jpeg: Jpeg<'b>,
    pub(crate) tiles: Tiles,
    /// The codes of each class.
    pub(crate) codes: [[u8; SLOTS]; 2],
    /// In the order of [`PARTS`]; empty for a class that the picture does not have.
    pub(crate) parts: [Part; 8],
    /// The end of the table of lengths and of the checksum after it.
    pub(crate) table_end: usize,
    /// Where the checksums of the streams begin.
    checksums_at: Option<usize>,
    /// Whether streams were left out, so that only a part of the picture can be decoded.
    pub(crate) is_part: bool,
    header: Range<usize>,
    /// Where the codes of the classes begin.
    codes_at: usize,
    /// Where the standard's Huffman tables were cut from the header.
    cut_at: Option<usize>,
    /// The `ScanPadding`: 0 for ones, 1 for zeros, 2 for a list.
    padding: u8,
    list: Range<usize>,
    tail: Range<usize>,
}

const BROKEN: Error = Error::Corrupt("the head of a packed picture with impossible numbers");

impl<'b> PackedLayout<'b> {
    pub(crate) fn read(bytes: &'b [u8], limits: Limits) -> Result<Self, Error> {
        Self::read_beginning(bytes, bytes.len(), limits)
    }

    /// Reads the head of a picture of `total` bytes from the first ones.
    pub(crate) fn read_beginning(bytes: &'b [u8], total: usize, limits: Limits) -> Result<Self, Error> {
        if !bytes.starts_with(&MAGIC) {
            return Err(Error::Corrupt("not a packed picture"));
        }
        let fixed = bytes.first_chunk::<FIXED_BYTES>().ok_or(Error::Truncated)?;
        let [version, flags, side, reserved] = *fixed[4..8].first_chunk().expect("4 bytes");
        if version != VERSION || flags & !flags::ALL != 0 {
            return Err(Error::Corrupt("a packed picture of a newer version"));
        }
        let (is_cut, padding) = (flags & flags::CUT_TABLES != 0, (flags & flags::PADDING) >> flags::PADDING_SHIFT);
        let is_part_with_checksums = flags & (flags::PART | flags::CHECKSUMS) == flags::PART | flags::CHECKSUMS;
        if is_part_with_checksums || reserved != 0 || padding > 2 || side == 0 || u32::from(side) > MOST_SIDE {
            return Err(BROKEN);
        }
        let number = |at: usize| u32::from_le_bytes(*fixed[at..at + 4].first_chunk().expect("4 bytes")) as usize;
        let [header_bytes, cut_at, tail_bytes, list_bytes] = [8, 12, 16, 20].map(number);
        // The number of classes is known when the header has been read, which comes first.
        let header = FIXED_BYTES..FIXED_BYTES.checked_add(header_bytes).ok_or(BROKEN)?;
        let header_of = bytes.get(header.clone()).ok_or(Error::Truncated)?;
        let jpeg = Jpeg::header_only(header_of, limits, is_cut)?;
        if (is_cut && cut_at > header_bytes) || (!is_cut && cut_at != 0) || jpeg.scan_at != header_bytes {
            return Err(BROKEN);
        }
        let tiles = Tiles::new(&jpeg, u32::from(side));
        let mut codes = [[0; SLOTS]; 2];
        let mut at = header.end;
        for (codes, _) in codes.iter_mut().zip(classes(&jpeg)) {
            let written = bytes.get(at..at + CODES_BYTES).ok_or(Error::Truncated)?;
            for (slot, code) in codes.iter_mut().enumerate() {
                *code = written[slot / 2] >> (slot % 2 * 4) & 15;
                if usize::from(*code) >= BOOK.count(CodeKind::of(slot)) {
                    return Err(Error::Corrupt("a code that is not in the book"));
                }
            }
            at += CODES_BYTES;
        }
        let mut layout = Self {
            bytes,
            tiles,
            codes,
            parts: [Part::default(); 8],
            table_end: 0,
            checksums_at: None,
            is_part: flags & flags::PART != 0,
            codes_at: header.end,
            header,
            cut_at: is_cut.then_some(cut_at),
            padding,
            list: 0..0,
            tail: 0..0,
            jpeg,
        };
        let end = layout.read_parts(at, total, flags & flags::CHECKSUMS != 0)?;
        let list_at = end.checked_add(tail_bytes).ok_or(BROKEN)?;
        let list_end = list_at.checked_add(list_bytes).ok_or(BROKEN)?;
        if list_end != total {
            return Err(if list_end > total { Error::Truncated } else { BROKEN });
        }
        (layout.tail, layout.list) = (end..list_at, list_at..list_end);
        if (padding == 2) != (list_bytes > 0) {
            return Err(BROKEN);
        }
        Ok(layout)
    }

    /// Reads where the streams are, and returns where they end.
    fn read_parts(&mut self, mut at: usize, all_bytes: usize, has_checksums: bool) -> Result<usize, Error> {
        let classes = classes(&self.jpeg);
        let totals_at = at;
        at += TOTALS_BYTES * classes.len();
        let totals = self.bytes.get(totals_at..at).ok_or(Error::Truncated)?;
        let mut lengths_at = at;
        if has_checksums {
            self.checksums_at = Some(at);
            lengths_at += CHECKSUM_BYTES * self.tiles.counts()[1] as usize * self.written_parts().count();
        }
        for (part, total) in self.written_parts().zip(totals.as_chunks::<5>().0) {
            let bits = total[4];
            if bits > LENGTH_BITS {
                return Err(BROKEN);
            }
            self.parts[part].bits = u32::from(bits);
            self.parts[part].lengths_at = lengths_at;
            lengths_at += (self.tiles.count() * usize::from(bits)).div_ceil(8);
        }
        self.table_end = lengths_at + if has_checksums { CHECKSUM_BYTES } else { 0 };
        if self.table_end > self.bytes.len() {
            return Err(Error::Truncated);
        }
        let mut start = self.table_end;
        for (part, total) in self.written_parts().zip(totals.as_chunks::<5>().0) {
            let total = u32::from_le_bytes(*total.first_chunk().expect("4 bytes")) as usize;
            let end = start.checked_add(total).filter(|end| *end <= all_bytes).ok_or(Error::Truncated)?;
            (self.parts[part].start, self.parts[part].end) = (start, end);
            start = end;
        }
        if self.is_part {
            return Ok(start);
        }
        // A block has at least a bit of DC, so that a short file cannot claim a large picture.
        let [columns, rows] = self.jpeg.mcus();
        for class in classes {
            let blocks = TileBlocks::new(&self.jpeg, *class, [(0, columns), (0, rows)]).count() as usize;
            let part = self.parts[super::bands::part(super::bands::Band::Dc, *class)];
            if (part.end - part.start) * 8 < blocks {
                return Err(Error::Truncated);
            }
        }
        Ok(start)
    }

    /// Returns the header of the JPEG, as the file had it.
    pub(crate) fn header(&self) -> Vec<u8> {
        let header = &self.bytes[self.header.clone()];
        let Some(at) = self.cut_at else { return header.to_vec() };
        [&header[..at], &standard::segments(self.jpeg.component_count), &header[at..]].concat()
    }

    /// Returns the bytes that followed the scan.
    pub(crate) fn tail(&self) -> &'b [u8] {
        &self.bytes[self.tail.clone()]
    }

    pub(crate) fn padding(&self) -> ScanPadding {
        match self.padding {
            0 => ScanPadding::Ones,
            1 => ScanPadding::Zeros,
            _ => ScanPadding::Listed(self.bytes[self.list.clone()].to_vec()),
        }
    }

    /// Returns whether the picture has checksums. If it has, checks that of the head.
    pub(crate) fn has_checksums(&self) -> Result<bool, Error> {
        if self.checksums_at.is_none() {
            return Ok(false);
        }
        let (head, written) = self.bytes[..self.table_end].split_last_chunk().expect("it ends with a checksum");
        // A fuzzer does not find valid checksums.
        if crc32c::crc32c(head) != u32::from_le_bytes(*written) && !cfg!(fuzzing) {
            return Err(Error::Corrupt("the head of a packed picture with another checksum"));
        }
        Ok(true)
    }

    /// Returns the checksum of one part of a row of tiles. The picture must have checksums, and the part.
    pub(crate) fn checksum(&self, part: usize, row: u32) -> u32 {
        let before = self.written_parts().take_while(|before| *before < part).count();
        let nth = before * self.tiles.counts()[1] as usize + row as usize;
        let at = self.checksums_at.expect("the picture has checksums") + nth * CHECKSUM_BYTES;
        u32::from_le_bytes(*self.bytes[at..].first_chunk().expect("the head is there"))
    }

    /// Returns the numbers of the parts that the picture has.
    pub(crate) fn written_parts(&self) -> impl Iterator<Item = usize> + use<'b> {
        let classes = classes(&self.jpeg);
        PARTS.into_iter().enumerate().filter(|(_, (_, class))| classes.contains(class)).map(|(part, _)| part)
    }

    /// Writes a picture with the streams of some rows of tiles alone. `rows` has for each part the first row and one
    /// past the last; `streams` has the bytes of these rows, for each part that the picture has.
    pub(crate) fn write_part(&self, rows: &[(u32, u32); 8], streams: &[&[u8]]) -> Vec<u8> {
        let bytes = streams.iter().map(|streams| streams.len()).sum::<usize>();
        let mut out = Vec::with_capacity(self.table_end + bytes);
        let cut_tables = if self.cut_at.is_some() { flags::CUT_TABLES } else { 0 };
        out.extend(MAGIC);
        out.extend([VERSION, cut_tables | flags::PART, self.tiles.side() as u8, 0]);
        for number in [self.header.len(), self.cut_at.unwrap_or(0), 0, 0] {
            out.extend((number as u32).to_le_bytes());
        }
        out.extend(&self.bytes[self.header.clone()]);
        out.extend(&self.bytes[self.codes_at..][..CODES_BYTES * classes(&self.jpeg).len()]);
        for (part, streams) in self.written_parts().zip(streams) {
            out.extend((streams.len() as u32).to_le_bytes());
            out.push(self.parts[part].bits as u8);
        }
        let across = self.tiles.counts()[0];
        for part in self.written_parts() {
            let (first, end) = rows[part];
            let there = (first * across) as usize..(end * across) as usize;
            let of = &self.parts[part];
            let length = |tile: usize| if there.contains(&tile) { self.length(of, tile) } else { 0 };
            write_lengths(&mut out, of.bits, (0..self.tiles.count()).map(length));
        }
        streams.iter().for_each(|streams| out.extend(*streams));
        out
    }

    /// Returns a cursor before the first stream of a part.
    pub(crate) fn cursor(&self, part: usize) -> StreamCursor {
        StreamCursor { part: self.parts[part], tile: 0, at: self.parts[part].start }
    }

    fn length(&self, part: &Part, tile: usize) -> usize {
        if part.bits == 0 {
            return 0;
        }
        let bit = tile * part.bits as usize;
        let at = part.lengths_at + bit / 8;
        let word = match self.bytes.get(at..at + 4) {
            Some(word) => u32::from_le_bytes(*word.first_chunk().expect("4 bytes")),
            None => {
                let rest = self.bytes.get(at..).unwrap_or_default();
                rest.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
            }
        };
        (word >> (bit % 8) & ((1 << part.bits) - 1)) as usize
    }
}

/// Finds the streams of a part, in the order of the tiles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamCursor {
    part: Part,
    /// The next tile, and where its stream begins.
    tile: usize,
    at: usize,
}

impl StreamCursor {
    /// Returns where the stream of a tile is. Tiles must be looked up in order.
    pub(crate) fn find(&mut self, layout: &PackedLayout<'_>, tile: usize) -> Result<Range<usize>, Error> {
        self.find_run(layout, tile..tile + 1)
    }

    /// Returns where the streams of consecutive tiles are. Tiles must be looked up in order.
    pub(crate) fn find_run(&mut self, layout: &PackedLayout<'_>, tiles: Range<usize>) -> Result<Range<usize>, Error> {
        while self.tile < tiles.start {
            self.at += layout.length(&self.part, self.tile);
            self.tile += 1;
        }
        let end = tiles.fold(self.at, |at, tile| at + layout.length(&self.part, tile));
        if end > self.part.end {
            return Err(Error::Corrupt("streams beyond their total"));
        }
        Ok(self.at..end)
    }
}

/// Writes lengths of `bits` bits each, from the lowest bit on, and fills up the last byte with zeros.
fn write_lengths(out: &mut Vec<u8>, bits: u32, lengths: impl Iterator<Item = usize>) {
    let (mut reservoir, mut count) = (0u64, 0);
    for length in lengths {
        reservoir |= (length as u64) << count;
        count += bits;
        while count >= 8 {
            out.push(reservoir as u8);
            (reservoir, count) = (reservoir >> 8, count - 8);
        }
    }
    if count > 0 {
        out.push(reservoir as u8);
    }
}

/// The contents of a packed picture, ready to be written.
#[derive(Debug)]
pub(crate) struct Contents<'c> {
    /// The header of the JPEG, and where the standard's tables were cut from it.
    pub(crate) header: &'c [u8],
    pub(crate) cut_at: Option<usize>,
    pub(crate) side: u32,
    /// The number of tiles from left to right.
    pub(crate) across: usize,
    /// The codes of each class that the picture has.
    pub(crate) codes: &'c [[u8; SLOTS]],
    /// The streams of each tile, for each part that the picture has, in order.
    pub(crate) parts: Vec<Vec<Vec<u8>>>,
    pub(crate) tail: &'c [u8],
    pub(crate) padding: &'c ScanPadding,
}

impl Contents<'_> {
    /// Writes the picture; returns `None` when a length is too large for its field.
    pub(crate) fn write(&self) -> Option<Vec<u8>> {
        let list: &[u8] = if let ScanPadding::Listed(list) = self.padding { list } else { &[] };
        let padding = match self.padding {
            ScanPadding::Ones => 0,
            ScanPadding::Zeros => 1,
            ScanPadding::Listed(_) => 2,
        };
        let streams_bytes = self.parts.iter().flatten().map(Vec::len).sum::<usize>();
        let has_checksums = streams_bytes >= PARTS_FROM_BYTES;
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.cut_at.is_some(), flags::CUT_TABLES) | flag(has_checksums, flags::CHECKSUMS);
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend([VERSION, flags | padding << flags::PADDING_SHIFT, self.side as u8, 0]);
        for number in [self.header.len(), self.cut_at.unwrap_or(0), self.tail.len(), list.len()] {
            out.extend(u32::try_from(number).ok()?.to_le_bytes());
        }
        out.extend(self.header);
        for codes in self.codes {
            out.extend(codes.as_chunks::<2>().0.iter().map(|[low, high]| low | high << 4));
        }
        let bits_of = |streams: &[Vec<u8>]| {
            let longest = streams.iter().map(Vec::len).max().unwrap_or(0);
            usize::BITS - longest.leading_zeros()
        };
        for streams in &self.parts {
            let bits = u8::try_from(bits_of(streams)).ok().filter(|bits| *bits <= LENGTH_BITS)?;
            out.extend(u32::try_from(streams.iter().map(Vec::len).sum::<usize>()).ok()?.to_le_bytes());
            out.push(bits);
        }
        if has_checksums {
            for row in self.parts.iter().flat_map(|streams| streams.chunks(self.across)) {
                let checksum = row.iter().fold(0, |checksum, stream| crc32c::crc32c_append(checksum, stream));
                out.extend(checksum.to_le_bytes());
            }
        }
        for streams in &self.parts {
            write_lengths(&mut out, bits_of(streams), streams.iter().map(Vec::len));
        }
        if has_checksums {
            out.extend(crc32c::crc32c(&out).to_le_bytes());
        }
        for streams in &self.parts {
            streams.iter().for_each(|stream| out.extend(stream));
        }
        out.extend(self.tail);
        out.extend(list);
        Some(out)
    }
}
