//! The stages of the feeds: what a unit of each stage is, and what its idle units wait for.
//!
//! | stage | a unit | busy | waits for input | waits for output | throttled |
//! |---|---|---|---|---|---|
//! | open | a rank whose dataset is being opened | always | | | |
//! | fetch | a request that may be in flight | in flight | no rank is fed; what a batch waits for is in flight, and all that may be read ahead has been; kept free for what a batch waits for | all that may be read ahead has been, and no batch waits for it | no memory; a delay before a new try |
//! | decode | a decoding thread | decodes a sample | no sample whose bytes are there | no free slot | pauses for the budget |
//! | transform | a Python process | runs a function | not called | | |
//! | hand-over | a slot | | empty or being filled | holds a batch that was not given back | |
//! | send | a rank over QUIC | passes bytes to the connection | no batch to send | the connection takes no more | |

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use spdl_accounting::{Recording, StageCounters, UnitGroup, UnitState, thread_cpu_ns};
use spdl_types::{BatchId, Stage, StageStats};

use super::throttle::{CpuThrottle, OwedPause};
use crate::budget::Budget;

/// The counters of the stages that all ranks of a process share.
#[derive(Debug)]
pub(crate) struct FeedStages {
    pub(crate) open: Arc<StageCounters>,
    pub(crate) fetch: Arc<StageCounters>,
    pub(crate) decode: Arc<StageCounters>,
    pub(crate) transform: Arc<StageCounters>,
    pub(crate) hand_over: Arc<StageCounters>,
    pub(crate) send: Arc<StageCounters>,
    ranks: Mutex<ActiveRanks>,
}

/// What a rank does, as far as it decides what idle units wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RankActivity {
    /// Whether its dataset is open and its stream has not ended.
    pub(crate) is_fed: bool,
    /// Whether one of its batches waits for bytes.
    pub(crate) awaits_bytes: bool,
    /// Number of batches that are ready and that the consumer has not received.
    pub(crate) ready: u64,
}

/// Number of ranks, by what they do.
#[derive(Debug, Default)]
struct ActiveRanks {
    fed: usize,
    awaiting_bytes: usize,
    ready: u64,
}

impl Default for FeedStages {
    fn default() -> Self {
        let stage = |stage| Arc::new(StageCounters::new(stage));
        Self {
            open: stage(Stage::Open),
            fetch: stage(Stage::Fetch),
            decode: stage(Stage::Decode),
            transform: stage(Stage::Transform),
            hand_over: stage(Stage::HandOver),
            send: stage(Stage::Send),
            ranks: Mutex::default(),
        }
    }
}

impl FeedStages {
    /// Returns all stages, in the order in which a sample passes them.
    pub(crate) fn all(&self) -> [&StageCounters; 6] {
        [&self.open, &self.fetch, &self.decode, &self.transform, &self.hand_over, &self.send].map(|stage| &**stage)
    }

    /// Records what the units of each stage do, and keeps the last `capacity` intervals of each.
    pub(crate) fn record(&self, capacity: usize) {
        let now = Instant::now();
        self.all().into_iter().for_each(|stage| stage.units().record(capacity, now));
    }

    /// Ends the recording and returns the intervals of all stages that have had a unit.
    pub(crate) fn take_recordings(&self) -> Vec<(Stage, Recording)> {
        let now = Instant::now();
        let used = self.all().into_iter().filter(|stage| stage.is_used());
        used.filter_map(|stage| Some((stage.stage().clone(), stage.units().take_recording(now)?))).collect()
    }

    /// Updates the idle units after a change of a rank's activity.
    pub(crate) fn change(&self, before: RankActivity, after: RankActivity) {
        if before == after {
            return;
        }
        let mut ranks = self.ranks.lock();
        ranks.fed = ranks.fed + usize::from(after.is_fed) - usize::from(before.is_fed);
        ranks.awaiting_bytes += usize::from(after.awaits_bytes);
        ranks.awaiting_bytes -= usize::from(before.awaits_bytes);
        ranks.ready = ranks.ready + after.ready - before.ready;
        let waits_for = |is_output| if is_output { UnitState::Output } else { UnitState::Input };
        let now = Instant::now();
        // While a batch waits for bytes, idle units wait for input: no more may be read, or no sample can be decoded
        // yet.
        let idle_as = waits_for(ranks.fed > 0 && ranks.awaiting_bytes == 0);
        self.fetch.units().set_idle(idle_as, now);
        self.decode.units().set_idle(idle_as, now);
    }

    /// Returns the statistics at `now` of the stages that have had a unit, in the order in which a sample passes them.
    /// `reads` wait for a request, and `samples` are being decoded or wait for it.
    pub(crate) fn stats(&self, now: Instant, reads: usize, samples: usize) -> Vec<StageStats> {
        let (_, _, decoding) = self.decode.units().read(now);
        let ready = self.ranks.lock().ready;
        let waiting = (samples as u64).saturating_sub(decoding.into());
        let queues = [0, reads as u64, waiting, 0, ready, 0];
        let with_queue = |(stage, queue_depth): (&StageCounters, _)| StageStats { queue_depth, ..stage.stats(now) };
        self.all().into_iter().zip(queues).filter(|(stage, _)| stage.is_used()).map(with_queue).collect()
    }
}

/// The slots of one rank, as units of the stage that hands them over.
#[derive(Debug)]
pub(crate) struct HandedSlots {
    stage: Arc<StageCounters>,
    /// For each slot its unit, and when the batch in it was published, with its bytes.
    slots: Vec<(UnitGroup, Option<(Instant, u64)>)>,
}

impl HandedSlots {
    pub(crate) fn new(stage: &Arc<StageCounters>, slots: u32, now: Instant) -> Self {
        let slots = (0..slots).map(|_| (stage.units().group(1, now), None)).collect();
        Self { stage: stage.clone(), slots }
    }

    /// Notes that a slot holds a batch of `bytes`.
    pub(crate) fn publish(&mut self, slot: u32, batch: BatchId, bytes: u64) {
        let now = Instant::now();
        let (unit, published) = &mut self.slots[slot as usize];
        unit.set_batch(Some(batch), now);
        unit.shift(1, UnitState::Idle, UnitState::Output, now);
        *published = Some((now, bytes));
    }

    /// Notes that a slot was given back.
    pub(crate) fn free(&mut self, slot: u32) {
        let Some((unit, published)) = self.slots.get_mut(slot as usize) else { return };
        let Some((published, bytes)) = published.take() else { return };
        let now = Instant::now();
        unit.shift(1, UnitState::Output, UnitState::Idle, now);
        self.stage.item(now.saturating_duration_since(published), bytes);
    }
}

/// How often a thread that decodes reads its CPU time, which is a system call of about 0.2 us.
const CPU_INTERVAL: Duration = Duration::from_millis(10);

/// The decoding threads as units of their stage, which keep within the budget of cores.
#[derive(Debug)]
pub(crate) struct DecodeThreads {
    stage: Arc<StageCounters>,
    throttle: CpuThrottle,
    threads: Vec<DecodeThread>,
}

#[derive(Debug)]
struct DecodeThread {
    unit: UnitGroup,
    /// The part of its CPU time that has been counted.
    cpu_ns: AtomicU64,
    pace: Mutex<Pace>,
}

#[derive(Debug)]
struct Pace {
    owed: OwedPause,
    /// Whether the thread has left a batch to pause, while the batch still has samples for it.
    is_parked: bool,
}

impl DecodeThreads {
    pub(crate) fn new(stage: &Arc<StageCounters>, budget: &Budget) -> Self {
        let now = Instant::now();
        let thread = |_| DecodeThread {
            unit: stage.units().group(1, now),
            cpu_ns: AtomicU64::new(0),
            pace: Mutex::new(Pace { owed: OwedPause::new(now), is_parked: false }),
        };
        let threads = (0..budget.threads().get()).map(thread).collect();
        Self { stage: stage.clone(), throttle: CpuThrottle::new(budget), threads }
    }

    /// Keeps the CPU use of the whole process within the budget, not only that of decoding. Never returns.
    pub(crate) async fn keep_pace(&self) -> std::convert::Infallible {
        self.throttle.watch(self.stage.units()).await
    }

    /// Returns how long a thread takes for an item that keeps it busy for `busy`, with its pause.
    pub(crate) fn with_pause(&self, busy: Duration) -> Duration {
        busy + self.throttle.pause_for(busy)
    }

    /// Marks the calling thread, number `number`, as busy with `batch` until the returned value is dropped.
    pub(crate) fn begin(&self, number: usize, batch: BatchId) -> DecodingThread<'_> {
        let thread = &self.threads[number];
        let now = Instant::now();
        thread.unit.set_batch(Some(batch), now);
        let is_parked = std::mem::take(&mut thread.pace.lock().is_parked);
        thread.unit.shift(1, if is_parked { UnitState::Throttled } else { UnitState::Idle }, UnitState::Busy, now);
        DecodingThread { all: self, number, item_since: now, cpu_read: now, left_as: UnitState::Idle }
    }

    /// Notes that no batch waits any more for thread number `number`, which was [parked](DecodingThread::park), or that
    /// its pause is over.
    pub(crate) fn unpark(&self, number: usize) {
        let thread = &self.threads[number];
        let mut pace = thread.pace.lock();
        if std::mem::take(&mut pace.is_parked) {
            thread.unit.shift(1, UnitState::Throttled, UnitState::Idle, Instant::now());
        }
    }
}

/// A thread that decodes one sample after the other.
#[derive(Debug)]
pub(crate) struct DecodingThread<'t> {
    all: &'t DecodeThreads,
    number: usize,
    item_since: Instant,
    cpu_read: Instant,
    /// The state of the thread once this value is dropped.
    left_as: UnitState,
}

impl DecodingThread<'_> {
    fn thread(&self) -> &DecodeThread {
        &self.all.threads[self.number]
    }

    /// Returns how long the thread has to pause before its next item.
    pub(crate) fn due(&self) -> Option<Duration> {
        let owed = &self.thread().pace.lock().owed;
        if owed.is_zero() { None } else { owed.due(Instant::now()) }
    }

    /// Pauses before the next item as long as the budget asks for.
    pub(crate) fn pause_if_due(&mut self) {
        if let Some(pause) = self.due() {
            self.thread().unit.shift(1, UnitState::Busy, UnitState::Throttled, self.item_since);
            std::thread::sleep(pause);
            self.item_since = Instant::now();
            self.thread().unit.shift(1, UnitState::Throttled, UnitState::Busy, self.item_since);
        }
    }

    /// Ends an item and begins the next one. Returns how long it took.
    pub(crate) fn end_item(&mut self) -> Duration {
        let now = Instant::now();
        if now.saturating_duration_since(self.cpu_read) >= CPU_INTERVAL {
            self.count_cpu();
            self.cpu_read = now;
        }
        let begun = std::mem::replace(&mut self.item_since, now);
        let took = now.saturating_duration_since(begun);
        self.thread().pace.lock().owed.add(self.all.throttle.pause_for(took), begun, now);
        took
    }

    /// Leaves the thread free for other batches during its pause. It counts as throttled until it begins again, or is
    /// [unparked](DecodeThreads::unpark). Returns its number.
    pub(crate) fn park(mut self) -> usize {
        self.left_as = UnitState::Throttled;
        self.number
    }

    fn count_cpu(&self) {
        let cpu_ns = thread_cpu_ns();
        let counted = self.thread().cpu_ns.swap(cpu_ns, Relaxed);
        self.all.stage.add_cpu(Duration::from_nanos(cpu_ns.saturating_sub(counted)));
    }
}

impl Drop for DecodingThread<'_> {
    fn drop(&mut self) {
        self.count_cpu();
        let mut pace = self.thread().pace.lock();
        pace.is_parked = self.left_as == UnitState::Throttled;
        self.thread().unit.shift(1, UnitState::Busy, self.left_as, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use spdl_types::{Position, SessionId};

    use super::*;

    fn batch() -> BatchId {
        BatchId { session: SessionId(1), rank: 2, from: Position { epoch: 0, offset: 64 } }
    }

    fn rank(is_fed: bool, awaits_bytes: bool) -> RankActivity {
        RankActivity { is_fed, awaits_bytes, ready: 0 }
    }

    /// Returns which of decode's and fetch's idle units wait for output.
    fn wait_for_output(stages: &FeedStages) -> [bool; 2] {
        [&stages.decode, &stages.fetch].map(|stage| {
            let unit = stage.units().group(1, Instant::now());
            let before = stage.units().read(Instant::now()).0;
            let later = Instant::now() + Duration::from_secs(1);
            let after = stage.units().read(later).0;
            drop(unit);
            after.of(UnitState::Output) > before.of(UnitState::Output)
        })
    }

    #[test]
    fn idle_units_wait_for_bytes_if_a_batch_does_and_for_slots_otherwise() {
        let stages = FeedStages::default();
        assert_eq!(wait_for_output(&stages), [false, false], "no rank is fed");
        stages.change(RankActivity::default(), rank(true, true));
        assert_eq!(wait_for_output(&stages), [false, false]);
        stages.change(RankActivity::default(), rank(true, false));
        assert_eq!(wait_for_output(&stages), [false, false], "the other rank's batch waits for bytes");
        stages.change(rank(true, true), rank(true, false));
        assert_eq!(wait_for_output(&stages), [true, true]);
        stages.change(rank(true, false), RankActivity::default());
        stages.change(rank(true, false), RankActivity::default());
        assert_eq!(wait_for_output(&stages), [false, false]);
    }

    #[test]
    fn a_thread_is_busy_while_it_decodes_and_throttled_while_it_pauses() {
        let stages = FeedStages::default();
        let threads = DecodeThreads::new(&stages.decode, &Budget { cores: 1.5, ..Budget::default() });
        stages.record(100);
        let mut thread = threads.begin(1, batch());
        let (began, mut worked) = (Instant::now(), Duration::ZERO);
        assert_eq!(thread.due(), None);
        // A pause that is over by the time that the thread gets to it is none: the machine may be busy.
        while stages.decode.stats(Instant::now()).throttled_ns == 0 {
            std::hint::black_box((0..10_000u64).sum::<u64>());
            worked = began.elapsed();
            thread.end_item();
            if stages.decode.stats(Instant::now()).cpu_ns > 0 {
                thread.pause_if_due();
            }
        }
        drop(thread);
        let [(Stage::Decode, recording)] = &stages.take_recordings()[..] else { panic!("decode alone has units") };
        let states: Vec<UnitState> = recording.intervals.iter().map(|interval| interval.state).collect();
        let [waits, works, pauses, ..] = &recording.intervals[..] else { panic!("{recording:?}") };
        assert_eq!(states[..3], [UnitState::Input, UnitState::Busy, UnitState::Throttled], "{recording:?}");
        assert_eq!([waits, works, pauses].map(|interval| interval.batch), [None, Some(batch()), Some(batch())]);
        let stats = stages.decode.stats(Instant::now());
        let busy = recording.intervals.iter().filter(|interval| interval.state == UnitState::Busy);
        let busy_ns = busy.map(|interval| (interval.end - interval.start).as_nanos()).sum::<u128>();
        // The statistics were read after the last item had ended, which the thread reported only with its pause.
        assert!((1..=stats.busy_ns.into()).contains(&busy_ns), "{stats:?} {recording:?}");
        assert!(stats.busy_ns >= worked.as_nanos() as u64, "{stats:?}");
        assert!(stats.cpu_ns <= stats.busy_ns + 1_000_000, "one thread cannot use more: {stats:?}");
        assert_eq!((stats.units, stats.items), (2, 0));
    }

    #[test]
    fn a_parked_thread_is_throttled_until_it_begins_again_or_nothing_waits_for_it() {
        let stages = FeedStages::default();
        let threads = DecodeThreads::new(&stages.decode, &Budget { cores: 0.5, ..Budget::default() });
        let throttled = || {
            let later = Instant::now() + Duration::from_secs(1);
            let before = stages.decode.units().read(Instant::now()).0;
            stages.decode.units().read(later).0.of(UnitState::Throttled) > before.of(UnitState::Throttled)
        };
        let park = || threads.begin(0, batch()).park();
        assert_eq!(park(), 0);
        assert!(throttled());
        drop(threads.begin(0, batch()));
        assert!(!throttled(), "it had something else to do, and waits for more");
        park();
        park();
        assert!(throttled());
        threads.unpark(0);
        assert!(!throttled());
        threads.unpark(0);
        drop(threads.begin(0, batch()));
    }
}
