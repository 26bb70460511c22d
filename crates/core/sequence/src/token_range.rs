//! Copies ids of tokens from the type that a dataset stores to the type of a column, and checks them on the way: the
//! loops have no branch for each id, so that the compiler makes vector instructions of them.

use std::fmt;

use spdl_types::DType;

/// The ids that a column takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRange {
    /// Type of the column's elements: `i32` or `i64`.
    dtype: DType,
    vocab: Option<u32>,
}

/// An id that a column does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongToken {
    /// The id, or the error that has one beyond the range of `i64`.
    id: Result<i64, u64>,
    /// Its place among the ids, from 0.
    place: usize,
    range: TokenRange,
}

impl fmt::Display for WrongToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, place, range } = self;
        match id {
            Ok(id) => write!(f, "has id {id} at place {place}, from 0")?,
            Err(id) => write!(f, "has id {id} at place {place}, from 0")?,
        }
        match range.vocab {
            Some(vocab) => write!(f, "; `vocab` is {vocab}, so ids are from 0 to {}", vocab - 1),
            None => write!(f, ", outside the range of {}", range.dtype.name()),
        }
    }
}

/// Returns whether the elements of a type can be ids.
#[must_use]
pub const fn can_be_ids(dtype: DType) -> bool {
    use DType::{I8, I16, I32, I64, U8, U16, U32, U64};
    matches!(dtype, U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64)
}

/// Returns the elements as numbers.
macro_rules! numbers {
    ($elements:expr, $Stored:ty) => {
        $elements.as_chunks::<{ size_of::<$Stored>() }>().0.iter().map(|element| <$Stored>::from_le_bytes(*element))
    };
}

/// Notes in `$seen` whether a number is outside of a range: its sign is set then. The range is within that of the type of `$seen`, and so is
/// every number that is inside of it.
macro_rules! note_outside {
    ($seen:ident, $number:expr, $low:ident, $span:ident) => {
        // The sign of either number is set if the id is outside.
        let above = $number.wrapping_sub($low);
        $seen |= above | $span.wrapping_sub(above);
    };
}

/// Returns whether any of the elements is outside of a range.
macro_rules! any_outside {
    ($elements:expr, $range:expr, $Stored:ty as $Signed:ty) => {{
        let [low, last] = $range;
        let (low, span) = (low as $Signed, (last - low) as $Signed);
        let mut seen: $Signed = 0;
        for id in numbers!($elements, $Stored) {
            note_outside!(seen, (id as $Signed), low, span);
        }
        seen < 0
    }};
}

/// As [`any_outside`], of a range from 0 to less than the largest number of a short type without sign: eight numbers or more are compared
/// at once where four were.
macro_rules! any_above {
    ($elements:expr, $range:expr, $Stored:ty) => {{
        let last = $range[1] as $Stored;
        numbers!($elements, $Stored).fold(<$Stored>::MIN, |above, id| above | id.saturating_sub(last)) != 0
    }};
}

/// Writes the elements as another type, and returns whether any is outside of a range, if there is one.
macro_rules! copied {
    ($elements:expr, $out:expr, $range:expr, $Stored:ty as $Signed:ty => $Id:ty) => {{
        let ids = numbers!($elements, $Stored).zip($out.as_chunks_mut::<{ size_of::<$Id>() }>().0);
        match $range {
            None => {
                ids.for_each(|(id, place)| *place = (id as $Id).to_le_bytes());
                false
            }
            Some([low, last]) => {
                let (low, span) = (low as $Signed, (last - low) as $Signed);
                let mut seen: $Signed = 0;
                for (id, place) in ids {
                    note_outside!(seen, (id as $Signed), low, span);
                    *place = (id as $Id).to_le_bytes();
                }
                seen < 0
            }
        }
    }};
}

/// As [`copied`], of a range as [`any_above`] takes it.
macro_rules! copied_below {
    ($elements:expr, $out:expr, $range:expr, $Stored:ty => $Id:ty) => {{
        let ids = numbers!($elements, $Stored).zip($out.as_chunks_mut::<{ size_of::<$Id>() }>().0);
        let last = $range.map_or(<$Stored>::MAX, |[_, last]| last as $Stored);
        let mut above: $Stored = 0;
        for (id, place) in ids {
            above |= id.saturating_sub(last);
            *place = <$Id>::from(id).to_le_bytes();
        }
        above != 0
    }};
}

impl TokenRange {
    /// Returns the range of a column with elements of type `dtype`, `i32` or `i64`: ids below `vocab`, or all of the type.
    #[must_use]
    pub const fn new(dtype: DType, vocab: Option<u32>) -> Self {
        Self { dtype, vocab }
    }

    /// Returns the type of the column's elements.
    #[must_use]
    pub const fn dtype(self) -> DType {
        self.dtype
    }

    /// Returns the lowest and the last id.
    fn ends(self) -> [i64; 2] {
        match (self.vocab, self.dtype) {
            (Some(vocab), _) => [0, i64::from(vocab) - 1],
            (None, DType::I32) => [i32::MIN.into(), i32::MAX.into()],
            (None, _) => [i64::MIN, i64::MAX],
        }
    }

    /// Returns the lowest and the last id, of those that elements of type `stored` can be; `None` if the column takes all of these.
    fn ends_of(self, stored: DType) -> Option<[i64; 2]> {
        let [lowest, highest] = match stored {
            DType::U8 => [0, u8::MAX.into()],
            DType::I8 => [i8::MIN.into(), i8::MAX.into()],
            DType::U16 => [0, u16::MAX.into()],
            DType::I16 => [i16::MIN.into(), i16::MAX.into()],
            DType::U32 => [0, u32::MAX.into()],
            DType::I32 => [i32::MIN.into(), i32::MAX.into()],
            // Those above the range of `i64` are never ids.
            DType::U64 => [0, i64::MAX],
            _ => [i64::MIN, i64::MAX],
        };
        let [low, last] = self.ends();
        let takes_all = low <= lowest && highest <= last && stored != DType::U64;
        (!takes_all).then(|| [low.max(lowest), last])
    }

    /// Returns whether elements of type `stored` are bytes of the column as they are.
    #[must_use]
    pub const fn keeps(self, stored: DType) -> bool {
        match self.dtype {
            DType::I32 => matches!(stored, DType::I32 | DType::U32),
            _ => matches!(stored, DType::I64 | DType::U64),
        }
    }

    /// Checks elements of type `stored`, little-endian and a whole number of them.
    ///
    /// # Errors
    /// The first that is no id of the column.
    pub fn check(self, stored: DType, elements: &[u8]) -> Result<(), WrongToken> {
        let Some(range) = self.ends_of(stored) else { return Ok(()) };
        let is_wrong = match stored {
            DType::U8 => any_above!(elements, range, u8),
            DType::I8 => any_outside!(elements, range, i8 as i32),
            DType::U16 => any_above!(elements, range, u16),
            DType::I16 => any_outside!(elements, range, i16 as i32),
            DType::U32 => any_outside!(elements, range, u32 as i32),
            DType::I32 => any_outside!(elements, range, i32 as i32),
            DType::U64 => any_outside!(elements, range, u64 as i64),
            _ => any_outside!(elements, range, i64 as i64),
        };
        if is_wrong { Err(self.first_wrong(stored, elements)) } else { Ok(()) }
    }

    /// Copies elements of type `stored`, little-endian and a whole number of them, to as many places of the column's type.
    ///
    /// # Errors
    /// The first that is no id of the column. The places may then hold anything.
    pub fn copy(self, stored: DType, elements: &[u8], out: &mut [u8]) -> Result<(), WrongToken> {
        use DType::{I8, I16, I32, U8, U16, U32, U64};
        let range = self.ends_of(stored);
        let is_wrong = match (stored, self.dtype) {
            (U8, I32) => copied_below!(elements, out, range, u8 => i32),
            (I8, I32) => copied!(elements, out, range, i8 as i32 => i32),
            (U16, I32) => copied_below!(elements, out, range, u16 => i32),
            (I16, I32) => copied!(elements, out, range, i16 as i32 => i32),
            (U32, I32) => copied!(elements, out, range, u32 as i32 => i32),
            (I32, I32) => copied!(elements, out, range, i32 as i32 => i32),
            (U64, I32) => copied!(elements, out, range, u64 as i64 => i32),
            (_, I32) => copied!(elements, out, range, i64 as i64 => i32),
            (U8, _) => copied_below!(elements, out, range, u8 => i64),
            (I8, _) => copied!(elements, out, range, i8 as i32 => i64),
            (U16, _) => copied_below!(elements, out, range, u16 => i64),
            (I16, _) => copied!(elements, out, range, i16 as i32 => i64),
            (U32, _) => copied!(elements, out, range, u32 as i32 => i64),
            (I32, _) => copied!(elements, out, range, i32 as i32 => i64),
            (U64, _) => copied!(elements, out, range, u64 as i64 => i64),
            _ => copied!(elements, out, range, i64 as i64 => i64),
        };
        if is_wrong { Err(self.first_wrong(stored, elements)) } else { Ok(()) }
    }

    /// Returns the first element that is no id of the column. There is one.
    #[cold]
    fn first_wrong(self, stored: DType, elements: &[u8]) -> WrongToken {
        let [low, last] = self.ends();
        let ids = elements.chunks_exact(stored.bytes()).map(|element| whole(stored, element));
        let wrong = ids.enumerate().find(|(_, id)| !matches!(id, Ok(id) if (low..=last).contains(id)));
        let (place, id) = wrong.expect("a loop over the same elements has seen one outside of the range");
        WrongToken { id, place, range: self }
    }
}

/// Returns the whole number in an element, or the error that has one beyond the range of `i64`.
fn whole(stored: DType, element: &[u8]) -> Result<i64, u64> {
    let mut wide = [0; 8];
    wide[..element.len()].copy_from_slice(element);
    let unsigned = u64::from_le_bytes(wide);
    match stored {
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => i64::try_from(unsigned).map_err(|_| unsigned),
        _ => {
            // The bytes of the number's own width, little-endian, with its sign in front.
            let shift = 64 - 8 * element.len() as u32;
            Ok((unsigned << shift).cast_signed() >> shift)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STORED: [DType; 8] =
        [DType::U8, DType::I8, DType::U16, DType::I16, DType::U32, DType::I32, DType::U64, DType::I64];

    /// Copies one id after the other.
    fn plain(range: TokenRange, stored: DType, elements: &[u8]) -> Result<Vec<u8>, WrongToken> {
        let [low, last] = match (range.vocab, range.dtype) {
            (Some(vocab), _) => [0, i128::from(vocab) - 1],
            (None, DType::I32) => [i32::MIN.into(), i32::MAX.into()],
            (None, _) => [i64::MIN.into(), i64::MAX.into()],
        };
        let mut out = Vec::new();
        for (place, element) in elements.chunks(stored.bytes()).enumerate() {
            let id = whole(stored, element);
            let exact = id.map_or_else(i128::from, i128::from);
            if exact < low || exact > last {
                return Err(WrongToken { id, place, range });
            }
            out.extend_from_slice(&exact.to_le_bytes()[..range.dtype.bytes()]);
        }
        Ok(out)
    }

    fn compared(range: TokenRange, stored: DType, elements: &[u8]) {
        let expected = plain(range, stored, elements);
        let mut out = vec![0xaa; elements.len() / stored.bytes() * range.dtype.bytes()];
        let copied = range.copy(stored, elements, &mut out).map(|()| out);
        assert_eq!(copied, expected, "{range:?} of {stored:?}");
        assert_eq!(range.check(stored, elements), expected.as_ref().map(drop).map_err(|wrong| *wrong));
        if let (true, Ok(ids)) = (range.keeps(stored), expected) {
            assert_eq!(ids, elements);
        }
    }

    #[test]
    fn every_type_is_copied_to_both_at_the_ends_of_all_ranges() {
        let ends = [u8::MAX.into(), i8::MAX.into(), u16::MAX.into(), i16::MAX.into(), u32::MAX.into(), i32::MAX.into()];
        let ends = ends.into_iter().chain([i64::MAX.into(), u64::MAX.into(), 0, 1000_i128]);
        let values: Vec<i128> = ends.flat_map(|end| [end - 1, end, end + 1, -end - 1, -end, 1 - end]).collect();
        for stored in STORED {
            for dtype in [DType::I32, DType::I64] {
                for vocab in [None, Some(1), Some(255), Some(256), Some(1000), Some(65_536), Some(1 << 31)] {
                    for value in &values {
                        let element = &value.to_le_bytes()[..stored.bytes()];
                        for ids in [
                            element.to_vec(),
                            element.repeat(9),
                            [vec![0; 33 * stored.bytes()], element.to_vec()].concat(),
                        ] {
                            compared(TokenRange::new(dtype, vocab), stored, &ids);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn an_id_that_is_wrong_is_named_with_its_place_and_what_it_should_be() {
        let text = |range: TokenRange, stored, elements: &[u8]| range.check(stored, elements).unwrap_err().to_string();
        let ids = |ids: &[i64]| -> Vec<u8> { ids.iter().flat_map(|id| id.to_le_bytes()).collect() };
        let vocab = TokenRange::new(DType::I32, Some(50_257));
        assert_eq!(
            text(vocab, DType::I64, &ids(&[0, 50_256, 50_257, -1])),
            "has id 50257 at place 2, from 0; `vocab` is 50257, so ids are from 0 to 50256"
        );
        assert_eq!(
            text(vocab, DType::I64, &ids(&[-1])),
            "has id -1 at place 0, from 0; `vocab` is 50257, so ids are from 0 to 50256"
        );
        let any = TokenRange::new(DType::I32, None);
        assert_eq!(
            text(any, DType::I64, &ids(&[7, 1 << 31])),
            "has id 2147483648 at place 1, from 0, outside the range of i32"
        );
        assert_eq!(
            text(TokenRange::new(DType::I64, None), DType::U64, &[255; 8]),
            "has id 18446744073709551615 at place 0, from 0, outside the range of i64"
        );
    }

    proptest! {
        #[test]
        fn ids_are_copied_as_by_a_plain_loop(
            stored in proptest::sample::select(&STORED[..]),
            is_wide in any::<bool>(),
            vocab in proptest::option::of(1_u32..=1 << 31),
            small in any::<bool>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
        ) {
            let width = stored.bytes();
            let mut elements = bytes[..bytes.len() / width * width].to_vec();
            if small {
                // Most ids of real texts fit, so that long runs are copied.
                elements.chunks_mut(width).for_each(|element| element[1.min(width - 1)..].fill(0));
            }
            let dtype = if is_wide { DType::I64 } else { DType::I32 };
            compared(TokenRange::new(dtype, vocab), stored, &elements);
        }
    }
}
