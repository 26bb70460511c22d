//! Tests of the account of memory for slots: which batches are served or wait, and that none waits for ever.

use proptest::prelude::*;

use super::*;

/// A core whose ranks have slots of 10 bytes without values, two of which they need.
#[derive(Debug)]
struct RoomTest(RoomCore);

impl RoomTest {
    fn new(limit_bytes: u64) -> Self {
        Self(RoomCore::new(limit_bytes))
    }

    fn rank(&mut self, slots: u32) -> RankId {
        let fixed_bytes = 10 * u64::from(slots);
        self.0.attach(RankNeeds { fixed_bytes, largest_bytes: 1 << 30, slots, least: 2.min(slots) }).unwrap()
    }

    fn effects(&mut self) -> Vec<RoomEffect> {
        let effects = std::iter::from_fn(|| self.0.poll_effect());
        effects.filter(|effect| !matches!(effect, RoomEffect::Release { .. })).collect()
    }

    fn begin(&mut self, batch: RoomKey) -> Vec<RoomEffect> {
        self.0.begin(batch, batch.sequence as u32);
        self.effects()
    }

    /// Begins a batch, and gives it `bytes`.
    fn filled(&mut self, batch: RoomKey, bytes: u64) {
        self.begin(batch);
        let lack = bytes.saturating_sub(self.0.batches[&batch].granted_bytes);
        assert!(self.0.extend(batch, lack), "{batch:?} has room for {bytes} bytes");
        self.0.settle(batch, bytes, bytes);
    }

    fn handed_over(&mut self, batch: RoomKey, bytes: u64) {
        self.filled(batch, bytes);
        self.0.hand_over(batch);
    }

    fn released(&mut self) -> Vec<RoomKey> {
        let effects = std::iter::from_fn(|| self.0.poll_effect());
        effects
            .filter_map(|effect| if let RoomEffect::Release { batch } = effect { Some(batch) } else { None })
            .collect()
    }

    fn restart(&mut self, batch: RoomKey, bytes: u64) -> Vec<RoomEffect> {
        self.0.restart(batch, 0, bytes);
        self.effects()
    }
}

const fn batch(rank: RankId, sequence: u64) -> RoomKey {
    RoomKey { rank, sequence }
}

const fn granted(batch: RoomKey, bytes: u64) -> RoomEffect {
    RoomEffect::Grant { batch, bytes }
}

#[test]
fn a_rank_reserves_what_its_slots_take_without_values_and_gives_it_back() {
    let mut room = RoomTest::new(100);
    let needs = RankNeeds { fixed_bytes: 60, largest_bytes: 0, slots: 2, least: 2 };
    let rank = room.0.attach(needs).unwrap();
    assert_eq!((room.0.used_bytes(), room.0.free_bytes(), room.0.most_bytes()), (60, 40, 40));
    assert_eq!(room.0.attach(needs), None);
    room.filled(batch(rank, 0), 30);
    assert_eq!(room.0.used_bytes(), 90);
    room.0.detach(rank);
    assert_eq!(room.0.used_bytes(), 0);
    assert!(room.0.attach(needs).is_some());
}

#[test]
fn values_take_room_as_they_come_and_give_back_what_is_more_than_the_slot_holds() {
    let mut room = RoomTest::new(120);
    let rank = room.rank(2);
    let first = batch(rank, 0);
    assert_eq!(room.begin(first), [granted(first, 0)], "nothing is known of the batches");
    assert!(room.0.extend(first, 60) && room.0.extend(first, 40));
    assert!(!room.0.extend(first, 1));
    room.0.settle(first, 100, 50);
    assert_eq!((room.0.used_bytes(), room.0.free_bytes()), (70, 50));
    // The next batch begins with as much as this one needed, or with what there is.
    let second = batch(rank, 1);
    assert_eq!(room.begin(second), [granted(second, 0)]);
    assert!(room.0.extend(second, 50));
    assert_eq!(room.0.expected_bytes(), 120, "at most the limit");
}

#[test]
fn what_is_read_ahead_leaves_as_much_free_as_its_rank_holds() {
    let mut room = RoomTest::new(30 + 90);
    let rank = room.rank(3);
    room.handed_over(batch(rank, 0), 20);
    room.handed_over(batch(rank, 1), 20);
    let third = batch(rank, 2);
    assert_eq!(room.begin(third), [], "20 + 20 + 20 bytes, and 30 would be left");
    assert_eq!(room.0.waits_for(third), Some(20));
    // With the first batch back it is one of the two that the trainer needs.
    room.0.free(rank, 0, 20, false);
    assert_eq!(room.effects(), [granted(third, 20)]);
}

#[test]
fn with_room_for_the_largest_batches_of_all_ranks_nothing_waits() {
    let mut core = RoomCore::new(100);
    let needs = RankNeeds { fixed_bytes: 10, largest_bytes: 80, slots: 4, least: 1 };
    let rank = core.attach(needs).unwrap();
    for sequence in 0..4 {
        core.begin(batch(rank, sequence), sequence as u32);
        assert!(core.extend(batch(rank, sequence), 20), "batch {sequence}");
    }
    assert_eq!((core.used_bytes(), core.free_bytes()), (90, 10));
}

#[test]
fn free_slots_give_their_pages_back_to_who_needs_them_unless_a_device_has_locked_them() {
    for is_locked in [false, true] {
        let mut room = RoomTest::new(40 + 60);
        let (one, other) = (room.rank(2), room.rank(2));
        room.handed_over(batch(one, 0), 40);
        room.0.free(one, 0, 40, is_locked);
        let needs = batch(other, 0);
        room.begin(needs);
        assert_eq!(room.0.free_bytes(), if is_locked { 20 } else { 60 });
        assert_eq!(room.0.most_bytes(), if is_locked { 20 } else { 60 });
        assert_eq!(room.0.extend(needs, 50), !is_locked);
        let gone = RoomEffect::GiveBack { rank: one, slot: 0 };
        assert_eq!(room.effects(), if is_locked { vec![] } else { vec![gone] });
    }
}

#[test]
fn the_next_batch_of_a_slot_takes_over_its_pages() {
    let mut room = RoomTest::new(20 + 60);
    let rank = room.rank(2);
    room.handed_over(batch(rank, 0), 40);
    room.0.free(rank, 0, 40, true);
    assert_eq!(room.0.begin(batch(rank, 1), 0), Some(40));
    assert!(room.0.extend(batch(rank, 1), 20) && !room.0.extend(batch(rank, 1), 1));
    assert_eq!(room.0.begin(batch(RankId(7), 0), 0), None, "there is no such rank");
}

#[test]
fn the_batch_that_a_trainer_needs_first_is_served_first() {
    let mut room = RoomTest::new(40 + 100);
    let (one, other) = (room.rank(2), room.rank(2));
    room.filled(batch(one, 0), 90);
    for waiting in [batch(one, 1), batch(other, 0)] {
        room.begin(waiting);
        assert_eq!(room.restart(waiting, 50), [], "it does not fit beside 90 bytes");
    }
    assert!(!room.0.extend(batch(one, 1), 1), "another one needs it");
    room.0.abandon(batch(one, 0));
    assert_eq!(room.effects(), [granted(batch(other, 0), 50), granted(batch(one, 1), 50)]);
}

#[test]
fn batches_that_no_trainer_has_are_revoked_for_one_that_is_needed_before_the_latest_first() {
    let mut room = RoomTest::new(80 + 100);
    let (one, other) = (room.rank(4), room.rank(4));
    for sequence in 1..3 {
        room.filled(batch(one, sequence), 20);
    }
    let needed = batch(other, 0);
    room.begin(needed);
    assert!(room.0.extend(needed, 40));
    let revoked = |sequence| RoomEffect::Revoke { batch: batch(one, sequence) };
    assert_eq!(room.restart(needed, 70), [revoked(2)], "one is enough");
    assert!(!room.0.extend(batch(one, 2), 1));
    assert_eq!(room.restart(batch(one, 2), 20), [granted(needed, 70)], "the room of the other one");
    room.0.settle(needed, 70, 70);
    room.0.hand_over(needed);
    assert_eq!(room.effects(), []);
    // Batch 2 of `one` is read ahead, and waits until a trainer gives something back.
    room.0.free(other, 0, 70, false);
    assert_eq!(room.effects(), [RoomEffect::GiveBack { rank: other, slot: 0 }, granted(batch(one, 2), 20)]);
}

#[test]
fn a_batch_that_is_gone_leaves_its_room_to_those_that_wait() {
    let mut room = RoomTest::new(40 + 100);
    let (one, other) = (room.rank(2), room.rank(2));
    room.begin(batch(one, 0));
    assert!(room.0.extend(batch(one, 0), 80));
    let waiting = batch(other, 0);
    room.begin(waiting);
    assert_eq!(room.restart(waiting, 60), []);
    room.0.abandon(batch(one, 0));
    assert_eq!(room.effects(), [granted(waiting, 60)]);
    room.0.abandon(waiting);
    assert_eq!(room.0.used_bytes(), 40);
}

#[test]
fn a_trainer_gets_what_is_read_ahead_once_it_needs_it() {
    let mut room = RoomTest::new(30 + 120);
    let rank = room.rank(3);
    let filled = |room: &mut RoomTest, sequence| {
        room.begin(batch(rank, sequence));
        assert!(room.0.waits_for(batch(rank, sequence)).is_none());
        assert!(sequence > 0 || room.0.extend(batch(rank, sequence), 20));
        room.0.settle(batch(rank, sequence), 20, 20);
        room.released()
    };
    for sequence in [0, 1] {
        assert_eq!(filled(&mut room, sequence), [batch(rank, sequence)]);
        room.0.hand_over(batch(rank, sequence));
    }
    assert_eq!(filled(&mut room, 2), []);
    room.0.free(rank, 0, 20, false);
    assert_eq!(room.released(), [batch(rank, 2)]);
}

#[test]
fn a_batch_that_is_needed_is_refused_where_trainers_leave_no_room_for_it() {
    let mut room = RoomTest::new(40 + 100);
    let (one, other) = (room.rank(2), room.rank(2));
    room.handed_over(batch(one, 0), 60);
    room.handed_over(batch(other, 0), 20);
    room.begin(batch(other, 1));
    let refused = RoomEffect::Refuse { batch: batch(other, 1), needed_bytes: 20 + 20 + 21, left_bytes: 20 + 20 + 20 };
    assert_eq!(room.restart(batch(other, 1), 21), [refused]);
    // A byte less fits.
    assert_eq!(room.restart(batch(other, 1), 20), [granted(batch(other, 1), 20)]);
}

/// Ranks of a worker, which makes their batches, and their trainers.
#[derive(Debug)]
struct Trainers {
    room: RoomTest,
    limit_bytes: u64,
    /// Whether devices lock slots.
    locks: bool,
    ranks: BTreeMap<RankId, Trainer>,
    refused: u32,
}

#[derive(Debug)]
struct Trainer {
    sizes: Vec<u64>,
    least: u64,
    /// Bytes that each slot keeps, and the batch in it.
    slots: Vec<(u64, Option<u64>)>,
    begun: u64,
    handed_over: u64,
    freed: u64,
    /// Batches that no trainer has, and whether each can be handed over.
    making: BTreeMap<u64, bool>,
}

impl Trainer {
    fn slot(&self, sequence: u64) -> usize {
        self.slots.iter().position(|(_, batch)| *batch == Some(sequence)).unwrap()
    }

    /// Returns the number of the batches that the trainer needs first and that there are.
    fn needed(&self) -> u64 {
        (self.freed + self.least).min(self.sizes.len() as u64)
    }

    /// Returns the bytes that cannot be taken back.
    fn staying_bytes(&self, locks: bool) -> u64 {
        let stays = |(_, batch): &&(u64, Option<u64>)| locks || batch.is_some_and(|batch| batch < self.handed_over);
        self.slots.len() as u64 + self.slots.iter().filter(stays).map(|(bytes, _)| bytes).sum::<u64>()
    }
}

impl Trainers {
    fn new(limit_bytes: u64, locks: bool) -> Self {
        Self { room: RoomTest::new(limit_bytes), limit_bytes, locks, ranks: BTreeMap::new(), refused: 0 }
    }

    /// Lets a rank attach, with slots of a byte without values. Returns whether there was room for it.
    fn attach(&mut self, sizes: &[u64], slots: u32) -> bool {
        let least = 2.min(slots);
        let needs = RankNeeds { fixed_bytes: slots.into(), largest_bytes: 1 << 30, slots, least };
        let attached = self.room.0.attach(needs);
        if let Some(rank) = attached {
            let slots = vec![(0, None); slots as usize];
            let (sizes, making) = (sizes.to_vec(), BTreeMap::new());
            let trainer = Trainer { sizes, least: least.into(), slots, begun: 0, handed_over: 0, freed: 0, making };
            self.ranks.insert(rank, trainer);
        }
        self.work();
        attached.is_some()
    }

    /// Lets a trainer give its oldest batch back, if it has one.
    fn free(&mut self, rank: RankId) {
        let locks = self.locks;
        let Some(trainer) = self.ranks.get_mut(&rank).filter(|trainer| trainer.freed < trainer.handed_over) else {
            return;
        };
        let slot = trainer.slot(trainer.freed);
        trainer.slots[slot].1 = None;
        trainer.freed += 1;
        self.room.0.free(rank, slot as u32, trainer.slots[slot].0, locks);
        self.work();
    }

    fn detach(&mut self, rank: RankId) {
        self.ranks.remove(&rank);
        self.room.0.detach(rank);
        self.work();
    }

    /// Makes batches until each of them waits, and checks that none of them is needed.
    fn work(&mut self) {
        let mut steps = 0;
        while self.begin() || self.carry_out() || self.hand_over() {
            steps += 1;
            assert!(steps < 10_000, "batches are made again and again: {self:?}");
            assert!(self.room.0.used_bytes() <= self.limit_bytes, "{self:?}");
        }
        for (rank, trainer) in &self.ranks {
            assert!(trainer.handed_over >= trainer.needed(), "{rank:?} waits for a trainer: {self:?}");
        }
    }

    /// Begins batches in all free slots. Returns whether there were any.
    fn begin(&mut self) -> bool {
        let mut has_begun = false;
        for (rank, trainer) in &mut self.ranks {
            while trainer.begun < trainer.sizes.len() as u64
                && let Some(slot) = trainer.slots.iter().position(|(_, batch)| batch.is_none())
            {
                trainer.slots[slot] = (0, Some(trainer.begun));
                trainer.slots[slot].0 = self.room.0.begin(batch(*rank, trainer.begun), slot as u32).unwrap();
                trainer.making.insert(trainer.begun, false);
                trainer.begun += 1;
                has_begun = true;
            }
        }
        has_begun
    }

    fn carry_out(&mut self) -> bool {
        let Some(effect) = self.room.0.poll_effect() else { return false };
        match effect {
            RoomEffect::Grant { batch, .. } => self.fill(batch),
            RoomEffect::Revoke { batch } => self.restart(batch),
            RoomEffect::Release { batch } => {
                self.ranks.get_mut(&batch.rank).unwrap().making.insert(batch.sequence, true);
            }
            RoomEffect::GiveBack { rank, slot } => {
                assert!(!self.locks);
                self.ranks.get_mut(&rank).unwrap().slots[slot as usize].0 = 0;
            }
            RoomEffect::Refuse { batch, .. } => {
                let trainer = &self.ranks[&batch.rank];
                let (kept_bytes, size) = self.sizes(batch);
                let staying: u64 = self.ranks.values().map(|trainer| trainer.staying_bytes(self.locks)).sum();
                assert!(
                    staying + size.saturating_sub(kept_bytes) > self.limit_bytes,
                    "there is room for {batch:?}: {self:?}"
                );
                assert!(batch.sequence < trainer.needed(), "no trainer needs {batch:?}: {self:?}");
                self.refused += 1;
                self.ranks.remove(&batch.rank);
                self.room.0.detach(batch.rank);
            }
        }
        true
    }

    /// Returns the bytes that the slot of a batch cannot give back, and those of the batch.
    fn sizes(&self, batch: RoomKey) -> (u64, u64) {
        let trainer = &self.ranks[&batch.rank];
        let kept_bytes = if self.locks { trainer.slots[trainer.slot(batch.sequence)].0 } else { 0 };
        (kept_bytes, trainer.sizes[batch.sequence as usize])
    }

    fn fill(&mut self, batch: RoomKey) {
        let (kept_bytes, size) = self.sizes(batch);
        let lack = size.max(kept_bytes).saturating_sub(self.room.0.batches[&batch].granted_bytes);
        if lack == 0 || self.room.0.extend(batch, lack) {
            self.room.0.settle(batch, size, size.max(kept_bytes));
            let trainer = self.ranks.get_mut(&batch.rank).unwrap();
            let slot = trainer.slot(batch.sequence);
            trainer.slots[slot].0 = size.max(kept_bytes);
        } else {
            self.restart(batch);
        }
    }

    fn restart(&mut self, batch: RoomKey) {
        let (kept_bytes, size) = self.sizes(batch);
        let trainer = self.ranks.get_mut(&batch.rank).unwrap();
        let slot = trainer.slot(batch.sequence);
        trainer.slots[slot].0 = kept_bytes;
        trainer.making.insert(batch.sequence, false);
        self.room.0.restart(batch, kept_bytes, size.max(kept_bytes));
    }

    /// Hands over the batches whose turn it is. Returns whether there were any.
    fn hand_over(&mut self) -> bool {
        let mut has_handed_over = false;
        for (rank, trainer) in &mut self.ranks {
            while trainer.making.get(&trainer.handed_over) == Some(&true) {
                trainer.making.remove(&trainer.handed_over);
                self.room.0.hand_over(batch(*rank, trainer.handed_over));
                trainer.handed_over += 1;
                has_handed_over = true;
            }
        }
        has_handed_over
    }
}

/// Returns sizes of batches of some ranks.
fn sizes() -> impl Strategy<Value = Vec<Vec<u64>>> {
    let of_rank = |batches| (1u64..100).prop_flat_map(move |most| prop::collection::vec(0..=most, batches));
    (1usize..5, 2usize..12).prop_flat_map(move |(ranks, batches)| prop::collection::vec(of_rank(batches), ranks))
}

proptest! {
    /// After each step, a batch that a trainer needs was handed over, or refused because there was no room: `work` checks it.
    #[test]
    fn a_batch_that_a_trainer_needs_waits_for_no_trainer(
        sizes in sizes(),
        slots in 1u32..6,
        limit_bytes in 20u64..600,
        locks: bool,
        steps in prop::collection::vec((0usize..4, 0u32..12), 0..100),
    ) {
        let mut trainers = Trainers::new(limit_bytes, locks);
        let mut ranks = sizes.iter();
        for (rank, what) in steps {
            let id = trainers.ranks.keys().copied().cycle().nth(rank);
            match (what, id) {
                (0..2, _) => { ranks.next().map(|sizes| trainers.attach(sizes, slots)); }
                (2, Some(id)) => trainers.detach(id),
                (_, Some(id)) => trainers.free(id),
                (_, None) => {}
            }
        }
    }

    /// In lockstep a trainer gives a batch back when it has the next one, and all trainers need a step's batches. Ranks come one
    /// after the other, and the first may have read ahead by then.
    #[test]
    fn trainers_in_lockstep_get_all_batches_if_two_of_the_largest_fit(sizes in sizes(), slots in 2u32..6, locks: bool) {
        let kept = if locks { slots } else { 2 };
        let largest = sizes.iter().map(|sizes| 2 * u64::from(slots) + u64::from(kept) * sizes.iter().max().unwrap());
        let mut trainers = Trainers::new(largest.sum(), locks);
        for sizes in &sizes {
            prop_assume!(trainers.attach(sizes, slots), "what is read ahead leaves no room for its slots");
        }
        for step in 0..sizes[0].len() as u64 {
            prop_assert_eq!((trainers.refused, trainers.ranks.len()), (0, sizes.len()));
            prop_assert!(trainers.ranks.values().all(|trainer| trainer.handed_over > step));
            if step > 0 {
                let ranks: Vec<RankId> = trainers.ranks.keys().copied().collect();
                ranks.into_iter().for_each(|rank| trainers.free(rank));
            }
        }
        prop_assert_eq!(trainers.refused, 0);
    }
}
