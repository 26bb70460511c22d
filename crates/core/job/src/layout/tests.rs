//! Tests of the layout: batches are read as they were written, and invalid ones are refused.

use super::view::read_u64;
use super::*;
use crate::{BytesColumn, ColumnKind, ImageColumn, IntColumn, TensorColumn, TensorEncoding};

fn columns() -> Vec<Column> {
    let image = ImageColumn { size: [3, 5], ..ImageColumn::default() };
    [
        ("image", ColumnKind::Image(image), DType::U8),
        ("text", ColumnKind::Bytes(BytesColumn { max_bytes: 100 }), DType::U8),
        ("label", ColumnKind::Int(IntColumn), DType::I64),
        ("blob", ColumnKind::Bytes(BytesColumn { max_bytes: 7 }), DType::U8),
    ]
    .map(|(name, kind, dtype)| Column::new(name, name, kind, dtype))
    .into()
}

fn filled(layout: &Layout) -> (Vec<u64>, usize) {
    let mut slot = vec![0u64; layout.slot_bytes() / 8];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut slot);
    let parts = layout.split(bytes, 2);
    for (i, entry) in parts.entries.iter_mut().enumerate() {
        *entry = Entry { id: 40 + i as u64, offset: i as u64, epoch: 1, flags: 0, reserved: 0 };
    }
    for (index, column) in parts.columns.into_iter().enumerate() {
        if let Some(column) = column {
            column.bytes.fill(index as u8 + 1);
        }
    }
    let text = vec![b"hello".as_slice(), b""];
    let blob = vec![b"".as_slice(), b"1234567"];
    let header = Header { entries: 2, epoch: 1, next_epoch: 1, next_offset: 2, world: 1, ..Zeroable::zeroed() };
    let used = layout.finish(bytes, header, &[vec![], text, vec![], blob]);
    (slot, used)
}

#[test]
fn a_batch_reads_back_as_it_was_written() {
    let layout = Layout::new(&columns(), 3);
    let (slot, used) = filled(&layout);
    let bytes = &bytemuck::cast_slice(&slot)[..used];
    let view = layout.read(bytes).unwrap();
    assert_eq!(view.len(), 2);
    assert_eq!(view.entries().map(|entry| entry.id).collect::<Vec<_>>(), [40, 41]);
    assert_eq!(view.sample_bytes(0, 1), [1; 45]);
    assert_eq!(view.sample_bytes(1, 0), b"hello");
    assert_eq!(view.sample_bytes(1, 1), b"");
    assert_eq!(view.sample_bytes(2, 1), [3; 8]);
    assert_eq!(view.sample_bytes(3, 1), b"1234567");
    for column in layout.columns() {
        if let Place::Fixed { offset, .. } = column.place {
            assert_eq!(offset % ALIGN, 0, "{}", column.name);
        }
    }
}

#[test]
fn every_flipped_byte_of_the_head_is_refused_or_harmless() {
    let layout = Layout::new(&columns(), 3);
    let (slot, used) = filled(&layout);
    let bytes = bytemuck::cast_slice::<_, u8>(&slot)[..used].to_vec();
    for at in 0..layout.fixed_bytes() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            if let Ok(view) = layout.read(&bad) {
                for column in 0..layout.columns().len() {
                    for entry in 0..view.len() {
                        let _ = view.sample_bytes(column, entry);
                    }
                }
            }
        }
    }
    for cut in 0..used {
        assert!(layout.read(&bytes[..cut]).is_err(), "cut at {cut}");
    }
}

/// Returns the places in the batch of [`filled`]: the spans of the four columns, and the offsets of the two ragged
/// ones.
fn places(layout: &Layout) -> (usize, [usize; 2]) {
    let offsets = |index: usize| match layout.columns()[index].place {
        Place::Ragged { offsets, .. } => offsets,
        ref other => panic!("{other:?}"),
    };
    (layout.spans, [offsets(1), offsets(3)])
}

fn error_with(layout: &Layout, bytes: &[u8], words: &[(usize, u64)]) -> Option<String> {
    let mut bad = bytes.to_vec();
    words.iter().for_each(|(at, value)| write_u64(&mut bad, *at, *value));
    match layout.read(&bad) {
        Ok(_) => None,
        Err(LayoutError::Span { column }) => Some(column),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn wrong_values_in_any_span_are_refused_with_the_column() {
    let layout = Layout::new(&columns(), 3);
    let (slot, used) = filled(&layout);
    let bytes = &bytemuck::cast_slice::<_, u8>(&slot)[..used];
    let (spans, _) = places(&layout);
    assert_eq!(error_with(&layout, bytes, &[]), None);
    for (index, column) in layout.columns().iter().enumerate() {
        let (offset, length) = (spans + index * 16, spans + index * 16 + 8);
        let (is, long) = (read_u64(bytes, offset), read_u64(bytes, length));
        let is_fixed = matches!(column.place, Place::Fixed { .. });
        let mut wrong = vec![(offset, u64::MAX), (offset, used as u64 + 8), (length, long + 1), (length, u64::MAX)];
        // A ragged column may begin at any cache line behind the fixed ones.
        wrong.push((offset, if is_fixed { is + 8 } else { layout.fixed_bytes() as u64 - 1 }));
        if long > 0 {
            wrong.push((length, long - 1));
        }
        for word in wrong {
            assert_eq!(error_with(&layout, bytes, &[word]), Some(column.name.clone()), "{word:?}");
        }
    }
}

#[test]
fn wrong_offsets_of_a_ragged_column_are_refused_with_the_column() {
    let layout = Layout::new(&columns(), 3);
    let (slot, used) = filled(&layout);
    let bytes = &bytemuck::cast_slice::<_, u8>(&slot)[..used];
    let (_, [text, blob]) = places(&layout);
    // `text` has the offsets 0, 5, 5 and `blob` 0, 0, 7.
    for word in [(text, 1), (text + 8, 6), (text + 16, 4), (text + 16, 6), (text + 8, u64::MAX)] {
        assert_eq!(error_with(&layout, bytes, &[word]), Some("text".into()), "{word:?}");
    }
    for word in [(blob, 1), (blob + 8, 8), (blob + 16, 6), (blob + 16, 8)] {
        assert_eq!(error_with(&layout, bytes, &[word]), Some("blob".into()), "{word:?}");
    }
    assert_eq!(error_with(&layout, bytes, &[(text + 8, 2)]), None, "the same bytes, cut elsewhere");
    assert_eq!(error_with(&layout, bytes, &[(blob + 8, 7)]), None, "as long as is allowed");
}

#[test]
fn a_ragged_value_that_is_longer_than_its_column_allows_is_refused() {
    let layout = Layout::new(&columns(), 3);
    let (slot, used) = filled(&layout);
    let (spans, [_, blob]) = places(&layout);
    let length = spans + 3 * 16 + 8;
    let mut bytes = bytemuck::cast_slice::<_, u8>(&slot)[..used].to_vec();
    bytes.resize(used + 64, 0);
    let longer = |value: u64| [(length, value), (blob + 8, 0), (blob + 16, value)];
    // The header's `used_bytes` covers it all.
    let at = std::mem::offset_of!(Header, used_bytes);
    write_u64(&mut bytes, at, used as u64 + 64);
    assert_eq!(error_with(&layout, &bytes, &longer(7)), None);
    assert_eq!(error_with(&layout, &bytes, &longer(8)), Some("blob".into()));
}

#[test]
fn a_batch_that_claims_more_or_less_than_it_can_have_is_refused_with_the_field() {
    let layout = Layout::new(&columns(), 3);
    let (slot, used) = filled(&layout);
    let bytes: &[u8] = bytemuck::cast_slice(&slot);
    let used_at = std::mem::offset_of!(Header, used_bytes);
    let with = |value: u64| {
        let mut bad = bytes.to_vec();
        write_u64(&mut bad, used_at, value);
        layout.read(&bad).map(|view| view.header().used_bytes)
    };
    for value in [used as u64, bytes.len() as u64] {
        assert_eq!(with(value), Ok(value), "a slot may be longer than its batch");
    }
    for value in [0, layout.fixed_bytes() as u64 - 1, bytes.len() as u64 + 1] {
        assert!(matches!(with(value), Err(LayoutError::Field { field: "used_bytes", .. })), "{value}");
    }
    let entries_at = std::mem::offset_of!(Header, entries);
    let mut bad = bytes.to_vec();
    bad[entries_at] = 4;
    let error = layout.read(&bad).unwrap_err();
    assert_eq!(error, LayoutError::Field { field: "entries", actual: 4, allowed: 3 });
    let fixed = layout.fixed_bytes();
    let shorter = layout.read(&bytes[..fixed - 1]).unwrap_err();
    assert_eq!(shorter, LayoutError::Short { needed: fixed, actual: fixed - 1 });
}

#[test]
fn an_empty_batch_takes_the_fixed_bytes_and_a_full_one_fits() {
    let layout = Layout::new(&columns(), 3);
    assert_eq!((layout.capacity(), layout.columns().len()), (3, 4));
    let mut slot = vec![0u64; layout.slot_bytes() / 8];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut slot);
    let none: [Vec<&[u8]>; 4] = Default::default();
    let used = layout.finish(bytes, Zeroable::zeroed(), &none);
    assert_eq!(used, layout.fixed_bytes());
    let view = layout.read(&bytes[..used]).unwrap();
    assert!(view.is_empty());
    assert_eq!(view.entries().count(), 0);
    let full = Header { entries: 3, ..Zeroable::zeroed() };
    let used = layout.finish(bytes, full, &[vec![], vec![vec![1; 100]; 3], vec![], vec![vec![2; 7]; 3]]);
    assert!(used <= layout.slot_bytes());
    let view = layout.read(&bytes[..used]).unwrap();
    assert!(!view.is_empty());
    assert_eq!(view.sample_bytes(3, 2), [2; 7]);
}

#[test]
fn positions_of_a_header_and_its_entries_are_those_that_were_written() {
    let header = Header { epoch: 1, offset: 2, next_epoch: 3, next_offset: 4, ..Zeroable::zeroed() };
    assert_eq!((header.from(), header.next()), (Position::new(1, 2), Position::new(3, 4)));
    let entry = Entry { id: 7, offset: 5, epoch: 6, flags: 0, reserved: 0 };
    assert_eq!((entry.position(), entry.sample()), (Position::new(6, 5), SampleId(7)));
}

#[test]
fn what_is_padding_or_invalid_is_no_delivery_and_a_substitute_or_a_mask_is_one() {
    use entry_flags::{INVALID, MASKED, PADDING, SUBSTITUTED};
    let delivers = |flags| Entry { id: 0, offset: 0, epoch: 0, flags, reserved: 0 }.is_delivery();
    for flags in [0, SUBSTITUTED, MASKED] {
        assert!(delivers(flags), "{flags}");
    }
    for flags in [INVALID, PADDING, PADDING | SUBSTITUTED, PADDING | MASKED] {
        assert!(!delivers(flags), "{flags}");
    }
}

#[test]
fn columns_are_found_by_name_and_ragged_ones_have_offsets() {
    let layout = Layout::new(&columns(), 3);
    let (slot, used) = filled(&layout);
    let view = layout.read(&bytemuck::cast_slice(&slot)[..used]).unwrap();
    let found: Vec<_> = ["image", "text", "label", "blob", "none"].map(|name| view.column_index(name)).into();
    assert_eq!(found, [Some(0), Some(1), Some(2), Some(3), None]);
    let offsets = |index| {
        let bytes: Option<&[u8]> = view.ragged_offset_bytes(index);
        bytes.map(|bytes| bytes.chunks(8).map(|word| read_u64(word, 0)).collect::<Vec<_>>())
    };
    assert_eq!(offsets(0), None);
    assert_eq!(offsets(1), Some(vec![0, 5, 5]));
    assert_eq!(offsets(3), Some(vec![0, 0, 7]));
}

/// Returns the layout and a batch of arrays with rows of three numbers: two rows, none, and one.
fn rows() -> (Layout, Vec<u64>, usize) {
    let tensor = TensorColumn { shape: vec![3], max_rows: Some(2), encoding: TensorEncoding::Raw, array: None };
    let text = ColumnKind::Bytes(BytesColumn { max_bytes: 9 });
    let columns = [("text", text, DType::U8), ("rows", ColumnKind::Tensor(tensor), DType::F32)];
    let layout = Layout::new(&columns.map(|(name, kind, dtype)| Column::new(name, name, kind, dtype)), 3);
    let mut slot = vec![0u64; layout.slot_bytes() / 8];
    let numbers: Vec<u8> = (0..9).flat_map(|number| (number as f32).to_le_bytes()).collect();
    let text = vec![b"a".as_slice(), b"bc", b""];
    let arrays = vec![&numbers[..24], &[], &numbers[24..]];
    let header = Header { entries: 3, ..Zeroable::zeroed() };
    let used = layout.finish(bytemuck::cast_slice_mut(&mut slot), header, &[text, arrays]);
    (layout, slot, used)
}

#[test]
fn the_offsets_of_arrays_with_any_number_of_rows_count_rows() {
    let (layout, slot, used) = rows();
    let view = layout.read(&bytemuck::cast_slice(&slot)[..used]).unwrap();
    let offsets: &[u64] = bytemuck::cast_slice(view.ragged_offset_bytes(1).unwrap());
    assert_eq!(offsets, [0, 2, 2, 3]);
    assert_eq!((view.values_shape(0), view.values_shape(1)), (vec![3], vec![3, 3]));
    let numbers = |entry| bytemuck::cast_slice::<u8, f32>(view.sample_bytes(1, entry)).to_vec();
    assert_eq!([numbers(0), numbers(1), numbers(2)], [vec![0., 1., 2., 3., 4., 5.], vec![], vec![6., 7., 8.]]);
}

#[test]
fn rows_that_are_not_aligned_or_not_whole_are_refused_and_read_as_nothing() {
    let (layout, slot, used) = rows();
    let bytes = &bytemuck::cast_slice::<_, u8>(&slot)[..used];
    let Place::Ragged { offsets, .. } = layout.columns()[1].place else { panic!("{layout:?}") };
    let (place, length) = (layout.spans + 16, layout.spans + 24);
    let is = read_u64(bytes, place);
    let view = layout.read(bytes).unwrap();
    for words in [
        vec![(place, is + 4)],
        vec![(length, 35)],
        vec![(length, 30), (offsets + 24, 2)],
        vec![(offsets + 8, 3), (offsets + 16, 3)],
        vec![(offsets + 24, 4)],
        vec![(offsets + 8, u64::MAX / 12 + 1)],
    ] {
        assert_eq!(error_with(&layout, bytes, &words), Some("rows".into()), "{words:?}");
        // A peer that shares the memory may write this after the check.
        let mut bad = slot.clone();
        let bad: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut bad)[..used];
        words.iter().for_each(|(at, value)| write_u64(bad, *at, *value));
        let view = BatchView::of_checked(&layout, bad, *view.header());
        for entry in 0..3 {
            let numbers: &[f32] = bytemuck::cast_slice(view.sample_bytes(1, entry));
            assert!(numbers.len() <= 9, "{words:?}");
        }
    }
}
