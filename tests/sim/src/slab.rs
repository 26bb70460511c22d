//! The content of a slot, with which the oracle detects a batch that changes while it is read.

use std::{cell::RefCell, rc::Rc};

use spdl_types::Position;

/// An entry of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotEntry {
    pub(crate) at: Position,
    pub(crate) id: u64,
    pub(crate) flags: u32,
    /// The digest of the columns that it holds. A faulty decoder may give wrong ones.
    pub(crate) columns: Option<u64>,
}

/// The content of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) rank: u32,
    pub(crate) world: u32,
    pub(crate) from: Position,
    pub(crate) next: Position,
    pub(crate) entries: Vec<SlotEntry>,
}

/// The slots; `None` where a slot is empty or only partly written.
pub(crate) type SlotContents = Vec<Option<Rc<Content>>>;

/// Memory that two processes may have mapped.
pub(crate) type SharedSlab = Rc<RefCell<SlotContents>>;

pub(crate) fn slab(slots: u32) -> SharedSlab {
    Rc::new(RefCell::new(vec![None; slots as usize]))
}
