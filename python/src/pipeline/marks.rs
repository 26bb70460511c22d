//! Tracks which batches of a loader the consumer has taken completely, while others are still in the stages: items
//! carry marks, which report to a tracker.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use spdl_types::Position;

/// The batches that left the source, up to the first one that is not settled.
#[derive(Debug, Default)]
pub(crate) struct Tracker(Mutex<Tracked>);

#[derive(Debug, Default)]
struct Tracked {
    /// Number of the first batch of `ahead`.
    first: usize,
    /// Position after each batch that left the source, and whether all its shares are settled.
    ahead: VecDeque<(Position, bool)>,
    /// Position after the last batch up to which all batches are settled.
    settled: Option<Position>,
}

impl Tracker {
    /// Makes the mark of the next batch, which ends before `next` in the stream.
    pub(crate) fn mark(self: &Arc<Self>, next: Position) -> Marks {
        let mut tracked = self.0.lock();
        let number = tracked.first + tracked.ahead.len();
        tracked.ahead.push_back((next, false));
        Marks::One(Arc::new(Mark { tracker: self.clone(), number, shares: AtomicUsize::new(1) }))
    }

    /// Returns the position after the batches that are settled; `None` before the first one is.
    pub(crate) fn position(&self) -> Option<Position> {
        self.0.lock().settled
    }

    fn settle(&self, number: usize) {
        let mut tracked = self.0.lock();
        let at = number - tracked.first;
        tracked.ahead[at].1 = true;
        while let Some((position, true)) = tracked.ahead.front().copied() {
            tracked.ahead.pop_front();
            tracked.first += 1;
            tracked.settled = Some(position);
        }
    }
}

/// One batch of the loader, which lives until all its shares are settled.
#[derive(Debug)]
pub(crate) struct Mark {
    tracker: Arc<Tracker>,
    number: usize,
    shares: AtomicUsize,
}

/// An item's shares in the batches that it was made of. A share is settled when the consumer takes the item or an
/// operation leaves it out. Items that are dropped with a stopped pipeline stay unsettled.
#[derive(Debug)]
pub(crate) enum Marks {
    /// The source keeps no positions.
    None,
    /// A share in one batch.
    One(Arc<Mark>),
    /// Shares in the batches of a list.
    Many(Vec<Marks>),
}

impl Marks {
    /// Combines the shares of a list's items.
    pub(crate) fn of(marks: impl Iterator<Item = Self>) -> Self {
        let marks: Vec<Self> = marks.filter(|marks| !matches!(marks, Self::None)).collect();
        if marks.is_empty() { Self::None } else { Self::Many(marks) }
    }

    /// Makes a share for another item that is made of the same batches.
    pub(crate) fn share(&self) -> Self {
        match self {
            Self::None => Self::None,
            Self::One(mark) => {
                mark.shares.fetch_add(1, Ordering::Relaxed);
                Self::One(mark.clone())
            }
            Self::Many(marks) => Self::Many(marks.iter().map(Self::share).collect()),
        }
    }

    /// Settles this share.
    pub(crate) fn settle(self) {
        match self {
            Self::None => {}
            Self::One(mark) => {
                if mark.shares.fetch_sub(1, Ordering::AcqRel) == 1 {
                    mark.tracker.settle(mark.number);
                }
            }
            Self::Many(marks) => marks.into_iter().for_each(Self::settle),
        }
    }
}
