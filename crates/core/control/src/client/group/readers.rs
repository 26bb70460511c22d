//! Which members still read which slots.

use std::collections::{BTreeMap, BTreeSet};

use crate::client::LinkId;

/// The slots that are shared, each with the set of its readers: bit m is member m.
#[derive(Debug, Default)]
pub(super) struct SlotReaders(BTreeMap<(LinkId, u32), u64>);

impl SlotReaders {
    /// Lends a slot to the members whose bits are set.
    pub(super) fn share(&mut self, link: LinkId, slot: u32, members: u64) {
        let before = self.0.insert((link, slot), members);
        assert_eq!(before, None, "slot {slot} is shared while members {before:?} read it");
    }

    /// Takes a slot back from a member. Returns whether it was the last reader; `None` if it was none.
    pub(super) fn release(&mut self, member: u32, link: LinkId, slot: u32) -> Option<bool> {
        let readers = self.0.get_mut(&(link, slot))?;
        let bit = 1 << member;
        if *readers & bit == 0 {
            return None;
        }
        *readers &= !bit;
        let is_last = *readers == 0;
        if is_last {
            self.0.remove(&(link, slot));
        }
        Some(is_last)
    }

    /// Takes all slots back from a member. Returns the links that it had slots of, and the slots that have no reader left.
    pub(super) fn lose(&mut self, member: u32) -> (BTreeSet<LinkId>, Vec<(LinkId, u32)>) {
        let held: Vec<_> =
            self.0.iter().filter(|(_, readers)| **readers & 1 << member != 0).map(|(at, _)| *at).collect();
        let links = held.iter().map(|(link, _)| *link).collect();
        let freed = held.into_iter().filter(|(link, slot)| self.release(member, *link, *slot) == Some(true)).collect();
        (links, freed)
    }

    /// Returns the members that read slots which member 0 has released.
    pub(super) fn behind(&self) -> Vec<u32> {
        let behind = self.0.values().filter(|readers| **readers & 1 == 0).fold(0, |all, readers| all | readers);
        (1..u64::BITS).filter(|member| behind & 1 << *member != 0).collect()
    }
}
