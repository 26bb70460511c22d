//! Keeps the process within its budget of cores: the decoding threads pause for any excess.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use spdl_accounting::{StageUnits, UnitState};

use crate::budget::Budget;

/// Shortest pause; shorter ones are added up, as the kernel adds 50 us to each.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// Lower bound of the cores that are left to decoding.
const MIN_CORES: f64 = 0.01;
/// How often a worker measures the CPU time of its other threads.
const MEASURE_INTERVAL: Duration = Duration::from_millis(250);
/// Weight of the newest measurement in the average.
const NEWEST_WEIGHT: f64 = 0.25;

/// Computes the pauses that keep the decoding threads within the budget.
#[derive(Debug)]
pub(crate) struct CpuThrottle {
    cores: f64,
    threads: f64,
    /// Average number of cores that all other threads use: the bits of an `f64`.
    others: AtomicU64,
}

/// What a decoding thread has to pause before its next item. Time without an item counts as a pause.
#[derive(Debug)]
pub(crate) struct OwedPause {
    owed: Duration,
    /// When the last item ended.
    since: Instant,
}

impl OwedPause {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { owed: Duration::ZERO, since: now }
    }

    pub(crate) const fn is_zero(&self) -> bool {
        self.owed.is_zero()
    }

    /// Returns the rest of the pause at `now`, between two items, if it is long enough to sleep for.
    pub(crate) fn due(&self, now: Instant) -> Option<Duration> {
        let left = self.left(now);
        (left >= MIN_PAUSE).then_some(left)
    }

    /// Adds the pause for an item that began at `begun` and has ended now.
    pub(crate) fn add(&mut self, pause: Duration, begun: Instant, now: Instant) {
        *self = Self { owed: self.left(begun) + pause, since: now };
    }

    fn left(&self, now: Instant) -> Duration {
        self.owed.saturating_sub(now.saturating_duration_since(self.since))
    }
}

impl CpuThrottle {
    pub(crate) fn new(budget: &Budget) -> Self {
        Self { cores: budget.cores, threads: budget.threads().get() as f64, others: AtomicU64::new(0) }
    }

    /// Returns how long a decoding thread has to pause for an item that took `busy`.
    pub(crate) fn pause_for(&self, busy: Duration) -> Duration {
        let share = (self.cores - self.others().max(0.0)).max(MIN_CORES);
        busy.mul_f64((self.threads / share - 1.0).max(0.0))
    }

    fn others(&self) -> f64 {
        f64::from_bits(self.others.load(Relaxed))
    }

    /// Records that the process used `cpu` while its decoding threads were busy for `busy`, during `over`. If the
    /// decoding threads had to wait for a core, the value for the others is negative; the average evens this out.
    fn observe(&self, cpu: Duration, busy: Duration, over: Duration) {
        let others = (cpu.as_secs_f64() - busy.as_secs_f64()) / over.as_secs_f64();
        let average = (1.0 - NEWEST_WEIGHT).mul_add(self.others(), NEWEST_WEIGHT * others);
        self.others.store(average.to_bits(), Relaxed);
    }

    /// Measures for ever what the process uses besides `decode`. Only for a process that does nothing else: in a
    /// training process, the trainer's own CPU time must not slow down the loader.
    pub(crate) async fn watch(&self, decode: &StageUnits) -> std::convert::Infallible {
        let now = || {
            let now = Instant::now();
            (now, process_cpu_time(), decode.read(now).0.of(UnitState::Busy))
        };
        let mut before = now();
        loop {
            tokio::time::sleep(MEASURE_INTERVAL).await;
            let after = now();
            self.observe(after.1.saturating_sub(before.1), after.2 - before.2, after.0 - before.0);
            before = after;
        }
    }
}

/// Returns the CPU time of this process, without its children.
pub(crate) fn process_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SAMPLE: Duration = Duration::from_micros(900);

    fn throttle(cores: f64) -> CpuThrottle {
        CpuThrottle::new(&Budget { cores, ..Budget::default() })
    }

    /// Decodes `samples` samples, one after the other, on a thread. Returns its pauses.
    fn pauses(throttle: &CpuThrottle, samples: u32) -> Vec<Duration> {
        let mut now = Instant::now();
        let (mut owed, mut pauses) = (OwedPause::new(now), Vec::new());
        for _ in 0..samples {
            if let Some(pause) = owed.due(now) {
                now += pause;
                pauses.push(pause);
            }
            owed.add(throttle.pause_for(SAMPLE), now, now + SAMPLE);
            now += SAMPLE;
        }
        pauses
    }

    /// Returns the fraction of the time in which the throttle lets its threads work.
    fn busy_part(throttle: &CpuThrottle) -> f64 {
        let pauses: Duration = pauses(throttle, 10_000).iter().sum();
        let busy = 10_000 * SAMPLE;
        busy.as_secs_f64() / (busy + pauses).as_secs_f64()
    }

    fn close(actual: f64, expected: f64) -> bool {
        (actual - expected).abs() < 0.001
    }

    #[test]
    fn threads_rest_where_they_are_more_than_the_cores() {
        for (cores, part) in
            [(0.0, 0.01), (0.5, 0.5), (0.8, 0.8), (1.0, 1.0), (1.9, 0.95), (2.0, 1.0), (7.5, 7.5 / 8.0)]
        {
            let actual = busy_part(&throttle(cores));
            assert!(close(actual, part), "{cores} cores: {actual}");
        }
    }

    #[test]
    fn what_the_other_threads_use_is_left_out_of_what_the_decoding_threads_may() {
        let over = Duration::from_secs(1);
        for (cores, part) in [(0.5, 0.2), (1.0, 0.7), (1.2, 0.45), (1.9, 0.8), (2.0, 0.85), (4.0, 3.7 / 4.0)] {
            let throttle = throttle(cores);
            (0..100).for_each(|_| throttle.observe(over.mul_f64(0.5), over.mul_f64(0.2), over));
            let actual = busy_part(&throttle);
            assert!(close(actual, part), "{cores} cores: {actual}");
        }
    }

    #[test]
    fn threads_that_wait_for_a_core_take_nothing_from_the_budget() {
        let throttle = throttle(1.0);
        let over = Duration::from_secs(1);
        (0..100).for_each(|_| throttle.observe(over.mul_f64(0.5), over.mul_f64(0.9), over));
        assert!(close(busy_part(&throttle), 1.0));
    }

    #[test]
    fn short_pauses_are_put_together() {
        let pauses = pauses(&throttle(0.9), 1000);
        assert!(pauses.len() > 50 && pauses.iter().all(|pause| *pause >= MIN_PAUSE), "{pauses:?}");
    }

    #[test]
    fn a_thread_that_had_nothing_to_do_owes_less() {
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let mut owed = OwedPause::new(now);
        owed.add(ms(10), now, now);
        assert_eq!(owed.due(now + ms(4)), Some(ms(6)));
        owed.add(ms(2), now + ms(7), now + ms(20));
        assert_eq!(owed.due(now + ms(20)), Some(ms(5)), "an item is no pause");
        assert_eq!(owed.due(now + ms(60)), None);
        owed.add(ms(2), now + ms(60), now + ms(61));
        assert_eq!(owed.due(now + ms(61)), Some(ms(2)), "what is left over is not saved");
    }

    #[tokio::test]
    async fn a_process_that_works_besides_decoding_is_seen_to() {
        let (throttle, decode) = (throttle(1.0), Arc::<StageUnits>::default());
        let working = async {
            while throttle.others() < 0.05 {
                std::hint::black_box((0..1_000_000u64).sum::<u64>());
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            never = throttle.watch(&decode) => match never {},
            () = working => {}
        }
    }
}
