//! The memory that a batch is made in: its slot, the values of ragged columns beside it, and the places of samples in
//! both.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use spdl_job::layout::{Entry, FixedColumn, Header, Layout, Place, SlotParts, entry_flags};
use spdl_wire::slab::SlotMut;

use super::sample::BatchSample;
use crate::{
    decode::FieldTarget,
    feed::{
        room::{BatchRoom, SampleReservation},
        sharing::{KeptSample, SharingMember},
    },
    fetch::BlockBytes,
};

/// Values of at least this many bytes in all are copied on a thread that may block.
pub(super) const BLOCKING_BYTES: u64 = 256 << 10;

/// The slot that is being filled, and the values of ragged columns. These are written to the slot once the whole batch
/// is decoded, as each value begins where the one before it ends.
#[derive(Debug)]
pub(super) struct BatchBuffer {
    slot: SlotMut,
    room: Option<Arc<BatchRoom>>,
    /// Values by column, then by entry; empty for fixed columns.
    ragged: Vec<Vec<Bytes>>,
    /// Blocks that contain some of the values.
    blocks: Vec<BlockBytes>,
    entries: usize,
    partners: Partners,
    /// The labels of the global batch that are learned, if that is known.
    pub(super) loss_tokens: Option<u64>,
}

const EMPTY_ENTRY: Entry = Entry { id: 0, offset: 0, epoch: 0, flags: 0, reserved: 0 };

/// Samples that are decoded only because samples of the batch are mixed with them.
#[derive(Debug)]
struct Partners {
    entries: Vec<Entry>,
    /// Samples by column; empty for ragged columns.
    fixed: Vec<Vec<u8>>,
    /// Values by column, then by entry; empty for fixed columns.
    ragged: Vec<Vec<Bytes>>,
}

/// The place of a sample in the slot, or beside it.
pub(super) struct SamplePlace<'a> {
    pub(super) entry: &'a mut Entry,
    room: Option<&'a BatchRoom>,
    /// Whether the sample is a partner, which lies beside the slot; only its fixed columns are mixed.
    is_partner: bool,
    /// One for each column.
    pub(super) targets: SmallVec<[FieldTarget<'a>; 4]>,
}

/// A sample that is decoded before its batch has a slot.
#[derive(Debug)]
pub(in crate::feed) struct EarlySample {
    /// Its columns of one shape, one after another.
    fixed: Vec<u8>,
    /// Its values of ragged columns.
    ragged: Vec<Bytes>,
    reservation: SampleReservation,
}

impl Partners {
    fn new(layout: &Layout, count: usize) -> Self {
        let fixed = |place: &Place| match place {
            Place::Fixed { sample_bytes, .. } => vec![0; sample_bytes * count],
            Place::Ragged { .. } => Vec::new(),
        };
        Self {
            entries: vec![EMPTY_ENTRY; count],
            fixed: layout.columns().iter().map(|column| fixed(&column.place)).collect(),
            ragged: ragged_values(layout, count),
        }
    }
}

/// Returns empty values for `entries` entries, by column; none for fixed columns.
fn ragged_values(layout: &Layout, entries: usize) -> Vec<Vec<Bytes>> {
    let values = |place: &Place| match place {
        Place::Fixed { .. } => Vec::new(),
        Place::Ragged { .. } => vec![Bytes::new(); entries],
    };
    layout.columns().iter().map(|column| values(&column.place)).collect()
}

impl BatchBuffer {
    /// Creates the buffer of a batch with `entries` entries. Its `invalid` entries hold no sample, and the `partners`
    /// have entries of their own after those of the batch.
    pub(super) fn new(
        layout: &Layout,
        slot: SlotMut,
        room: Option<Arc<BatchRoom>>,
        entries: usize,
        partners: usize,
        invalid: &[BatchSample],
    ) -> Self {
        let (ragged, partners) = (ragged_values(layout, entries), Partners::new(layout, partners));
        let mut buffer = Self { slot, room, ragged, blocks: Vec::new(), entries, partners, loss_tokens: None };
        if !invalid.is_empty() {
            let mut places = buffer.places(layout);
            for sample in invalid {
                places[sample.entry as usize].as_mut().expect("not taken").zero(sample, sample.flags);
            }
        }
        buffer
    }

    /// Returns the places of all entries, and those of each column.
    pub(super) fn parts(&mut self, layout: &Layout) -> SlotParts<'_> {
        layout.split(&mut self.slot, self.entries)
    }

    /// Returns the places of all entries of the batch, then those of the partners, each with its columns.
    pub(super) fn places(&mut self, layout: &Layout) -> Vec<Option<SamplePlace<'_>>> {
        let parts = layout.split(&mut self.slot, self.entries);
        let (partners, room) = (&mut self.partners, self.room.as_deref());
        let place = |(entry, is_partner)| Some(SamplePlace { entry, room, is_partner, targets: SmallVec::new() });
        let in_slot = parts.entries.iter_mut().map(|entry| (entry, false));
        let beside = partners.entries.iter_mut().map(|entry| (entry, true));
        let mut places: Vec<_> = in_slot.chain(beside).map(place).collect();
        let beside = partners.fixed.iter_mut().zip(&mut partners.ragged);
        for ((fixed, ragged), (fixed_beside, ragged_beside)) in
            parts.columns.into_iter().zip(&mut self.ragged).zip(beside)
        {
            let targets: Box<dyn Iterator<Item = FieldTarget<'_>>> = match fixed {
                Some(FixedColumn { sample_bytes, bytes }) => {
                    let beside = fixed_beside.chunks_exact_mut(sample_bytes);
                    Box::new(bytes.chunks_exact_mut(sample_bytes).chain(beside).map(FieldTarget::Fixed))
                }
                None => Box::new(ragged.iter_mut().chain(ragged_beside).map(FieldTarget::Ragged)),
            };
            for (place, target) in places.iter_mut().flatten().zip(targets) {
                place.targets.push(target);
            }
        }
        places
    }

    /// Copies samples that were decoded early to their places.
    pub(super) fn place(&mut self, layout: &Layout, early: Vec<(BatchSample, EarlySample)>) {
        let mut places = self.places(layout);
        for (sample, early) in early {
            places[sample.entry as usize].as_mut().expect("not taken").copy(&sample, early);
        }
    }

    /// Sets the value of a ragged column. If there is no room for it, it is dropped: the batch starts again.
    pub(super) fn put(&mut self, column: usize, entry: usize, value: Bytes) {
        let bytes = value.len() as u64;
        let has_room = self.room.as_ref().is_none_or(|room| room.take(bytes, bytes));
        self.ragged[column][entry] = if has_room { value } else { Bytes::new() };
    }

    /// Keeps blocks of decoded samples in memory, because values of ragged columns may be slices of them.
    pub(super) fn hold(&mut self, blocks: impl Iterator<Item = BlockBytes>) {
        if self.ragged.iter().any(|values| !values.is_empty()) {
            self.blocks.extend(blocks);
        }
    }

    /// Returns the bytes of the values of ragged columns.
    pub(super) fn value_bytes(&self) -> u64 {
        self.ragged.iter().flatten().map(|value| value.len() as u64).sum()
    }

    /// Returns the slot, to fill it anew.
    pub(super) fn into_slot(self) -> SlotMut {
        self.slot
    }

    /// Writes the ragged columns and the header, of which the rest is known here. Returns the slot and its bytes in use.
    pub(super) fn finish(mut self, layout: &Layout, header: Header) -> (SlotMut, u64) {
        let entries = u32::try_from(self.entries).expect("a batch fits its capacity");
        let learned = Header::learned_of(self.loss_tokens);
        let header = Header { entries, capacity: layout.capacity(), learned, ..header };
        let used_bytes = layout.finish(&mut self.slot, header, &self.ragged) as u64;
        (self.slot, used_bytes)
    }
}

impl EarlySample {
    /// Returns the bytes of a sample in columns of one shape, and whether it has other columns.
    pub(in crate::feed) fn bytes_of(layout: &Layout) -> (usize, bool) {
        let places = || layout.columns().iter().map(|column| &column.place);
        let fixed = places().map(|place| if let Place::Fixed { sample_bytes, .. } = place { *sample_bytes } else { 0 });
        (fixed.sum(), places().any(|place| matches!(place, Place::Ragged { .. })))
    }

    /// Creates the memory of a sample, of which `fixed_bytes` are those of columns of one shape.
    pub(super) fn new(layout: &Layout, fixed_bytes: usize, reservation: SampleReservation) -> Self {
        let ragged = layout.columns().iter().filter(|column| matches!(column.place, Place::Ragged { .. }));
        Self { fixed: vec![0; fixed_bytes], ragged: ragged.map(|_| Bytes::new()).collect(), reservation }
    }

    /// Lets `write` write the sample to its place in this memory.
    pub(super) fn write<T>(&mut self, layout: &Layout, write: impl FnOnce(&mut SamplePlace<'_>) -> T) -> T {
        let (mut left, mut ragged) = (&mut self.fixed[..], self.ragged.iter_mut());
        let target = |place: &Place| match place {
            Place::Fixed { sample_bytes, .. } => {
                let (place, rest) = std::mem::take(&mut left).split_at_mut(*sample_bytes);
                left = rest;
                FieldTarget::Fixed(place)
            }
            Place::Ragged { .. } => FieldTarget::Ragged(ragged.next().expect("a value for each ragged column")),
        };
        let targets = layout.columns().iter().map(|column| &column.place).map(target).collect();
        let mut entry = EMPTY_ENTRY;
        write(&mut SamplePlace { entry: &mut entry, room: None, is_partner: false, targets })
    }

    /// Returns the sample once it is written, with memory for what it takes; `None` if there is too little. Values that are slices of its
    /// block would keep all of that, outside the budget, and are copied.
    pub(super) fn settled(mut self) -> Option<Self> {
        for value in self.ragged.iter_mut().filter(|value| !value.is_unique()) {
            *value = Bytes::copy_from_slice(value);
        }
        let bytes = self.fixed.len() + self.ragged.iter().map(Bytes::len).sum::<usize>();
        self.reservation.resize_early(bytes as u64).then_some(self)
    }

    /// Returns the bytes of its columns of one shape, which are copied to their places.
    pub(super) const fn copied_bytes(&self) -> u64 {
        self.fixed.len() as u64
    }
}

impl SamplePlace<'_> {
    /// Copies a sample that was decoded early, and completes its entry.
    fn copy(&mut self, sample: &BatchSample, EarlySample { fixed, ragged, reservation: _reserved }: EarlySample) {
        let (mut left, mut ragged) = (&fixed[..], ragged.into_iter());
        for target in &mut self.targets {
            match target {
                FieldTarget::Fixed(place) => {
                    let (column, rest) = left.split_at(place.len());
                    place.copy_from_slice(column);
                    left = rest;
                }
                FieldTarget::Ragged(value) => **value = ragged.next().expect("a value for each ragged column"),
            }
        }
        self.keep(sample, false);
    }

    /// Copies a sample that another rank has decoded, and completes its entry.
    pub(super) fn take(&mut self, member: &SharingMember, sample: &BatchSample, kept: &KeptSample) {
        member.take(sample.draw(), kept, &mut self.targets);
        self.keep(sample, false);
    }

    /// Returns whether the batch has to start again, so that nothing need be written.
    pub(super) fn is_revoked(&self) -> bool {
        self.room.is_some_and(BatchRoom::is_revoked)
    }

    /// Completes the entry of a decoded sample. Values that are slices of its block stay slices if the block `is_held`
    /// until the batch is filled, and are copied otherwise. Values for which there is no room are dropped: the batch
    /// starts again.
    pub(super) fn keep(&mut self, sample: &BatchSample, is_held: bool) {
        for target in &mut self.targets {
            let FieldTarget::Ragged(value) = target else { continue };
            if self.is_partner {
                **value = Bytes::new();
                continue;
            }
            let is_part = !value.is_unique();
            let beside_bytes = if is_part && is_held { 0 } else { value.len() as u64 };
            let has_room = self.room.is_none_or(|room| room.take(value.len() as u64, beside_bytes));
            if !has_room {
                **value = Bytes::new();
            } else if is_part && !is_held {
                // A slice of a block would keep the whole block in memory, outside the budget.
                **value = Bytes::copy_from_slice(value);
            }
        }
        self.write_entry(sample, sample.flags);
    }

    /// Zeroes the entry of a sample that is not delivered.
    pub(super) fn mask(&mut self, sample: &BatchSample) {
        self.zero(sample, sample.flags | entry_flags::MASKED);
    }

    fn zero(&mut self, sample: &BatchSample, flags: u32) {
        for target in &mut self.targets {
            match target {
                FieldTarget::Fixed(bytes) => bytes.fill(0),
                FieldTarget::Ragged(value) => **value = Bytes::new(),
            }
        }
        self.write_entry(sample, flags);
    }

    fn write_entry(&mut self, sample: &BatchSample, flags: u32) {
        *self.entry = entry(sample, flags);
    }
}

/// Returns the entry of a sample.
pub(super) const fn entry(BatchSample { id, at, .. }: &BatchSample, flags: u32) -> Entry {
    Entry { id: id.0, offset: at.offset, epoch: at.epoch, flags, reserved: 0 }
}
