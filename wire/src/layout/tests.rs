//! Tests of the layout: what is written is read, and what is off is refused.

use super::*;
use spdl_shard::job::{ColumnKind, ImageColumn, ImageLayout};

fn columns() -> Vec<Column> {
    let image = ImageColumn { ops: vec![], layout: ImageLayout::Nhwc, normalise: None, size: [3, 5] };
    [
        ("image", ColumnKind::Image(image), DType::U8),
        ("text", ColumnKind::Bytes { max_bytes: 100 }, DType::U8),
        ("label", ColumnKind::Int, DType::I64),
        ("blob", ColumnKind::Bytes { max_bytes: 7 }, DType::U8),
    ]
    .map(|(name, kind, dtype)| Column { name: name.into(), from: vec![name.into()], kind, dtype })
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
