//! The book of codes: prefix codes for the symbols of each band, which are part of the format. A packed picture names
//! the codes that fit it best.
//!
//! The codes were made once, from 27 photographs at several sizes and qualities, by clustering the counts of symbols. A line
//! of `book.txt` is a code: which symbols it is for, the number of codes of 1 to 10 bits, and the symbols in order of their
//! codes, as in the Huffman tables of a JPEG. All codes are complete: any bits begin with one.

use std::sync::LazyLock;

use super::bands::{Band, DC_SLOT, END, ESCAPE, FIRST_SLOT, HIGH_SLOT, MIDDLE_SLOT, SECOND_SLOT, SLOTS, THIRD_SLOT};

/// The most bits of a code of DC or the low band, and of the middle and the high band.
pub(crate) const SHORT_BITS: u32 = 9;
pub(crate) const LONG_BITS: u32 = 10;
/// The advance of the end of a band: past all of it.
const PAST: usize = 63;
/// The most codes of one kind.
const MOST: usize = 16;

/// The symbols that a code is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The bits of a difference of DC coefficients.
    Dc,
    /// The bits of the first or the second coefficient of the low band.
    Low,
    /// The bits of the third, and which further bands the block has.
    Last,
    /// Zeros and the bits of the coefficient after them.
    Middle,
    High,
}

impl Kind {
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

/// Finds a symbol of DC or of the low band. Bits 0..4 of an entry are the length of the code, 4..8 the bits of the value,
/// 8..10 the further bands.
pub(crate) type ShortTable = [u16; 1 << SHORT_BITS];

/// Finds one symbol, or two where both fit into the index with their values. 0 is the escape.
pub(crate) type LongTable = [LongEntry; 1 << LONG_BITS];

/// Bits 0..4 are the length of all codes and values, 4..8 that of the first code and its value, 8..14 the coefficients that
/// the first symbol advances, 14..20 those of the second, 20..26 the value of the first, 26..32 that of the second. Where
/// not even the first value fits into the index, bits 0..4 are 0, 4..8 the length of its code, 20..24 that of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LongEntry(u32);

/// All codes.
#[derive(Debug)]
pub(crate) struct Book {
    codes: Vec<(Kind, Code)>,
    /// The tables of DC, of the low band's first two and of its last.
    pub(crate) short: [Box<[ShortTable; MOST]>; 3],
    /// The middle band's tables, then the high band's.
    pub(crate) long: Box<[LongTable; 2 * MOST]>,
    /// The lengths of the escapes of `long`.
    pub(crate) escapes: [u32; 2 * MOST],
}

impl LongEntry {
    pub(crate) const ESCAPE: Self = Self(0);

    /// Whether all values are known.
    #[inline(always)]
    pub(crate) const fn is_whole(self) -> bool {
        self.bits() != 0
    }

    #[inline(always)]
    pub(crate) const fn bits(self) -> u32 {
        self.0 & 15
    }

    #[inline(always)]
    pub(crate) const fn first_bits(self) -> u32 {
        self.0 >> 4 & 15
    }

    #[inline(always)]
    pub(crate) const fn ahead_first(self) -> u32 {
        self.0 >> 8 & 63
    }

    #[inline(always)]
    pub(crate) const fn ahead_second(self) -> u32 {
        self.0 >> 14 & 63
    }

    #[inline(always)]
    pub(crate) const fn first(self) -> i16 {
        ((self.0 << 6) as i32 >> 26) as i16
    }

    #[inline(always)]
    pub(crate) const fn second(self) -> i16 {
        (self.0 as i32 >> 26) as i16
    }

    /// The length of the first value, where it is not whole.
    #[inline(always)]
    pub(crate) const fn value_bits(self) -> u32 {
        self.0 >> 20 & 15
    }
}

/// The book, which is made when it is first needed.
pub(crate) static BOOK: LazyLock<Book> = LazyLock::new(Book::new);

impl Book {
    fn new() -> Self {
        let mut book = Self {
            codes: Vec::new(),
            short: std::array::from_fn(|_| Box::new([[0; 1 << SHORT_BITS]; MOST])),
            long: vec![[LongEntry::ESCAPE; 1 << LONG_BITS]; 2 * MOST].try_into().expect("as many"),
            escapes: [1; 2 * MOST],
        };
        for line in include_str!("book.txt").lines() {
            let (kind, code) = read_line(line);
            let at = book.count(kind);
            match kind {
                Kind::Dc | Kind::Low | Kind::Last => fill_short(&mut book.short[kind as usize][at], kind, &code),
                Kind::Middle | Kind::High => {
                    let at = at + if kind == Kind::High { MOST } else { 0 };
                    fill_long(&mut book.long[at], &code);
                    book.escapes[at] = u32::from(code.lengths[usize::from(ESCAPE)]);
                }
            }
            book.codes.push((kind, code));
        }
        book
    }

    /// The codes of a kind, in order.
    pub(crate) fn codes(&self, kind: Kind) -> impl Iterator<Item = &Code> {
        self.codes.iter().filter(move |(of, _)| *of == kind).map(|(_, code)| code)
    }

    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.codes(kind).count()
    }

    /// The index of a code of the middle or the high band in `long`.
    pub(crate) const fn long_index(slot: usize, code: u8) -> u8 {
        if slot < HIGH_SLOT { code } else { code + MOST as u8 }
    }
}

fn read_line(line: &str) -> (Kind, Code) {
    let mut words = line.split(' ');
    let mut word = || words.next().expect("three words");
    let name = word();
    let (kind, _) = Kind::ALL.into_iter().find(|(_, of)| *of == name).expect("the name of a kind");
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

/// The symbols with a code of up to `bits` bits, with the range of an index of as many bits that begins with their code.
fn ranges(code: &Code, bits: u32) -> impl Iterator<Item = (u8, u32, std::ops::Range<usize>)> {
    (0..=255u8).filter_map(move |symbol| {
        let length = u32::from(code.lengths[usize::from(symbol)]);
        let start = usize::from(code.bits[usize::from(symbol)]) << bits.checked_sub(length)?;
        (length > 0).then(|| (symbol, length, start..start + (1 << (bits - length))))
    })
}

fn fill_short(table: &mut ShortTable, kind: Kind, code: &Code) {
    for (symbol, length, range) in ranges(code, SHORT_BITS) {
        let (bits, further) = if kind == Kind::Last { (symbol >> 2, symbol & 3) } else { (symbol, 0) };
        table[range].fill(length as u16 | u16::from(bits) << 4 | u16::from(further) << 8);
    }
}

/// A symbol of the middle or the high band: the length of its code and of its value, and the coefficients to advance.
#[derive(Clone, Copy)]
struct Symbol {
    code_bits: u32,
    value_bits: u32,
    ahead: usize,
}

fn fill_long(table: &mut LongTable, code: &Code) {
    let mut singles = [None; 1 << LONG_BITS];
    for (symbol, code_bits, range) in ranges(code, LONG_BITS) {
        if symbol != ESCAPE {
            let ahead = if symbol == END { PAST } else { usize::from(symbol >> 4) + 1 };
            singles[range].fill(Some(Symbol { code_bits, value_bits: u32::from(symbol & 15), ahead }));
        }
    }
    for (index, entry) in table.iter_mut().enumerate() {
        let Some(first) = singles[index] else { continue };
        let used = first.code_bits + first.value_bits;
        let Some(first_value) = first.value(index).filter(|_| used <= LONG_BITS) else {
            *entry = LongEntry(first.code_bits << 4 | (first.ahead as u32) << 8 | first.value_bits << 20);
            continue;
        };
        let rest = (index << used) & ((1 << LONG_BITS) - 1);
        let second = singles[rest]
            .filter(|second| first.ahead < PAST && used + second.code_bits + second.value_bits <= LONG_BITS);
        let pair = second
            .and_then(|second| Some((second.code_bits + second.value_bits, second.ahead as u32, second.value(rest)?)));
        let (bits, ahead, value) = pair.unwrap_or((0, 0, 0));
        *entry = LongEntry(
            (used + bits)
                | used << 4
                | (first.ahead as u32) << 8
                | ahead << 14
                | (first_value as u32 & 63) << 20
                | (value as u32) << 26,
        );
    }
}

impl Symbol {
    /// The value of the symbol at the top of an index, or `None` where it has too many bits for an entry.
    fn value(self, index: usize) -> Option<i32> {
        let behind = (index << self.code_bits) & ((1 << LONG_BITS) - 1);
        let written = (behind >> (LONG_BITS - self.value_bits.min(LONG_BITS))) as i32;
        let half = (1 << self.value_bits) >> 1;
        let value = if written < half { written - (half * 2 - 1) } else { written };
        (self.value_bits <= 5).then_some(value)
    }
}

impl Kind {
    /// The bits of a symbol without a code: the escape, and the symbol itself.
    pub(crate) fn escaped_bits(self, code: &Code) -> u32 {
        if self.is_long() { u32::from(code.lengths[usize::from(ESCAPE)]) + 8 } else { u32::MAX >> 8 }
    }
}
