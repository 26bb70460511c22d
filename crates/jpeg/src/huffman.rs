//! Huffman lookup tables. An entry has the meaning of a code together with its length and that of its value, so that
//! the next symbol can be looked up before the value of this one is known.

use crate::error::Error;

/// A Huffman table as the file stores it: the number of codes of each length, and the symbols in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HuffmanSpec<'b> {
    pub(crate) counts: &'b [u8; 16],
    pub(crate) symbols: &'b [u8],
}

/// Number of bits that index the table of [`Lookup`]. Longer codes are rare.
const LOOKUP_BITS: u32 = 10;
/// Number of bits that index the table of [`Pairs`].
const PAIR_BITS: u32 = 11;
/// Number of bits that index the table of [`Skip`].
const SKIP_BITS: u32 = 12;
/// The number of coefficients by which the end of a block advances: past all of them.
pub(crate) const END_OF_BLOCK: usize = 128;

/// The zigzag index of the last coefficient of a block.
pub(crate) const LAST: usize = 63;

/// The meaning of a code. Bits 0..6 are the length of code and value, 8..16 the number of coefficients to advance,
/// 16..22 the length of the code, 24..30 63 minus the length of the value. 0 means that there is no code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodeEntry(u32);

impl CodeEntry {
    const NONE: Self = Self(0);

    fn new(length: u32, size: u32, ahead: usize) -> Self {
        Self((length + size) | (ahead as u32) << 8 | length << 16 | (63 - size) << 24)
    }

    /// Returns the number of bits of code and value.
    #[inline(always)]
    pub(crate) fn bits(self) -> u32 {
        self.0 & 63
    }

    /// Returns the number of bits of the code.
    fn code_bits(self) -> u32 {
        self.0 >> 16 & 63
    }

    /// Returns the number of coefficients to advance.
    #[inline(always)]
    pub(crate) fn ahead(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }

    /// Returns the number of blocks that end with this symbol, whose code is at the top of `reservoir`: an
    /// end-of-block code of a progressive picture.
    #[inline(always)]
    pub(crate) fn ended_blocks(self, reservoir: u64) -> u32 {
        let behind = reservoir << (self.0 >> 16 & 63);
        let shift = self.0 >> 24;
        (1 << (63 - shift)) + ((behind >> 1) >> shift) as u32
    }

    /// Returns the value of the symbol whose code is at the top of `reservoir`.
    #[inline(always)]
    pub(crate) fn value(self, reservoir: u64) -> i32 {
        let behind = reservoir << (self.0 >> 16 & 63);
        let shift = self.0 >> 24;
        let magnitude = ((behind >> 1) >> shift) as i32;
        // A value whose first bit is 0 is negative: its bits minus (2^size - 1).
        let negative = !(behind as i64) >> 63;
        magnitude + (negative as i32 & (1 - (1 << (63 - shift))))
    }
}

/// The kind of symbols that a table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SymbolClass {
    Dc,
    Ac,
    /// AC coefficients of a first scan of a progressive picture, where blocks end in runs.
    AcFirst,
    /// AC coefficients of a refinement scan of a progressive picture, where new values are 1 or -1.
    AcRefinement,
}

/// Finds one symbol.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    fast: [CodeEntry; 1 << LOOKUP_BITS],
    class: SymbolClass,
    /// For each code length: one past the last code, aligned to 16 bits; and the offset from a code to its symbol.
    limits: [u32; 17],
    offsets: [i32; 17],
    symbols: [u8; 256],
}

/// Finds one symbol, or two when the codes of both fit into the index. In an entry, bits 0..6 are the length of all
/// codes and values, 8..16 the advance of the first symbol, 16..24 the advance of both. For the first and the second
/// symbol follow the shift that moves the value to the top (24..30, 40..46) and the shift from there to the bottom
/// (32..38, 48..54). When not even one code fits, the length is 0 and the advance lies past the end of any block.
#[derive(Clone, Debug)]
pub(crate) struct Pairs(Box<[Pair; 1 << PAIR_BITS]>);

/// An entry of [`Pairs`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair(u64);

/// Finds as many symbols of one block as fit into the index. In an entry, bits 0..6 are the length of their codes and
/// values, the other bits the number of coefficients to advance. The entry is 0 when not even one code fits.
#[derive(Clone, Debug)]
pub(crate) struct Skip(Box<[u16; 1 << SKIP_BITS]>);

impl Lookup {
    /// Builds a table for DC coefficients.
    pub(crate) fn dc(spec: HuffmanSpec<'_>) -> Result<Self, Error> {
        Self::new(spec, SymbolClass::Dc)
    }

    /// Builds a table for AC coefficients.
    pub(crate) fn ac(spec: HuffmanSpec<'_>) -> Result<Self, Error> {
        Self::new(spec, SymbolClass::Ac)
    }

    /// Builds a table for AC coefficients of a progressive picture's first scans.
    pub(crate) fn ac_first(spec: HuffmanSpec<'_>) -> Result<Self, Error> {
        Self::new(spec, SymbolClass::AcFirst)
    }

    /// Builds a table for AC coefficients of a progressive picture's refinement scans.
    pub(crate) fn ac_refinement(spec: HuffmanSpec<'_>) -> Result<Self, Error> {
        Self::new(spec, SymbolClass::AcRefinement)
    }

    fn new(spec: HuffmanSpec<'_>, class: SymbolClass) -> Result<Self, Error> {
        const BROKEN: Error = Error::Corrupt("a Huffman table with too many codes");
        let mut table = Self {
            fast: [CodeEntry::NONE; 1 << LOOKUP_BITS],
            class,
            limits: [0; 17],
            offsets: [0; 17],
            symbols: [0; 256],
        };
        table.symbols.get_mut(..spec.symbols.len()).ok_or(BROKEN)?.copy_from_slice(spec.symbols);
        let (mut code, mut first) = (0u32, 0usize);
        for (length, count) in (1u32..).zip(spec.counts) {
            let count = usize::from(*count);
            table.offsets[length as usize] = first as i32 - code as i32;
            for &symbol in &spec.symbols[first..first + count] {
                if code >= 1 << length {
                    return Err(BROKEN);
                }
                if length <= LOOKUP_BITS {
                    let at = (code << (LOOKUP_BITS - length)) as usize;
                    table.fast[at..at + (1 << (LOOKUP_BITS - length))].fill(class.entry(length, symbol));
                }
                code += 1;
            }
            first += count;
            table.limits[length as usize] = code << (16 - length);
            code <<= 1;
        }
        Ok(table)
    }

    /// Returns the entry of the code at the top of `reservoir`, whose first 16 bits must be valid.
    #[inline(always)]
    pub(crate) fn find(&self, reservoir: u64) -> CodeEntry {
        let entry = self.fast[(reservoir >> (64 - LOOKUP_BITS)) as usize];
        if entry != CodeEntry::NONE { entry } else { self.find_long(reservoir) }
    }

    /// Finds a code that is longer than the index. Bits that are not a code advance to a position where no block can
    /// end.
    #[cold]
    #[inline(never)]
    fn find_long(&self, reservoir: u64) -> CodeEntry {
        let bits = (reservoir >> 48) as u32;
        for length in LOOKUP_BITS + 1..=16 {
            if bits < self.limits[length as usize] {
                let at = self.offsets[length as usize] + (bits >> (16 - length)) as i32;
                return self.class.entry(length, self.symbols[at as usize & 255]);
            }
        }
        NO_CODE
    }
}

/// The entry for bits that are not a code. It advances further than any code.
const NO_CODE: CodeEntry = CodeEntry(16 | 255 << 8 | 16 << 16 | 63 << 24);
/// Length of the longest value in pictures of 8 bits.
const VALUE_BITS: u32 = 11;
/// Length of the longest pair, with its values.
pub(crate) const PAIR_SYMBOLS_BITS: u32 = PAIR_BITS + VALUE_BITS;
/// Length of the longest code with its value.
pub(crate) const SYMBOL_BITS: u32 = 16 + VALUE_BITS;

impl SymbolClass {
    fn entry(self, length: u32, symbol: u8) -> CodeEntry {
        let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        match self {
            Self::Dc if u32::from(symbol) > VALUE_BITS => NO_CODE,
            Self::Dc => CodeEntry::new(length, u32::from(symbol), 1),
            Self::Ac | Self::AcFirst if size > VALUE_BITS => NO_CODE,
            Self::AcRefinement if size > 1 => NO_CODE,
            Self::Ac if size == 0 && run < 15 => CodeEntry::new(length, 0, END_OF_BLOCK),
            Self::AcFirst | Self::AcRefinement if size == 0 && run < 15 => {
                CodeEntry::new(length, run as u32, END_OF_BLOCK)
            }
            Self::Ac | Self::AcFirst | Self::AcRefinement => CodeEntry::new(length, size, run + 1),
        }
    }
}

/// Returns the first symbol of each index, for an index of `log2(SIZE)` bits.
fn singles<const SIZE: usize>(spec: HuffmanSpec<'_>) -> [CodeEntry; SIZE] {
    let bits = SIZE.ilog2();
    let mut table = [CodeEntry::NONE; SIZE];
    let (mut code, mut first) = (0u32, 0usize);
    for (length, count) in (1..=bits).zip(spec.counts) {
        for &symbol in &spec.symbols[first..first + usize::from(*count)] {
            let at = (code << (bits - length)) as usize;
            table[at..at + (1 << (bits - length))].fill(SymbolClass::Ac.entry(length, symbol));
            code += 1;
        }
        first += usize::from(*count);
        code <<= 1;
    }
    table
}

impl Pair {
    const NONE: Self = Self(255 << 16);

    fn new(first: CodeEntry, second: Option<CodeEntry>) -> Self {
        let size = |entry: CodeEntry| entry.bits() - entry.code_bits();
        let (bits, ahead) = second.map_or((0, 0), |second| (second.bits(), second.ahead()));
        let to_top = second.map_or(0, |second| first.bits() + second.code_bits());
        let to_bottom = second.map_or(0, |second| (64 - size(second)) & 63);
        let bytes = [
            first.bits() + bits,
            first.ahead() as u32,
            (first.ahead() + ahead) as u32,
            first.code_bits(),
            (64 - size(first)) & 63,
            to_top,
            to_bottom,
            0,
        ];
        Self(u64::from_le_bytes(bytes.map(|byte| byte as u8)))
    }

    /// Returns the number of bits of all codes and values.
    #[inline(always)]
    pub(crate) fn bits(self) -> u32 {
        (self.0 & 63) as u32
    }

    /// Returns the number of coefficients that the first symbol advances.
    #[inline(always)]
    pub(crate) fn ahead_first(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }

    /// Returns the number of coefficients that all symbols advance.
    #[inline(always)]
    pub(crate) fn ahead(self) -> usize {
        (self.0 >> 16 & 0xff) as usize
    }

    /// Returns the value of the first symbol.
    #[inline(always)]
    pub(crate) fn first(self, reservoir: u64) -> i16 {
        value(reservoir << (self.0 >> 24 & 63), self.0 >> 32)
    }

    /// Returns the value of the second symbol, or any number if there is none.
    #[inline(always)]
    pub(crate) fn second(self, reservoir: u64) -> i16 {
        value(reservoir << (self.0 >> 40 & 63), self.0 >> 48)
    }
}

/// Returns the value at the top of `bits`, which `shift` moves to the bottom. A value whose first bit is 0 is negative:
/// the negated complement of its bits.
#[inline(always)]
fn value(bits: u64, shift: u64) -> i16 {
    let negative = !(bits as i64 >> 63);
    let magnitude = (bits ^ negative as u64) >> (shift & 63);
    (magnitude as i16 ^ negative as i16).wrapping_sub(negative as i16)
}

impl Pairs {
    pub(crate) fn new(spec: HuffmanSpec<'_>) -> Self {
        let singles = singles::<{ 1 << PAIR_BITS }>(spec);
        let mut table = Box::new([Pair::NONE; 1 << PAIR_BITS]);
        for (index, pair) in table.iter_mut().enumerate() {
            let first = singles[index];
            // A symbol without a value must store a zero, which a pair cannot; only the end of a block stores nothing.
            if first == CodeEntry::NONE || (first.bits() == first.code_bits() && first.ahead() != END_OF_BLOCK) {
                continue;
            }
            let second = singles[(index << first.bits().min(PAIR_BITS)) & ((1 << PAIR_BITS) - 1)];
            let has_value = second.bits() > second.code_bits() || second.ahead() == END_OF_BLOCK;
            let is_known = second != CodeEntry::NONE && first.bits() + second.code_bits() <= PAIR_BITS;
            let is_pair = is_known && has_value && first.ahead() <= LAST;
            *pair = Pair::new(first, is_pair.then_some(second));
        }
        Self(table)
    }

    /// Returns the symbols at the top of `reservoir`.
    #[inline(always)]
    pub(crate) fn find(&self, reservoir: u64) -> Pair {
        self.0[(reservoir >> (64 - PAIR_BITS)) as usize]
    }
}

impl Skip {
    pub(crate) fn new(spec: HuffmanSpec<'_>) -> Self {
        let singles = singles::<{ 1 << SKIP_BITS }>(spec);
        let mut table = Box::new([0; 1 << SKIP_BITS]);
        for (index, entry) in table.iter_mut().enumerate() {
            let (mut bits, mut ahead) = (0, 0);
            loop {
                let next = singles[(index << bits) & ((1 << SKIP_BITS) - 1)];
                let length = next.code_bits();
                // Stop at a code that needs bits beyond the index, or that advances past the coefficients of a block.
                let is_known = next != CodeEntry::NONE && bits + length <= SKIP_BITS;
                if !is_known || (next.ahead() < END_OF_BLOCK && ahead + next.ahead() > LAST) {
                    break;
                }
                bits += next.bits();
                ahead += next.ahead();
                if ahead > LAST || bits >= SKIP_BITS {
                    break;
                }
            }
            *entry = (bits | (ahead as u32) << 6) as u16;
        }
        Self(table)
    }

    /// Returns the bits and the coefficients of the symbols at the top of `reservoir`; 0 bits when its first code is a
    /// long one.
    #[inline(always)]
    pub(crate) fn find(&self, reservoir: u64) -> (u32, usize) {
        let entry = self.0[(reservoir >> (64 - SKIP_BITS)) as usize];
        (u32::from(entry & 63), usize::from(entry >> 6))
    }
}
