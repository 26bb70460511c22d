//! The ranks that a worker serves just then, and how many it may.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;
use spdl_wire::messages::{RankFigures, Transport};

use crate::feed::FeedView;

/// Seats for ranks.
#[derive(Debug)]
pub(crate) struct Ranks {
    limit: usize,
    seats: Mutex<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    last: u64,
    by_number: BTreeMap<u64, Sitter>,
}

/// Who sits there, once somebody does.
type Sitter = Arc<OnceLock<(FeedView, Transport)>>;

/// One rank's seat; free again when dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    ranks: Arc<Ranks>,
    number: u64,
    taken: Sitter,
}

impl Ranks {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, seats: Mutex::default() })
    }

    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    /// A seat; `None` when all are taken.
    pub(crate) fn seat(self: &Arc<Self>) -> Option<Seat> {
        let mut seats = self.seats.lock();
        if seats.by_number.len() >= self.limit {
            return None;
        }
        seats.last += 1;
        let number = seats.last;
        let taken = Sitter::default();
        seats.by_number.insert(number, taken.clone());
        Some(Seat { ranks: self.clone(), number, taken })
    }

    /// How each of the ranks stands.
    pub(crate) fn figures(&self) -> Vec<RankFigures> {
        let seats = self.seats.lock();
        let taken = seats.by_number.values().filter_map(|seat| seat.get());
        taken.map(|(view, transport)| view.figures(*transport)).collect()
    }
}

impl Seat {
    /// From now on the rank is one of those served.
    pub(crate) fn taken_by(&self, view: FeedView, transport: Transport) {
        assert!(self.taken.set((view, transport)).is_ok(), "a seat is taken once");
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.ranks.seats.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_that_is_given_up_can_be_taken_again() {
        let ranks = Ranks::new(2);
        let (first, _second) = (ranks.seat().unwrap(), ranks.seat().unwrap());
        assert!(ranks.seat().is_none());
        drop(first);
        assert!(ranks.seat().is_some());
        assert!(ranks.figures().is_empty(), "nobody sits there yet");
    }
}
