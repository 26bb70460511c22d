//! The region of a batch, as a client receives it from its home.

use spdl_job::{
    BytesColumn, Column, ColumnKind, ImageColumn, ImageOp, IntColumn, Resize, Size, TensorColumn, TensorEncoding,
    layout::{BatchView, ColumnLayout, Header, Layout, Place},
};
use spdl_types::DType;
use spdl_wire::slab::Slab;

use crate::input::FuzzInput;

fn column(name: &str, kind: ColumnKind, dtype: DType) -> Column {
    Column::new(name, name, kind, dtype)
}

/// Returns layouts with fixed, ragged and mixed columns, of up to three samples.
fn layout(kind: u8) -> Layout {
    let size = [2, 3];
    let ops = vec![ImageOp::Resize(Resize::to(Size::HeightWidth(size)))];
    let image = ColumnKind::Image(ImageColumn { ops, size, ..ImageColumn::default() });
    let image = column("image", image, DType::F32);
    let text = column("text", ColumnKind::Bytes(BytesColumn { max_bytes: 64 }), DType::U8);
    let more = column("more", ColumnKind::Bytes(BytesColumn { max_bytes: 9 }), DType::U8);
    let label = column("label", ColumnKind::Int(IntColumn), DType::I64);
    let rows = TensorColumn { shape: vec![3], max_rows: Some(2), encoding: TensorEncoding::Raw, array: None };
    let rows = column("rows", ColumnKind::Tensor(rows), DType::U16);
    match kind % 5 {
        0 => Layout::new(&[image, text, label, more], 3),
        1 => Layout::new(&[text], 1),
        2 => Layout::new(&[label], 2),
        3 => Layout::new(&[more, text], 3),
        _ => Layout::new(&[rows, text], 3),
    }
}

/// Checks that a region that reads as a batch can be read from end to end, and that writing it gives a batch that reads
/// the same. Also checks that reading does no harm when a peer changes the region after it was checked.
pub(crate) fn read(data: &[u8]) {
    let mut input = FuzzInput(data);
    let layout = layout(input.byte());
    let Ok(view) = layout.read(input.0) else { return };
    walk(&view);
    let (slab, used_bytes) = written(&layout, &view);
    let slot = slab.read(0).expect("it was published");
    let again = layout.read(&slot[..used_bytes]).expect("what was written is valid");
    assert!(view.entries().eq(again.entries()), "entries differ");
    for column in 0..layout.columns().len() {
        for entry in 0..view.len() {
            assert_eq!(view.sample_bytes(column, entry), again.sample_bytes(column, entry), "column {column}");
        }
    }
    let spoiled: Vec<u8> = input.0.iter().map(|byte| !byte).collect();
    walk(&BatchView::of_checked(&layout, &spoiled, *view.header()));
}

fn walk(view: &BatchView<'_>) {
    let entries = view.entries().filter(|entry| entry.is_delivery()).count();
    assert!(entries <= view.len());
    for (index, column) in view.layout().columns().iter().enumerate() {
        assert_eq!(view.column_index(&column.name), Some(index));
        let all = view.column_bytes(index).len();
        let sides = view.values_shape(index).into_iter().product::<usize>();
        assert_eq!(sides * column.dtype.bytes(), all, "column {index}");
        let each: usize = (0..view.len()).map(|entry| view.sample_bytes(index, entry).len()).sum();
        assert!(view.ragged_offset_bytes(index).is_none_or(|offsets| offsets.len() == 8 * (view.len() + 1)));
        // A ragged column of a corrupted region may assign a byte to several samples.
        assert!(each <= all * view.len().max(1), "{each} bytes of {all}");
    }
}

/// Writes the same batch again; returns it and its length.
fn written(layout: &Layout, view: &BatchView<'_>) -> (Slab, usize) {
    let slab = Slab::private(1, layout.slot_bytes()).expect("a small slab");
    let mut slot = slab.try_take(0).expect("it is free");
    let parts = layout.split(&mut slot, view.len());
    parts.entries.iter_mut().zip(view.entries()).for_each(|(to, from)| *to = from);
    let mut ragged = Vec::new();
    for (index, column) in parts.columns.into_iter().enumerate() {
        let samples = (0..view.len()).map(|entry| view.sample_bytes(index, entry));
        ragged.push(match column {
            Some(column) => {
                samples.enumerate().for_each(|(entry, bytes)| {
                    column.bytes[entry * column.sample_bytes..][..column.sample_bytes].copy_from_slice(bytes);
                });
                vec![]
            }
            None => samples.collect(),
        });
    }
    let used_bytes = layout.finish(&mut slot, *view.header(), &ragged);
    slot.publish();
    (slab, used_bytes)
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let seed = |kind: u8| {
        let layout = layout(kind);
        let entries = layout.capacity() as usize;
        let slab = Slab::private(1, layout.slot_bytes()).expect("a small slab");
        let mut slot = slab.try_take(0).expect("it is free");
        let parts = layout.split(&mut slot, entries);
        parts.entries.iter_mut().zip(0..).for_each(|(entry, id)| (entry.id, entry.offset) = (id, 10 + id));
        let (texts, rows) =
            (["one", "", "three"].map(str::as_bytes), ["sixsix", "", "twelve bytes"].map(str::as_bytes));
        let values = |column: &ColumnLayout| match column.place {
            Place::Fixed { .. } => vec![],
            Place::Ragged { row_bytes, .. } => (if row_bytes == 1 { texts } else { rows })[..entries].to_vec(),
        };
        let ragged: Vec<Vec<&[u8]>> = layout.columns().iter().map(values).collect();
        let mut header = Header { entries: entries as u32, world: 2, ..*parts.header };
        header.next_offset = 20;
        let used_bytes = layout.finish(&mut slot, header, &ragged);
        [&[kind], &slot[..used_bytes]].concat()
    };
    (0..5).map(seed).collect()
}
