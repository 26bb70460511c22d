//! Tests of the leader's core, event by event and with random members.

use std::collections::BTreeMap;

use super::*;
use crate::client::testing::job;
use spdl_types::{Fingerprint, SessionId, mix::splitmix64};

const LINK: LinkId = LinkId(0);
const TIMEOUT_MS: u64 = 5000;

fn session() -> Session {
    Session { id: SessionId(7), job: job(), world: 2, global_batch: 24, start: at(24) }
}

fn at(offset: u64) -> Position {
    Position::new(0, offset)
}

fn attach(member: u32, members: u32) -> MemberAttach {
    MemberAttach {
        member,
        members,
        launch: None,
        start: Start::At(at(24)),
        fingerprint: None,
        global_batch: None,
        epochs: None,
        client: format!("process {member}"),
    }
}

struct TestGroup(GroupCore);

impl TestGroup {
    /// A group whose members are all attached.
    fn complete(members: u32) -> Self {
        let mut group = Self(GroupCore::new(3, members, None, TIMEOUT_MS));
        for member in 1..members {
            group.0.handle_attach(&attach(member, members), &session()).unwrap();
        }
        assert_eq!(group.effects(), []);
        group
    }

    fn effects(&mut self) -> Vec<GroupEffect> {
        std::iter::from_fn(|| self.0.poll_effect()).collect()
    }

    fn share(&mut self, slot: u32) {
        self.0.handle_batch(LINK, slot);
        assert_eq!(self.effects(), [GroupEffect::Share { link: LINK, slot }]);
    }

    fn release(&mut self, member: u32, slot: u32) -> Vec<GroupEffect> {
        self.0.handle_released(member, LINK, slot);
        self.effects()
    }

    /// Lets half of the timeout pass, in which `heard` give signs of life.
    fn half_timeout(&mut self, heard: &[u32]) -> Vec<GroupEffect> {
        for _ in 0..TICKS_PER_TIMEOUT / 2 {
            self.0.handle_tick();
            heard.iter().for_each(|member| self.0.hear(*member));
        }
        self.effects()
    }
}

const fn freed(slot: u32) -> GroupEffect {
    GroupEffect::Freed { link: LINK, slot }
}

fn progress(offset: u64) -> Progress {
    Progress { position: at(offset), ..Progress::default() }
}

#[test]
fn a_slot_is_freed_when_the_last_member_has_released_it() {
    let mut group = TestGroup::complete(3);
    group.share(0);
    group.share(1);
    assert_eq!(group.release(0, 0), []);
    assert_eq!(group.0.behind(), [1, 2]);
    assert_eq!(group.release(2, 0), []);
    assert_eq!(group.release(1, 1), []);
    assert_eq!(group.0.behind(), [1]);
    assert_eq!(group.release(1, 0), [freed(0)]);
    assert_eq!(group.release(2, 1), []);
    assert_eq!(group.release(0, 1), [freed(1)]);
    assert_eq!(group.0.behind(), [0; 0]);
}

#[test]
fn nothing_is_shared_before_all_members_are_attached() {
    let mut group = TestGroup(GroupCore::new(3, 3, None, TIMEOUT_MS));
    group.0.handle_batch(LINK, 0);
    group.0.handle_attach(&attach(2, 3), &session()).unwrap();
    group.0.handle_end(at(96));
    assert_eq!(group.effects(), []);
    assert_eq!(group.0.awaited().collect::<Vec<_>>(), [1]);
    group.0.handle_attach(&attach(1, 3), &session()).unwrap();
    assert_eq!(group.effects(), [GroupEffect::Share { link: LINK, slot: 0 }, GroupEffect::End { position: at(96) }]);
}

#[test]
fn a_restart_drops_what_no_member_has_got() {
    let mut group = TestGroup(GroupCore::new(3, 2, None, TIMEOUT_MS));
    group.0.handle_batch(LINK, 0);
    group.0.handle_restart(at(0));
    assert_eq!(group.effects(), [GroupEffect::Restarted { from: at(0) }]);
    assert_eq!(group.release(0, 0), [freed(0)], "the batch was this process's alone");
    group.0.handle_attach(&attach(1, 2), &session()).unwrap();
    assert_eq!(group.effects(), []);
}

#[test]
fn what_was_delivered_is_what_the_slowest_member_has_taken() {
    let mut group = TestGroup::complete(3);
    group.0.handle_progress(progress(48));
    group.0.handle_progress(progress(72));
    group.0.handle_taken(1, 0, at(72));
    assert_eq!(group.effects(), []);
    group.0.handle_taken(2, 0, at(48));
    assert_eq!(group.effects(), [GroupEffect::Delivered(progress(48))]);
    // A restart goes back: what was taken before it is of no use after it.
    group.0.handle_restart(at(24));
    group.effects();
    group.0.handle_progress(progress(48));
    group.0.handle_taken(1, 1, at(48));
    assert_eq!(group.effects(), []);
    group.0.handle_taken(2, 1, at(72));
    assert_eq!(group.effects(), [GroupEffect::Delivered(progress(48))]);
    // At the end, the rank is where its leader is.
    group.0.handle_progress(progress(72));
    group.0.handle_progress(progress(96));
    assert_eq!(group.0.take_progress(), Some(progress(96)));
    assert_eq!(group.0.take_progress(), None);
}

#[test]
fn a_member_that_is_silent_for_the_timeout_is_lost_and_holds_nothing() {
    let mut group = TestGroup::complete(3);
    group.share(0);
    group.share(1);
    group.0.handle_progress(progress(48));
    group.0.handle_taken(1, 0, at(48));
    assert_eq!(group.release(0, 0), []);
    assert_eq!(group.release(1, 0), []);
    assert_eq!(group.half_timeout(&[1]), []);
    assert_eq!(group.half_timeout(&[1]), []);
    let loss = MemberLoss::Silent { timeout_ms: TIMEOUT_MS };
    let expected = [
        GroupEffect::Lost { member: 2, loss },
        GroupEffect::Renew { link: LINK },
        freed(0),
        GroupEffect::Delivered(progress(48)),
    ];
    assert_eq!(group.half_timeout(&[1]), expected);
    assert_eq!(group.release(1, 1), []);
    assert_eq!(group.release(0, 1), [freed(1)]);
    group.share(0);
    assert_eq!(group.release(2, 0), [], "what a lost member says counts no more");
    assert_eq!(group.release(1, 0), []);
    assert_eq!(group.release(0, 0), [freed(0)]);
}

#[test]
fn a_leader_that_was_suspended_loses_no_member_for_it() {
    let mut group = TestGroup::complete(2);
    group.half_timeout(&[1]);
    // However long it was suspended, that is one tick, and then it reads what members have sent.
    group.0.handle_tick();
    group.0.hear(1);
    assert_eq!(group.half_timeout(&[1]), []);
    assert_eq!(group.half_timeout(&[1]), []);
}

#[test]
fn a_member_that_closes_gives_back_what_it_has_and_gets_no_more() {
    let mut group = TestGroup::complete(3);
    group.share(0);
    group.0.handle_closing(1);
    assert_eq!(group.0.attached().collect::<Vec<_>>(), [2]);
    group.share(1);
    for (member, slot) in [(0, 0), (1, 0), (0, 1)] {
        assert_eq!(group.release(member, slot), []);
    }
    group.0.handle_lost(1, MemberLoss::Ended);
    // It held nothing, so the slab stays.
    assert_eq!(group.effects(), [GroupEffect::Lost { member: 1, loss: MemberLoss::Closed }]);
    assert_eq!(group.release(2, 1), [freed(1)]);
}

#[test]
fn a_slot_that_a_member_does_not_hold_is_not_its_to_release() {
    for (member, slot) in [(1, 1), (1, 0)] {
        let mut group = TestGroup::complete(3);
        group.share(0);
        assert_eq!(group.release(1, 0), []);
        let effects = group.release(member, slot);
        let is_lost = matches!(effects[..], [GroupEffect::Lost { member: 1, loss: MemberLoss::Violation(_) }]);
        assert!(is_lost, "{effects:?}");
    }
}

#[test]
fn a_process_that_asks_for_something_else_is_refused_with_both_values() {
    let mut group = GroupCore::new(3, 3, Some("launch-1".into()), TIMEOUT_MS);
    let good = MemberAttach { launch: Some("launch-1".into()), ..attach(1, 3) };
    let other_job = Some(Fingerprint(5));
    for (attach, text, is_retryable) in [
        (
            MemberAttach { launch: None, ..good.clone() },
            "launch id is none, that of member 0 of rank 3 is `launch-1`",
            true,
        ),
        (MemberAttach { members: 4, ..good.clone() }, "it is 1 of 4, and the group of rank 3 has 3", false),
        (MemberAttach { member: 0, ..good.clone() }, "it is 0 of 3", false),
        (MemberAttach { member: 3, ..good.clone() }, "it is 3 of 3", false),
        (
            MemberAttach { start: Start::Beginning, ..good.clone() },
            "start is 0:0, that of member 0 of rank 3 is 0:24",
            false,
        ),
        (MemberAttach { global_batch: Some(12), ..good.clone() }, "global_batch is 12", false),
        (MemberAttach { epochs: Some(9), ..good.clone() }, "epochs is 9", false),
        (MemberAttach { fingerprint: other_job, ..good.clone() }, "fingerprint is ", false),
    ] {
        let refusal = group.handle_attach(&attach, &session()).unwrap_err();
        assert!(refusal.message.contains(text), "{refusal}");
        assert_eq!(refusal.is_retryable, is_retryable, "{refusal}");
    }
    group.handle_attach(&MemberAttach { start: Start::Resume, ..good.clone() }, &session()).unwrap();
    let refusal = group.handle_attach(&good, &session()).unwrap_err();
    assert!(refusal.message.contains("process 1 has its place") && refusal.is_retryable, "{refusal}");
    group.handle_lost(1, MemberLoss::Ended);
    let refusal = group.handle_attach(&good, &session()).unwrap_err();
    assert!(refusal.message.contains("restart all members from one checkpoint"), "{refusal}");
}

#[test]
fn a_place_in_a_group_is_written_with_the_number_of_members() {
    assert_eq!("3/8".parse(), GroupMember::new(3, 8));
    assert_eq!("0/1".parse(), Ok(GroupMember::ALONE));
    for bad in ["", "3", "8/8", "-1/8", "0/0", "0/65", "a/b", "1/2/3"] {
        let error = bad.parse::<GroupMember>().unwrap_err().to_string();
        assert!(error.contains(bad.split('/').next().unwrap()), "{error}");
    }
}

/// Members take, hold and release at random, and some are lost. Whatever happens, no slot is filled while a member that is alive
/// reads it, or while a lost one may, and each slot comes back once.
#[test]
fn with_random_members_no_slot_is_lost_and_none_is_filled_while_it_is_read() {
    for seed in 0..500 {
        let mut state = splitmix64(seed);
        let mut draw = |below: u64| {
            state = splitmix64(state);
            ((state >> 32) * below) >> 32
        };
        let members = 2 + u32::try_from(draw(4)).unwrap();
        let slots = 1 + u32::try_from(draw(4)).unwrap();
        let mut group = TestGroup::complete(members);
        let (mut link, mut free): (u64, Vec<u32>) = (0, (0..slots).collect());
        // What each process holds; a lost one holds it for ever.
        let mut held: BTreeMap<u32, Vec<(LinkId, u32)>> = (0..members).map(|member| (member, vec![])).collect();
        let mut lost = Vec::new();
        for _ in 0..200 {
            let member = u32::try_from(draw(u64::from(members))).unwrap();
            match draw(8) {
                0..3 => {
                    if let Some(slot) = free.pop() {
                        group.0.handle_batch(LinkId(link), slot);
                    }
                }
                3..7 if !lost.contains(&member) => {
                    if let Some((link, slot)) = held.get_mut(&member).unwrap().pop() {
                        group.0.handle_released(member, link, slot);
                    }
                }
                7 if member > 0 && draw(10) == 0 && !lost.contains(&member) => {
                    lost.push(member);
                    group.0.handle_lost(member, MemberLoss::Ended);
                }
                _ => {}
            }
            for effect in group.effects() {
                match effect {
                    GroupEffect::Share { link, slot } => {
                        assert!(!held.values().flatten().any(|held| *held == (link, slot)), "seed {seed}: it is read");
                        held.iter_mut()
                            .filter(|(member, _)| !lost.contains(*member))
                            .for_each(|(_, held)| held.push((link, slot)));
                    }
                    GroupEffect::Freed { link: of, slot } if of == LinkId(link) => {
                        assert!(!free.contains(&slot), "seed {seed}: slot {slot} comes back twice");
                        free.push(slot);
                    }
                    GroupEffect::Renew { link: of } if of == LinkId(link) => {
                        link += 1;
                        free = (0..slots).collect();
                    }
                    _ => {}
                }
            }
        }
        for member in 0..members {
            for (link, slot) in std::mem::take(held.get_mut(&member).unwrap()) {
                if !lost.contains(&member) {
                    group.0.handle_released(member, link, slot);
                }
            }
        }
        let back = group
            .effects()
            .into_iter()
            .filter(|effect| matches!(effect, GroupEffect::Freed { link: of, .. } if *of == LinkId(link)));
        assert_eq!(free.len() + back.count(), slots as usize, "seed {seed}");
    }
}
