//! Converts numbers that are stored in another form than the field's: whole numbers of a narrower type, decimals, and
//! times of 96 bits. If the field's type cannot hold a number, the row has no value; it never gets another number.

use parquet::data_type::Int96;
use spdl_types::DType;

use super::values::ValueData;

/// Creates the data of whole numbers of the type `dtype`, which `to` returns for the stored values. A row has no value
/// if `to` returns `None` or the type cannot hold the number.
pub(super) fn integers<T>(values: &[T], dtype: DType, to: impl Fn(&T) -> Option<i64>) -> ValueData {
    let (width, least, most) = range_of_type(dtype);
    let (mut data, mut unfit) = (Vec::with_capacity(values.len() * width), Vec::new());
    for (number, value) in values.iter().enumerate() {
        let value = to(value).filter(|value| (least..=most).contains(value));
        if value.is_none() {
            unfit.push(number);
        }
        // A narrower number is the lower bytes of a wider one, signed or not.
        data.extend_from_slice(&value.unwrap_or(0).to_le_bytes()[..width]);
    }
    ValueData::of_numbers(data, unfit)
}

/// Creates the data of decimals with `digits` digits after the point: integers if `digits` is 0, otherwise floats. `to`
/// returns all digits as a whole number.
pub(super) fn decimals<T>(values: &[T], digits: u8, to: impl Fn(&T) -> Option<i128>) -> ValueData {
    if digits == 0 {
        return integers(values, DType::I64, |value| i64::try_from(to(value)?).ok());
    }
    let mut unfit = Vec::new();
    let mut float = |(number, value): (usize, &T)| match to(value) {
        Some(unscaled) => decimal(unscaled, digits),
        None => {
            unfit.push(number);
            0.0
        }
    };
    let floats: Vec<_> = values.iter().enumerate().map(|value| float(value).to_le_bytes()).collect();
    ValueData::of_numbers(floats.into_flattened(), unfit)
}

/// Returns a time as nanoseconds since 1970, which 64 bits hold for the years 1677 to 2262. The time is stored as
/// nanoseconds of a day, and the number of the day, counted from -4713.
pub(super) fn nanoseconds(time: &Int96) -> Option<i64> {
    const DAY_OF_1970: i128 = 2_440_588;
    const NANOSECONDS_OF_DAY: i128 = 86_400_000_000_000;
    let &[lower, upper, day] = time.data() else { return None };
    let of_day = i128::from((u64::from(upper) << 32 | u64::from(lower)).cast_signed());
    let days = i128::from(day.cast_signed()) - DAY_OF_1970;
    i64::try_from(days * NANOSECONDS_OF_DAY + of_day).ok()
}

/// Returns the float that is nearest to a decimal. `unscaled` has all digits of the decimal, `digits` of them after the
/// point.
fn decimal(unscaled: i128, digits: u8) -> f64 {
    const EXACT: i128 = 1 << 53;
    // Both are floats without rounding, so that their quotient is the nearest.
    if (-EXACT..=EXACT).contains(&unscaled) && digits <= 22 {
        return unscaled as f64 / 10_f64.powi(digits.into());
    }
    format!("{unscaled}e-{digits}").parse().expect("a number")
}

/// Returns a whole number that is stored in these bytes, the highest first; `None` if it has more than 128 bits.
pub(super) fn whole_number(bytes: &[u8]) -> Option<i128> {
    let sign = if bytes.first().is_some_and(|byte| byte.cast_signed() < 0) { 0xff } else { 0 };
    let (more, last) = bytes.split_at(bytes.len().saturating_sub(size_of::<i128>()));
    let mut number = [sign; size_of::<i128>()];
    number[size_of::<i128>() - last.len()..].copy_from_slice(last);
    let number = i128::from_be_bytes(number);
    let is_whole = more.iter().all(|byte| *byte == sign) && (number < 0) == (sign != 0);
    is_whole.then_some(number)
}

/// Returns the bytes of a whole number of this type, and the least and the greatest.
const fn range_of_type(dtype: DType) -> (usize, i64, i64) {
    let (least, most) = match dtype {
        DType::U8 => (0, u8::MAX as i64),
        DType::I8 => (i8::MIN as i64, i8::MAX as i64),
        DType::U16 => (0, u16::MAX as i64),
        DType::I16 => (i16::MIN as i64, i16::MAX as i64),
        DType::U32 => (0, u32::MAX as i64),
        DType::I32 => (i32::MIN as i64, i32::MAX as i64),
        _ => (i64::MIN, i64::MAX),
    };
    (dtype.bytes(), least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_the_nearest_floats_or_whole_numbers() {
        for (unscaled, digits, expected) in [
            (1234_i128, 2, 12.34),
            (-1, 1, -0.1),
            (i128::from(u64::MAX), 3, 18_446_744_073_709_551.615),
            (12_345_678_901_234_567_890_123_456_789, 20, 123_456_789.012_345_67),
            (1, 38, 1e-38),
        ] {
            assert_eq!(decimal(unscaled, digits), expected);
        }
        assert_eq!(whole_number(&[0xff]), Some(-1));
        assert_eq!(whole_number(&[0, 0xff]), Some(255));
        assert_eq!(whole_number(&[]), Some(0));
        assert_eq!(whole_number(&i128::MIN.to_be_bytes()), Some(i128::MIN));
        assert_eq!(whole_number(&[&[0xff; 4][..], &i128::MIN.to_be_bytes()].concat()), Some(i128::MIN));
        assert_eq!(whole_number(&[&[0][..], &[0xff; 16]].concat()), None);
        assert_eq!(whole_number(&[1; 17]), None);
    }
}
