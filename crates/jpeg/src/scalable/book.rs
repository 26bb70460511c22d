//! The book of codes: prefix codes for the symbols of each band, which are part of the format. A packed picture names
//! the codes that fit it best.
//!
//! The codes were made once, from 27 photographs at several sizes and qualities, by clustering the counts of symbols. A line
//! of `book.txt` is a code: which symbols it is for, the number of codes of 1 to 10 bits, and the symbols in order of their
//! codes, as in the Huffman tables of a JPEG. All codes are complete: any bits begin with one.

use std::sync::LazyLock;

use super::bands::{Band, DC_SLOT, END, ESCAPE, FIRST_SLOT, HIGH_SLOT, MIDDLE_SLOT, SECOND_SLOT, SLOTS, THIRD_SLOT};

/// The length of the longest code: of DC and the low band, and of the middle and the high band.
pub(crate) const SHORT_BITS: u32 = 9;
pub(crate) const LONG_BITS: u32 = 10;
/// The number of coefficients by which the end of a band advances: past all of them.
const PAST: u8 = 63;
/// The largest number of codes of one kind.
const MOST: usize = 16;

/// The symbols that a code is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeKind {
    /// The bits of a difference of DC coefficients.
    Dc,
    /// The bits of the first or the second coefficient of the low band.
    Low,
    /// The bits of the third coefficient of the low band, and which further bands the block has.
    Last,
    /// Zeros and the bits of the coefficient after them.
    Middle,
    High,
}

impl CodeKind {
    const ALL: [(Self, &str); 5] =
        [(Self::Dc, "dc"), (Self::Low, "low"), (Self::Last, "last"), (Self::Middle, "middle"), (Self::High, "high")];

    pub(crate) const fn of(slot: usize) -> Self {
        match slot {
            DC_SLOT => Self::Dc,
            FIRST_SLOT..THIRD_SLOT => Self::Low,
            THIRD_SLOT..MIDDLE_SLOT => Self::Last,
            MIDDLE_SLOT..HIGH_SLOT => Self::Middle,
            _ => Self::High,
        }
    }

    pub(crate) const fn band(self) -> Band {
        match self {
            Self::Dc => Band::Dc,
            Self::Low | Self::Last => Band::Low,
            Self::Middle => Band::Middle,
            Self::High => Band::High,
        }
    }

    const fn is_long(self) -> bool {
        matches!(self, Self::Middle | Self::High)
    }
}

const _: () = assert!(SECOND_SLOT == FIRST_SLOT + 1 && HIGH_SLOT < SLOTS);

/// A code as the encoder uses it: each symbol's bits and their number, which is 0 for a symbol without a code.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub(crate) bits: [u16; 256],
    pub(crate) lengths: [u8; 256],
}

/// Finds a symbol of DC. Bits 0..4 of an entry are the length of the code, 4..8 the bits of the value.
pub(crate) type DcTable = [u16; 1 << SHORT_BITS];

/// Finds a symbol of the low band.
pub(crate) type LowTable = [LowEntry; 1 << SHORT_BITS];

/// An entry of `LowTable`. If code and value fit into the index, bits 0..4 are the length of both, 4..7 the bits of
/// the value, 7..9 the further bands, 10..16 the value. Otherwise bits 0..4 are 0, 4..8 the bits of the value, 8..10
/// the further bands, 10..14 the length of the code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LowEntry(u16);

impl LowEntry {
    fn new(code_bits: u32, size: u32, further: u32, index: usize) -> Self {
        let symbol = Symbol { code_bits, value_bits: size, ahead: 0 };
        let used = code_bits + size;
        let packed = match symbol.value(index, SHORT_BITS).filter(|_| used <= SHORT_BITS) {
            Some(value) => used | size << 4 | further << 7 | (value as u32) << 10,
            None => size << 4 | further << 8 | code_bits << 10,
        };
        Self(packed as u16)
    }

    /// Returns whether the entry has the value.
    #[inline(always)]
    pub(crate) const fn is_whole(self) -> bool {
        self.bits() != 0
    }

    #[inline(always)]
    pub(crate) const fn bits(self) -> u32 {
        (self.0 & 15) as u32
    }

    #[inline(always)]
    pub(crate) const fn value(self) -> i16 {
        self.0 as i16 >> 10
    }

    #[inline(always)]
    pub(crate) const fn size(self) -> u32 {
        (self.0 >> 4 & 7) as u32
    }

    #[inline(always)]
    pub(crate) const fn further(self) -> u32 {
        (self.0 >> 7 & 3) as u32
    }

    /// Returns the length of the code, the bits of the value, and the further bands, for an entry without the value.
    #[inline(always)]
    pub(crate) const fn parts(self) -> (u32, u32, u32) {
        ((self.0 >> 10) as u32, (self.0 >> 4 & 15) as u32, (self.0 >> 8 & 3) as u32)
    }
}

/// Finds one symbol of the middle or the high band, or two where both fit into the index with their values. Each code has its
/// own table.
pub(crate) type LongTables = [LongEntry; (2 * MOST) << LONG_BITS];

/// An entry of `LongTables`: one symbol or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub(crate) struct LongEntry {
    /// The values of both symbols. If there is one symbol, the second value is the first. If not even the first value
    /// fits into the index, `first` is 0 and `second` is the length of the value.
    pub(crate) first: i16,
    pub(crate) second: i16,
    /// The number of coefficients that the first symbol advances, and that both advance.
    pub(crate) ahead_first: u8,
    pub(crate) ahead: u8,
    /// The length of all codes and values, or 0 if not even the first value fits into the index.
    pub(crate) bits: u8,
    /// The length of the first code and value, or of the code alone if its value does not fit.
    pub(crate) first_bits: u8,
}

/// All codes.
#[derive(Debug)]
pub(crate) struct Book {
    codes: Vec<(CodeKind, Code)>,
    pub(crate) dc: Box<[DcTable; MOST]>,
    /// The tables of the low band's first two coefficients, and of its last.
    pub(crate) low: [Box<[LowTable; MOST]>; 2],
    /// The middle band's tables, then the high band's.
    pub(crate) long: Box<LongTables>,
    /// The length of the escape of each table of `long`.
    pub(crate) escapes: [u32; 2 * MOST],
}

impl LongEntry {
    pub(crate) const ESCAPE: Self = Self { first: 0, second: 0, ahead_first: 0, ahead: 0, bits: 0, first_bits: 0 };
}

/// The book, built on first use.
pub(crate) static BOOK: LazyLock<Book> = LazyLock::new(Book::new);

impl Book {
    fn new() -> Self {
        let mut book = Self {
            codes: Vec::new(),
            dc: Box::new([[0; 1 << SHORT_BITS]; MOST]),
            low: std::array::from_fn(|_| Box::new([[LowEntry::default(); 1 << SHORT_BITS]; MOST])),
            long: vec![LongEntry::ESCAPE; (2 * MOST) << LONG_BITS].try_into().expect("as many"),
            escapes: [1; 2 * MOST],
        };
        for line in include_str!("book.txt").lines() {
            let (kind, code) = read_line(line);
            let at = book.count(kind);
            match kind {
                CodeKind::Dc => fill_dc(&mut book.dc[at], &code),
                CodeKind::Low => fill_low(&mut book.low[0][at], kind, &code),
                CodeKind::Last => fill_low(&mut book.low[1][at], kind, &code),
                CodeKind::Middle | CodeKind::High => {
                    let at = at + if kind == CodeKind::High { MOST } else { 0 };
                    fill_long(&mut book.long[at << LONG_BITS..][..1 << LONG_BITS], &code);
                    book.escapes[at] = u32::from(code.lengths[usize::from(ESCAPE)]);
                }
            }
            book.codes.push((kind, code));
        }
        book
    }

    /// The codes of a kind, in order.
    pub(crate) fn codes(&self, kind: CodeKind) -> impl Iterator<Item = &Code> {
        self.codes.iter().filter(move |(of, _)| *of == kind).map(|(_, code)| code)
    }

    pub(crate) fn count(&self, kind: CodeKind) -> usize {
        self.codes(kind).count()
    }

    /// The index of the table of a code of the middle or the high band in `long`.
    pub(crate) const fn long_index(slot: usize, code: u8) -> u8 {
        if slot < HIGH_SLOT { code } else { code + MOST as u8 }
    }
}

fn read_line(line: &str) -> (CodeKind, Code) {
    let mut words = line.split(' ');
    let mut word = || words.next().expect("three words");
    let name = word();
    let (kind, _) = CodeKind::ALL.into_iter().find(|(_, of)| *of == name).expect("the name of a kind");
    let bytes = |hex: &str| -> Vec<u8> {
        let pairs = hex.as_bytes().as_chunks::<2>().0.iter();
        let digit = |byte: u8| char::from(byte).to_digit(16).expect("a hexadecimal digit") as u8;
        pairs.map(|[high, low]| digit(*high) << 4 | digit(*low)).collect()
    };
    let (counts, symbols) = (bytes(word()), bytes(word()));
    let mut code = Code { bits: [0; 256], lengths: [0; 256] };
    let (mut next, mut symbols) = (0u16, symbols.into_iter());
    for (length, count) in (1u8..).zip(&counts) {
        for symbol in symbols.by_ref().take(usize::from(*count)) {
            (code.bits[usize::from(symbol)], code.lengths[usize::from(symbol)]) = (next, length);
            next += 1;
        }
        next <<= 1;
    }
    assert_eq!(next, 1 << (counts.len() + 1), "a complete code");
    (kind, code)
}

/// Returns each symbol whose code has at most `bits` bits, with the length of its code and the range of `bits`-bit
/// indices that begin with the code.
fn ranges(code: &Code, bits: u32) -> impl Iterator<Item = (u8, u32, std::ops::Range<usize>)> {
    (0..=255u8).filter_map(move |symbol| {
        let length = u32::from(code.lengths[usize::from(symbol)]);
        let start = usize::from(code.bits[usize::from(symbol)]) << bits.checked_sub(length)?;
        (length > 0).then(|| (symbol, length, start..start + (1 << (bits - length))))
    })
}

fn fill_dc(table: &mut DcTable, code: &Code) {
    for (symbol, length, range) in ranges(code, SHORT_BITS) {
        table[range].fill(length as u16 | u16::from(symbol) << 4);
    }
}

fn fill_low(table: &mut LowTable, kind: CodeKind, code: &Code) {
    for (symbol, length, range) in ranges(code, SHORT_BITS) {
        let (size, further) = if kind == CodeKind::Last { (symbol >> 2, symbol & 3) } else { (symbol, 0) };
        for index in range {
            table[index] = LowEntry::new(length, u32::from(size), u32::from(further), index);
        }
    }
}

/// A symbol: the length of its code and of its value, and the coefficients to advance.
#[derive(Clone, Copy)]
struct Symbol {
    code_bits: u32,
    value_bits: u32,
    ahead: u8,
}

fn fill_long(table: &mut [LongEntry], code: &Code) {
    let mut singles = [None; 1 << LONG_BITS];
    for (symbol, code_bits, range) in ranges(code, LONG_BITS) {
        if symbol != ESCAPE {
            let ahead = if symbol == END { PAST } else { (symbol >> 4) + 1 };
            singles[range].fill(Some(Symbol { code_bits, value_bits: u32::from(symbol & 15), ahead }));
        }
    }
    for (index, entry) in table.iter_mut().enumerate() {
        let Some(symbol) = singles[index] else { continue };
        let used = symbol.code_bits + symbol.value_bits;
        let Some(first) = symbol.value(index, LONG_BITS).filter(|_| used <= LONG_BITS) else {
            *entry = LongEntry {
                second: symbol.value_bits as i16,
                ahead_first: symbol.ahead,
                ahead: symbol.ahead,
                first_bits: symbol.code_bits as u8,
                ..LongEntry::ESCAPE
            };
            continue;
        };
        *entry = LongEntry {
            first: first as i16,
            second: first as i16,
            ahead_first: symbol.ahead,
            ahead: symbol.ahead,
            bits: used as u8,
            first_bits: used as u8,
        };
        let rest = (index << used) & ((1 << LONG_BITS) - 1);
        if let Some(symbol) = singles[rest].filter(|_| symbol.ahead < PAST)
            && let bits = used + symbol.code_bits + symbol.value_bits
            && bits <= LONG_BITS
            && let Some(second) = symbol.value(rest, LONG_BITS)
        {
            (entry.second, entry.ahead, entry.bits) = (second as i16, entry.ahead + symbol.ahead, bits as u8);
        }
    }
}

impl Symbol {
    /// Returns the value of the symbol at the top of an index of `bits` bits, or `None` if the value is too long for an
    /// entry.
    fn value(self, index: usize, bits: u32) -> Option<i32> {
        let behind = (index << self.code_bits) & ((1 << bits) - 1);
        let written = (behind >> (bits - self.value_bits.min(bits))) as i32;
        let half = (1 << self.value_bits) >> 1;
        let value = if written < half { written - (half * 2 - 1) } else { written };
        (self.value_bits <= 5).then_some(value)
    }
}

impl CodeKind {
    /// Returns the number of bits of a symbol without a code: the escape, and the symbol itself.
    pub(crate) fn escaped_bits(self, code: &Code) -> u32 {
        if self.is_long() { u32::from(code.lengths[usize::from(ESCAPE)]) + 8 } else { u32::MAX >> 8 }
    }
}
