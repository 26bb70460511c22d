//! The bands of coefficients, the contexts of their codes and the classes of components.

use crate::header::NATURAL;

/// The coefficients of one range of frequencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Band {
    Dc,
    /// The other three of the two by two lowest frequencies.
    Low,
    /// The other 12 of the four by four lowest frequencies.
    Middle,
    /// All others.
    High,
}

/// Luma, or both kinds of chroma.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Luma,
    Chroma,
}

/// The bands of each class, in the order in which a packed picture stores them: those that a smaller scale needs come
/// first.
pub(crate) const PARTS: [(Band, Class); 8] = [
    (Band::Dc, Class::Luma),
    (Band::Dc, Class::Chroma),
    (Band::Low, Class::Luma),
    (Band::Low, Class::Chroma),
    (Band::Middle, Class::Chroma),
    (Band::Middle, Class::Luma),
    (Band::High, Class::Chroma),
    (Band::High, Class::Luma),
];

/// The index in [`PARTS`].
pub(crate) const fn part(band: Band, class: Class) -> usize {
    match (band, class) {
        (Band::Dc, Class::Luma) => 0,
        (Band::Dc, Class::Chroma) => 1,
        (Band::Low, Class::Luma) => 2,
        (Band::Low, Class::Chroma) => 3,
        (Band::Middle, Class::Chroma) => 4,
        (Band::Middle, Class::Luma) => 5,
        (Band::High, Class::Chroma) => 6,
        (Band::High, Class::Luma) => 7,
    }
}

/// The number of coefficients of the middle and the high band.
pub(crate) const MIDDLE: usize = 12;
pub(crate) const HIGH: usize = 48;
/// The places of the low band in its block, row by row.
pub(crate) const LOW: [u8; 3] = [1, 8, 9];

/// The symbol that ends a band of a block.
pub(crate) const END: u8 = 0;
/// The symbol for 16 zeros.
pub(crate) const ZEROS: u8 = 0xf0;
/// The symbol before a symbol that has no code.
pub(crate) const ESCAPE: u8 = 0x0f;
/// The most bits of a coefficient that can be packed, and of a difference of DC coefficients.
pub(crate) const VALUE_BITS: u32 = 11;
pub(crate) const DIFFERENCE_BITS: u32 = 13;

/// The codes that a class uses: DC; the first, the second (8 contexts) and the third (8) of the low band; the middle
/// band (6) and the high band (4).
pub(crate) const SLOTS: usize = 28;
pub(crate) const DC_SLOT: usize = 0;
pub(crate) const FIRST_SLOT: usize = 1;
pub(crate) const SECOND_SLOT: usize = 2;
pub(crate) const THIRD_SLOT: usize = 10;
pub(crate) const MIDDLE_SLOT: usize = 18;
pub(crate) const HIGH_SLOT: usize = 24;

/// Returns the context of a coefficient of the low band, from the bits of the low coefficients before it in the block.
#[inline(always)]
pub(crate) const fn low_context(bits: u32) -> usize {
    if bits < 7 { bits as usize } else { 7 }
}

/// Returns the context of a block's middle band, from the bits of its low band.
#[inline(always)]
pub(crate) fn middle_context(low_bits: u32) -> usize {
    const OF: [u8; 64] = {
        let mut of = [5; 64];
        let (mut bits, ends) = (0, [2, 4, 6, 8, 11]);
        while bits < 12 {
            let mut context = 0;
            while bits > ends[context] {
                context += 1;
            }
            of[bits] = context as u8;
            bits += 1;
        }
        of
    };
    usize::from(OF[(low_bits & 63) as usize])
}

/// Returns the context of a block's high band, from the number of non-zero coefficients in its middle band.
#[inline(always)]
pub(crate) fn high_context(middle_values: u32) -> usize {
    const OF: [u8; 16] = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3];
    usize::from(OF[(middle_values & 15) as usize])
}

/// The places of the middle or the high band in their block, row by row, in the order of the standard's zigzag.
pub(crate) const fn places<const COUNT: usize>(band: Band) -> [u8; COUNT] {
    let (mut places, mut count, mut k) = ([0; COUNT], 0, 1);
    while k < 64 {
        let (row, column) = (NATURAL[k] / 8, NATURAL[k] % 8);
        let is_middle = row < 4 && column < 4 && (row > 1 || column > 1);
        let is_high = row > 3 || column > 3;
        if (matches!(band, Band::Middle) && is_middle) || (matches!(band, Band::High) && is_high) {
            places[count] = NATURAL[k];
            count += 1;
        }
        k += 1;
    }
    assert!(count == COUNT);
    places
}

/// The number of bits of a value without its sign.
#[inline(always)]
pub(crate) const fn bits_of(value: i32) -> u32 {
    32 - value.unsigned_abs().leading_zeros()
}

/// Returns a bit for each coefficient that is not 0, the lowest for the first.
#[inline(always)]
pub(crate) fn values_of(block: &[i16; 64]) -> u64 {
    // The product moves the lowest bit of each of eight bytes to the topmost byte.
    const TO_TOP: u64 = 0x0102_0408_1020_4080;
    let bytes = block.map(|value| u8::from(value != 0));
    let eights = bytes.as_chunks::<8>().0.iter().rev();
    eights.fold(0, |all, eight| all << 8 | u64::from_le_bytes(*eight).wrapping_mul(TO_TOP) >> 56)
}
