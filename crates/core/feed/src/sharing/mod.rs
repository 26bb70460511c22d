//! Which decoded samples the feeds of one process share, as a state machine. It has no clock and sees no bytes: `V` is
//! the shell's handle of a kept part of a sample, and `W` its handle of a waiter.
//!
//! A feed announces the samples that it decodes soon. The first feed that comes to a sample decodes it, and keeps the
//! parts that a feed of another session has announced; that feed takes them. The key of a kept part is its content: a
//! fingerprint of what decides its bytes, the epoch, and the sample.

mod sample;
mod worth;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use spdl_types::{
    Fingerprint, SampleId, SessionId,
    mutations::{Mutation, mutated},
};

use self::sample::{PartState, Sample};
pub use self::worth::SharingWorth;

/// A feed that has not come to a sample for this long is idle: nothing is kept for it.
pub const IDLE_AFTER_MS: u64 = 10_000;

/// The feed of one rank among those that share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharingId(u64);

/// A sample, and the epoch that its random operations are keyed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SampleDraw {
    /// The epoch.
    pub epoch: u64,
    /// The sample.
    pub id: SampleId,
}

/// What a feed does about one part of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartWork<V> {
    /// Take what is kept.
    Take(V),
    /// Decode it.
    Decode,
    /// Decode it and keep it for others.
    DecodeAndKeep,
}

/// What a feed does about a sample that it has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SampleWork<V> {
    /// Take all of it.
    Take(Vec<V>),
    /// Decode some parts, then call [`finish`](SharingCore::finish).
    Decode(Vec<PartWork<V>>),
    /// Another feed is decoding it: go on with other samples, and then [wait](SharingCore::wait).
    Wait,
}

/// What a feed that has come to a sample can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Whether it can go on with other samples while another feed decodes this one.
    pub may_wait: bool,
    /// Whether there is memory to keep what it decodes.
    pub may_keep: bool,
}

/// What the shell has to drop and to wake, best after it has unlocked the core.
#[derive(Debug)]
#[must_use = "drop it after unlocking"]
pub struct SharingRelease<V, W> {
    /// Parts that are kept no longer.
    pub values: Vec<V>,
    /// The waiters for samples that are not being decoded any more.
    pub waiters: Vec<W>,
}

impl<V, W> Default for SharingRelease<V, W> {
    fn default() -> Self {
        Self { values: Vec::new(), waiters: Vec::new() }
    }
}

/// Counts of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharingCounts {
    /// Samples of which a part was kept.
    pub kept: u64,
    /// Samples that were taken whole.
    pub taken: u64,
    /// Samples of which some parts were taken.
    pub taken_in_part: u64,
    /// Kept parts that no feed took.
    pub unused: u64,
}

#[derive(Debug)]
struct SharingFeed {
    session: SessionId,
    source: Fingerprint,
    parts: Vec<Fingerprint>,
    seen_ms: u64,
}

/// The samples that feeds share. Call [`join`](Self::join), then [`announce`](Self::announce) samples, and
/// [`begin`](Self::begin) and [`finish`](Self::finish) each of them; in the end [`leave`](Self::leave).
#[derive(Debug)]
pub struct SharingCore<V, W> {
    members: BTreeMap<SharingId, SharingFeed>,
    next_member: u64,
    samples: BTreeMap<(Fingerprint, SampleDraw), Sample<V, W>>,
    worth: BTreeMap<Fingerprint, SharingWorth>,
    counts: SharingCounts,
}

impl<V, W> Default for SharingCore<V, W> {
    fn default() -> Self {
        let (members, samples, worth) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { members, next_member: 0, samples, worth, counts: SharingCounts::default() }
    }
}

impl<V: Clone, W> SharingCore<V, W> {
    /// Adds the feed of a rank. `source` is the fingerprint of the dataset and the seed; each of `parts` is that of
    /// everything else that decides the bytes of some columns.
    pub fn join(&mut self, session: SessionId, source: Fingerprint, parts: Vec<Fingerprint>, now_ms: u64) -> SharingId {
        let id = SharingId(self.next_member);
        self.next_member += 1;
        self.members.insert(id, SharingFeed { session, source, parts, seen_ms: now_ms });
        self.worth.entry(source).or_default();
        id
    }

    /// Removes a feed.
    pub fn leave(&mut self, id: SharingId) -> SharingRelease<V, W> {
        let mut released = SharingRelease::default();
        let Some(SharingFeed { source, .. }) = self.members.remove(&id) else { return released };
        // A feed that shares with no other skips this core, so parts would be kept for it for ever.
        let met: BTreeSet<SharingId> = self.members.keys().copied().filter(|member| self.is_met(*member)).collect();
        self.change_all(|members, sample, released| {
            sample.wanted.retain(|(member, _)| met.contains(member));
            sample.give_up(id, released);
            sample.prune(members, released)
        })
        .move_to(&mut released);
        if self.members.values().all(|member| member.source != source) {
            self.worth.remove(&source);
        }
        released
    }

    /// Notes samples that a feed decodes soon, if it shares parts with another feed. A sample that is announced twice
    /// counts twice.
    pub fn announce(&mut self, id: SharingId, draws: impl IntoIterator<Item = SampleDraw>) {
        let source = self.members[&id].source;
        if !self.worth[&source].is_on() || !self.is_met(id) {
            return;
        }
        for draw in draws {
            let sample = self.samples.entry(key_of(source, draw)).or_default();
            match sample.wanted.iter_mut().find(|(member, _)| *member == id) {
                Some((_, times)) => *times += 1,
                None => sample.wanted.push((id, 1)),
            }
        }
    }

    /// Notes that a feed has come to a sample. Returns what the feed does about it.
    pub fn begin(&mut self, id: SharingId, draw: SampleDraw, allowed: Allowed, now_ms: u64) -> SampleWork<V> {
        let Allowed { may_wait, may_keep } = allowed;
        let member = self.members.get_mut(&id).expect("it has joined");
        member.seen_ms = now_ms;
        let (source, session) = (member.source, member.session);
        let worth = self.worth.get_mut(&source).expect("it has a member");
        let member = &self.members[&id];
        let decode = || SampleWork::Decode(vec![PartWork::Decode; member.parts.len()]);
        if !worth.begin() {
            return decode();
        }
        let Some(sample) = self.samples.get_mut(&key_of(source, draw)) else { return decode() };
        if may_wait && member.parts.iter().any(|part| sample.is_decoding(part)) {
            return SampleWork::Wait;
        }
        let mut work = Vec::with_capacity(member.parts.len());
        for part in &member.parts {
            let at = sample.parts.iter().position(|(name, _)| name == part);
            let Some(at) = at else {
                let is_wanted = may_keep && sample.is_wanted(&self.members, (session, part), now_ms);
                if is_wanted {
                    sample.parts.push((*part, PartState::Decoding(id)));
                }
                work.push(if is_wanted { PartWork::DecodeAndKeep } else { PartWork::Decode });
                continue;
            };
            work.push(match &mut sample.parts[at].1 {
                PartState::Kept { value, is_used } => {
                    *is_used = true;
                    PartWork::Take(value.clone())
                }
                PartState::Decoding(_) => PartWork::Decode,
            });
        }
        if !work.iter().all(|work| matches!(work, PartWork::Take(_))) {
            return SampleWork::Decode(work);
        }
        let values = work.into_iter().filter_map(|work| match work {
            PartWork::Take(value) => Some(value),
            PartWork::Decode | PartWork::DecodeAndKeep => None,
        });
        SampleWork::Take(values.collect())
    }

    /// Notes that a feed is going to decode, by itself, a sample that it has announced.
    pub fn skip(&mut self, id: SharingId, draw: SampleDraw) -> SharingRelease<V, W> {
        self.resolve(id, draw)
    }

    /// Notes that a feed has taken a sample, which took `took_ns` of CPU time.
    pub fn taken(&mut self, id: SharingId, draw: SampleDraw, took_ns: u64) -> SharingRelease<V, W> {
        self.counts.taken += 1;
        let source = self.members[&id].source;
        self.worth.get_mut(&source).expect("it has a member").note_taken(took_ns);
        self.resolve(id, draw)
    }

    /// Notes that a feed has decoded a sample in `took_ns`, or only a part of it if `in_part`, because it took the
    /// rest; `took_ns` is 0 if the sample could not be decoded. `kept` are the parts for others, which took `keep_ns`
    /// to copy.
    pub fn finish(
        &mut self,
        id: SharingId,
        draw: SampleDraw,
        kept: impl IntoIterator<Item = (usize, V)>,
        Decoded { took_ns, in_part, keep_ns }: Decoded,
    ) -> SharingRelease<V, W> {
        let mut released = SharingRelease::default();
        let member = &self.members[&id];
        let worth = self.worth.get_mut(&member.source).expect("it has a member");
        worth.note_decoded(took_ns, in_part);
        self.counts.taken_in_part += u64::from(in_part);
        if let Some(sample) = self.samples.get_mut(&key_of(member.source, draw)) {
            sample.give_up(id, &mut released);
            let mut is_kept = false;
            for (number, value) in kept {
                let part = member.parts[number];
                // The feeds that wanted it may have left since it was begun.
                let is_wanted = sample.wanted.iter().any(|(other, _)| {
                    self.members
                        .get(other)
                        .is_some_and(|other| other.session != member.session && other.parts.contains(&part))
                });
                if is_wanted && sample.parts.iter().all(|(name, _)| *name != part) {
                    sample.parts.push((part, PartState::Kept { value, is_used: false }));
                    is_kept = true;
                } else {
                    released.values.push(value);
                }
            }
            if is_kept {
                self.counts.kept += 1;
                worth.note_kept(keep_ns);
            }
        } else {
            released.values.extend(kept.into_iter().map(|(_, value)| value));
        }
        self.resolve(id, draw).move_to(&mut released);
        released
    }

    /// Returns the numbers of the parts of a sample that others want from a feed which has not begun it.
    #[must_use]
    pub fn wanted_parts(&self, id: SharingId, draw: SampleDraw, now_ms: u64) -> Vec<usize> {
        let member = &self.members[&id];
        let Some(sample) =
            self.samples.get(&key_of(member.source, draw)).filter(|_| self.worth[&member.source].is_on())
        else {
            return Vec::new();
        };
        let is_absent = |part: &Fingerprint| sample.parts.iter().all(|(name, _)| name != part);
        let is_wanted = |part: &Fingerprint| sample.is_wanted(&self.members, (member.session, part), now_ms);
        let parts = member.parts.iter().enumerate().filter(|(_, part)| is_absent(part) && is_wanted(part));
        parts.map(|(number, _)| number).collect()
    }

    /// Returns whether all of a sample is kept; with `or_soon`, also if the rest is being decoded.
    #[must_use]
    pub fn is_kept(&self, id: SharingId, draw: SampleDraw, or_soon: bool) -> bool {
        let SharingFeed { source, parts, .. } = &self.members[&id];
        let Some(sample) = self.samples.get(&key_of(*source, draw)) else { return false };
        parts.iter().all(|part| {
            let state = sample.parts.iter().find(|(name, _)| name == part).map(|(_, state)| state);
            state.is_some_and(|state| or_soon || matches!(state, PartState::Kept { .. }))
        })
    }

    /// Lets a waiter wait until no other feed decodes the sample. Returns the waiter if none does.
    pub fn wait(&mut self, id: SharingId, draw: SampleDraw, waiter: W) -> Option<W> {
        let SharingFeed { source, parts, .. } = &self.members[&id];
        match self.samples.get_mut(&key_of(*source, draw)) {
            Some(sample) if parts.iter().any(|part| sample.is_decoding(part)) => {
                sample.waiters.push(waiter);
                None
            }
            _ => Some(waiter),
        }
    }

    /// Gives up what is kept for feeds that are idle, or where keeping does not pay.
    pub fn sweep(&mut self, now_ms: u64) -> SharingRelease<V, W> {
        let off: Vec<Fingerprint> =
            self.worth.iter().filter(|(_, worth)| !worth.is_on()).map(|(source, _)| *source).collect();
        self.change_all(|members, sample, released| {
            let is_awaited = sample.wanted.iter().any(|(id, _)| {
                members.get(id).is_some_and(|member| member.is_live(now_ms) && !off.contains(&member.source))
            });
            if !is_awaited {
                return sample.release_kept(released);
            }
            0
        })
    }

    /// Gives up all that is kept.
    pub fn release_all(&mut self) -> SharingRelease<V, W> {
        self.change_all(|_, sample, released| sample.release_kept(released))
    }

    /// Returns whether a feed of another session has a part in common with this one.
    #[must_use]
    pub fn is_met(&self, id: SharingId) -> bool {
        let Some(member) = self.members.get(&id) else { return false };
        self.members.values().any(|other| {
            other.session != member.session
                && other.source == member.source
                && other.parts.iter().any(|part| member.parts.contains(part))
        })
    }

    /// Returns the mean time to decode a sample of a feed, in nanoseconds; 0 if none was decoded.
    #[must_use]
    pub fn decode_ns(&self, id: SharingId) -> u64 {
        self.members.get(&id).map_or(0, |member| self.worth[&member.source].decode_ns())
    }

    /// Returns the counts.
    #[must_use]
    pub const fn counts(&self) -> SharingCounts {
        self.counts
    }

    /// Counts down how often a feed has announced a sample, and gives up the parts that no feed wants any more.
    fn resolve(&mut self, id: SharingId, draw: SampleDraw) -> SharingRelease<V, W> {
        let mut released = SharingRelease::default();
        let key = key_of(self.members[&id].source, draw);
        let Some(sample) = self.samples.get_mut(&key) else { return released };
        if let Some(at) = sample.wanted.iter().position(|(member, _)| *member == id) {
            sample.wanted[at].1 -= 1;
            if sample.wanted[at].1 == 0 {
                sample.wanted.swap_remove(at);
            }
        }
        let unused = sample.prune(&self.members, &mut released);
        if sample.is_empty() {
            self.samples.remove(&key);
        }
        self.note_unused(key.0, unused);
        released
    }

    /// Changes all samples by a function that returns how many unused kept parts it gave up.
    fn change_all(
        &mut self,
        mut change: impl FnMut(&BTreeMap<SharingId, SharingFeed>, &mut Sample<V, W>, &mut SharingRelease<V, W>) -> u64,
    ) -> SharingRelease<V, W> {
        let (mut released, mut unused) = (SharingRelease::default(), BTreeMap::new());
        self.samples.retain(|(source, _), sample| {
            *unused.entry(*source).or_insert(0) += change(&self.members, sample, &mut released);
            !sample.is_empty()
        });
        unused.into_iter().for_each(|(source, unused)| self.note_unused(source, unused));
        released
    }

    fn note_unused(&mut self, source: Fingerprint, unused: u64) {
        self.counts.unused += unused;
        if let Some(worth) = self.worth.get_mut(&source) {
            worth.note_unused(unused);
        }
    }
}

/// Names a sample by what decides its content.
fn key_of(source: Fingerprint, draw: SampleDraw) -> (Fingerprint, SampleDraw) {
    let epoch = if mutated(Mutation::ShareOtherEpoch) { 0 } else { draw.epoch };
    (source, SampleDraw { epoch, ..draw })
}

/// How long a feed took for a sample that it decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Time to decode it, in nanoseconds; 0 if it is not known. Other processes may do some of it, so it is real time.
    pub took_ns: u64,
    /// Whether some of its parts were taken.
    pub in_part: bool,
    /// CPU time to copy what is kept, in nanoseconds.
    pub keep_ns: u64,
}

impl SharingFeed {
    const fn is_live(&self, now_ms: u64) -> bool {
        now_ms < self.seen_ms + IDLE_AFTER_MS
    }
}

impl<V, W> SharingRelease<V, W> {
    fn move_to(mut self, other: &mut Self) {
        other.values.append(&mut self.values);
        other.waiters.append(&mut self.waiters);
    }
}
