//! The decoded values of some rows of a column.

use std::{
    collections::{HashMap, hash_map::Entry},
    ops::Range,
};

use bytes::Bytes;
use parquet::data_type::ByteArray;

use super::{
    columns::ParquetColumn,
    lists::{NULL, ValuePlace, byte_lists, lists, nested},
};
use crate::format::MAX_LIST_FILES;

/// The place of a row with a number that the column's type cannot hold.
const UNFIT: ValuePlace = (u32::MAX, 1);

/// The decoded values of some rows of a column.
#[derive(Debug)]
pub(super) struct ColumnValues {
    data: Bytes,
    places: Places,
    /// For lists of lists: how many lists each row has. All lists of a row have the same length.
    lists: Vec<u32>,
}

#[derive(Debug)]
enum Places {
    /// Every row has a value of this size, in order.
    Dense(usize),
    ByRow(Vec<ValuePlace>),
    /// Rows are lists of bytes: for each row the number of its first value and its number of values, and the places of
    /// all values.
    Lists {
        rows: Vec<ValuePlace>,
        values: Vec<ValuePlace>,
    },
}

/// Collects the values that are not null, in order.
#[derive(Debug, Default)]
pub(super) struct ValueData {
    data: Vec<u8>,
    /// The places of values of different lengths.
    places: Vec<ValuePlace>,
    /// The numbers of the values that the column's type cannot hold, in order.
    unfit: Vec<usize>,
}

impl ColumnValues {
    /// Returns the bytes that the values take.
    pub(super) fn bytes(&self) -> u64 {
        let places = match &self.places {
            Places::Dense(_) => 0,
            Places::ByRow(places) => size_of_val(places.as_slice()),
            Places::Lists { rows, values } => size_of_val(rows.as_slice()) + size_of_val(values.as_slice()),
        };
        (self.data.len() + places + size_of_val(self.lists.as_slice())) as u64
    }

    /// Returns the value of one row alone, copied.
    pub(super) fn only(&self, row: usize) -> Self {
        let mut data = Vec::new();
        let mut copied = |place: &ValuePlace| {
            if [NULL, UNFIT].contains(place) {
                return *place;
            }
            let start = data.len() as u32;
            data.extend_from_slice(&self.data[range_of(*place)]);
            (start, place.1)
        };
        let places = match &self.places {
            Places::Dense(width) => {
                copied(&((row * width) as u32, *width as u32));
                Places::Dense(*width)
            }
            Places::ByRow(places) => Places::ByRow(vec![copied(&places[row])]),
            Places::Lists { rows, values } => match rows[row] {
                NULL => Places::Lists { rows: vec![NULL], values: Vec::new() },
                (first, count) => {
                    let values = values[range_of((first, count))].iter().map(copied).collect();
                    Places::Lists { rows: vec![(0, count)], values }
                }
            },
        };
        Self { data: data.into(), places, lists: self.lists(row).into_iter().collect() }
    }

    /// Returns the number of lists in the list of a row, if the column has lists of lists.
    pub(super) fn lists(&self, row: usize) -> Option<u32> {
        self.lists.get(row).copied()
    }

    /// Returns the value of a row, counted from the first; `None` if it has none.
    pub(super) fn get(&self, row: usize) -> Option<Bytes> {
        self.range(row).map(|range| self.data.slice(range))
    }

    /// Returns the values of a row of a column of lists of bytes; `None` if it has no list.
    ///
    /// # Errors
    /// The number of values, if it is more than [`MAX_LIST_FILES`].
    pub(super) fn list(&self, row: usize) -> Result<Option<Vec<Option<Bytes>>>, u32> {
        let Places::Lists { rows, values } = &self.places else { return Ok(None) };
        let (first, count) = match rows[row] {
            NULL => return Ok(None),
            (_, count) if count as usize > MAX_LIST_FILES => return Err(count),
            (first, count) => (first as usize, count as usize),
        };
        let value = |place: &ValuePlace| (*place != NULL).then(|| self.data.slice(range_of(*place)));
        Ok(Some(values[first..first + count].iter().map(value).collect()))
    }

    /// Returns whether a row has a number that the column's type cannot hold.
    pub(super) fn is_unfit(&self, row: usize) -> bool {
        matches!(&self.places, Places::ByRow(places) if places[row] == UNFIT)
    }

    /// Returns the value of a row, as [`get`](Self::get) does.
    pub(super) fn bytes_of(&self, row: usize) -> Option<&[u8]> {
        self.range(row).map(|range| &self.data[range])
    }

    /// Returns the values of all rows one after the other, if every row has one and all have the same size.
    pub(super) fn dense(&self) -> Option<&[u8]> {
        matches!(self.places, Places::Dense(_)).then_some(&self.data[..])
    }

    fn range(&self, row: usize) -> Option<Range<usize>> {
        match &self.places {
            Places::Dense(width) => Some(row * width..(row + 1) * width),
            Places::ByRow(places) => (![NULL, UNFIT].contains(&places[row])).then(|| range_of(places[row])),
            Places::Lists { .. } => None,
        }
    }
}

const fn range_of((start, length): ValuePlace) -> Range<usize> {
    start as usize..start as usize + length as usize
}

impl ValueData {
    /// Creates the data of values that all have the same size, or of bytes.
    pub(super) fn of(data: Vec<u8>) -> Self {
        Self { data, ..Self::default() }
    }

    /// Creates the data of numbers that all have the same size. The column's type cannot hold those with the numbers
    /// `unfit`.
    pub(super) const fn of_numbers(data: Vec<u8>, unfit: Vec<usize>) -> Self {
        Self { data, places: Vec::new(), unfit }
    }

    /// Copies values of different lengths, each value of a dictionary once. `None` if they are longer than 4 GiB.
    pub(super) fn copied(values: &[ByteArray]) -> Option<Self> {
        let mut places = Vec::with_capacity(values.len());
        let mut known: HashMap<(usize, usize), ValuePlace> = HashMap::new();
        let (mut distinct, mut end) = (Vec::new(), 0_u32);
        for value in values {
            let value = value.data();
            let length = u32::try_from(value.len()).ok()?;
            let place = match known.entry((value.as_ptr() as usize, value.len())) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(entry) => {
                    let place = (end, length);
                    end = end.checked_add(length)?;
                    distinct.push(value);
                    *entry.insert(place)
                }
            };
            places.push(place);
        }
        // The exact size from the beginning: spare capacity would be part of no budget.
        Some(Self { data: distinct.concat(), places, unfit: Vec::new() })
    }

    /// Assigns the values that are not null to rows. Levels are Parquet's, empty where the column has none.
    ///
    /// # Errors
    /// If the levels do not describe these values and rows.
    pub(super) fn into_rows(
        self,
        column: &ParquetColumn,
        rows: usize,
        definitions: &[i16],
        repetitions: &[i16],
    ) -> Result<ColumnValues, String> {
        let Self { data, places, unfit } = self;
        let width = column.width().unwrap_or(0);
        let place = |value: usize| match column.width() {
            None => places.get(value).copied(),
            Some(width) if (value + 1) * width <= data.len() => Some(((value * width) as u32, width as u32)),
            Some(_) => None,
        };
        if width > 0 && u32::try_from(data.len()).is_err() {
            return Err("has values of more than 4 GiB".to_owned());
        }
        let wrong = || format!("has other values than its {rows} rows");
        let max = column.max_definition as i16;
        let mut of_lists = Vec::new();
        let is_inside = |place: &ValuePlace| *place == NULL || range_of(*place).end <= data.len();
        let mut by_row = match column.lists[..] {
            [list] if column.elements.is_none() => {
                let found = byte_lists(rows, definitions, repetitions, [list as i16, max], place).ok_or_else(wrong)?;
                let (rows, values) = found;
                if !values.iter().all(is_inside) {
                    return Err(wrong());
                }
                let places = Places::Lists { rows, values };
                return Ok(ColumnValues { data: data.into(), places, lists: of_lists });
            }
            [list] => lists(rows, definitions, repetitions, [list as i16, max], width).ok_or_else(wrong)?,
            [outer, inner, ..] => {
                let levels = [outer as i16, inner as i16, max];
                let (by_row, counts) = nested(rows, definitions, repetitions, levels, width).ok_or_else(wrong)?;
                of_lists = counts;
                by_row
            }
            [] if definitions.iter().all(|level| *level == max) && width > 0 && unfit.is_empty() => {
                if data.len() != rows * width {
                    return Err(wrong());
                }
                return Ok(ColumnValues { data: data.into(), places: Places::Dense(width), lists: of_lists });
            }
            [] if column.max_definition == 0 => (0..rows).map(place).collect::<Option<_>>().ok_or_else(wrong)?,
            [] => {
                let mut value = 0;
                let by_row = definitions.iter().map(|level| {
                    if *level < max {
                        return Some(NULL);
                    }
                    value += 1;
                    place(value - 1)
                });
                by_row.collect::<Option<Vec<ValuePlace>>>().ok_or_else(wrong)?
            }
        };
        if by_row.len() != rows || !by_row.iter().all(is_inside) {
            return Err(wrong());
        }
        if !unfit.is_empty() {
            let is_unfit = |place: &ValuePlace| {
                let values = range_of(*place);
                let first = unfit.partition_point(|value| value * width < values.start);
                *place != NULL && unfit.get(first).is_some_and(|value| value * width < values.end)
            };
            by_row.iter_mut().filter(|place| is_unfit(place)).for_each(|place| *place = UNFIT);
        }
        Ok(ColumnValues { data: data.into(), places: Places::ByRow(by_row), lists: of_lists })
    }
}

/// Writes numbers as elements of `WIDTH` bytes.
pub(super) fn elements_of<T: Copy, const WIDTH: usize>(values: &[T], to: impl Fn(T) -> [u8; WIDTH]) -> Vec<u8> {
    values.iter().map(|value| to(*value)).collect::<Vec<_>>().into_flattened()
}

#[cfg(test)]
mod tests {
    use spdl_types::DType;

    use super::{super::columns::Physical, *};

    /// Levels of `optional group files (LIST) { repeated group list { optional group element { optional binary bytes; } } }`.
    fn list_column() -> ParquetColumn {
        let (name, physical) = ("files.bytes".to_owned(), Physical::ByteArray);
        ParquetColumn {
            name,
            physical,
            length: 0,
            elements: None,
            decimal_digits: None,
            max_definition: 4,
            lists: vec![2],
        }
    }

    fn data_of(values: &[&'static [u8]]) -> ValueData {
        let values: Vec<ByteArray> = values.iter().map(|value| ByteArray::from(Bytes::from_static(value))).collect();
        ValueData::copied(&values).unwrap()
    }

    #[test]
    fn lists_of_bytes_keep_their_nulls_and_may_be_empty_or_missing() {
        // The rows: a list of two values, an empty list, no list, and a list of a null, an empty value and a value.
        let (definitions, repetitions) = ([4, 4, 1, 0, 2, 3, 4], [0, 1, 0, 0, 0, 1, 1]);
        let values = data_of(&[b"ab", b"", b"c"]).into_rows(&list_column(), 4, &definitions, &repetitions).unwrap();
        let file = |bytes: &'static [u8]| Some(Bytes::from_static(bytes));
        let lists = [Some(vec![file(b"ab"), file(b"")]), Some(vec![]), None, Some(vec![None, None, file(b"c")])];
        assert_eq!([0, 1, 2, 3].map(|row| values.list(row).unwrap()), lists);
        assert_eq!((values.get(0), values.dense()), (None, None));
        assert_eq!(values.bytes(), 3 + 8 * (4 + 5));
    }

    #[test]
    fn one_row_alone_is_as_it_was_among_others() {
        let (definitions, repetitions) = ([4, 4, 1, 0, 2, 3, 4], [0, 1, 0, 0, 0, 1, 1]);
        let lists = data_of(&[b"ab", b"", b"c"]).into_rows(&list_column(), 4, &definitions, &repetitions).unwrap();
        for row in 0..4 {
            let only = lists.only(row);
            assert_eq!((only.list(0).unwrap(), only.get(0)), (lists.list(row).unwrap(), None));
            assert!(only.data.len() <= 2);
        }
        let column = |physical, elements, max_definition| ParquetColumn {
            name: "a".to_owned(),
            physical,
            length: 0,
            elements,
            max_definition,
            lists: Vec::new(),
            decimal_digits: None,
        };
        let texts = column(Physical::ByteArray, None, 1);
        let texts = data_of(&[b"ab", b"", b"ab"]).into_rows(&texts, 4, &[1, 0, 1, 1], &[]).unwrap();
        let numbers = column(Physical::Int32, Some(DType::I32), 0);
        let numbers = ValueData::of((0..16).collect()).into_rows(&numbers, 4, &[], &[]).unwrap();
        for row in 0..4 {
            assert_eq!(texts.only(row).get(0), texts.get(row));
            assert_eq!((numbers.only(row).get(0), numbers.only(row).dense().unwrap().len()), (numbers.get(row), 4));
        }
    }

    #[test]
    fn levels_that_are_not_those_of_the_rows_are_refused() {
        for (rows, definitions, repetitions) in [
            (1, &[4_i16, 4, 4][..], &[0_i16, 1, 1][..]),
            (2, &[4, 4], &[0, 1]),
            (1, &[4, 4], &[0, 0]),
            (1, &[4], &[1]),
            (1, &[0, 4], &[0, 1]),
            (1, &[4], &[0, 1]),
        ] {
            let read = data_of(&[b"a", b"b"]).into_rows(&list_column(), rows, definitions, repetitions);
            assert!(read.unwrap_err().contains("has other values than its"), "{definitions:?}");
        }
    }

    #[test]
    fn a_row_with_a_number_that_its_type_cannot_hold_has_no_value() {
        let column = |max_definition, lists: &[u16]| ParquetColumn {
            name: "n".to_owned(),
            physical: Physical::Int32,
            length: 0,
            elements: Some(DType::U8),
            decimal_digits: None,
            max_definition,
            lists: lists.to_vec(),
        };
        let data = || ValueData::of_numbers(vec![1, 255, 0, 7, 0, 9], vec![2, 4]);
        let seen = |values: &ColumnValues, rows: usize| -> Vec<Result<Option<Bytes>, ()>> {
            (0..rows).map(|row| if values.is_unfit(row) { Err(()) } else { Ok(values.get(row)) }).collect()
        };
        let bytes = |bytes: &'static [u8]| Ok(Some(Bytes::from_static(bytes)));
        let plain = data().into_rows(&column(0, &[]), 6, &[], &[]).unwrap();
        assert_eq!(seen(&plain, 6), [bytes(&[1]), bytes(&[255]), Err(()), bytes(&[7]), Err(()), bytes(&[9])]);
        assert_eq!((plain.dense(), plain.bytes_of(2)), (None, None));
        assert_eq!([1, 2].map(|row| seen(&plain.only(row), 1).remove(0)), [bytes(&[255]), Err(())], "alone, too");
        let optional = data().into_rows(&column(1, &[]), 7, &[1, 1, 0, 1, 1, 1, 1], &[]).unwrap();
        assert_eq!(seen(&optional, 7)[1..5], [bytes(&[255]), Ok(None), Err(()), bytes(&[7])]);
        let repetitions = [0, 1, 0, 0, 1, 0, 0];
        let lists = data().into_rows(&column(1, &[1]), 5, &[1, 1, 1, 1, 1, 1, 0], &repetitions).unwrap();
        assert_eq!(seen(&lists, 5), [bytes(&[1, 255]), Err(()), Err(()), bytes(&[9]), bytes(&[])]);
    }

    #[test]
    fn a_list_of_too_many_values_is_no_list() {
        let count = MAX_LIST_FILES + 1;
        let repetitions: Vec<i16> = (0..count).map(|number| i16::from(number > 0)).collect();
        let values = data_of(&[]).into_rows(&list_column(), 1, &vec![2; count], &repetitions).unwrap();
        assert_eq!(values.list(0), Err(count as u32));
    }

    #[test]
    fn copied_values_take_no_more_than_their_bytes_and_a_value_of_a_dictionary_is_there_once() {
        let page = Bytes::from((0..=255).cycle().take(10_000).collect::<Vec<u8>>());
        let [long, short, none] = [0..9000, 9000..9100, 9100..9100].map(|range| ByteArray::from(page.slice(range)));
        let values = [long.clone(), short.clone(), long, none, short];
        let copied = ValueData::copied(&values).unwrap();
        assert_eq!((copied.data.len(), copied.data.capacity()), (9100, 9100));
        assert_eq!(copied.places, [(0, 9000), (9000, 100), (0, 9000), (9100, 0), (9000, 100)]);
        assert_eq!(copied.data, page[..9100]);
    }
}
