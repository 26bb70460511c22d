use super::*;

const STATES: [UnitState; 5] =
    [UnitState::Busy, UnitState::Input, UnitState::Output, UnitState::Throttled, UnitState::Idle];

/// A generator of numbers for one test, so that a failure plays again from its seed.
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
