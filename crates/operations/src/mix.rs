//! Mixes the values of two samples: adds them up with weights, or replaces a part of one by the same part of the other.

use half::{bf16, f16, slice::HalfFloatSliceExt};
use spdl_types::DType;

use crate::wide::wide;

/// The shape of the values that are mixed: the rows of a picture, or one row of other numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MixedValues {
    /// The type of the values: a float type, or u8.
    pub dtype: DType,
    /// Values of a row.
    pub row_values: usize,
    /// Rows of a plane. A picture with planar channels has a plane for each channel.
    pub rows: usize,
}

/// What a sample takes of another one.
#[derive(Clone, Debug, PartialEq)]
pub enum MixShare {
    /// Nothing.
    Nothing,
    /// A sum, in which the sample's own values have this weight `w`, and the other sample's have `1 - w`.
    Sum(f32),
    /// The values in these rows of each plane, and at these places in them.
    Part {
        /// Half-open range of rows.
        rows: [usize; 2],
        /// Half-open range of values.
        values: [usize; 2],
    },
}

/// Mixes two samples with each other. Both take the values that the other had before the call.
///
/// # Panics
/// If the samples differ in length, do not consist of whole planes, or a part lies outside a plane.
pub fn mix(of: MixedValues, [first, second]: [&mut [u8]; 2], taken: &[MixShare; 2], kept: &mut Vec<u8>) {
    assert_eq!(first.len(), second.len(), "bytes of two samples");
    let row_bytes = of.row_values * of.dtype.bytes();
    assert!(first.len().is_multiple_of(row_bytes * of.rows), "{} bytes in planes of {of:?}", first.len());
    let rows = first.chunks_exact_mut(row_bytes).zip(second.chunks_exact_mut(row_bytes));
    for (number, (first, second)) in rows.enumerate() {
        let row = number % of.rows;
        kept.clear();
        kept.extend_from_slice(first);
        of.take(row, first, second, &taken[0]);
        of.take(row, second, kept, &taken[1]);
    }
}

impl MixedValues {
    fn take(&self, row: usize, own: &mut [u8], other: &[u8], taken: &MixShare) {
        match taken {
            MixShare::Nothing => {}
            MixShare::Sum(weight) => sum(self.dtype, own, other, *weight),
            MixShare::Part { rows, values } => {
                if (rows[0]..rows[1]).contains(&row) {
                    let [start, end] = values.map(|value| value * self.dtype.bytes());
                    own[start..end].copy_from_slice(&other[start..end]);
                }
            }
        }
    }
}

fn sum(dtype: DType, own: &mut [u8], other: &[u8], weight: f32) {
    match dtype {
        DType::U8 => sum_bytes(own, other, weight),
        DType::F32 => sum_singles(own, other, weight),
        DType::F64 => sum_doubles(own, other, f64::from(weight)),
        DType::F16 => sum_halves(own, other, weight, f16::from_le_bytes, f16::to_le_bytes),
        DType::Bf16 => sum_halves(own, other, weight, bf16::from_le_bytes, bf16::to_le_bytes),
        _ => unreachable!("a valid job mixes no values of type {dtype:?}"),
    }
}

wide! {
    /// Rounds to the nearest level; the weight is a multiple of 2^-16.
    fn sum_bytes(own: &mut [u8], other: &[u8], weight: f32) {
        let weight = (weight * 65_536.0) as u32;
        for (own, other) in own.iter_mut().zip(other) {
            *own = ((u32::from(*own) * weight + u32::from(*other) * (65_536 - weight) + 32_768) >> 16) as u8;
        }
    }
}

wide! {
    fn sum_singles(own: &mut [u8], other: &[u8], weight: f32) {
        for (own, other) in own.as_chunks_mut().0.iter_mut().zip(other.as_chunks().0) {
            *own = (f32::from_le_bytes(*own) * weight + f32::from_le_bytes(*other) * (1.0 - weight)).to_le_bytes();
        }
    }
}

wide! {
    fn sum_doubles(own: &mut [u8], other: &[u8], weight: f64) {
        for (own, other) in own.as_chunks_mut().0.iter_mut().zip(other.as_chunks().0) {
            *own = (f64::from_le_bytes(*own) * weight + f64::from_le_bytes(*other) * (1.0 - weight)).to_le_bytes();
        }
    }
}

/// Values of half precision that are converted at a time.
const RUN: usize = 256;

fn sum_halves<T: Copy + Default>(
    own: &mut [u8],
    other: &[u8],
    weight: f32,
    read: fn([u8; 2]) -> T,
    write: fn(T) -> [u8; 2],
) where
    [T]: HalfFloatSliceExt,
{
    for (own, other) in own.chunks_mut(2 * RUN).zip(other.chunks(2 * RUN)) {
        let count = own.len() / 2;
        let mut halves = [T::default(); RUN];
        let mut singles = [[0.0; RUN]; 2];
        for (singles, bytes) in singles.iter_mut().zip([&*own, other]) {
            halves.iter_mut().zip(bytes.as_chunks().0).for_each(|(half, bytes)| *half = read(*bytes));
            halves[..count].convert_to_f32_slice(&mut singles[..count]);
        }
        let [sums, others] = &mut singles;
        sums.iter_mut().zip(others).for_each(|(sum, other)| *sum = *sum * weight + *other * (1.0 - weight));
        halves[..count].convert_from_f32_slice(&sums[..count]);
        own.as_chunks_mut().0.iter_mut().zip(halves).for_each(|(bytes, half)| *bytes = write(half));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of two samples of 2 planes of 3 rows of 300 values, and what becomes of the first.
    fn mixed<const N: usize>(
        dtype: DType,
        write: impl Fn(f64) -> [u8; N],
        taken: [MixShare; 2],
    ) -> [[Vec<[u8; N]>; 2]; 2] {
        let of = MixedValues { dtype, row_values: 300, rows: 3 };
        let values = |step: usize| (0..1800).map(|at| write((at * step % 251) as f64)).collect::<Vec<_>>();
        let before = [values(7), values(31)];
        let [mut first, mut second] = before.clone();
        mix(of, [first.as_flattened_mut(), second.as_flattened_mut()], &taken, &mut vec![1, 2, 3]);
        [before, [first, second]]
    }

    #[test]
    fn sums_are_those_of_torchvision_s_mixup() {
        // `output = inpt.roll(1, 0).mul_(1.0 - lam).add_(inpt.mul(lam))`
        let lam = [0.25_f32, 52_429.0 / 65_536.0];
        let taken = lam.map(MixShare::Sum);
        let [before, after] = mixed(DType::F32, |value| ((value as f32) / 251.0).to_le_bytes(), taken.clone());
        for at in 0..1800 {
            let [a, b] = [0, 1].map(|sample| f32::from_le_bytes(before[sample][at]));
            assert_eq!(f32::from_le_bytes(after[0][at]), b * (1.0 - lam[0]) + a * lam[0]);
            assert_eq!(f32::from_le_bytes(after[1][at]), a * (1.0 - lam[1]) + b * lam[1]);
        }
        let [before, after] = mixed(DType::U8, |value| [value as u8], taken.clone());
        for at in 0..1800 {
            let [a, b] = [0, 1].map(|sample| f64::from(before[sample][at][0]));
            let expected = [(a, b, lam[0]), (b, a, lam[1])].map(|(own, other, lam)| {
                let lam = f64::from(lam);
                (own * lam + other * (1.0 - lam) + 0.5).floor() as u8
            });
            assert_eq!([after[0][at][0], after[1][at][0]], expected, "{a} and {b}");
        }
        let [before, after] = mixed(DType::F16, |value| f16::from_f64(value / 251.0).to_le_bytes(), taken.clone());
        for at in 0..1800 {
            let [a, b] = [0, 1].map(|sample| f16::from_le_bytes(before[sample][at]).to_f32());
            assert_eq!(f16::from_le_bytes(after[0][at]), f16::from_f32(a * lam[0] + b * (1.0 - lam[0])));
        }
        let [before, after] = mixed(DType::Bf16, |value| bf16::from_f64(value).to_le_bytes(), taken.clone());
        for at in 0..1800 {
            let [a, b] = [0, 1].map(|sample| bf16::from_le_bytes(before[sample][at]).to_f32());
            assert_eq!(bf16::from_le_bytes(after[1][at]), bf16::from_f32(b * lam[1] + a * (1.0 - lam[1])));
        }
        let [before, after] = mixed(DType::F64, f64::to_le_bytes, taken);
        for at in 0..1800 {
            let [a, b] = [0, 1].map(|sample| f64::from_le_bytes(before[sample][at]));
            assert_eq!(f64::from_le_bytes(after[0][at]), a * 0.25 + b * 0.75);
        }
    }

    #[test]
    fn parts_are_those_of_the_other_sample_before_it_was_mixed() {
        let part = |rows, values| MixShare::Part { rows, values };
        for dtype in [DType::U8, DType::F32] {
            let taken = [part([0, 2], [10, 200]), part([1, 3], [100, 300])];
            let bytes = |value: f64| [value as u8; 4];
            let [before, after] = match dtype {
                DType::U8 => {
                    mixed(DType::U8, |value| [value as u8], taken).map(|both| both.map(|values| values.concat()))
                }
                _ => mixed(DType::F32, bytes, taken).map(|both| both.map(|values| values.concat())),
            };
            let of_value = dtype.bytes();
            for at in 0..1800 {
                let (row, value) = (at / 300 % 3, at % 300);
                let from = |is_other: bool, sample: usize| {
                    &before[if is_other { 1 - sample } else { sample }][at * of_value..][..of_value]
                };
                assert_eq!(&after[0][at * of_value..][..of_value], from(row < 2 && (10..200).contains(&value), 0));
                assert_eq!(&after[1][at * of_value..][..of_value], from(row > 0 && value >= 100, 1));
            }
        }
    }

    #[test]
    fn what_takes_nothing_stays_and_whole_weights_change_nothing() {
        for taken in [
            [MixShare::Nothing, MixShare::Sum(1.0)],
            [MixShare::Sum(1.0), MixShare::Part { rows: [1, 1], values: [0, 300] }],
        ] {
            let [before, after] = mixed(DType::U8, |value| [value as u8], taken);
            assert!(before == after);
        }
        let [before, after] = mixed(DType::U8, |value| [value as u8], [MixShare::Sum(0.0), MixShare::Nothing]);
        assert!(after[0] == before[1] && after[1] == before[1]);
    }
}
