//! Tests of batches in the slots of a real slab.

use parking_lot::Mutex;
use spdl_job::{
    BytesColumn, Column, ColumnKind, ImageColumn, IntColumn,
    layout::{Place, entry_flags},
};
use spdl_types::DType;
use spdl_wire::slab::Slab;

use super::*;

#[derive(Default)]
struct FreedSlots(Mutex<Vec<u32>>);

impl FreeSlot for FreedSlots {
    fn free(&self, slot: u32) {
        self.0.lock().push(slot);
    }
}

/// The columns of the tests: an image of 2 x 3 pixels, a text and a label.
pub(crate) fn columns() -> Vec<Column> {
    let image = ImageColumn { size: [2, 3], ..ImageColumn::default() };
    [
        ("image", ColumnKind::Image(image), DType::F32),
        ("text", ColumnKind::Bytes(BytesColumn { max_bytes: 100 }), DType::U8),
        ("label", ColumnKind::Int(IntColumn), DType::I64),
    ]
    .map(|(name, kind, dtype)| Column::new(name, name, kind, dtype))
    .into()
}

/// Fills a slot of `slab` with samples whose ids are ten times their offsets, and publishes it.
fn fill(slab: &Slab, layout: &Layout, from: Position, entries: usize) -> (SlotRef, u64) {
    let mut slot = slab.take_any().expect("a free slot");
    let parts = layout.split(&mut slot, entries);
    for (at, entry) in parts.entries.iter_mut().enumerate() {
        let offset = from.offset + at as u64;
        *entry = Entry { id: offset * 10, offset, epoch: from.epoch, flags: 0, reserved: 0 };
    }
    for (column, place) in parts.columns.into_iter().zip(layout.columns()) {
        if let Some(column) = column {
            for (at, sample) in column.bytes.chunks_exact_mut(column.sample_bytes).enumerate() {
                match place.dtype {
                    DType::U8 => {
                        sample.iter_mut().zip(0..).for_each(|(x, place): (_, usize)| *x = (at * 7 + place * 11) as u8)
                    }
                    DType::I64 => sample.copy_from_slice(&(at as i64 - 1).to_le_bytes()),
                    _ => sample.chunks_exact_mut(4).for_each(|x| x.copy_from_slice(&(at as f32 / 4.0).to_le_bytes())),
                }
            }
        }
    }
    let texts: Vec<Vec<u8>> = (0..entries).map(|at| vec![b'a' + at as u8; at]).collect();
    let ragged: Vec<Vec<Vec<u8>>> = layout
        .columns()
        .iter()
        .map(|column| if matches!(column.place, Place::Ragged { .. }) { texts.clone() } else { vec![] })
        .collect();
    let header = Header {
        entries: entries as u32,
        epoch: from.epoch,
        offset: from.offset,
        next_epoch: from.epoch,
        next_offset: from.offset + entries as u64,
        world: 1,
        ..bytemuck::Zeroable::zeroed()
    };
    let used_bytes = layout.finish(&mut slot, header, &ragged) as u64;
    let number = slot.publish();
    (slab.read(number).expect("just published"), used_bytes)
}

/// Creates batches in the slots of a slab. Dropping a batch frees its slot.
pub(crate) struct SlotFiller {
    slab: Slab,
    layout: Arc<Layout>,
}

impl FreeSlot for Slab {
    fn free(&self, slot: u32) {
        assert!(self.release(slot), "slot {slot} was published");
    }
}

impl SlotFiller {
    pub(crate) fn new(slab: Slab, capacity: u32) -> Self {
        Self::of(slab, &columns(), capacity)
    }

    pub(crate) fn of(slab: Slab, columns: &[Column], capacity: u32) -> Self {
        Self { slab, layout: Arc::new(Layout::new(columns, capacity)) }
    }

    pub(crate) fn batch(&self, from: Position, entries: usize) -> Batch {
        let (slot, used_bytes) = fill(&self.slab, &self.layout, from, entries);
        Batch::new(slot, used_bytes, self.layout.clone(), Arc::new(self.slab.clone())).unwrap()
    }
}

fn one_batch() -> (Batch, Arc<FreedSlots>, Slab) {
    let layout = Arc::new(Layout::new(&columns(), 4));
    let slab = Slab::private(2, layout.slot_bytes()).unwrap();
    let (slot, used_bytes) = fill(&slab, &layout, Position::new(2, 8), 3);
    let freed = Arc::new(FreedSlots::default());
    (Batch::new(slot, used_bytes, layout, freed.clone()).unwrap(), freed, slab)
}

#[test]
fn a_batch_gives_its_columns_as_typed_and_shaped_slices() {
    let (batch, ..) = one_batch();
    assert_eq!((batch.from(), batch.next(), batch.len()), (Position::new(2, 8), Position::new(2, 11), 3));
    assert_eq!(batch.entries().map(|entry| entry.id).collect::<Vec<_>>(), [80, 90, 100]);
    let image = batch.column("image").unwrap();
    assert_eq!(image.shape(), Some(vec![3, 2, 3, 3]));
    assert_eq!(image.as_slice::<f32>().unwrap()[18..36], [0.25; 18]);
    assert_eq!(image.sample::<f32>(2).unwrap(), [0.5; 18]);
    let label = batch.column("label").unwrap();
    assert_eq!((label.shape(), label.as_slice::<i64>().unwrap()), (Some(vec![3]), [-1, 0, 1].as_slice()));
    let text = batch.column("text").unwrap();
    assert_eq!((text.shape(), text.offsets()), (None, Some([0, 0, 1, 3].as_slice())));
    assert_eq!(text.as_slice::<u8>().unwrap(), b"bcc");
    assert_eq!(text.samples::<u8>().unwrap().collect::<Vec<_>>(), [b"".as_slice(), b"b", b"cc"]);
    assert_eq!(batch.columns().map(|column| column.name()).collect::<Vec<_>>(), ["image", "text", "label"]);
}

#[test]
fn a_wrong_name_or_type_is_an_error_that_lists_the_right_ones() {
    let (batch, ..) = one_batch();
    let missing = batch.column("images").unwrap_err().to_string();
    assert_eq!(missing, "no column `images`; there are `image`, `text`, `label`");
    let wrong = batch.column("image").unwrap().as_slice::<u8>().unwrap_err().to_string();
    assert_eq!(wrong, "column `image` holds f32, not u8");
}

#[test]
fn a_batch_gives_its_slot_back_once_and_from_any_thread() {
    let (batch, freed, slab) = one_batch();
    let number = batch.slot();
    assert!(!slab.release(number), "it is being read");
    std::thread::spawn(move || drop(batch)).join().unwrap();
    assert_eq!(*freed.0.lock(), [number]);
    assert!(slab.release(number), "it has no reader any more");
}

#[test]
fn a_slot_that_holds_no_batch_is_refused_and_given_back() {
    let layout = Arc::new(Layout::new(&columns(), 4));
    let slab = Slab::private(3, layout.slot_bytes()).unwrap();
    let freed = Arc::new(FreedSlots::default());
    let (slot, used_bytes) = fill(&slab, &layout, Position::START, 4);
    for wrong in [used_bytes - 64, used_bytes + 1, u64::MAX] {
        let error = Batch::new(slot.clone(), wrong, layout.clone(), freed.clone()).unwrap_err();
        assert!(matches!(error, LayoutError::Field { field: "used_bytes", .. }), "{wrong}: {error}");
    }
    let other = Arc::new(Layout::new(&columns(), 5));
    assert!(Batch::new(slot, used_bytes, other, freed.clone()).is_err());
    assert_eq!(freed.0.lock().len(), 4);
}

#[test]
fn receipt_and_digest_follow_the_delivered_entries_and_their_bytes() {
    let layout = Arc::new(Layout::new(&columns(), 4));
    let slab = Slab::private(1, layout.slot_bytes()).unwrap();
    let batch_of = |spoil: &dyn Fn(&mut [u8])| {
        let (slot, used_bytes) = fill(&slab, &layout, Position::START, 2);
        let copy = slot.to_vec();
        let number = slot.slot();
        drop(slot);
        assert!(slab.release(number));
        let mut slot = slab.take_any().unwrap();
        slot.copy_from_slice(&copy);
        spoil(&mut slot);
        let slot = slot.publish();
        let batch =
            Batch::new(slab.read(slot).unwrap(), used_bytes, layout.clone(), Arc::new(FreedSlots::default())).unwrap();
        let result = (batch.receipt(), batch.content_digest());
        drop(batch);
        assert!(slab.release(slot));
        result
    };
    let plain = batch_of(&|_| {});
    assert_eq!(plain, batch_of(&|_| {}));
    let entry_1 = size_of::<Header>() + size_of::<Entry>();
    let flags =
        |flags: u32| move |slot: &mut [u8]| slot[entry_1 + 24..entry_1 + 28].copy_from_slice(&flags.to_le_bytes());
    let padded = batch_of(&flags(entry_flags::PADDING));
    assert_ne!(padded.0, plain.0, "padding is not delivered");
    assert_eq!(padded, batch_of(&flags(entry_flags::PADDING | entry_flags::INVALID)));
    let substituted = batch_of(&flags(entry_flags::SUBSTITUTED));
    assert_eq!(substituted.0, plain.0);
    assert_ne!(substituted.1, plain.1);
    let Place::Fixed { offset, .. } = layout.columns()[0].place else { panic!("an image is fixed") };
    let pixel = batch_of(&|slot| slot[offset] ^= 1);
    assert_eq!(pixel.0, plain.0);
    assert_ne!(pixel.1, plain.1);
}

#[test]
fn the_digest_of_an_entry_is_the_xxh3_of_its_place_and_its_columns() {
    let layout = Arc::new(Layout::new(&columns(), 4));
    let slab = Slab::private(1, layout.slot_bytes()).unwrap();
    let (slot, used_bytes) = fill(&slab, &layout, Position::new(1, 6), 1);
    let batch = Batch::new(slot, used_bytes, layout, Arc::new(FreedSlots::default())).unwrap();
    let mut bytes: Vec<u8> = [1u64, 6, 60].iter().flat_map(|x| x.to_le_bytes()).collect();
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(72u64.to_le_bytes());
    bytes.extend([0; 72]);
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(8u64.to_le_bytes());
    bytes.extend((-1i64).to_le_bytes());
    assert_eq!(batch.content_digest().0, xxhash_rust::xxh3::xxh3_128(&bytes));
}
