//! Writes numbers into places of 4 or 8 bytes, little-endian: the loops have no branch for each place, so that the compiler makes vector
//! instructions of them.

/// Writes a number into all places of `width` bytes.
///
/// # Panics
/// If `width` is not 4 or 8.
pub fn fill_places(width: usize, number: i64, places: &mut [u8]) {
    match width {
        4 => places.as_chunks_mut::<4>().0.fill((number as i32).to_le_bytes()),
        8 => places.as_chunks_mut::<8>().0.fill(number.to_le_bytes()),
        _ => panic!("a number of {width} bytes"),
    }
}

/// Writes 0, 1, 2 ... into the places of `width` bytes.
///
/// # Panics
/// If `width` is not 4 or 8.
pub fn count_places(width: usize, places: &mut [u8]) {
    // A range without an end is checked for overflow at each number, where overflow is checked at all: that makes no vectors.
    match width {
        4 => {
            let places = places.as_chunks_mut::<4>().0;
            (0..places.len() as i32).zip(places).for_each(|(number, place)| *place = number.to_le_bytes());
        }
        8 => {
            let places = places.as_chunks_mut::<8>().0;
            (0..places.len() as i64).zip(places).for_each(|(number, place)| *place = number.to_le_bytes());
        }
        _ => panic!("a number of {width} bytes"),
    }
}

/// Copies numbers of `width` bytes to as many places of `to` bytes.
///
/// # Panics
/// If a width is not 4 or 8, or there are fewer or more places.
pub fn copy_places(width: usize, numbers: &[u8], to: usize, places: &mut [u8]) {
    match (width, to) {
        (4, 8) => {
            let numbers = numbers.as_chunks::<4>().0;
            let places = places.as_chunks_mut::<8>().0;
            assert_eq!(numbers.len(), places.len(), "as many places as numbers");
            for (number, place) in numbers.iter().zip(places) {
                *place = i64::from(i32::from_le_bytes(*number)).to_le_bytes();
            }
        }
        (8, 4) => {
            let numbers = numbers.as_chunks::<8>().0;
            let places = places.as_chunks_mut::<4>().0;
            assert_eq!(numbers.len(), places.len(), "as many places as numbers");
            for (number, place) in numbers.iter().zip(places) {
                *place = (i64::from_le_bytes(*number) as i32).to_le_bytes();
            }
        }
        (4, 4) | (8, 8) => places.copy_from_slice(numbers),
        _ => panic!("numbers of {width} bytes to places of {to}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns numbers as places of `width` bytes have them.
    fn bytes(width: usize, numbers: impl IntoIterator<Item = i64>) -> Vec<u8> {
        numbers.into_iter().flat_map(|number| number.to_le_bytes().into_iter().take(width)).collect()
    }

    #[test]
    fn places_hold_what_is_written_for_any_number_of_them() {
        for count in [0, 1, 3, 8, 33, 100] {
            let numbers = || (0..count as i64).map(|number| number * 1000 - 7);
            for width in [4, 8] {
                let mut places = vec![0xaa; count * width];
                fill_places(width, -100, &mut places);
                assert_eq!(places, bytes(width, vec![-100; count]));
                count_places(width, &mut places);
                assert_eq!(places, bytes(width, 0..count as i64));
                for from in [4, 8] {
                    copy_places(from, &bytes(from, numbers()), width, &mut places);
                    assert_eq!(places, bytes(width, numbers()), "{count} from {from} to {width} bytes");
                }
            }
        }
    }
}
