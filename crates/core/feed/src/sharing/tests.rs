//! Tests of which samples are kept, for which feeds, and how long; and of random feeds that share.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

type Core = SharingCore<u64, u32>;

const SOURCE: Fingerprint = Fingerprint(1);
const SLOW: Decoded = Decoded { took_ns: 3_000_000, in_part: false, keep_ns: 10_000 };

fn draw(id: u64) -> SampleDraw {
    SampleDraw { epoch: 0, id: SampleId(id) }
}

fn join(core: &mut Core, session: u64, parts: &[u128]) -> SharingId {
    core.join(SessionId(session), SOURCE, parts.iter().copied().map(Fingerprint).collect(), 0)
}

/// A feed has come to a sample at this time.
fn begin(core: &mut Core, id: SharingId, sample: u64, now_ms: u64) -> SampleWork<u64> {
    core.begin(id, draw(sample), Allowed { may_wait: true, may_keep: true }, now_ms)
}

/// Returns two sessions with parts 10 and 11; the second has announced samples 0 to 9.
fn pair() -> (Core, SharingId, SharingId) {
    let mut core = Core::default();
    let [first, second] = [1, 2].map(|session| join(&mut core, session, &[10, 11]));
    core.announce(second, (0..10).map(draw));
    (core, first, second)
}

/// A feed decodes a sample whose parts are worth 100 times its id, and more.
fn decode(core: &mut Core, id: SharingId, sample: u64) -> SharingRelease<u64, u32> {
    let SampleWork::Decode(work) = begin(core, id, sample, 0) else { panic!("sample {sample} is kept") };
    let kept = (0..).zip(work).filter(|(_, work)| *work == PartWork::DecodeAndKeep);
    let kept: Vec<_> = kept.map(|(part, _)| (part, 100 * sample + part as u64)).collect();
    core.finish(id, draw(sample), kept, SLOW)
}

#[test]
fn what_another_session_wants_is_kept_until_that_has_taken_it() {
    let (mut core, first, second) = pair();
    assert!(core.is_met(first) && core.is_met(second));
    let _ = decode(&mut core, first, 3);
    assert!(core.is_kept(second, draw(3), false) && !core.is_kept(second, draw(4), true));
    assert_eq!(begin(&mut core, second, 3, 0), SampleWork::Take(vec![300, 301]));
    assert_eq!(core.taken(second, draw(3), 1).values, [300, 301], "nobody else wants it");
    assert!(!core.is_kept(second, draw(3), false));
    assert_eq!(core.counts(), SharingCounts { kept: 1, taken: 1, ..SharingCounts::default() });
}

#[test]
fn what_nobody_wants_is_not_kept() {
    let (mut core, first, second) = pair();
    let work = begin(&mut core, first, 10, 0);
    assert_eq!(work, SampleWork::Decode(vec![PartWork::Decode; 2]), "it was not announced");
    let same_session = join(&mut core, 2, &[10, 11]);
    let work = begin(&mut core, same_session, 3, 0);
    assert_eq!(work, SampleWork::Decode(vec![PartWork::Decode; 2]), "ranks of one session have other samples");
    let _ = decode(&mut core, second, 3);
    assert_eq!(begin(&mut core, first, 3, 0), SampleWork::Decode(vec![PartWork::Decode; 2]));
    assert_eq!(core.counts(), SharingCounts::default());
}

#[test]
fn a_job_takes_the_columns_that_it_has_in_common_with_another() {
    let mut core = Core::default();
    let (first, second) = (join(&mut core, 1, &[10, 11]), join(&mut core, 2, &[12, 11]));
    let other = core.join(SessionId(3), Fingerprint(2), vec![Fingerprint(10)], 0);
    assert!(core.is_met(first) && !core.is_met(other));
    core.announce(second, [draw(0)]);
    let work = begin(&mut core, first, 0, 0);
    assert_eq!(work, SampleWork::Decode(vec![PartWork::Decode, PartWork::DecodeAndKeep]));
    let _ = core.finish(first, draw(0), [(1, 7)], SLOW);
    assert_eq!(begin(&mut core, second, 0, 0), SampleWork::Decode(vec![PartWork::Decode, PartWork::Take(7)]));
    let _ = core.finish(second, draw(0), [], Decoded { in_part: true, ..SLOW });
    assert_eq!(core.counts(), SharingCounts { kept: 1, taken_in_part: 1, ..SharingCounts::default() });
}

#[test]
fn a_sample_that_is_being_decoded_is_waited_for_and_one_that_fails_is_decoded_by_each() {
    let (mut core, first, second) = pair();
    let begun = begin(&mut core, first, 0, 0);
    assert_eq!(begun, SampleWork::Decode(vec![PartWork::DecodeAndKeep; 2]));
    assert_eq!(begin(&mut core, second, 0, 0), SampleWork::Wait);
    assert_eq!(
        core.begin(second, draw(0), Allowed { may_wait: false, may_keep: true }, 0),
        SampleWork::Decode(vec![PartWork::Decode; 2])
    );
    assert_eq!(core.wait(second, draw(0), 8), None);
    assert_eq!(core.wait(second, draw(1), 9), Some(9), "nobody decodes it");
    let released = core.finish(first, draw(0), [], Decoded::default());
    assert_eq!((released.waiters, released.values), (vec![8], vec![]));
    assert!(matches!(begin(&mut core, second, 0, 0), SampleWork::Decode(_)));
}

#[test]
fn a_feed_that_leaves_gives_up_what_was_kept_for_it_and_wakes_who_waited_for_it() {
    let (mut core, first, second) = pair();
    let _ = decode(&mut core, first, 1);
    core.announce(first, [draw(2)]);
    assert_eq!(begin(&mut core, second, 2, 0), SampleWork::Decode(vec![PartWork::DecodeAndKeep; 2]));
    assert_eq!(core.wait(first, draw(2), 5), None);
    let released = core.leave(second);
    assert_eq!((released.values, released.waiters), (vec![100, 101], vec![5]));
    assert!(!core.is_met(first));
    let _ = core.leave(first);
    assert!(core.samples.is_empty() && core.worth.is_empty());
}

#[test]
fn nothing_is_kept_for_a_feed_that_stalls() {
    let (mut core, first, second) = pair();
    let _ = decode(&mut core, first, 1);
    let SampleWork::Decode(work) = begin(&mut core, first, 2, IDLE_AFTER_MS) else { panic!("nobody decodes it") };
    assert_eq!(work, vec![PartWork::Decode; 2]);
    let released = core.sweep(IDLE_AFTER_MS);
    assert_eq!(released.values, [100, 101], "what was kept for it is given up");
    assert_eq!(core.counts().unused, 2);
    assert!(matches!(begin(&mut core, second, 3, IDLE_AFTER_MS), SampleWork::Decode(_)));
    let work = begin(&mut core, first, 4, IDLE_AFTER_MS);
    assert_eq!(work, SampleWork::Decode(vec![PartWork::DecodeAndKeep; 2]), "until it goes on");
}

#[test]
fn nothing_is_kept_for_a_feed_that_has_met_nobody_since_it_announced_its_samples() {
    let (mut core, first, second) = pair();
    let _ = decode(&mut core, first, 1);
    assert_eq!(core.leave(first).values, [100, 101]);
    core.announce(second, (10..20).map(draw));
    assert!(core.samples.is_empty());
    // The second has decoded its samples by itself meanwhile.
    let third = join(&mut core, 3, &[10, 11]);
    for sample in [2, 12] {
        assert_eq!(begin(&mut core, third, sample, 0), SampleWork::Decode(vec![PartWork::Decode; 2]));
    }
    core.announce(second, [draw(20)]);
    assert_eq!(begin(&mut core, third, 20, 0), SampleWork::Decode(vec![PartWork::DecodeAndKeep; 2]));
}

#[test]
fn a_sample_that_a_feed_decodes_by_itself_is_not_kept_for_it() {
    let (mut core, first, second) = pair();
    let _ = decode(&mut core, first, 1);
    assert_eq!(core.skip(second, draw(1)).values, [100, 101]);
    let _ = core.skip(second, draw(2));
    assert_eq!(begin(&mut core, first, 2, 0), SampleWork::Decode(vec![PartWork::Decode; 2]));
}

/// What random feeds do.
#[derive(Clone, Debug)]
enum Act {
    Announce { member: usize, sample: u64 },
    Begin { member: usize, sample: u64, may_wait: bool, may_keep: bool },
    End { of: usize, is_good: bool },
    Leave { member: usize },
    Join { session: u64, parts: Vec<u128> },
    Sweep,
    ReleaseAll,
    Pass { ms: u64 },
}

fn act() -> impl Strategy<Value = Act> {
    let parts = proptest::collection::btree_set(10..13_u128, 1..4);
    prop_oneof![
        6 => (any::<usize>(), 0..8_u64).prop_map(|(member, sample)| Act::Announce { member, sample }),
        8 => (any::<usize>(), 0..8_u64, any::<bool>(), 0..4_u32).prop_map(|(member, sample, may_wait, room)| {
            Act::Begin { member, sample, may_wait, may_keep: room > 0 }
        }),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(of, is_good)| Act::End { of, is_good }),
        1 => any::<usize>().prop_map(|member| Act::Leave { member }),
        2 => (0..3_u64, parts).prop_map(|(session, parts)| Act::Join { session, parts: parts.into_iter().collect() }),
        1 => Just(Act::Sweep),
        1 => Just(Act::ReleaseAll),
        1 => (0..2 * IDLE_AFTER_MS).prop_map(|ms| Act::Pass { ms }),
    ]
}

/// Feeds that share, as their shells see it.
#[derive(Default)]
struct World {
    core: Core,
    members: Vec<(SharingId, Vec<u128>)>,
    /// Samples that are being decoded: by whom, and the parts to keep.
    begun: Vec<(SharingId, u64, Vec<usize>)>,
    waiting: BTreeSet<u32>,
    next_waiter: u32,
    now_ms: u64,
}

impl World {
    fn release(&mut self, released: SharingRelease<u64, u32>) {
        released.waiters.iter().for_each(|waiter| assert!(self.waiting.remove(waiter), "woken once"));
    }

    /// The value of a part names what it is.
    fn value(part: u128, sample: u64) -> u64 {
        part as u64 * 1_000 + sample
    }

    fn check_taken(parts: &[u128], sample: u64, values: impl IntoIterator<Item = (usize, u64)>) {
        values.into_iter().for_each(|(part, value)| assert_eq!(value, Self::value(parts[part], sample)));
    }

    fn act(&mut self, act: &Act) {
        let pick = |all: usize, of: usize| (all > 0).then(|| of % all.max(1));
        match act {
            Act::Join { session, parts } => {
                let id = self.core.join(
                    SessionId(*session),
                    SOURCE,
                    parts.iter().copied().map(Fingerprint).collect(),
                    self.now_ms,
                );
                self.members.push((id, parts.clone()));
            }
            Act::Announce { member, sample } => {
                let Some(at) = pick(self.members.len(), *member) else { return };
                self.core.announce(self.members[at].0, [draw(*sample)]);
            }
            Act::Begin { member, sample, may_wait, may_keep } => {
                let Some(at) = pick(self.members.len(), *member) else { return };
                let (id, parts) = self.members[at].clone();
                let allowed = Allowed { may_wait: *may_wait, may_keep: *may_keep };
                match self.core.begin(id, draw(*sample), allowed, self.now_ms) {
                    SampleWork::Take(values) => {
                        Self::check_taken(&parts, *sample, values.into_iter().enumerate());
                        let released = self.core.taken(id, draw(*sample), 1_000);
                        self.release(released);
                    }
                    SampleWork::Wait => {
                        assert!(may_wait);
                        let waiter = self.next_waiter;
                        self.next_waiter += 1;
                        assert_eq!(self.core.wait(id, draw(*sample), waiter), None, "it is being decoded");
                        self.waiting.insert(waiter);
                    }
                    SampleWork::Decode(work) => {
                        let mut kept = Vec::new();
                        for (number, work) in work.into_iter().enumerate() {
                            match work {
                                PartWork::Take(value) => Self::check_taken(&parts, *sample, [(number, value)]),
                                PartWork::DecodeAndKeep => kept.push(number),
                                PartWork::Decode => {}
                            }
                        }
                        self.begun.push((id, *sample, kept));
                    }
                }
            }
            Act::End { of, is_good } => {
                let Some(at) = pick(self.begun.len(), *of) else { return };
                self.end(at, *is_good);
            }
            Act::Leave { member } => {
                let Some(at) = pick(self.members.len(), *member) else { return };
                let (id, _) = self.members[at];
                // A feed leaves once none of its samples is being decoded.
                while let Some(at) = self.begun.iter().position(|(by, ..)| *by == id) {
                    self.end(at, false);
                }
                self.members.swap_remove(at);
                let released = self.core.leave(id);
                self.release(released);
            }
            Act::Sweep => {
                let released = self.core.sweep(self.now_ms);
                self.release(released);
            }
            Act::ReleaseAll => {
                let released = self.core.release_all();
                self.release(released);
            }
            Act::Pass { ms } => self.now_ms += ms,
        }
    }

    fn end(&mut self, at: usize, is_good: bool) {
        let (id, sample, kept) = self.begun.swap_remove(at);
        let parts = &self.members.iter().find(|(member, _)| *member == id).expect("it has not left").1;
        let kept: Vec<_> = kept.into_iter().map(|part| (part, Self::value(parts[part], sample))).collect();
        let kept = if is_good { kept } else { Vec::new() };
        let released = self.core.finish(id, draw(sample), kept, SLOW);
        self.release(released);
    }

    /// Checks that no feed waits for a sample that none decodes, that kept parts are wanted, and that each part is
    /// there once.
    fn check(&self) {
        let mut waiters = 0;
        for ((_, draw), sample) in &self.core.samples {
            let decoded = sample.parts.iter().filter(|(_, state)| matches!(state, PartState::Decoding(_)));
            let decoders = decoded.clone().count();
            assert!(decoders > 0 || sample.waiters.is_empty(), "{draw:?} is waited for, and nobody decodes it");
            let names: BTreeSet<_> = sample.parts.iter().map(|(name, _)| name).collect();
            assert_eq!(names.len(), sample.parts.len(), "{draw:?} has a part twice");
            for (part, state) in &sample.parts {
                let is_wanted = || sample.wanted.iter().any(|(id, _)| self.core.members[id].parts.contains(part));
                assert!(matches!(state, PartState::Decoding(_)) || is_wanted(), "{draw:?} is kept for nobody");
            }
            assert!(!sample.is_empty(), "{draw:?} takes memory for nothing");
            assert!(
                sample.wanted.iter().all(|(id, _)| self.core.is_met(*id)),
                "{draw:?} is wanted by one who met nobody"
            );
            waiters += sample.waiters.len();
        }
        assert_eq!(waiters, self.waiting.len(), "nobody is forgotten");
    }
}

proptest! {
    #[test]
    fn random_feeds_get_their_own_samples_and_nobody_waits_for_ever(acts in proptest::collection::vec(act(), 1..200)) {
        let mut world = World::default();
        for act in &acts {
            world.act(act);
            world.check();
        }
        while !world.begun.is_empty() {
            world.end(0, true);
        }
        prop_assert!(world.waiting.is_empty(), "all that were being decoded are done");
        while !world.members.is_empty() {
            world.act(&Act::Leave { member: 0 });
        }
        prop_assert!(world.core.samples.is_empty());
    }
}
