//! Puts long ranges together of their parts, each of which is read into its place, so that a long record lies in one piece of memory and
//! is copied no more than once on its way there.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;

use super::{
    pieces::Pieces,
    reused::{LentMemory, ReusedMemory},
};

/// The parts of a range that is longer than this are put together, in memory that is used again. When lowered, what comes of a web server
/// in one piece is copied once more; when raised, shorter blocks are read into new pages, which costs more than reading them.
pub(super) const JOINED_BYTES: u64 = 1 << 20;

/// The place of a part in the memory of its range. One request at a time has it; others have to write elsewhere.
#[derive(Debug)]
pub(crate) struct PartPlace(Mutex<Option<LentMemory>>);

/// The memory of a part's place, which is back there when this is dropped, unless it was taken out.
#[derive(Debug)]
pub(super) struct TakenPlace<'p> {
    place: &'p PartPlace,
    pub(super) memory: Option<LentMemory>,
}

/// The bytes of a part.
#[derive(Debug)]
pub(crate) enum PartBytes {
    /// They are in their place.
    Placed(LentMemory),
    /// They are elsewhere.
    Apart(Bytes),
}

/// Gives the parts of ranges their places, in their order.
#[derive(Debug)]
pub(super) struct PartPlaces {
    memory: Arc<ReusedMemory>,
    /// What the next parts of a range take.
    left: Option<LentMemory>,
}

/// Collects parts of ranges in their order.
#[derive(Debug, Default)]
pub(super) struct PartCollector {
    pieces: Vec<(u64, Bytes)>,
    /// Where the memory of parts begins that are in their places, one after the other.
    joined: Option<(u64, LentMemory)>,
}

impl PartPlace {
    /// Takes the memory, if no other request has it and `bytes` fill it.
    pub(super) fn take(&self, bytes: u64) -> Option<TakenPlace<'_>> {
        let memory = self.0.lock().take_if(|memory| memory.len() as u64 == bytes)?;
        Some(TakenPlace { place: self, memory: Some(memory) })
    }
}

impl Drop for TakenPlace<'_> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            *self.place.0.lock() = Some(memory);
        }
    }
}

impl PartBytes {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Placed(memory) => memory.len() as u64,
            Self::Apart(bytes) => bytes.len() as u64,
        }
    }
}

impl PartPlaces {
    pub(super) const fn new(memory: Arc<ReusedMemory>) -> Self {
        Self { memory, left: None }
    }

    /// Returns the place of the next part of `range`, if its parts are put together. Takes memory when the first part comes.
    pub(super) fn next(&mut self, range: &Range<u64>, part: Range<u64>) -> Option<PartPlace> {
        let bytes = range.end - range.start;
        if part.start == range.start {
            let length = usize::try_from(bytes).ok().filter(|_| bytes > JOINED_BYTES);
            self.left = length.map(|length| self.memory.take(length));
        }
        let memory = match part.end == range.end {
            // The last part has the spare room behind it.
            true => self.left.take()?,
            false => self.left.as_mut()?.split_to((part.end - part.start) as usize),
        };
        Some(PartPlace(Mutex::new(Some(memory))))
    }
}

impl PartCollector {
    /// Adds the bytes at `at`, the next part of a range, and what is left of its place.
    pub(super) fn add(&mut self, at: u64, part: PartBytes, place: Option<PartPlace>) {
        let memory = match part {
            PartBytes::Placed(memory) => memory,
            PartBytes::Apart(bytes) => {
                let place = place.and_then(|place| place.0.into_inner());
                match place.filter(|memory| memory.len() == bytes.len()) {
                    Some(mut memory) => {
                        memory.bytes.copy_from_slice(&bytes);
                        memory
                    }
                    // A request that was given up may still write there.
                    None => {
                        self.flush();
                        return self.pieces.push((at, bytes));
                    }
                }
            }
        };
        match &mut self.joined {
            Some((start, joined)) if *start + joined.len() as u64 == at && joined.is_before(&memory) => {
                joined.unsplit(memory);
            }
            _ => {
                self.flush();
                self.joined = Some((at, memory));
            }
        }
    }

    fn flush(&mut self) {
        self.pieces.extend(self.joined.take().map(|(start, memory)| (start, memory.freeze())));
    }

    /// Returns the pieces, once all parts have come.
    pub(super) fn finish(mut self) -> Pieces {
        self.flush();
        Pieces::new(self.pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART_BYTES: u64 = JOINED_BYTES / 16 * 5;

    /// Collects the parts of a range, of which `is_placed` says whether they come in their places and `is_lost` whether these are lost.
    fn collected(
        range: Range<u64>,
        is_placed: impl Fn(u64) -> bool,
        is_lost: impl Fn(u64) -> bool,
    ) -> (Vec<u8>, Pieces) {
        let all: Vec<u8> = range.clone().map(|at| (at % 251) as u8).collect();
        let mut places = PartPlaces::new(Arc::default());
        let mut collector = PartCollector::default();
        for (number, content) in all.chunks(PART_BYTES as usize).enumerate() {
            let (number, at) = (number as u64, range.start + number as u64 * PART_BYTES);
            let place = places.next(&range, at..at + content.len() as u64);
            let part = {
                let taken = place.as_ref().and_then(|place| place.take(content.len() as u64));
                if let Some(taken) = &taken {
                    let other = place.as_ref().and_then(|place| place.take(content.len() as u64));
                    assert!(other.is_none(), "{:?} and {taken:?}", other.unwrap());
                }
                match taken {
                    Some(mut taken) if is_placed(number) => {
                        let mut memory = taken.memory.take().unwrap();
                        memory.bytes.copy_from_slice(content);
                        PartBytes::Placed(memory)
                    }
                    Some(mut taken) if is_lost(number) => {
                        drop(taken.memory.take());
                        PartBytes::Apart(Bytes::copy_from_slice(content))
                    }
                    _not_used => PartBytes::Apart(Bytes::copy_from_slice(content)),
                }
            };
            collector.add(at, part, place);
        }
        (all, collector.finish())
    }

    #[test]
    fn a_long_range_is_one_piece_and_short_ones_stay_as_they_came() {
        let long = 100..100 + JOINED_BYTES + 10;
        let short = 7..7 + JOINED_BYTES;
        let placed: [fn(u64) -> bool; 3] = [|_| true, |number| number.is_multiple_of(2), |_| false];
        for (range, pieces) in [(long, 1), (short, 4)] {
            for is_placed in placed {
                let (all, found) = collected(range.clone(), is_placed, |_| false);
                assert_eq!(found.iter().count(), pieces, "{range:?}");
                assert!(found.slice(range.clone()).is_some_and(|slice| slice == all));
            }
        }
    }

    #[test]
    fn a_part_whose_place_is_lost_stays_apart() {
        let range = 3..3 + JOINED_BYTES + 1;
        for (lost, pieces) in [(0, 2), (1, 3), (3, 2)] {
            let (all, found) = collected(range.clone(), |number| number != lost, |number| number == lost);
            assert_eq!(found.iter().count(), pieces, "{lost}");
            assert!(found.slice(range.clone()).is_some_and(|slice| slice == all));
        }
    }
}
