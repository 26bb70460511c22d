//! The transform from coefficients to samples, at full or reduced size. It uses integer arithmetic that wraps on
//! overflow, which only hostile pictures cause, so that all implementations give the same bytes.
//!
//! The full size is the "slow" integer transform of the Independent JPEG Group, after Loeffler, Ligtenberg and Moschytz
//! (ICASSP 1989): it gives the same samples as libjpeg and its descendants. The reduced sizes transform the lowest
//! frequencies with fewer points.

/// The number of fraction bits of the constants.
const CONSTANT_BITS: u32 = 13;
/// The number of fraction bits that are kept between the two passes.
const BETWEEN_BITS: u32 = 2;

/// The factors from the even inputs 2 and 6 to the two terms of the even part: round(2^13 * ...).
pub(crate) const EVEN: [[i16; 2]; 2] = [[10_703, 4433], [4433, -10_704]];
/// The factors from the odd inputs 1, 3, 5 and 7 to the odd part of outputs 0, 1, 2 and 3.
pub(crate) const ODD: [[i16; 4]; 4] = [
    [11_363, 9633, 6437, 2260],
    [9633, -2259, -11_362, -6436],
    [6437, -11_362, 2261, 9633],
    [2260, -6436, 9633, -11_363],
];

/// The shift after the first pass.
pub(crate) const FIRST_SHIFT: u32 = CONSTANT_BITS - BETWEEN_BITS;
/// The shift after the second pass, including the factor of 8 by which the two passes scale.
pub(crate) const SECOND_SHIFT: u32 = CONSTANT_BITS + BETWEEN_BITS + 3;

/// Where the samples of a block go: column `i` of the transform's second pass to `start + i * stride`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoefficientPlace {
    pub(crate) start: usize,
    pub(crate) stride: usize,
}

fn dequantised(coefficients: &[i16; 64], quant: &[i16; 64], row: usize, column: usize) -> i32 {
    i32::from(coefficients[row * 8 + column].wrapping_mul(quant[row * 8 + column]))
}

fn narrow(value: i32, shift: u32) -> i16 {
    (value.wrapping_add(1 << (shift - 1)) >> shift).clamp(-32768, 32767) as i16
}

fn sample(value: i32) -> u8 {
    (i32::from(narrow(value, SECOND_SHIFT)).clamp(-128, 127) + 128) as u8
}

/// One pass over eight values.
fn pass8(input: [i32; 8]) -> [i32; 8] {
    let scaled = |value: i32, by: i16| value.wrapping_mul(i32::from(by));
    let sum = scaled(input[0], 1 << CONSTANT_BITS).wrapping_add(scaled(input[4], 1 << CONSTANT_BITS));
    let difference = scaled(input[0], 1 << CONSTANT_BITS).wrapping_sub(scaled(input[4], 1 << CONSTANT_BITS));
    let [outer, inner] = EVEN.map(|[two, six]| scaled(input[2], two).wrapping_add(scaled(input[6], six)));
    let even = [
        sum.wrapping_add(outer),
        difference.wrapping_add(inner),
        difference.wrapping_sub(inner),
        sum.wrapping_sub(outer),
    ];
    let mut out = [0; 8];
    for (at, (even, by)) in even.into_iter().zip(ODD).enumerate() {
        let odd = (0..4).fold(0i32, |sum, n| sum.wrapping_add(scaled(input[2 * n + 1], by[n])));
        out[at] = even.wrapping_add(odd);
        out[7 - at] = even.wrapping_sub(odd);
    }
    out
}

/// One pass over the four lowest frequencies.
fn pass4(input: [i32; 4]) -> [i32; 4] {
    let scaled = |value: i32, by: i16| value.wrapping_mul(i32::from(by));
    let sum = scaled(input[0], 1 << CONSTANT_BITS).wrapping_add(scaled(input[2], 1 << CONSTANT_BITS));
    let difference = scaled(input[0], 1 << CONSTANT_BITS).wrapping_sub(scaled(input[2], 1 << CONSTANT_BITS));
    let [outer, inner] = EVEN.map(|[one, three]| scaled(input[1], one).wrapping_add(scaled(input[3], three)));
    [sum.wrapping_add(outer), difference.wrapping_add(inner), difference.wrapping_sub(inner), sum.wrapping_sub(outer)]
}

/// Computes eight by eight samples.
pub(crate) fn full(coefficients: &[i16; 64], quant: &[i16; 64], out: &mut [u8], place: CoefficientPlace) {
    let mut between = [[0i16; 8]; 8];
    for column in 0..8 {
        let input = std::array::from_fn(|row| dequantised(coefficients, quant, row, column));
        for (row, value) in between.iter_mut().zip(pass8(input)) {
            row[column] = narrow(value, FIRST_SHIFT);
        }
    }
    for (row, input) in between.iter().enumerate() {
        for (column, value) in pass8(input.map(i32::from)).into_iter().enumerate() {
            out[place.start + column * place.stride + row] = sample(value);
        }
    }
}

/// Computes four by four samples.
pub(crate) fn half(coefficients: &[i16; 64], quant: &[i16; 64], out: &mut [u8], place: CoefficientPlace) {
    half_from(|row, column| dequantised(coefficients, quant, row, column), out, place);
}

/// Computes four by four samples from as many coefficients.
pub(crate) fn half_of_four(coefficients: &[i16; 16], quant: &[i16; 16], out: &mut [u8], place: CoefficientPlace) {
    let at =
        |row: usize, column: usize| i32::from(coefficients[row * 4 + column].wrapping_mul(quant[row * 4 + column]));
    half_from(at, out, place);
}

#[inline(always)]
fn half_from(at: impl Fn(usize, usize) -> i32, out: &mut [u8], place: CoefficientPlace) {
    let mut between = [[0i16; 4]; 4];
    for column in 0..4 {
        let input = std::array::from_fn(|row| at(row, column));
        for (row, value) in between.iter_mut().zip(pass4(input)) {
            row[column] = narrow(value, FIRST_SHIFT);
        }
    }
    for (row, input) in between.iter().enumerate() {
        for (column, value) in pass4(input.map(i32::from)).into_iter().enumerate() {
            out[place.start + column * place.stride + row] = sample(value);
        }
    }
}

/// Computes two by two samples.
pub(crate) fn quarter(coefficients: &[i16; 64], quant: &[i16; 64], out: &mut [u8], place: CoefficientPlace) {
    quarter_from(|row, column| dequantised(coefficients, quant, row, column), out, place);
}

/// Computes two by two samples from as many coefficients.
pub(crate) fn quarter_of_two(coefficients: &[i16; 4], quant: &[i16; 4], out: &mut [u8], place: CoefficientPlace) {
    let at =
        |row: usize, column: usize| i32::from(coefficients[row * 2 + column].wrapping_mul(quant[row * 2 + column]));
    quarter_from(at, out, place);
}

#[inline(always)]
fn quarter_from(at: impl Fn(usize, usize) -> i32, out: &mut [u8], place: CoefficientPlace) {
    let [low, high] = [0, 1].map(|column| [at(0, column) + at(1, column), at(0, column) - at(1, column)]);
    for row in 0..2 {
        for (column, value) in [low[row] + high[row], low[row] - high[row]].into_iter().enumerate() {
            out[place.start + column * place.stride + row] = flat(value);
        }
    }
}

/// Computes one sample.
pub(crate) fn eighth(coefficients: &[i16; 64], quant: &[i16; 64], out: &mut [u8], place: CoefficientPlace) {
    out[place.start] = eighth_of(coefficients[0], quant[0]);
}

/// Computes one sample from a DC coefficient.
#[inline(always)]
pub(crate) fn eighth_of(coefficient: i16, quant: i16) -> u8 {
    flat(i32::from(coefficient.wrapping_mul(quant)))
}

/// Returns a sample from a sum of coefficients.
#[inline(always)]
fn flat(value: i32) -> u8 {
    (((value + 4) >> 3) + 128).clamp(0, 255) as u8
}
