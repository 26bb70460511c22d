//! The decoded values of some rows of a column.

use std::{
    collections::{HashMap, hash_map::Entry},
    ops::Range,
};

use bytes::Bytes;
use parquet::data_type::ByteArray;
use spdl_core::job::DType;

use super::columns::Column;

/// The place of a row without a value: it is null, or a list with an element that is null.
const NULL: Place = (u32::MAX, 0);

/// Offset and length of a value in the data.
type Place = (u32, u32);

/// The decoded values of some rows of a column.
#[derive(Debug)]
pub(super) struct Values {
    data: Bytes,
    places: Places,
    /// Of lists of lists: how many lists each row has. All lists of a row have the same length.
    lists: Vec<u32>,
}

#[derive(Debug)]
enum Places {
    /// Every row has a value of this size, in order.
    Dense(usize),
    ByRow(Vec<Place>),
}

/// Collects the values that are there, in order.
#[derive(Debug, Default)]
pub(super) struct ValueData {
    data: Vec<u8>,
    /// Of values of different lengths.
    places: Vec<Place>,
}

impl Values {
    /// Returns the bytes that the values take.
    pub(super) fn bytes(&self) -> u64 {
        let places = match &self.places {
            Places::Dense(_) => 0,
            Places::ByRow(places) => std::mem::size_of_val(places.as_slice()),
        };
        (self.data.len() + places + size_of_val(self.lists.as_slice())) as u64
    }

    /// Returns the number of lists in the list of a row, if the column has lists of lists.
    pub(super) fn lists(&self, row: usize) -> Option<u32> {
        self.lists.get(row).copied()
    }

    /// Returns the value of a row, counted from the first; `None` if it has none.
    pub(super) fn get(&self, row: usize) -> Option<Bytes> {
        self.range(row).map(|range| self.data.slice(range))
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
        let (start, length) = match &self.places {
            Places::Dense(width) => (row * width, *width),
            Places::ByRow(places) => match places[row] {
                NULL => return None,
                (start, length) => (start as usize, length as usize),
            },
        };
        Some(start..start + length)
    }
}

impl ValueData {
    /// Creates the data of values that all have the same size, or of bytes.
    pub(super) fn of(data: Vec<u8>) -> Self {
        Self { data, places: Vec::new() }
    }

    /// Copies values of different lengths, each value of a dictionary once. `None` if they are longer than 4 GiB.
    pub(super) fn copied(values: &[ByteArray]) -> Option<Self> {
        let mut places = Vec::with_capacity(values.len());
        let mut known: HashMap<(usize, usize), Place> = HashMap::new();
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
        // Of the right size from the beginning, as room that is not used would be part of no budget.
        Some(Self { data: distinct.concat(), places })
    }

    /// Makes the values of rows of the values that are there. Levels are Parquet's, empty where the column has none.
    ///
    /// # Errors
    /// If the values are not those of the rows.
    pub(super) fn into_rows(
        self,
        column: &Column,
        rows: usize,
        definitions: &[i16],
        repetitions: &[i16],
    ) -> Result<Values, String> {
        let Self { data, places } = self;
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
        let by_row = match column.lists[..] {
            [list] => lists(rows, definitions, repetitions, [list as i16, max], width).ok_or_else(wrong)?,
            [outer, inner, ..] => {
                let levels = [outer as i16, inner as i16, max];
                let (by_row, counts) = nested(rows, definitions, repetitions, levels, width).ok_or_else(wrong)?;
                of_lists = counts;
                by_row
            }
            [] if definitions.iter().all(|level| *level == max) && width > 0 => {
                if data.len() != rows * width {
                    return Err(wrong());
                }
                return Ok(Values { data: data.into(), places: Places::Dense(width), lists: of_lists });
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
                by_row.collect::<Option<Vec<Place>>>().ok_or_else(wrong)?
            }
        };
        let is_inside = |place: &Place| *place == NULL || place.0 as usize + place.1 as usize <= data.len();
        if by_row.len() != rows || !by_row.iter().all(is_inside) {
            return Err(wrong());
        }
        Ok(Values { data: data.into(), places: Places::ByRow(by_row), lists: of_lists })
    }
}

/// Returns the places of lists of elements of `width` bytes. `None` if the levels are not those of so many rows.
fn lists(
    rows: usize,
    definitions: &[i16],
    repetitions: &[i16],
    [list, max]: [i16; 2],
    width: usize,
) -> Option<Vec<Place>> {
    if definitions.len() != repetitions.len() {
        return None;
    }
    let mut by_row: Vec<Place> = Vec::with_capacity(rows);
    let mut at = 0_u32;
    for (definition, repetition) in definitions.iter().zip(repetitions) {
        if *repetition == 0 {
            by_row.push(if *definition < list - 1 { NULL } else { (at, 0) });
        }
        if *definition < list {
            continue;
        }
        let last = by_row.last_mut()?;
        if *definition < max {
            *last = NULL;
            continue;
        }
        at = at.checked_add(width as u32)?;
        if *last != NULL {
            last.1 += width as u32;
        }
    }
    Some(by_row)
}

/// A row of a column of lists of lists.
#[derive(Clone, Copy, Debug)]
struct NestedRow {
    place: Place,
    lists: u32,
    /// Length of the first list, and of the last one so far.
    lengths: [u32; 2],
    /// Whether something in it is null, or its lists differ in length.
    is_null: bool,
}

impl NestedRow {
    /// Begins a list, or ends the row.
    fn end_list(&mut self) {
        match self.lists {
            0 => {}
            1 => self.lengths[0] = self.lengths[1],
            _ => self.is_null |= self.lengths[0] != self.lengths[1],
        }
        self.lengths[1] = 0;
    }

    fn end(mut self) -> (Place, u32) {
        self.end_list();
        (if self.is_null { NULL } else { self.place }, self.lists)
    }
}

/// Returns the places of lists of lists of elements of `width` bytes, and how many lists each row has. A row whose lists differ
/// in length is null. `None` if the levels are not those of so many rows.
fn nested(
    rows: usize,
    definitions: &[i16],
    repetitions: &[i16],
    [outer, inner, max]: [i16; 3],
    width: usize,
) -> Option<(Vec<Place>, Vec<u32>)> {
    if definitions.len() != repetitions.len() {
        return None;
    }
    let (mut by_row, mut counts) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    let mut at = 0_u32;
    let mut last: Option<NestedRow> = None;
    for (definition, repetition) in definitions.iter().zip(repetitions) {
        if *repetition == 0 {
            let ended =
                last.replace(NestedRow { place: (at, 0), lists: 0, lengths: [0; 2], is_null: *definition < outer - 1 });
            let (place, lists) = ended.map(NestedRow::end).unzip();
            by_row.extend(place);
            counts.extend(lists);
        }
        let row = last.as_mut()?;
        if *definition < outer {
            continue;
        }
        if *repetition < 2 {
            row.end_list();
            row.lists += 1;
        }
        if *definition < max {
            // Anything but an empty list is null.
            row.is_null |= *definition != inner - 1;
            continue;
        }
        at = at.checked_add(width as u32)?;
        row.place.1 += width as u32;
        row.lengths[1] += 1;
    }
    let (place, lists) = last.map(NestedRow::end).unzip();
    by_row.extend(place);
    counts.extend(lists);
    Some((by_row, counts))
}

/// Writes numbers as elements of `WIDTH` bytes.
pub(super) fn elements_of<T: Copy, const WIDTH: usize>(values: &[T], to: impl Fn(T) -> [u8; WIDTH]) -> Vec<u8> {
    values.iter().map(|value| to(*value)).collect::<Vec<_>>().into_flattened()
}

/// Writes whole numbers as the elements of a column.
pub(super) fn integers<T: Copy>(values: &[T], elements: DType, to: impl Fn(T) -> i64) -> Vec<u8> {
    // A narrower number is the lower bytes of a wider one, signed or not.
    match elements.bytes() {
        1 => elements_of(values, |value| (to(value) as u8).to_le_bytes()),
        2 => elements_of(values, |value| (to(value) as u16).to_le_bytes()),
        4 => elements_of(values, |value| (to(value) as u32).to_le_bytes()),
        _ => elements_of(values, |value| to(value).to_le_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
