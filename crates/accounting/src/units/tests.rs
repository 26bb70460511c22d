use spdl_types::{Position, SessionId};

use super::*;

const STATES: [UnitState; 5] =
    [UnitState::Busy, UnitState::Input, UnitState::Output, UnitState::Throttled, UnitState::Idle];

/// A generator of random numbers for one test, so that a failure can be replayed from its seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn the_times_of_units_add_up_at_every_moment_whatever_they_do() {
    for seed in 0..200 {
        let (mut dice, stage) = (Dice(seed), Arc::<StageUnits>::default());
        let start = Instant::now();
        let (threads, slots) = (stage.group(3, start), stage.group(5, start));
        let mut state_of = [UnitState::Idle; 3];
        let mut now = start;
        for _ in 0..300 {
            now += Duration::from_nanos(dice.below(1_000_000));
            match dice.below(4) {
                0 => {
                    let (thread, to) = (dice.below(3) as usize, STATES[dice.below(5) as usize]);
                    threads.shift(1, std::mem::replace(&mut state_of[thread], to), to, now);
                }
                1 => slots.set([(UnitState::Busy, dice.below(4) as usize), (STATES[dice.below(5) as usize], 9)], now),
                2 => stage.set_idle(STATES[dice.below(4) as usize], now),
                _ => {}
            }
            // Read in the middle of an interval of some units.
            let later = now + Duration::from_nanos(dice.below(10_000));
            let (times, units, _) = stage.read(later);
            assert_eq!((times.total(), units), ((later - start) * 8, 8), "seed {seed}");
            now = later;
        }
    }
}

#[test]
fn the_time_of_units_that_come_and_go_counts_while_they_are_there() {
    let (stage, start) = (Arc::<StageUnits>::default(), Instant::now());
    let at = |ms| start + Duration::from_millis(ms);
    let group = stage.group(2, start);
    group.shift(1, UnitState::Idle, UnitState::Busy, start);
    group.resize(4, at(10));
    assert_eq!((stage.read(at(20)).0.total(), stage.read(at(20)).1), (Duration::from_millis(60), 4));
    group.resize(1, at(20));
    let (times, units, busy) = stage.read(at(30));
    assert_eq!((times.total(), units, busy), (Duration::from_millis(70), 1, 1), "idle units go first");
    assert_eq!(times.of(UnitState::Busy), Duration::from_millis(30));
}

#[test]
fn each_interval_is_counted_for_the_state_of_its_unit() {
    let (stage, start) = (Arc::<StageUnits>::default(), Instant::now());
    let at = |ms| start + Duration::from_millis(ms);
    let of = |now| {
        let times = stage.read(now).0;
        STATES[..TIMED].iter().map(|state| times.of(*state).as_millis()).collect::<Vec<_>>()
    };
    let group = stage.group(2, start);
    group.shift(1, UnitState::Idle, UnitState::Busy, at(10));
    assert_eq!(of(at(15)), [5, 25, 0, 0], "idle units wait for input at first");
    stage.set_idle(UnitState::Output, at(20));
    group.shift(1, UnitState::Busy, UnitState::Throttled, at(30));
    assert_eq!(of(at(40)), [20, 30, 20, 10]);
    group.set([(UnitState::Busy, 7), (UnitState::Throttled, 1)], at(40));
    assert_eq!(of(at(50)), [40, 30, 20, 10], "there are no more than two units");
    let later = stage.group(1, at(50));
    assert_eq!(of(at(60)), [60, 30, 30, 10], "a new unit waits for what the others wait for");
    assert_eq!(stage.read(at(60)).1, 3);
    drop(later);
}

#[test]
fn the_time_of_units_that_are_gone_stays() {
    let (stage, start) = (Arc::<StageUnits>::default(), Instant::now());
    let group = stage.group(2, start);
    group.set([(UnitState::Busy, 2)], start);
    drop(group);
    let (times, units, busy) = stage.read(Instant::now());
    assert_eq!((units, busy), (0, 0));
    assert!(times.total() > Duration::ZERO && times.total() == times.of(UnitState::Busy));
    assert_eq!(stage.read(Instant::now()).0, times, "nothing is added to it");
}

#[test]
fn a_change_that_comes_late_does_not_turn_time_back() {
    let (stage, start) = (Arc::<StageUnits>::default(), Instant::now());
    let group = stage.group(1, start);
    let later = start + Duration::from_millis(10);
    assert_eq!(stage.read(later).0.total(), Duration::from_millis(10));
    group.shift(1, UnitState::Idle, UnitState::Busy, start + Duration::from_millis(5));
    assert_eq!(stage.read(later).0.of(UnitState::Busy), Duration::ZERO);
    assert_eq!(stage.read(later).0.total(), Duration::from_millis(10));
}

#[test]
fn threads_that_change_their_units_at_once_lose_no_time() {
    let (stage, start) = (Arc::<StageUnits>::default(), Instant::now());
    let groups: Vec<UnitGroup> = (0..4).map(|_| stage.group(1, start)).collect();
    std::thread::scope(|scope| {
        for group in &groups {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    group.shift(1, UnitState::Idle, UnitState::Busy, Instant::now());
                    group.shift(1, UnitState::Busy, UnitState::Idle, Instant::now());
                }
            });
        }
        for turn in 0..2_000 {
            let waits_for = if turn % 2 == 0 { UnitState::Output } else { UnitState::Input };
            stage.set_idle(waits_for, Instant::now());
            assert!(stage.read(Instant::now()).0.total() > Duration::ZERO);
        }
    });
    let now = Instant::now();
    assert_eq!(stage.read(now).0.total(), (now - start) * 4);
}

fn batch(offset: u64) -> BatchId {
    BatchId { session: SessionId(1), rank: 0, from: Position { epoch: 0, offset } }
}

#[test]
fn the_intervals_of_a_unit_follow_one_another_and_add_up_to_its_times() {
    for seed in 0..50 {
        let (mut dice, stage) = (Dice(seed), Arc::<StageUnits>::default());
        let start = Instant::now();
        let groups = [stage.group(1, start), stage.group(1, start)];
        let (mut state_of, mut now) = ([UnitState::Idle; 2], start);
        stage.record(10_000, start);
        for step in 0..300 {
            now += Duration::from_nanos(dice.below(1_000));
            let at = dice.below(2) as usize;
            match dice.below(4) {
                0 => stage.set_idle(STATES[dice.below(4) as usize], now),
                1 => groups[at].set_batch(Some(batch(step)), now),
                _ => {
                    let to = STATES[dice.below(5) as usize];
                    groups[at].shift(1, std::mem::replace(&mut state_of[at], to), to, now);
                }
            }
        }
        let (times, ..) = stage.read(now);
        let Recording { intervals, lost } = stage.take_recording(now).unwrap();
        let mut recorded = UnitTimes::default();
        for unit in 0..2 {
            let of_unit: Vec<&UnitInterval> = intervals.iter().filter(|interval| interval.unit == unit).collect();
            let ends = [of_unit[0].start, of_unit.last().unwrap().end];
            assert_eq!(ends, [start, now], "seed {seed}");
            assert!(of_unit.windows(2).all(|pair| pair[0].end == pair[1].start), "seed {seed}: {of_unit:?}");
            of_unit.iter().for_each(|interval| recorded.add(interval.state, interval.end - interval.start, 1));
        }
        assert_eq!((recorded, lost), (times, 0), "seed {seed}");
    }
}

#[test]
fn a_recording_has_the_batch_of_each_interval_and_begins_and_ends_in_the_middle_of_one() {
    let (stage, start) = (Arc::<StageUnits>::default(), Instant::now());
    let at = |ms| start + Duration::from_millis(ms);
    let (thread, requests) = (stage.group(1, start), stage.group(3, start));
    assert_eq!(stage.take_recording(start), None);
    thread.set_batch(Some(batch(7)), start);
    thread.shift(1, UnitState::Idle, UnitState::Busy, start);
    stage.record(10, at(5));
    requests.set([(UnitState::Busy, 2)], at(6));
    let request = UnitInterval { unit: 2, state: UnitState::Busy, start: at(1), end: at(8), batch: Some(batch(9)) };
    requests.add_interval(request);
    thread.shift(1, UnitState::Busy, UnitState::Idle, at(10));
    stage.set_idle(UnitState::Output, at(20));
    let late = stage.group(1, at(25));
    late.shift(1, UnitState::Idle, UnitState::Busy, at(25));
    let recording = stage.take_recording(at(30)).unwrap();
    let found = recording.intervals.iter().map(|interval| {
        let ms = |at: Instant| (at - start).as_millis();
        let offset = interval.batch.map(|batch| batch.from.offset);
        (interval.unit, interval.state, ms(interval.start), ms(interval.end), offset)
    });
    let expected = [
        (3, UnitState::Busy, 5, 8, Some(9)),
        (0, UnitState::Busy, 5, 10, Some(7)),
        (0, UnitState::Input, 10, 20, None),
        (0, UnitState::Output, 20, 30, None),
        (4, UnitState::Busy, 25, 30, None),
    ];
    assert_eq!(found.collect::<Vec<_>>(), expected);
    late.shift(1, UnitState::Busy, UnitState::Idle, at(40));
    assert_eq!(stage.take_recording(at(50)), None, "it has ended");
}

#[test]
fn a_recording_keeps_the_last_intervals_and_counts_the_others() {
    let (stage, start) = (Arc::<StageUnits>::default(), Instant::now());
    let unit = stage.group(1, start);
    stage.record(4, start);
    for ms in 1..=10 {
        unit.set_batch(Some(batch(ms)), start + Duration::from_millis(ms));
        let (from, to) =
            if ms % 2 == 1 { (UnitState::Idle, UnitState::Busy) } else { (UnitState::Busy, UnitState::Idle) };
        unit.shift(1, from, to, start + Duration::from_millis(ms));
    }
    let end = start + Duration::from_millis(11);
    let Recording { intervals, lost } = stage.take_recording(end).unwrap();
    assert_eq!((intervals.len(), intervals[3].end), (4, end));
    assert_eq!(lost, 7, "of eleven intervals");
}
