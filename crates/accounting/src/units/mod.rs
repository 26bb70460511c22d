//! Accounts for the time of a stage's units: threads, requests in flight, slots. A unit is at any time in exactly one state,
//! and a change of state ends the interval of the state before it. So the times of the states add up to the time for
//! which the units have existed, whenever they are read.
//!
//! On request the intervals themselves are kept for a while: [`StageUnits::record`].

mod recorder;

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use spdl_types::BatchId;

use crate::nanoseconds;

use self::recorder::Recorder;
pub use self::recorder::{Recording, UnitInterval};

/// What a unit does with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitState {
    /// It works on an item.
    Busy,
    /// It waits for an item.
    Input,
    /// It waits for room for a result.
    Output,
    /// It is held back although it has an item and room: by a budget, or by a delay before a new try.
    Throttled,
    /// It has no item. The stage decides what all such units wait for: [`StageUnits::set_idle`].
    Idle,
}

/// Number of states whose time is counted: all but [`UnitState::Idle`].
const TIMED: usize = 4;

/// The time of units by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitTimes {
    ns: [u64; TIMED],
}

impl UnitTimes {
    /// Returns the time in a state; zero for [`UnitState::Idle`], because idle time counts as the time of another
    /// state.
    #[must_use]
    pub fn of(&self, state: UnitState) -> Duration {
        Duration::from_nanos(self.ns.get(state as usize).copied().unwrap_or(0))
    }

    /// Returns the time in all states.
    #[must_use]
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.ns.iter().sum())
    }

    /// Adds the time of `units` units in one state.
    pub fn add(&mut self, state: UnitState, elapsed: Duration, units: usize) {
        self.ns[state as usize] += nanoseconds(elapsed) * units as u64;
    }

    fn add_all(&mut self, other: &Self) {
        self.ns.iter_mut().zip(other.ns).for_each(|(sum, ns)| *sum += ns);
    }
}

/// The units of one owner, and the time that they have spent. It has no clock: each change comes with its time.
#[derive(Debug)]
struct UnitLedger {
    /// Number of units by state.
    counts: [u32; TIMED + 1],
    /// The state that idle units count as.
    idle_as: UnitState,
    times: UnitTimes,
    accounted_until: Instant,
    /// Number of the first unit among those of the stage.
    first_unit: u32,
    /// The batch that the units work on.
    batch: Option<BatchId>,
    /// The recorder, and since when a single unit is in its state; `None` while nothing is recorded.
    recording: Option<(Arc<Mutex<Recorder>>, Instant)>,
}

impl UnitLedger {
    /// Changes the states of units at `now`, and records the interval that this ends for a single unit.
    fn change(&mut self, now: Instant, change: impl FnOnce(&mut Self)) {
        self.account(now);
        let before = self.recording.is_some().then(|| self.single());
        change(self);
        if let Some(Some(before)) = before.filter(|before| *before != self.single()) {
            self.end_interval(before, now);
        }
    }

    /// Returns the state of the unit and its batch, if there is one unit.
    fn single(&self) -> Option<(UnitState, Option<BatchId>)> {
        let [busy, input, output, throttled, idle] = self.counts;
        match (busy, input, output, throttled, idle) {
            (1, 0, 0, 0, 0) => Some((UnitState::Busy, self.batch)),
            (0, 1, 0, 0, 0) => Some((UnitState::Input, self.batch)),
            (0, 0, 1, 0, 0) => Some((UnitState::Output, self.batch)),
            (0, 0, 0, 1, 0) => Some((UnitState::Throttled, self.batch)),
            (0, 0, 0, 0, 1) => Some((self.idle_as, None)),
            _ => None,
        }
    }

    fn end_interval(&mut self, (state, batch): (UnitState, Option<BatchId>), now: Instant) {
        let Some((recorder, since)) = &mut self.recording else { return };
        recorder.lock().push(UnitInterval { unit: self.first_unit, state, start: *since, end: now, batch });
        *since = now.max(*since);
    }

    /// Records the interval that has not ended, and nothing after it.
    fn end_recording(&mut self, now: Instant) {
        if let Some(current) = self.single() {
            self.end_interval(current, now);
        }
        self.recording = None;
    }

    /// Counts the time up to `now`. A time before the last one counts as that one.
    fn account(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.accounted_until);
        if elapsed.is_zero() {
            return;
        }
        self.accounted_until = now;
        let [busy, input, output, throttled, idle] = self.counts;
        let states = [UnitState::Busy, UnitState::Input, UnitState::Output, UnitState::Throttled, self.idle_as];
        for (state, count) in states.into_iter().zip([busy, input, output, throttled, idle]) {
            self.times.add(state, elapsed, count as usize);
        }
    }

    fn units(&self) -> u32 {
        self.counts.iter().sum()
    }
}

/// All units of a stage.
#[derive(Debug)]
pub struct StageUnits(Mutex<Groups>);

#[derive(Debug)]
struct Groups {
    idle_as: UnitState,
    current: Vec<Weak<Mutex<UnitLedger>>>,
    /// The time of the groups that are gone.
    past: UnitTimes,
    /// Number of units that there ever were.
    units: u32,
    recorder: Option<Arc<Mutex<Recorder>>>,
}

impl Default for StageUnits {
    fn default() -> Self {
        let (current, past) = (Vec::new(), UnitTimes::default());
        Self(Mutex::new(Groups { idle_as: UnitState::Input, current, past, units: 0, recorder: None }))
    }
}

impl StageUnits {
    /// Adds `units` idle units, which exist until the group is dropped.
    #[must_use]
    pub fn group(self: &Arc<Self>, units: u32, now: Instant) -> UnitGroup {
        let mut groups = self.0.lock();
        let ledger = Arc::new(Mutex::new(UnitLedger {
            counts: [0, 0, 0, 0, units],
            idle_as: groups.idle_as,
            times: UnitTimes::default(),
            accounted_until: now,
            first_unit: groups.units,
            batch: None,
            recording: groups.recorder.clone().map(|recorder| (recorder, now)),
        }));
        groups.current.push(Arc::downgrade(&ledger));
        groups.units = groups.units.saturating_add(units);
        UnitGroup { stage: self.clone(), ledger }
    }

    pub(crate) fn is_used(&self) -> bool {
        self.0.lock().units > 0
    }

    /// Sets what idle units wait for from now on.
    pub fn set_idle(&self, idle_as: UnitState, now: Instant) {
        assert_ne!(idle_as, UnitState::Idle, "idle units wait for something");
        let mut groups = self.0.lock();
        if std::mem::replace(&mut groups.idle_as, idle_as) == idle_as {
            return;
        }
        for ledger in groups.current.iter().filter_map(Weak::upgrade) {
            ledger.lock().change(now, |ledger| ledger.idle_as = idle_as);
        }
    }

    /// Starts to record what each unit does, and keeps the last `capacity` intervals, of 80 bytes each. An earlier
    /// recording is dropped. In a group of several units only the owner knows which unit did what, so it records their
    /// intervals: [`UnitGroup::add_interval`].
    pub fn record(&self, capacity: usize, now: Instant) {
        let mut groups = self.0.lock();
        let recorder = Arc::new(Mutex::new(Recorder::new(capacity)));
        for ledger in groups.current.iter().filter_map(Weak::upgrade) {
            ledger.lock().recording = Some((recorder.clone(), now));
        }
        groups.recorder = Some(recorder);
    }

    /// Ends the recording at `now` and returns it, with the intervals that have not ended; `None` if there is none.
    pub fn take_recording(&self, now: Instant) -> Option<Recording> {
        let mut groups = self.0.lock();
        let recorder = groups.recorder.take()?;
        groups.current.iter().filter_map(Weak::upgrade).for_each(|ledger| ledger.lock().end_recording(now));
        let recording = recorder.lock().take();
        Some(recording)
    }

    /// Returns the time of all units up to `now`, the number of units, and how many of them are busy.
    #[must_use]
    pub fn read(&self, now: Instant) -> (UnitTimes, u32, u32) {
        let groups = self.0.lock();
        let (mut times, mut units, mut busy) = (groups.past, 0, 0);
        for ledger in groups.current.iter().filter_map(Weak::upgrade) {
            let mut ledger = ledger.lock();
            ledger.account(now);
            times.add_all(&ledger.times);
            units += ledger.units();
            busy += ledger.counts[UnitState::Busy as usize];
        }
        (times, units, busy)
    }
}

/// Units of a stage with one owner, who reports their changes. A change takes an uncontended lock and no allocation.
#[derive(Debug)]
pub struct UnitGroup {
    stage: Arc<StageUnits>,
    ledger: Arc<Mutex<UnitLedger>>,
}

impl UnitGroup {
    /// Puts `units` units that are in state `from` into state `to`.
    ///
    /// # Panics
    /// If fewer units are in state `from`.
    pub fn shift(&self, units: u32, from: UnitState, to: UnitState, now: Instant) {
        self.ledger.lock().change(now, |ledger| {
            let left = ledger.counts[from as usize].checked_sub(units);
            ledger.counts[from as usize] = left.unwrap_or_else(|| panic!("{units} units leave {from:?}: {ledger:?}"));
            ledger.counts[to as usize] += units;
        });
    }

    /// Sets the batch that the units work on, for a recording. Idle units work on none.
    pub fn set_batch(&self, batch: Option<BatchId>, now: Instant) {
        self.ledger.lock().change(now, |ledger| ledger.batch = batch);
    }

    /// Adds an interval to the recording, if there is one: of the group's unit number `interval.unit`, counted from 0.
    /// The part of it before the recording began is cut off. Only for groups of several units; a group of one unit
    /// records by itself.
    pub fn add_interval(&self, interval: UnitInterval) {
        let ledger = self.ledger.lock();
        if let Some((recorder, since)) = &ledger.recording {
            let unit = ledger.first_unit.saturating_add(interval.unit);
            recorder.lock().push(UnitInterval { unit, start: interval.start.max(*since), ..interval });
        }
    }

    /// Changes the number of units. New ones are idle; idle ones go first. Only for the one group of a stage: a
    /// recording numbers the units of its groups one after the other.
    pub fn resize(&self, units: u32, now: Instant) {
        self.ledger.lock().change(now, |ledger| {
            let mut excess = ledger.units().saturating_sub(units);
            ledger.counts[UnitState::Idle as usize] += units.saturating_sub(ledger.units());
            for count in ledger.counts.iter_mut().rev() {
                let removed = excess.min(*count);
                *count -= removed;
                excess -= removed;
            }
        });
    }

    /// Sets how many units are in these states; all others are idle. Counts beyond the number of units are cut off, the
    /// last ones first.
    pub fn set<const N: usize>(&self, counts: [(UnitState, usize); N], now: Instant) {
        self.ledger.lock().change(now, |ledger| {
            let mut left = ledger.units();
            ledger.counts = [0; TIMED + 1];
            for (state, count) in counts {
                let taken = u32::try_from(count).unwrap_or(u32::MAX).min(left);
                ledger.counts[state as usize] += taken;
                left -= taken;
            }
            ledger.counts[UnitState::Idle as usize] += left;
        });
    }
}

impl UnitGroup {
    /// Runs `work` by one idle unit, which is busy while `work` is polled, and in state `pending` between the polls.
    pub async fn run<T>(&self, work: impl Future<Output = T>, pending: UnitState) -> T {
        let mut work = pin!(work);
        let mut unit = RunningUnit { group: self, state: UnitState::Idle };
        poll_fn(|context| {
            unit.enter(UnitState::Busy);
            let polled = work.as_mut().poll(context);
            unit.enter(pending);
            polled
        })
        .await
    }
}

/// A unit that becomes idle when this is dropped.
struct RunningUnit<'g> {
    group: &'g UnitGroup,
    state: UnitState,
}

impl RunningUnit<'_> {
    fn enter(&mut self, state: UnitState) {
        self.group.shift(1, std::mem::replace(&mut self.state, state), state, Instant::now());
    }
}

impl Drop for RunningUnit<'_> {
    fn drop(&mut self) {
        self.enter(UnitState::Idle);
    }
}

impl Drop for UnitGroup {
    fn drop(&mut self) {
        let mut groups = self.stage.0.lock();
        let mut ledger = self.ledger.lock();
        let now = Instant::now();
        ledger.account(now);
        ledger.end_recording(now);
        groups.past.add_all(&ledger.times);
        let own = Arc::as_ptr(&self.ledger);
        groups.current.retain(|ledger| !std::ptr::eq(ledger.as_ptr(), own));
    }
}

#[cfg(test)]
mod tests;
