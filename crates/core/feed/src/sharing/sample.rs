//! The state of one sample that feeds share: which feeds want it, and which of its parts are kept or being decoded.

use std::collections::BTreeMap;

use spdl_types::{Fingerprint, SessionId};

use super::{SharingFeed, SharingId, SharingRelease};

/// The state of a part that is decoded once.
#[derive(Debug)]
pub(super) enum PartState<V> {
    Decoding(SharingId),
    Kept { value: V, is_used: bool },
}

#[derive(Debug)]
pub(super) struct Sample<V, W> {
    /// The feeds that have announced it, and how often.
    pub(super) wanted: Vec<(SharingId, u32)>,
    pub(super) parts: Vec<(Fingerprint, PartState<V>)>,
    pub(super) waiters: Vec<W>,
}

impl<V, W> Default for Sample<V, W> {
    fn default() -> Self {
        Self { wanted: Vec::new(), parts: Vec::new(), waiters: Vec::new() }
    }
}

impl<V, W> Sample<V, W> {
    pub(super) fn is_decoding(&self, part: &Fingerprint) -> bool {
        self.parts.iter().any(|(name, state)| name == part && matches!(state, PartState::Decoding(_)))
    }

    /// Returns whether a feed of another session than `session`, which is not idle, wants a part.
    pub(super) fn is_wanted(
        &self,
        members: &BTreeMap<SharingId, SharingFeed>,
        (session, part): (SessionId, &Fingerprint),
        now_ms: u64,
    ) -> bool {
        self.wanted
            .iter()
            .filter_map(|(id, _)| members.get(id))
            .any(|member| member.session != session && member.is_live(now_ms) && member.parts.contains(part))
    }

    /// Removes the parts that a feed is decoding, and the waiters if none is left.
    pub(super) fn give_up(&mut self, id: SharingId, released: &mut SharingRelease<V, W>) {
        self.parts.retain(|(_, state)| !matches!(state, PartState::Decoding(by) if *by == id));
        if self.parts.iter().all(|(_, state)| matches!(state, PartState::Kept { .. })) {
            released.waiters.append(&mut self.waiters);
        }
    }

    /// Gives up the kept parts that no feed wants. Returns how many of them were never taken.
    pub(super) fn prune(
        &mut self,
        members: &BTreeMap<SharingId, SharingFeed>,
        released: &mut SharingRelease<V, W>,
    ) -> u64 {
        let wanted = &self.wanted;
        let is_wanted = |part: &Fingerprint| {
            wanted.iter().filter_map(|(id, _)| members.get(id)).any(|member| member.parts.contains(part))
        };
        release(&mut self.parts, |part| !is_wanted(part), released)
    }

    /// Gives up all kept parts. Returns how many of them were never taken.
    pub(super) fn release_kept(&mut self, released: &mut SharingRelease<V, W>) -> u64 {
        release(&mut self.parts, |_| true, released)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.parts.is_empty() && self.waiters.is_empty()
    }
}

fn release<V, W>(
    parts: &mut Vec<(Fingerprint, PartState<V>)>,
    is_released: impl Fn(&Fingerprint) -> bool,
    released: &mut SharingRelease<V, W>,
) -> u64 {
    let mut unused = 0;
    for (part, state) in std::mem::take(parts) {
        match state {
            PartState::Kept { value, is_used } if is_released(&part) => {
                unused += u64::from(!is_used);
                released.values.push(value);
            }
            state => parts.push((part, state)),
        }
    }
    unused
}
