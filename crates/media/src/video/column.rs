//! Whole numbers that are alike, in few bytes: what each has above the least one, in units of what divides all of it.

use super::track::common_divisor;

/// The byte before numbers of variable length; before others, it is their number of bits.
const VARIABLE: u8 = 0x80;

/// Appends numbers.
pub(super) fn encode(values: &[i64], bytes: &mut Vec<u8>) {
    let least = values.iter().copied().min().unwrap_or_default();
    let above = values.iter().map(|value| value.wrapping_sub(least).cast_unsigned());
    let unit = above.clone().fold(0, common_divisor).max(1);
    let above = above.map(|above| above / unit);
    let bits = above.clone().map(|above| 64 - above.leading_zeros()).max().unwrap_or_default();
    let mut variable = Vec::new();
    above.clone().for_each(|above| encode_number(above, &mut variable));
    let packed_bytes = (values.len() * bits as usize).div_ceil(8);
    let is_packed = packed_bytes <= variable.len();
    bytes.push(if is_packed { bits.to_le_bytes()[0] } else { VARIABLE });
    encode_number(zigzag(least), bytes);
    encode_number(unit, bytes);
    if !is_packed {
        bytes.append(&mut variable);
        return;
    }
    let (mut pending, mut count) = (0_u128, 0);
    for above in above {
        pending |= u128::from(above) << count;
        count += bits;
        while count >= 8 {
            bytes.push(pending.to_le_bytes()[0]);
            pending >>= 8;
            count -= 8;
        }
    }
    if count > 0 {
        bytes.push(pending.to_le_bytes()[0]);
    }
}

/// Reads `count` numbers; `None` if they are not valid.
pub(super) fn decode(count: usize, bytes: &mut &[u8]) -> Option<Vec<i64>> {
    let bits = *bytes.split_off_first()?;
    let least = unzigzag(decode_number(bytes)?);
    let unit = decode_number(bytes)?;
    let value = |above: u64| least.checked_add_unsigned(above.checked_mul(unit)?);
    if bits == VARIABLE {
        return (0..count).map(|_| value(decode_number(bytes)?)).collect();
    }
    if bits > 64 {
        return None;
    }
    let packed = bytes.split_off(..(count * usize::from(bits)).div_ceil(8))?;
    let mask = u64::MAX.checked_shr(64 - u32::from(bits)).unwrap_or_default();
    let (mut packed, mut pending, mut left) = (packed.iter(), 0_u128, 0);
    let mut next = || {
        while left < bits {
            pending |= u128::from(*packed.next()?) << left;
            left += 8;
        }
        let above = pending & u128::from(mask);
        pending >>= bits;
        left -= bits;
        u64::try_from(above).ok()
    };
    (0..count).map(|_| value(next()?)).collect()
}

/// Appends a number in groups of 7 bits, the lowest first.
pub(crate) fn encode_number(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// Reads such a number.
pub(crate) fn decode_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for nth in 0..10 {
        let byte = *bytes.split_off_first()?;
        let group = u64::from(byte & 0x7f);
        if nth == 9 && group > 1 {
            return None;
        }
        number |= group << (7 * nth);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Returns a number for each number with a sign: near 0 they are small.
pub(super) const fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

/// Returns the number with a sign.
pub(super) const fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for values in [
            vec![],
            vec![7],
            vec![512; 100],
            vec![i64::MIN, i64::MAX, 0, -1],
            (0..1000).map(|nth| 1024 * (nth % 5) - 2048).collect(),
            (0..200).map(|nth| if nth == 77 { 1 << 40 } else { nth }).collect(),
        ] {
            let mut bytes = Vec::new();
            encode(&values, &mut bytes);
            let written = bytes.len();
            bytes.push(9);
            let mut rest = &bytes[..];
            assert_eq!(decode(values.len(), &mut rest).as_ref(), Some(&values));
            assert_eq!(rest, [9]);
            for cut in 0..written {
                assert_eq!(decode(values.len(), &mut &bytes[..cut]), None, "{values:?}");
            }
        }
    }

    #[test]
    fn equal_and_regular_numbers_take_next_to_no_bytes() {
        for (values, most) in [(vec![512; 256], 5), ((0..256).map(|nth| 512 * (nth % 4)).collect(), 4 + 64)] {
            let mut bytes = Vec::new();
            encode(&values, &mut bytes);
            assert!(bytes.len() <= most, "{} bytes", bytes.len());
        }
    }
}
