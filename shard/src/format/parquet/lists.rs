//! The places of the values of lists, from the levels of a column.

/// Offset and length of a value in the data.
pub(super) type ValuePlace = (u32, u32);

/// The place of a row without a value: a null, or a list of numbers with a null in it. In a list of bytes, the place of
/// a null.
pub(super) const NULL: ValuePlace = (u32::MAX, 0);

/// Returns the places of lists of elements of `width` bytes. `None` if the levels are not those of so many rows.
pub(super) fn lists(
    rows: usize,
    definitions: &[i16],
    repetitions: &[i16],
    [list, max]: [i16; 2],
    width: usize,
) -> Option<Vec<ValuePlace>> {
    if definitions.len() != repetitions.len() {
        return None;
    }
    let mut by_row: Vec<ValuePlace> = Vec::with_capacity(rows);
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

/// Returns for each row the number of its first value and its number of values, and the places of all values, which
/// `place` returns by their numbers. `None` if the levels are not those of so many rows.
pub(super) fn byte_lists(
    rows: usize,
    definitions: &[i16],
    repetitions: &[i16],
    [list, max]: [i16; 2],
    place: impl Fn(usize) -> Option<ValuePlace>,
) -> Option<(Vec<ValuePlace>, Vec<ValuePlace>)> {
    if definitions.len() != repetitions.len() || u32::try_from(definitions.len()).is_err() {
        return None;
    }
    let (mut by_row, mut values): (Vec<ValuePlace>, Vec<ValuePlace>) = (Vec::with_capacity(rows), Vec::new());
    let mut there = 0;
    for (definition, repetition) in definitions.iter().zip(repetitions) {
        if *repetition == 0 {
            by_row.push(if *definition < list - 1 { NULL } else { (values.len() as u32, 0) });
        }
        if *definition < list {
            continue;
        }
        let last = by_row.last_mut().filter(|row| **row != NULL)?;
        last.1 += 1;
        if *definition < max {
            values.push(NULL);
        } else {
            values.push(place(there)?);
            there += 1;
        }
    }
    values.shrink_to_fit();
    (by_row.len() == rows).then_some((by_row, values))
}

/// A row of a column of lists of lists.
#[derive(Clone, Copy, Debug)]
struct NestedRow {
    place: ValuePlace,
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

    fn end(mut self) -> (ValuePlace, u32) {
        self.end_list();
        (if self.is_null { NULL } else { self.place }, self.lists)
    }
}

/// Returns the places of lists of lists of elements of `width` bytes, and how many lists each row has. A row whose lists differ
/// in length is null. `None` if the levels are not those of so many rows.
pub(super) fn nested(
    rows: usize,
    definitions: &[i16],
    repetitions: &[i16],
    [outer, inner, max]: [i16; 3],
    width: usize,
) -> Option<(Vec<ValuePlace>, Vec<u32>)> {
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
